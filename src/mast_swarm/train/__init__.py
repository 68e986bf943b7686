"""Imitation learning: rollouts, replay, updates, checkpoints. `mast_swarm.train(...)` calls `train.run.train`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """The package and the public function have one name, so the package itself can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from mast_swarm.train.run import train

        return train(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
