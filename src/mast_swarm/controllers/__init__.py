"""What drives robots without having been learned: assignment for navigation, Voronoi cells for coverage."""

from __future__ import annotations

from mast_swarm.controllers.assignment import Warm, assign
from mast_swarm.controllers.coverage import CentralizedCvt, Clairvoyant, DecentralizedCvt
from mast_swarm.controllers.navigation import Dhba, Lsap
from mast_swarm.controllers.registry import Controller, find, make, names, register

__all__ = [
    "CentralizedCvt",
    "Clairvoyant",
    "Controller",
    "DecentralizedCvt",
    "Dhba",
    "Lsap",
    "Warm",
    "assign",
    "find",
    "make",
    "names",
    "register",
]
