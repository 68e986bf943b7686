"""Communication: the channel between robots, the relay of their messages, and what each robot makes of them.

Importing this package loads no torch: everything but `Channel` is fetched when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mast_swarm.comms.config import Channel

if TYPE_CHECKING:
    from mast_swarm.comms.decentral import DecentralPolicy
    from mast_swarm.comms.held import RelayState
    from mast_swarm.comms.relay import Relay

__all__ = ["Channel", "DecentralPolicy", "Relay", "RelayState"]


def __getattr__(name: str) -> Any:
    if name == "DecentralPolicy":
        from mast_swarm.comms.decentral import DecentralPolicy

        return DecentralPolicy
    if name == "Relay":
        from mast_swarm.comms.relay import Relay

        return Relay
    if name == "RelayState":
        from mast_swarm.comms.held import RelayState

        return RelayState
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
