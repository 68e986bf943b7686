from mast_swarm.cli import main

main()
