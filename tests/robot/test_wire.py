"""The wire format: golden bytes, round trips, and bytes that nobody meant."""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.robot_security import fuzzed
from hypothesis import given, settings
from hypothesis import strategies as st

import golden
import teams
from mast_swarm.errors import MastError
from mast_swarm.robot import Format, model_hash
from mast_swarm.robot.handed import Handed
from mast_swarm.robot.survey import Survey
from mast_swarm.robot.wire import ENTRY, HEADER, SIGNATURE, Header

GOLDEN = json.loads(golden.FILE.read_text())


@pytest.mark.parametrize("name", golden.CASES)
def test_golden_bytes(name: str) -> None:
    """Bytes of an earlier release stay readable, and the same is written for the same (Ed25519 is deterministic)."""
    pytest.importorskip("cryptography", reason="signatures need the package cryptography")
    case, data = golden.CASES[name], bytes.fromhex(GOLDEN[name])
    form: Format = case["form"]
    assert golden.datagram(case) == data
    read = form.read(data)
    assert read.header == case["header"] and read.refused == []
    found = [(one.origin, one.stamp, tuple(one.position), tuple(one.message)) for one in read.entries]
    assert found == case["entries"]
    told = [
        (one.stamp, tuple(one.position), one.searching, one.frame, [*map(tuple, np.argwhere(one.marks(golden.ALONG)))])
        for one in read.maps
    ]
    assert told == ([case["map"]] if "map" in case else [])
    for one in (*read.entries, *read.maps):
        teams.key(one.origin).public_key().verify(one.signature, form.signed(one.body))


numbers = st.integers(0, 2**32 - 1)
places = st.floats(-1e9, 1e9)


@settings(deadline=None, max_examples=200)
@given(st.data(), st.sampled_from(["float16", "float32"]), st.integers(1, 316))
def test_round_trip(data: st.DataObject, kind: str, width: int) -> None:
    form = Format(data.draw(st.binary(min_size=8, max_size=8)), teams.MODEL, width, kind)
    header = Header(data.draw(numbers), data.draw(st.integers(1, 2**32 - 1)), data.draw(numbers), data.draw(numbers))
    entries = []
    for _ in range(data.draw(st.integers(0, min(form.fits, 4)))):
        rng = np.random.default_rng(data.draw(numbers))
        message = form.rounded(rng.normal(scale=100.0, size=width))
        position = np.array([data.draw(places), data.draw(places)])
        body = form.body(data.draw(numbers), data.draw(st.integers(0, 2**64 - 1)), position, message)
        entry = form.entry(body, data.draw(st.binary(min_size=SIGNATURE, max_size=SIGNATURE)))
        assert (entry.message == message).all() and (entry.position == position).all()
        entries.append(entry)
    packed = form.datagram(header, entries)
    assert len(packed) == HEADER.size + len(entries) * form.entry_size <= 1400
    read = form.read(packed)
    assert read.header == header and read.refused == []
    assert [(one.origin, one.stamp, one.packed) for one in read.entries] == [
        (one.origin, one.stamp, one.packed) for one in entries
    ]
    assert all((a.message == b.message).all() for a, b in zip(read.entries, entries, strict=True))


@pytest.mark.parametrize(
    ("width", "kind", "entry", "fits"),
    [(256, "float16", 608, 2), (256, "float32", 1120, 1), (32, "float16", 160, 8), (32, "float32", 224, 6)],
)
def test_what_fits_into_a_datagram(width: int, kind: str, entry: int, fits: int) -> None:
    """The sizes that docs/wire.md states: navigation's messages are 256 numbers, coverage's 32."""
    form = teams.form(width, kind=kind)
    assert (HEADER.size, ENTRY.size, form.entry_size, form.fits) == (40, 32, entry, fits)
    body = form.body(0, 0, np.zeros(2), np.zeros(width))
    batches = form.batches([form.entry(body, bytes(64))] * (2 * fits + 1))
    assert [len(batch) for batch in batches] == [fits, fits, 1]
    assert all(len(form.datagram(Header(0, 1), batch)) <= 1400 for batch in batches)


def test_entries_of_both_kinds_share_a_datagram() -> None:
    half, whole = teams.form(32), teams.form(32, kind="float32")
    entries = [form.entry(form.body(0, 0, np.zeros(2), np.ones(32)), bytes(64)) for form in (half, whole) * 4]
    batches = half.batches(entries)
    assert [len(batch) for batch in batches] == [7, 1]
    read = whole.read(half.datagram(Header(0, 1), batches[0]))
    assert [len(one.body) for one in read.entries] == [96, 160, 96, 160, 96, 160, 96] and read.refused == []


