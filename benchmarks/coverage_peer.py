"""The other side of benchmarks.coverage: times coverage-control 1.3.1 (GPL-3.0) in a process of its own.

Run by that environment's Python: coverage_peer.py STARTS.npz. Reads names of tasks from standard input, a line each,
and answers each with the median seconds of a few runs. `memory` is answered with the bytes that an environment added,
`value` with the cost itself; `walk` lets a control period pass.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
import time
import types
from collections.abc import Callable

import numpy as np
import torch

# Its compiled core alone: the package around it loads graph libraries that nothing here needs.
spec = importlib.util.find_spec("coverage_control")
package = types.ModuleType("coverage_control")
package.__path__ = list(spec.submodule_search_locations)
sys.modules["coverage_control"] = package
from coverage_control import _core as core  # noqa: E402


def seconds(run: Callable[[], object], times: int = 5) -> float:
    """Median of a few runs in a row."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Tasks:
    """One environment, and what is timed in it."""

    def __init__(self, path: str) -> None:
        with np.load(path) as starts:
            positions, side = starts["positions"], int(starts["side"])
            density = np.ascontiguousarray(starts["density"].T)  # it indexes maps [x, y]
        parameters = core.Parameters()
        parameters.pNumRobots, parameters.pWorldMapSize, parameters.pRobotMapSize = len(positions), side, side
        parameters.pCommunicationRange, parameters.pTimeStep, parameters.pUnknownImportance = 256.0, 0.2, 0.0
        world = core.WorldIDF(parameters, density)
        before = resident()
        self.system = core.CoverageSystem(parameters, world, core.PointVector(list(positions)))
        self.added = resident() - before
        self.robots = len(positions)
        self.clairvoyant_controller = core.ClairvoyantCVT(parameters, self.system)
        self.decentralized_controller = core.DecentralizedCVT(parameters, self.system)

    def cost(self) -> float:
        return self.system.GetObjectiveValue()

    def clairvoyant(self) -> None:
        self.clairvoyant_controller.ComputeActions()

    def walk(self) -> float:
        """One control period under the clairvoyant."""
        self.clairvoyant()
        self.system.StepActions(self.clairvoyant_controller.GetActions())
        return 0.0

    def d_cvt(self) -> None:
        self.decentralized_controller.ComputeActions()

    def maps(self) -> torch.Tensor:
        """The full-size maps of every robot, [N, 2, 256, 256]."""
        system = self.system
        pairs = [(system.GetRobotLocalMap(i), system.GetRobotObstacleMap(i)) for i in range(self.robots)]
        return torch.from_numpy(np.array(pairs))

    def observation(self) -> torch.Tensor:
        """The observation of all robots, [N, 4, 32, 32]."""
        resized = torch.nn.functional.interpolate(self.maps(), (32, 32), mode="bilinear", antialias=True)
        neighbours = torch.from_numpy(np.array(list(self.system.GetCommunicationMaps(32))))
        return torch.cat([resized, neighbours.view(self.robots, 2, 32, 32)], 1)


def main() -> None:
    torch.set_num_threads(1)
    tasks = Tasks(sys.argv[1])
    for line in sys.stdin:
        name = line.strip()
        if name == "memory":
            answer: float = tasks.added
        elif name == "value":
            answer = tasks.cost()
        elif name == "walk":
            answer = tasks.walk()
        else:
            answer = seconds(getattr(tasks, name))
        print(repr(float(answer)), flush=True)


if __name__ == "__main__":
    main()
