"""Communication: the channel between robots, the relay of their messages, and what each robot makes of them.

Importing this package loads no torch: everything but `Channel` is fetched when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mast_swarm.comms.config import Channel

if TYPE_CHECKING:
    from mast_swarm.comms.decentral import DecentralPolicy
    from mast_swarm.comms.relay import Relay, RelayState

__all__ = ["Channel", "DecentralPolicy", "Relay", "RelayState"]


def __getattr__(name: str) -> Any:
    if name == "DecentralPolicy":
        from mast_swarm.comms.decentral import DecentralPolicy

        return DecentralPolicy
    if name in ("Relay", "RelayState"):
        from mast_swarm.comms import relay

        return getattr(relay, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
