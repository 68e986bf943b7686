"""`python -m mast_swarm` is the command `mast`."""

from mast_swarm.cli import main

main()
