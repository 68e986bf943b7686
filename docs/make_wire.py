"""The blocks of docs/wire.md: byte tables, sizes and reasons from the code, an example from the golden bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable

from blocks import load, table

from mast_swarm.robot.node import REASONS
from mast_swarm.robot.survey import Survey
from mast_swarm.robot.wire import ENTRY, HEADER, MAP, ROWS, SIGNATURE, VERSION, Format

GOLDEN = "tests/robot/golden_wire.json"
HEADER_FIELDS = (
    ("magic", "4s", "the letters `MAST`"),
    ("version", "B", str(VERSION)),
    ("entries", "B", "how many entries follow, 0 to 255"),
    ("length", "H", "bytes of the whole datagram"),
    ("team", "8s", "the team's identity"),
    ("model", "8s", "hash of the weights: the first 8 bytes of SHA-256 over the model's files, each behind its length"),
    ("sender", "I", "number of the robot that sends this datagram"),
    ("sequence", "I", "counts the sender's datagrams to this receiver; begins anywhere, never 0"),
    ("acknowledged", "I", "the last sequence that the sender has from the receiver; 0: none"),
    ("before", "I", "bit k: the sender also has the sequence `acknowledged` - 1 - k"),
)
ENTRY_FIELDS = (
    ("origin", "I", "number of the robot that said it"),
    ("kind", "B", "how the numbers of the message are written: 1 float16, 2 float32"),
    ("zero", "B", "0"),
    ("width", "H", "how many numbers the message has; as the model demands"),
    ("stamp", "Q", "when it was said, nanoseconds since 1970 by the origin's clock"),
    ("x", "d", "where, metres"),
    ("y", "d", "where, metres"),
)
MAP_FIELDS = (
    ("origin", "I", "number of the robot whose map it is; the sender's"),
    ("kind", "B", str(MAP)),
    ("searches", "B", "1 if the robot goes to a cell since its last control instant, 0 if not"),
    ("bytes", "H", "how many bytes follow up to the signature"),
    ("stamp", "Q", "when it was sent, nanoseconds since 1970; the same in all parts of a map"),
    ("x", "d", "where the robot was at its last control instant, metres"),
    ("y", "d", "where, metres"),
    ("frame", "I", "CRC-32 of A (uint16), the metres of a cell, and x and y of the map's middle (float64 each)"),
    ("first", "H", "the first row in this part, from the south, 0 to A - 1"),
    ("rows", "H", "how many rows it has; 0: nothing is marked"),
)
TYPES = {"B": "uint8", "H": "uint16", "I": "uint32", "Q": "uint64", "d": "float64", "4s": "bytes", "8s": "bytes"}
assert "<" + "".join(kind for _, kind, _ in HEADER_FIELDS) == HEADER.format
assert "<" + "".join(kind for _, kind, _ in ENTRY_FIELDS) == ENTRY.format
assert "<" + "".join(kind for _, kind, _ in MAP_FIELDS) == ENTRY.format + ROWS.format[1:]


def header() -> str:
    rows, _ = _rows(HEADER_FIELDS)
    return table(["offset", "bytes", "field", "type", "meaning"], rows)


def entry() -> str:
    rows, at = _rows(ENTRY_FIELDS)
    rows.append([str(at), "2 or 4 per number", "message", "float16 or float32", "what was said; finite numbers"])
    rows.append([f"{at} + message", str(SIGNATURE), "signature", "bytes", "Ed25519, of the origin"])
    return table(["offset", "bytes", "field", "type", "meaning"], rows)


def part_of_map() -> str:
    rows, at = _rows(MAP_FIELDS)
    meaning = "of all its rows whether each cell is worth searching, then of all whether it has been searched"
    rows.append([str(at), "A rows / 4, rounded up", "marks", "bits", f"{meaning}; the lowest bit first, zeros behind"])
    rows.append([f"{at} + marks", str(SIGNATURE), "signature", "bytes", "Ed25519, of the origin"])
    return table(["offset", "bytes", "field", "type", "meaning"], rows)


def map_sizes() -> str:
    """Whole maps with all cells marked, with cells of 25 m."""
    form, rows = Format(bytes(8), bytes(8), 256), []
    for side in (400, 1000, 3162):
        survey = Survey(25.0, side)
        bodies = form.map_bodies(0, 0, survey.middle, False, 0, ~survey.marks)
        size = sum(HEADER.size + len(body) + SIGNATURE for body in bodies)
        rows.append([f"{side:,} m", f"{survey.along} x {survey.along}", str(len(bodies)), f"{size:,}"])
    return table(["side of the world", "cells of 25 m", "datagrams", "bytes to each neighbour, headers included"], rows)


def sizes() -> str:
    rows = []
    for what, width in (("navigation", 256), ("coverage", 32)):
        for kind in ("float16", "float32"):
            form = Format(bytes(8), bytes(8), width, kind)
            full = HEADER.size + form.fits * form.entry_size
            rows.append([what, f"{width} {kind}", str(form.entry_size), str(form.fits), str(full)])
    return table(["policy", "message", "bytes per entry", "entries per datagram", "bytes of a full datagram"], rows)


def example() -> str:
    """The first golden datagram, byte for byte."""
    data = bytes.fromhex(load(GOLDEN)["one entry"])
    rows, at = [], 0
    for name, kind, _ in (*HEADER_FIELDS, *ENTRY_FIELDS):
        size = struct.calcsize("<" + kind)
        (value,) = struct.unpack_from("<" + kind, data, at)
        rows.append(_row(at, data[at : at + size], name, repr(value)[1:] if isinstance(value, bytes) else str(value)))
        at += size
    ends = len(data) - SIGNATURE
    numbers = struct.unpack(f"<{(ends - at) // 2}e", data[at:ends])
    rows.append(_row(at, data[at:ends], "message", ", ".join(map(str, numbers))))
    rows.append(_row(ends, data[ends:], "signature", "over the bytes that are named below"))
    return "```text\n" + "\n".join(rows) + "\n```\n"


def reasons() -> str:
    return table(["counted as", "why"], [[f"`{reason}`", why] for reason, why in REASONS.items()])


def speed() -> str:
    found = load("benchmarks/results/wire.json")
    names = ("made_and_signed", "verified", "read", "read_verified_and_kept")
    head = [f"entries per second, one core ({found['machine']['cpu']})", *(name.replace("_", " ") for name in names)]
    rows = [
        [f"{row['width']} {row['kind']}", *(f"{row[f'{name}_per_second']:,}" for name in names)]
        for row in found["rows"]
    ]
    return table(head, rows)


def _rows(fields: tuple[tuple[str, str, str], ...]) -> tuple[list[list[str]], int]:
    rows, at = [], 0
    for name, kind, meaning in fields:
        size = struct.calcsize("<" + kind)
        rows.append([str(at), str(size), name, TYPES[kind], meaning])
        at += size
    return rows, at


def _row(at: int, data: bytes, name: str, value: str) -> str:
    first, *rest = [data[i : i + 16].hex(" ") for i in range(0, len(data), 16)]
    return "\n".join([f"{at:>3}  {first:<47}  {name} {value}", *(f"     {line}" for line in rest)])


NUMBERS: dict[str, Callable[[], str]] = {
    "wire-header": header,
    "wire-entry": entry,
    "wire-map": part_of_map,
    "wire-map-sizes": map_sizes,
    "wire-sizes": sizes,
    "wire-example": example,
    "wire-reasons": reasons,
    "wire-speed": speed,
}
