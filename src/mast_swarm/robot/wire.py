"""The bytes that robots send each other. `docs/wire.md` is the page to implement it from in any language.

A datagram is a header, which its sender writes, and entries, which their origins wrote: an entry is passed on
unchanged, with its origin's signature, over any number of hops. An entry may also be a part of its sender's map, which
goes one hop: who hears it adds the marks to a map of its own. All numbers are little-endian and all fields have fixed
places. Nothing here raises on bytes that arrive: `read` gives what is good and the reasons for the rest.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mast_swarm.errors import MastError
from mast_swarm.robot.agent import News

MAGIC = b"MAST"
VERSION = 2
DATAGRAM = 1400  # bytes that pass every usual link in one piece, with room for the headers of IP, UDP and a tunnel
LARGEST = 65_507  # bytes of one UDP datagram
HASH = 8  # bytes of a team's identity, and of a model's hash
SIGNATURE = 64  # bytes, Ed25519
FARTHEST = 1e9  # metres from the origin: what is farther was not meant, and its square might be no number

# magic, version, entries, length of the datagram, team, model, sender, sequence, acknowledged, acknowledged before
HEADER = struct.Struct("<4sBBH8s8sIIII")
# origin, kind of number, zero, numbers of the message, stamp, position
ENTRY = struct.Struct("<IBBHQdd")
KINDS = {"float16": 1, "float32": 2}
# Of an entry that is a part of a map the kind is MAP, zero says whether its origin searches, and in place of a number
# of numbers stands that of the bytes which follow: the frame of the map, the first row and how many rows, and marks.
MAP = 3
ROWS = struct.Struct("<IHH")
_DTYPES: dict[int, np.dtype[Any]] = {1: np.dtype("<f2"), 2: np.dtype("<f4")}
_CONTEXT = struct.Struct("<4sB3x8s8s")  # what is signed in front of an entry: magic, version, team, model


class Entry(News):
    """News together with the bytes that carry it, which are its origin's own."""

    body: bytes  # what the origin signed, less team and model
    signature: bytes  # 64 bytes

    @property
    def packed(self) -> bytes:
        """As it stands in a datagram."""
        return self.body + self.signature


