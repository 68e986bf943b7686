"""The datagrams whose bytes are kept in tests/robot/golden_wire.json.

`PYTHONPATH=tests python tests/golden.py` writes them anew: only together with a new version of the format.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import teams
from mast_swarm.robot import Entry, Format
from mast_swarm.robot.wire import Header, MapEntry

FILE = Path(__file__).parent / "robot" / "golden_wire.json"
SECOND = 10**9
# Fields of a header, the kind and count of a message's numbers, and entries: origin, stamp, position, message. A map
# has a stamp, a position, whether its robot searches, a frame, and the marks that are set: (mark, row, column).
CASES: dict[str, dict[str, Any]] = {
    "one entry": {
        "header": Header(sender=2, sequence=7, acknowledged=5, before=3),
        "form": teams.form(4),
        "entries": [(2, 1_800_000_000 * SECOND, (12.5, -3.25), (1.0, -2.0, 0.5, 0.0))],
    },
    "two entries, one relayed": {
        "header": Header(sender=2, sequence=8, acknowledged=6, before=0xFFFFFFFF),
        "form": teams.form(4),
        "entries": [
            (2, 1_800_000_001 * SECOND, (12.5, -3.25), (1.0, -2.0, 0.5, 0.0)),
            (258, 1_800_000_000 * SECOND + 1, (500_000.125, 5_000_000.25), (0.25, 65504.0, -0.125, 3.0)),
        ],
    },
    "float32": {
        "header": Header(sender=0, sequence=0xFFFFFFFF),
        "form": teams.form(3, kind="float32"),
        "entries": [(0, 0, (0.0, 1e-3), (1.5, -1e6, 0.125))],
    },
    "an acknowledgement alone": {
        "header": Header(sender=1, sequence=9, acknowledged=0xFFFFFFFF, before=1),
        "form": teams.form(4),
        "entries": [],
    },
    "a map behind an entry": {
        "header": Header(sender=2, sequence=10, acknowledged=9, before=7),
        "form": teams.form(4),
        "entries": [(2, 1_800_000_002 * SECOND, (12.5, -3.25), (1.0, -2.0, 0.5, 0.0))],
        "map": (1_800_000_002 * SECOND + 1, (12.5, -3.25), True, 0x01020304, [(0, 1, 0), (0, 3, 4), (1, 2, 2)]),
    },
}
ALONG = 5  # cells along a side of that map


def entries(case: dict[str, Any]) -> list[Entry]:
    """The entries of a case, signed by their origins."""
    form: Format = case["form"]
    made = []
    for origin, stamp, position, message in case["entries"]:
        body = form.body(origin, stamp, np.array(position), np.array(message))
        made.append(form.entry(body, teams.key(origin).sign(form.signed(body))))
    return made


def maps(case: dict[str, Any]) -> list[MapEntry]:
    """The map of a case, if it has one, signed by the robot that sends it."""
    if "map" not in case:
        return []
    form: Format = case["form"]
    stamp, position, searching, frame, cells = case["map"]
    marks = np.zeros((2, ALONG, ALONG), bool)
    marks[*np.transpose(cells)] = True
    sender = case["header"].sender
    bodies = form.map_bodies(sender, stamp, np.array(position), searching, frame, marks)
    return [form.map_entry(body, teams.key(sender).sign(form.signed(body))) for body in bodies]


def datagram(case: dict[str, Any]) -> bytes:
    return case["form"].datagram(case["header"], [*entries(case), *maps(case)])


if __name__ == "__main__":
    FILE.write_text(json.dumps({name: datagram(case).hex() for name, case in CASES.items()}, indent=1) + "\n")
