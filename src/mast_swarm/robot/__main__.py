"""`python -m mast_swarm.robot`: the command `mast robot`, for machines without torch and tyro."""

from mast_swarm.robot.command import program

if __name__ == "__main__":
    program()
