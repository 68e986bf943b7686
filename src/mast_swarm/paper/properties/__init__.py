"""What the paper states or draws and can be computed on the spot, one module each, in the order of the report."""

from mast_swarm.paper.properties import frequencies, starts, attention, symmetries  # noqa: F401, I001
