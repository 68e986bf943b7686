"""`mast play`: finds the built page, adds policies of the user's own, and serves both until it is stopped."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import tempfile
from pathlib import Path
from typing import Any

from mast_swarm.errors import MastError
from mast_swarm.play.config import INDEX, POLICIES, SITE, PlayConfig
from mast_swarm.play.server import Files, folder_files, make_server, show


def site_files(policies: tuple[str, ...], made: Path, site: Path = SITE) -> Files:
    """What is served: the built page, and further policies that are exported into the folder `made`."""
    files = folder_files(site) if site.is_dir() else {}
    if "index.html" not in files:
        raise MastError(
            "the page is not built here: run `make web` in a checkout (it needs node and npm), or install a release "
            "with pip, which brings it"
        )
    listed = f"{POLICIES}/{INDEX}"
    known: list[dict[str, Any]] = json.loads(Path(site / listed).read_text("utf-8")) if listed in files else []
    wanted = [name for name in policies if name not in {one["name"] for one in known}]
    if not known or wanted:
        from mast_swarm.play.policies import SHOWN, export_policies

        print("exporting policies for the page ...", flush=True)
        known += export_policies([*(() if known else SHOWN), *wanted], made)
        for name, path in folder_files(made).items():
            files[f"{POLICIES}/{name}"] = path
        files[listed] = json.dumps(known).encode()
    return files


def play(config: PlayConfig) -> None:
    """Serve until Ctrl-C."""
    with contextlib.ExitStack() as stack:
        made = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mast-play-")))
        server = stack.enter_context(make_server(config.host, config.port, site_files(config.policy, made)))
        print(f"the playground is at {server.url} (Ctrl-C ends it)", flush=True)
        if not ipaddress.ip_address(str(server.server_address[0])).is_loopback:
            print("anyone who can reach this machine can open the page", flush=True)
        if config.open:
            show(server.url)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever(0.2)
