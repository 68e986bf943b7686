"""MAST, the multi-agent spatial transformer, and the policies built on it.

Importing this package loads no torch: `Policy` and `zoo_names` are fetched when first used, so that the
configuration can be read (and the command line can answer) quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mast_swarm.model.config import PolicyConfig

if TYPE_CHECKING:
    from mast_swarm.model.policy import Policy, zoo_names

__all__ = ["Policy", "PolicyConfig", "zoo_names"]


def __getattr__(name: str) -> Any:
    if name in ("Policy", "zoo_names"):
        from mast_swarm.model import policy

        return getattr(policy, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