def good(width: int = 4) -> tuple[Format, bytes]:
    form = teams.form(width)
    entries = [form.entry(form.body(i, 5, np.ones(2), np.ones(width)), bytes(64)) for i in range(2)]
    return form, form.datagram(Header(1, 2), entries)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: b"", "truncated"),
        (lambda data: b"MA", "truncated"),
        (lambda data: b"MASK" + data[4:], "bad magic"),
        (lambda data: data[:4] + b"\x01" + data[5:], "other version"),
        (lambda data: data[:8] + b"another!" + data[16:], "other team"),
        (lambda data: data[:16] + b"another!" + data[24:], "other model"),
        (lambda data: data[:28] + bytes(4) + data[32:], "malformed"),
        (lambda data: data[:-1], "truncated"),
        (lambda data: data[:60], "truncated"),
        (lambda data: data + b"\0", "malformed"),
        (lambda data: data + bytes(1400), "oversized"),
        (lambda data: data[:5] + b"\x03" + data[6:], "truncated"),  # an entry more than there is
        (lambda data: data[:5] + b"\x01" + data[6:], "malformed"),  # and one less
        (lambda data: data[:44] + b"\x04" + data[45:], "malformed"),  # a kind of number that is none
        (lambda data: data[:44] + b"\x03" + data[45:], "malformed"),  # a map of 4 bytes
        (lambda data: data[:44] + b"\x03\x02\x08\0" + data[48:], "malformed"),  # neither searches nor does not
        (lambda data: data[:44] + b"\x03\x01\xff\xff" + data[48:], "truncated"),
        (lambda data: data[:45] + b"\x01" + data[46:], "malformed"),
        (lambda data: data[:46] + b"\x05\0" + data[48:], "malformed"),  # another width
        (lambda data: data[:56] + struct.pack("<d", float("nan")) + data[64:], "malformed"),
        (lambda data: data[:56] + struct.pack("<d", 1e300) + data[64:], "malformed"),
        (lambda data: data[:72] + b"\0\x7c" + data[74:], "malformed"),  # infinity in a message
    ],
)
def test_what_is_not_right_is_refused(change: Any, reason: str) -> None:
    form, data = good()
    assert form.read(data).refused == []
    read = form.read(change(data))
    assert read.refused == [reason]
    assert len(read.entries) < 2 or change(data)[:5] == data[:5]  # at most what stands before the fault


