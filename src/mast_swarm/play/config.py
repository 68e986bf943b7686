"""Settings of `mast play`. No torch here: the command line reads these for its help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mast_swarm.errors import MastError

PORT = 8642


@dataclass(frozen=True)
class PlayConfig:
    """Serve the playground, a page on which you drag, kill and cut off robots while they decide in your browser."""

    host: str = "127.0.0.1"
    """The address to serve on; the default is this machine alone, 0.0.0.0 lets others in."""
    port: Annotated[int | None, tyro.conf.DisallowNone, tyro.conf.arg(help_behavior_hint="")] = None
    """The port; unset: 8642, or the next one that is free."""
    policy: Annotated[tuple[str, ...], tyro.conf.arg(help_behavior_hint="")] = ()
    """Further MAST policies to choose from, each a folder, or TASK/NAME of a shipped one (needs the extra `export`)."""
    open: bool = True
    """Open the page in the browser."""

    def __post_init__(self) -> None:
        if self.port is not None and not 0 <= self.port <= 65535:
            raise MastError(f"--port {self.port}: expected a number from 0 (any free one) to 65535")


SITE = Path(__file__).parent / "site"
POLICIES = "policies"  # the folder of exported policies in a site
INDEX = "policies.json"  # what there is in it
