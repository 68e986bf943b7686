"""MAST, the multi-agent spatial transformer, and the policies built on it.

Importing this package loads no torch: what needs it is fetched when first used, so that the configuration can be read
(and the command line can answer) quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mast_swarm.model.config import LPACConfig, PolicyConfig

if TYPE_CHECKING:
    from mast_swarm.model.policy import LPAC, Learned, Policy, load_learned, make

__all__ = ["LPAC", "LPACConfig", "Learned", "Policy", "PolicyConfig", "load_learned", "make"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from mast_swarm.model import policy

        return getattr(policy, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
