"""The paper's experiments on navigation (DAN), one module each, in the order of the report."""

from mast_swarm.paper.navigation import baselines, scenarios, delays, variants  # noqa: F401, I001
