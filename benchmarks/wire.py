"""How many entries one core signs, verifies and reads per second: python -m benchmarks.wire.

An entry is one robot's news. The widths are those of the shipped policies: 256 numbers for navigation, 32 for coverage.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.measure import benchmark, medians
from mast_swarm.robot import Entry, Format, Node, Team, Trust
from mast_swarm.robot.wire import Header

TEAM, MODEL, MANY = b"team-of8", b"model-08", 200


def measured(width: int, kind: str) -> dict[str, Any]:
    """Entries per second, and bytes."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    keys = [Ed25519PrivateKey.generate() for _ in range(2)]
    team = Team(TEAM, {i: key.public_key().public_bytes_raw() for i, key in enumerate(keys)})
    trust, form = Trust(team, 0, keys[0]), Format(TEAM, MODEL, width, kind)
    message = np.random.default_rng(0).normal(size=width)

    def signed(stamp: int) -> Entry:
        body = form.body(0, stamp, np.zeros(2), message)
        return form.entry(body, trust.sign(form.signed(body)))

    entries = [signed(stamp) for stamp in range(MANY)]
    datagrams = [form.datagram(Header(0, i + 1), [entry]) for i, entry in enumerate(entries)]
    checks = [(form.signed(entry.body), entry.signature) for entry in entries]

    def hear() -> None:
        node = Node(Trust(team, 1, keys[1]), form, np.asarray, len, now=0, hop=10**9)
        for datagram in datagrams:
            node.on_datagram(0, datagram, 10**9)
        assert node.counters.entries_kept == MANY

    found = medians(
        {
            "made_and_signed": lambda: [signed(stamp) for stamp in range(MANY)],
            "verified": lambda: [trust.verify(0, *check) for check in checks],
            "read": lambda: [form.read(datagram) for datagram in datagrams],
            "read_verified_and_kept": hear,
        },
        burst=1,
    )
    rates = {f"{name}_per_second": round(MANY / seconds) for name, seconds in found.items()}
    sizes = {"entry_bytes": form.entry_size, "entries_per_datagram": form.fits}
    return {"width": width, "kind": kind, **sizes, **rates}


def main() -> dict[str, Any]:
    return {"rows": [measured(width, kind) for width in (256, 32) for kind in ("float16", "float32")]}


if __name__ == "__main__":
    benchmark("wire", __doc__, main)
