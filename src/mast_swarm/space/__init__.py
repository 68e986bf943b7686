"""Pure tensor functions on positions: nearest neighbours, communication graphs, components, hops."""

from __future__ import annotations

from mast_swarm.heap import keep_free_memory
from mast_swarm.space.cells import Cells
from mast_swarm.space.graph import Graph, components, hops, neighbour_graph, radius_graph, reachable
from mast_swarm.space.neighbours import counts_within, nearest, nearest_both, offsets

__all__ = [
    "Cells",
    "Graph",
    "components",
    "counts_within",
    "hops",
    "nearest",
    "nearest_both",
    "neighbour_graph",
    "offsets",
    "radius_graph",
    "reachable",
]

keep_free_memory()  # here, as every world and every policy loads this, and a robot's node, which has no torch, does not
