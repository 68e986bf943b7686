"""Imitation learning: rollouts, replay, updates, checkpoints. The package itself can be called:

    mast_swarm.train(TASK, out=None, *, recipe="best", resume=False, device="auto", checkpoint_seconds=60.0,
                     keep_replay=True, largest_replay=inf, **settings) -> folder of the run

    mast_swarm.train("navigation", recipe="tiny", epochs=5, agents=10)   # settings by name, as on the command line
    mast_swarm.train(None, "runs/mine", resume=True, epochs=10)          # goes on, longer than it was meant to

See `mast_swarm.train.run.train` and docs/training.md.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """The package and the public function have one name, so the package itself can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from mast_swarm.train.run import train

        return train(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        from mast_swarm.train.run import train

        return inspect.signature(train)


sys.modules[__name__].__class__ = _Callable
