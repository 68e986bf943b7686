"""Sessions of Zenoh (`eclipse-zenoh`) between endpoints that are given: nothing is looked for on the network."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mast_swarm.errors import MastError
from mast_swarm.robot.extras import needed


def open_session(
    who: str, listen: Sequence[str], connect: Sequence[str], settings: Mapping[str, Any] | None = None
) -> Any:
    """A session for somebody, who is named in errors. listen, connect: endpoints, as "tcp/0.0.0.0:7447".

    settings: further settings of Zenoh, path -> value, as {"transport/link/tls/root_ca_certificate": "ca.pem"}."""
    zenoh = needed("zenoh", "eclipse-zenoh", "Zenoh needs")
    if not listen and not connect:
        raise MastError(f"{who} has no endpoints: give some to listen at or to connect to")
    chosen: dict[str, Any] = {
        "mode": "peer",
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "listen/endpoints": list(listen),
        "connect/endpoints": list(connect),
        "connect/timeout_ms": -1,  # for others that start later
        "connect/exit_on_failure": False,
        **(settings or {}),
    }
    try:
        config = zenoh.Config()
        for path, value in chosen.items():
            config.insert_json5(path, json.dumps(value))
        return zenoh.open(config)
    except zenoh.ZError as error:
        why = re.sub(r" at \S+\.rs:\d+\.?", "", str(error).splitlines()[0])  # places in Zenoh's sources
        what = "; give another address of this machine (--listen)" if "listener" in why else ""
        raise MastError(f"{who} cannot open Zenoh: {why}{what}") from None
