"""`mast doctor`. Runs where any package is missing, to say so."""

from __future__ import annotations

import argparse
import json
import sys

from mast_swarm.errors import plain

_ABOUT = "Versions, devices, threads, busy cores, extras and a self-test of some ten seconds, ready for a bug report."


def doctor(args: list[str]) -> None:
    parser = plain(argparse.ArgumentParser(prog="mast doctor", description=_ABOUT))
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help="leave the self-test out")
    config = parser.parse_args(args)
    from mast_swarm.doctor import examine, healthy, lines

    def told(what: str) -> None:
        if sys.stderr.isatty():
            print(f"trying: {what} ...", file=sys.stderr)

    found = examine(not config.quick, told)
    print(json.dumps(found, indent=1) if config.json else "\n".join(lines(found)))
    if not healthy(found):
        raise SystemExit(1)
