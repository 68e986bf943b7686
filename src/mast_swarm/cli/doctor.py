"""`mast doctor`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from mast_swarm.cli.reading import parse


@dataclass(frozen=True)
class DoctorConfig:
    """Versions, devices, threads, busy cores, extras and a self-test of some ten seconds, ready for a bug report."""

    json: bool = False
    """Print JSON."""
    quick: bool = False
    """Leave the self-test out."""


def doctor(args: list[str]) -> None:
    config = parse(DoctorConfig, args, "mast doctor")
    from mast_swarm.doctor import examine, healthy, lines

    def told(what: str) -> None:
        if sys.stderr.isatty():
            print(f"trying: {what} ...", file=sys.stderr)

    found = examine(not config.quick, told)
    print(json.dumps(found, indent=1) if config.json else "\n".join(lines(found)))
    if not healthy(found):
        raise SystemExit(1)