@settings(deadline=None, max_examples=100)
@given(
    along=st.integers(1, 200),
    seed=numbers,
    share=st.sampled_from([0.0, 1e-4, 0.1, 1.0]),
    size=st.integers(256, 1400),
    searching=st.booleans(),
)
def test_maps_go_round(along: int, seed: int, share: float, size: int, searching: bool) -> None:
    """A map of any size goes in parts that fit, and comes back whole."""
    form, marks = teams.form(4, size=size), np.random.default_rng(seed).random((2, along, along)) < share
    bodies = form.map_bodies(3, 7, np.array([1.5, -2.5]), searching, seed, marks)
    parts = [form.map_entry(body, bytes(64)) for body in bodies]
    assert len(parts) <= -(-along // form.map_rows(along))
    found, whole = np.zeros_like(marks), 0
    for number, batch in enumerate(form.batches(parts)):
        data = form.datagram(Header(3, number + 1), batch)
        read = form.read(data)
        assert len(data) <= size and read.refused == [] and read.entries == []
        for one in read.maps:
            got = one.marks(along)
            assert got is not None and one[:2] == (3, 7) and (one.searching, one.frame) == (searching, seed)
            assert one.position.tolist() == [1.5, -2.5]
            assert one.rows == 0 or one.marks(along + 8) is None  # of a map of another size
            found |= got
            whole += one.rows
    assert (found == marks).all() and whole <= along


def test_a_map_of_the_paper_fits_into_one_datagram() -> None:
    """What docs/wire.md states: 1,000 m and cells of 25 m."""
    form, marks = teams.form(256), np.ones((2, 52, 52), bool)
    (body,) = form.map_bodies(0, 0, np.zeros(2), False, 0, marks)
    assert len(body) + SIGNATURE == 32 + 8 + 676 + 64 and form.map_rows(52) == 52
    one = form.map_entry(body, bytes(64))
    assert one._replace(first=1).marks(52) is None and one._replace(bits=one.bits[1:]).marks(52) is None
    odd = form.map_entry(form.map_bodies(0, 0, np.zeros(2), False, 0, np.ones((2, 5, 5), bool))[0], bytes(64))
    assert odd.marks(5) is not None and odd._replace(bits=odd.bits[:-1] + b"\x07").marks(5) is None  # 50 bits
    with pytest.raises(MastError, match="a row of a map of 6000 x 6000 cells does not fit into datagrams of 1400"):
        form.map_rows(6000)
    for made, other in ((form.entry, body), (form.map_entry, form.body(0, 0, np.zeros(2), np.zeros(256)))):
        with pytest.raises(MastError, match="these bytes are"):
            made(other, bytes(64))


@pytest.mark.parametrize("mapped", [False, True])
def test_a_hundred_thousand_fuzzed_datagrams(mapped: bool) -> None:
    """No exception, no growth, nothing believed that was not signed: whatever arrives."""
    pytest.importorskip("cryptography", reason="signatures need the package cryptography")
    sender, receiver = (
        teams.node(trust, maps=Handed(Survey(25.0, 100.0), hop=10, again=10) if mapped else None)
        for trust in teams.trusts(3)[:2]
    )
    kept = 0
    for round in range(10):
        sender.control(round * 10, np.full(4, round), (1.0, 2.0))
        if sender.maps is not None:
            sender.maps.searched(round * 10, (1.0, 2.0), np.ones((1, 2)), np.zeros(2), np.ones(3))
        ((_, data),) = [one for one in sender.due(round * 10 + 10, [1]) if len(one[1]) > HEADER.size]
        if round == 9:  # what a node needs it has by now; tracing is slow
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
        for number in range(10_000):
            # A second passes between two datagrams, so that none is too much.
            receiver.on_datagram(0, fuzzed(round * 10_000 + number, data, 1500), 10**9 * (round * 10_000 + number))
            receiver.on_datagram(random.Random(number).randrange(2**40), data, 0) if number % 100 == 0 else None
        assert len(receiver._links) == 1 and len(receiver.due(10**15, [0])) <= 2
        kept = receiver.counters.entries_kept
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000
    assert kept <= 10  # bytes outside of what is signed may change: sequence and acknowledgement
    assert 0 <= receiver.counters.maps_kept <= 10 * mapped
    if receiver.maps is not None and sender.maps is not None:
        assert not (receiver.maps.survey.marks & ~sender.maps.survey.marks).any()  # no false mark
    assert set(teams.stamps(receiver.robot.known())) <= {0}
    counts = receiver.counters
    assert counts.datagrams_in > 100_000 and sum(counts.refused.values()) > 80_000
    assert {"bad magic", "truncated", "malformed", "bad signature", "other team", "oversized"} <= set(counts.refused)


def test_mistakes_of_this_robot_are_spoken_of() -> None:
    form = teams.form(4)
    for message, error in (
        (np.zeros(5), "has shape"),
        (np.array([0.0, np.nan, 0.0, 0.0]), "NaN, infinity or numbers too large for float16"),
        (np.full(4, 70_000.0), "too large for float16"),
    ):
        with pytest.raises(MastError, match=error):
            form.body(0, 0, np.zeros(2), message)
    assert teams.form(4, kind="float32").rounded(np.full(4, 70_000.0)).tolist() == [70_000.0] * 4
    with pytest.raises(MastError, match="expected metres"):
        form.body(0, 0, np.array([np.inf, 0]), np.zeros(4))
    for fields, error in (
        ({"width": 700}, "needs datagrams of 1536 bytes, and they have 1400"),
        ({"width": 4, "kind": "int8"}, "expected float16 or float32"),
        ({"width": 0}, "expected 1 to 65535"),
        ({"width": 4, "size": 70_000}, "at most 65507"),
    ):
        with pytest.raises(MastError, match=error):
            teams.form(**fields)
    with pytest.raises(MastError, match="team is b'short': expected 8 bytes"):
        Format(b"short", teams.MODEL, 4)


def test_the_hash_of_a_model_is_that_of_its_files(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"ab")
    two.write_bytes(b"c")
    found = model_hash(one, two)
    assert len(found) == 8 and found == model_hash(one, two) != model_hash(two, one)
    one.write_bytes(b"a")
    two.write_bytes(b"bc")
    assert model_hash(one, two) != found
    with pytest.raises(MastError, match="cannot read the model's file"):
        model_hash(tmp_path / "none")
