"""Studies of how navigation is learned, one module each, in the order of the report."""

from mast_swarm.paper.study import encodings, wavelengths, teams, ours, training, search  # noqa: F401, I001
