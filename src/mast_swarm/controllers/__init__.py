"""What drives robots without having been learned: assignment controllers for navigation."""

from __future__ import annotations

from mast_swarm.controllers.assignment import Warm, assign
from mast_swarm.controllers.navigation import Dhba, Lsap
from mast_swarm.controllers.registry import Controller, find, make, names, register

__all__ = ["Controller", "Dhba", "Lsap", "Warm", "assign", "find", "make", "names", "register"]
