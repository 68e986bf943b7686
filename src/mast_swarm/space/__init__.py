"""Pure tensor functions on positions: nearest neighbours, communication graphs, components, hops."""

from __future__ import annotations

from mast_swarm.space.cells import Cells
from mast_swarm.space.graph import Graph, components, hops, neighbour_graph, radius_graph, reachable
from mast_swarm.space.neighbours import count_within, nearest, offsets

__all__ = [
    "Cells",
    "Graph",
    "components",
    "count_within",
    "hops",
    "nearest",
    "neighbour_graph",
    "offsets",
    "radius_graph",
    "reachable",
]
