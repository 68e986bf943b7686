"""The paper's experiments on coverage, one module each, in the order of the report."""

from mast_swarm.paper.coverage import curves, sides, grid, cities, windows, spacing  # noqa: F401, I001