class MapEntry(NamedTuple):
    """Some rows of the map of the robot that sends it, and what that robot says of itself."""

    origin: int  # whose map it is
    stamp: int  # when it was sent, ticks
    position: np.ndarray  # where its origin was at its last control instant, [2] float64 metres
    searching: bool  # whether it searched then
    frame: int  # `Survey.frame` of the map
    first: int  # row
    rows: int
    bits: bytes  # marks [2, rows, A], of each byte the lowest bit first
    body: bytes
    signature: bytes

    @property
    def packed(self) -> bytes:
        """As it stands in a datagram."""
        return self.body + self.signature

    def marks(self, along: int) -> np.ndarray | None:
        """The marks [2, A, A] of a map of `along` (A) rows and columns; None: they do not fit it."""
        count = 2 * self.rows * along
        if self.first + self.rows > along or len(self.bits) != -(-count // 8):
            return None
        bits = np.unpackbits(np.frombuffer(self.bits, np.uint8), bitorder="little")
        if bits[count:].any():
            return None
        marks = np.zeros((2, along, along), bool)
        marks[:, self.first : self.first + self.rows] = bits[:count].reshape(2, self.rows, along)
        return marks


class Header(NamedTuple):
    """What the sender of a datagram says. Nobody signs it: it decides nothing but what is sent again."""

    sender: int
    sequence: int  # datagrams that the sender has sent to this receiver, this one included; 32 bits
    acknowledged: int = 0  # the last sequence that the sender has from the receiver; 0: none
    before: int = 0  # bit k: it also has the sequence `acknowledged - 1 - k`


class Read(NamedTuple):
    """What is in a datagram: its header if that is good, the good entries, and why others are refused."""

    header: Header | None
    entries: list[Entry]
    maps: list[MapEntry]
    refused: list[str]


@dataclass(frozen=True)
class Format:
    """What all datagrams of one team that runs one model have in common.

    width: numbers of a message. kind: how a robot writes its own, float16 or float32; it reads both.
    size: bytes of a datagram at most.
    """

    team: bytes
    model: bytes
    width: int
    kind: str = "float16"
    size: int = DATAGRAM

    def __post_init__(self) -> None:
        for name, given in (("team", self.team), ("model", self.model)):
            if not isinstance(given, bytes) or len(given) != HASH:
                raise MastError(f"{name} is {given!r}: expected {HASH} bytes")
        if self.kind not in KINDS:
            raise MastError(f"messages are to be '{self.kind}': expected {' or '.join(KINDS)}")
        if not 1 <= self.width < 1 << 16:
            raise MastError(f"a message has {self.width} numbers: expected 1 to {(1 << 16) - 1}")
        if self.size > LARGEST:
            raise MastError(f"datagrams of {self.size} bytes: expected at most {LARGEST}, which is what UDP carries")
        if self.fits < 1:
            least = HEADER.size + self.entry_size
            raise MastError(
                f"a message of {self.width} numbers as {self.kind} needs datagrams of {least} bytes, and they have "
                f"{self.size}: use float16 or larger datagrams"
            )

    @property
    def entry_size(self) -> int:
        """Bytes of an entry as this robot writes it."""
        return ENTRY.size + self.width * _DTYPES[KINDS[self.kind]].itemsize + SIGNATURE

    @property
    def fits(self) -> int:
        """How many such entries go into one datagram."""
        return (self.size - HEADER.size) // self.entry_size

    def rounded(self, message: np.ndarray) -> np.ndarray:
        """A message [d_msg] as others will read it, float32: a robot decides on what it tells them."""
        found = np.asarray(message)
        if found.shape != (self.width,):
            raise MastError(f"a message has shape {found.shape}: expected [{self.width}]")
        with np.errstate(over="ignore"):
            rounded = found.astype(self.kind).astype(np.float32)
        if not np.isfinite(rounded).all():
            raise MastError(f"a message holds NaN, infinity or numbers too large for {self.kind}")
        return rounded

    def body(self, origin: int, stamp: int, position: np.ndarray, message: np.ndarray) -> bytes:
        """An entry without its signature. position: [2] metres; message: [d_msg]."""
        x, y = _place(position)
        kind = KINDS[self.kind]
        values = self.rounded(message).astype(_DTYPES[kind]).tobytes()
        return ENTRY.pack(origin, kind, 0, self.width, stamp, x, y) + values

    def map_rows(self, along: int) -> int:
        """How many rows of a map of `along` columns go into one entry; an error if not one does."""
        rows = (self.size - HEADER.size - ENTRY.size - ROWS.size - SIGNATURE) * 8 // (2 * along)
        if rows < 1:
            raise MastError(
                f"a row of a map of {along} x {along} cells does not fit into datagrams of {self.size} bytes: use "
                "larger cells"
            )
        return min(rows, along)

    def map_bodies(
        self, origin: int, stamp: int, position: np.ndarray, searching: bool, frame: int, marks: np.ndarray
    ) -> list[bytes]:
        """Entries that carry the marks [2, A, A] of a map, without their signatures. Rows above and below all marks are
        left out, so there is one entry at least, and it may have no rows."""
        x, y = _place(position)
        marked = np.flatnonzero(marks.any((0, 2)))
        begin, end = (int(marked[0]), int(marked[-1]) + 1) if len(marked) else (0, 0)
        bodies, most = [], self.map_rows(marks.shape[1])
        for first in range(begin, max(end, begin + 1), most):
            part = marks[:, first : min(first + most, end)]
            content = ROWS.pack(frame, first, part.shape[1]) + np.packbits(part, bitorder="little").tobytes()
            bodies.append(ENTRY.pack(origin, MAP, searching, len(content), stamp, x, y) + content)
        return bodies

    def signed(self, body: bytes) -> bytes:
        """What the origin of an entry signs: the entry, bound to this version, team and model."""
        return _CONTEXT.pack(MAGIC, VERSION, self.team, self.model) + body

    def entry(self, body: bytes, signature: bytes) -> Entry:
        """An entry from its bytes. They must be good, as those that `body` made are."""
        found = self.decode(body + signature, 0)
        if isinstance(found, str) or not isinstance(found[0], Entry):
            raise MastError(f"these bytes are no entry: {found if isinstance(found, str) else 'they are of a map'}")
        return found[0]

    def map_entry(self, body: bytes, signature: bytes) -> MapEntry:
        """A part of a map from its bytes. They must be good, as those that `map_bodies` made are."""
        found = self.decode(body + signature, 0)
        if isinstance(found, str) or not isinstance(found[0], MapEntry):
            raise MastError(f"these bytes are of no map: {found if isinstance(found, str) else 'they are an entry'}")
        return found[0]

    def datagram(self, header: Header, entries: Iterable[Entry | MapEntry]) -> bytes:
        """One datagram. The entries must fit: see `batches`."""
        packed = [entry.packed for entry in entries]
        length = HEADER.size + sum(map(len, packed))
        if length > self.size or len(packed) > 255:
            raise MastError(f"{len(packed)} entries make {length} bytes: expected at most {self.size}, and 255 entries")
        return HEADER.pack(MAGIC, VERSION, len(packed), length, self.team, self.model, *header) + b"".join(packed)

    def batches(self, entries: Iterable[Entry | MapEntry]) -> list[list[Entry | MapEntry]]:
        """Entries in their order, as many together as fit into one datagram."""
        batches: list[list[Entry | MapEntry]] = []
        room = 0
        for entry in entries:
            need = len(entry.body) + SIGNATURE
            if need > room or len(batches[-1]) == 255:
                batches.append([])
                room = self.size - HEADER.size
            batches[-1].append(entry)
            room -= need
        return batches

    def read(self, data: bytes) -> Read:
        """What is in a datagram, whatever it is. Signatures are not looked at here."""
        refused = self._refused(data)
        if refused is not None:
            return Read(None, [], [], [refused])
        _, _, count, length, _, _, *fields = HEADER.unpack_from(data)
        entries: list[Entry] = []
        maps: list[MapEntry] = []
        at = HEADER.size
        for _ in range(count):
            found = self.decode(data, at)
            if isinstance(found, str):
                return Read(Header(*fields), entries, maps, [found])
            entry, at = found
            if isinstance(entry, Entry):
                entries.append(entry)
            else:
                maps.append(entry)
        return Read(Header(*fields), entries, maps, [] if at == length else ["malformed"])

    def decode(self, data: bytes, at: int) -> tuple[Entry | MapEntry, int] | str:
        """The entry at a place of a datagram, and the place after it; or why there is none."""
        if len(data) < at + ENTRY.size:
            return "truncated"
        origin, kind, zero, numbers, stamp, x, y = ENTRY.unpack_from(data, at)
        if kind == MAP:
            return _decoded_map(data, at)
        if kind not in _DTYPES or zero != 0 or numbers != self.width:
            return "malformed"
        dtype = _DTYPES[kind]
        ends = at + ENTRY.size + self.width * dtype.itemsize
        if len(data) < ends + SIGNATURE:
            return "truncated"
        message = np.frombuffer(data, dtype, self.width, at + ENTRY.size).astype(np.float32)
        if not (abs(x) <= FARTHEST and abs(y) <= FARTHEST and np.isfinite(message).all()):
            return "malformed"
        entry = Entry(origin, stamp, np.array([x, y], dtype=np.float64), message)
        entry.body, entry.signature = bytes(data[at:ends]), bytes(data[ends : ends + SIGNATURE])
        return entry, ends + SIGNATURE

    def _refused(self, data: bytes) -> str | None:
        """Why a whole datagram is refused; None: it is not."""
        if len(data) > self.size:
            return "oversized"
        if data[:4] != MAGIC[: len(data)]:
            return "bad magic"
        if len(data) < HEADER.size:
            return "truncated"
        _, version, _, length, team, model, _, sequence, *_ = HEADER.unpack_from(data)
        if version != VERSION:
            return "other version"
        if team != self.team:
            return "other team"
        if model != self.model:
            return "other model"
        if len(data) != length:
            return "truncated" if len(data) < length else "malformed"
        return "malformed" if sequence == 0 else None


def _place(position: np.ndarray) -> tuple[float, float]:
    """A position [2] metres that can be sent."""
    x, y = (float(value) for value in position)
    if not (abs(x) <= FARTHEST and abs(y) <= FARTHEST):
        raise MastError(f"a position is ({x}, {y}): expected metres, at most {FARTHEST:g}")
    return x, y


def _decoded_map(data: bytes, at: int) -> tuple[MapEntry, int] | str:
    """As `Format.decode`, for a part of a map."""
    origin, _, searching, size, stamp, x, y = ENTRY.unpack_from(data, at)
    content, ends = at + ENTRY.size, at + ENTRY.size + size
    if searching > 1 or size < ROWS.size or not (abs(x) <= FARTHEST and abs(y) <= FARTHEST):
        return "malformed"
    if len(data) < ends + SIGNATURE:
        return "truncated"
    frame, first, rows = ROWS.unpack_from(data, content)
    bits, body = bytes(data[content + ROWS.size : ends]), bytes(data[at:ends])
    signature = bytes(data[ends : ends + SIGNATURE])
    place = np.array([x, y], dtype=np.float64)
    return MapEntry(origin, stamp, place, searching == 1, frame, first, rows, bits, body, signature), ends + SIGNATURE


def model_of(data: bytes) -> bytes:
    """The model that the header of a datagram names; the datagram has a whole header."""
    return HEADER.unpack_from(data)[5]


def model_hash(*files: Path) -> bytes:
    """The hash of a model from the files that it is made of, in a fixed order: 8 bytes that tell weights apart.

    It guards against mistakes. It is not secret: that an entry comes from the team, its signature says.
    """
    digest = hashlib.sha256()
    for file in files:
        try:
            content = Path(file).read_bytes()
        except OSError as error:
            raise MastError(f"cannot read the model's file {file}: {error.strerror}") from None
        digest.update(struct.pack("<Q", len(content)) + content)
    return digest.digest()[:HASH]
