"""Rollouts to tables: metrics, sweeps, results on disk. The package itself can be called:

    mast_swarm.evaluate(TASK, config=None, progress=..., **settings) -> folder of the results, summary

    folder, summary = mast_swarm.evaluate("navigation", policy=["mast-m", "dhba-8"], agents=50, episodes=9, delay=1.0)

Settings are those of `mast evaluate TASK --help`. See `mast_swarm.evaluate.run.evaluate`.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """The package and the public function have one name, so the package itself can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from mast_swarm.evaluate.run import evaluate

        return evaluate(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        from mast_swarm.evaluate.run import evaluate

        return inspect.signature(evaluate)


sys.modules[__name__].__class__ = _Callable
