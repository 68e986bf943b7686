"""What attackers reach: python -m benchmarks.robot_security [--fuzzed 1000000] [--seconds 10].

Three parts: a thousand datagrams of each attack against a robot that would use and pass on what it believes; fuzzed
datagrams; and a flood over UDP from an address of the team, with the news of others and the control instants as they
are with it and without. The file is benchmarks/results/robot-security.json; what it holds is not done again.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import resource
import socket
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kept import command
from benchmarks.measure import line, machine
from mast_swarm.errors import MastError
from mast_swarm.robot import UDP, Counters, Entry, Format, Limits, Node, Team, Trust
from mast_swarm.robot.wire import HEADER, Header

SECOND = 10**9
WIDTH = 256
ROBOTS, REVOKED, VICTIM, BAD, BEHIND = 10, 9, 1, 0, 2  # robot 0 attacks robot 1, and robot 2 hears robot 1
FORM = Format(b"secure-8", b"model-08", WIDTH)


@cache
def key(robot: int) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(bytes([robot, *range(31)]))


@cache
def team() -> Team:
    keys = {robot: key(robot).public_key().public_bytes_raw() for robot in range(ROBOTS)}
    return Team(FORM.team, keys, frozenset([REVOKED]))


def node(robot: int, **rules: Any) -> Node:
    """A robot that says what it senses, and whose command is what it knows."""
    given: dict[str, Any] = {"now": 0, "hop": SECOND // 4, "say": lambda line: None, **rules}
    return Node(Trust(team(), robot, key(robot)), FORM, np.asarray, list, **given)


def entry(luck: random.Random, origin: int, stamp: int, signer: int | None = None, form: Format = FORM) -> Entry:
    """What an origin says, signed by it or by another."""
    place = np.array([luck.uniform(-500, 500), luck.uniform(-500, 500)])
    message = np.random.default_rng(luck.getrandbits(32)).normal(size=WIDTH)
    body = form.body(origin, stamp, place, message)
    return form.entry(body, key(origin if signer is None else signer).sign(form.signed(body)))


def sent(sequence: int, *entries: Entry, form: Format = FORM, sender: int = BAD) -> bytes:
    return form.datagram(Header(sender, sequence), entries)


OTHER_MODEL, OTHER_TEAM = replace(FORM, model=b"weights2"), replace(FORM, team=b"nobodies")
Attack = Callable[[random.Random, int, int, bytes], bytes]


def _forged(luck: random.Random, number: int, now: int, old: bytes) -> bytes:
    return sent(number, entry(luck, luck.randrange(2, ROBOTS - 1), now, signer=BAD))


def _replayed(luck: random.Random, number: int, now: int, old: bytes) -> bytes:
    return sent(number, FORM.entry(old[:-64], old[-64:]))


def _flipped(luck: random.Random, number: int, now: int, old: bytes) -> bytes:
    data = bytearray(sent(number, entry(luck, 3, now)))
    data[luck.randrange(HEADER.size, len(data))] ^= 1 << luck.randrange(8)
    return bytes(data)


def _truncated(luck: random.Random, number: int, now: int, old: bytes) -> bytes:
    data = sent(number, entry(luck, 3, now))
    return data[: luck.randrange(4, len(data))]


def _oversized(luck: random.Random, number: int, now: int, old: bytes) -> bytes:
    data = sent(number, entry(luck, 3, now))
    return data + luck.randbytes(luck.randrange(FORM.size - len(data) + 1, 60_000))


def _other(form: Format) -> Attack:
    def made(luck: random.Random, number: int, now: int, old: bytes) -> bytes:
        return sent(number, entry(luck, 3, now, form=form), form=form)

    return made


def _revoked(luck: random.Random, number: int, now: int, old: bytes) -> bytes:
    return sent(number, entry(luck, REVOKED, now))


ATTACKS: dict[str, Attack] = {
    "forged origin": _forged,
    "replayed": _replayed,
    "one bit of an entry turned over": _flipped,
    "truncated": _truncated,
    "oversized": _oversized,
    "other model": _other(OTHER_MODEL),
    "other team": _other(OTHER_TEAM),
    "revoked robot": _revoked,
}


def attacked(name: str, count: int = 1000) -> dict[str, Any]:
    """How many datagrams of an attack are used or passed on, and how each is counted. A second passes between two, in
    which robot 3 says something true."""
    luck = random.Random(name)
    victim, behind = node(VICTIM, limits=Limits(skew=5 * SECOND)), node(BEHIND)
    said: set[bytes] = set()
    refused: dict[str, int] = {}
    true_ones = used = relayed = 0
    old = b""
    for number in range(1, count + 1):
        now = 10 * number * SECOND
        victim.control(now, np.zeros(WIDTH), (0.0, 0.0))
        own = victim.robot.known()[0]
        assert isinstance(own, Entry)
        true = entry(luck, 3, now)
        said |= {true.packed, own.packed}
        victim.on_datagram(3, sent(number, true, sender=3), now)
        bad = ATTACKS[name](luck, number, now + SECOND, old or true.packed)
        before = victim.counters.refused.copy()
        victim.on_datagram(BAD, bad, now + 2 * SECOND)
        for reason, more in (victim.counters.refused - before).items():
            refused[reason] = refused.get(reason, 0) + more
        known = [one.packed for one in victim.robot.known() if isinstance(one, Entry)]
        true_ones += true.packed in known
        used += len(set(known) - said)
        for to, data in victim.due(now + 3 * SECOND, [BAD, BEHIND, 3]):
            relayed += len({one.packed for one in FORM.read(data).entries} - said)
            if to == BEHIND:
                behind.on_datagram(VICTIM, data, now + 3 * SECOND)
        used += len({one.packed for one in behind.robot.known() if isinstance(one, Entry)} - said)
        old = true.packed
    return {
        "attack": name,
        "sent": count,
        "used": used,
        "passed_on": relayed,
        "counted": sum(refused.values()),
        "counted_as": dict(sorted(refused.items(), key=lambda item: -item[1])),
        "true_ones_kept": true_ones,
    }


def fuzzed(seed: int, data: bytes, largest: int) -> bytes:
    """Bytes of a datagram, changed in ways that bytes are changed in; or any bytes."""
    luck = random.Random(seed)
    kind = luck.randrange(6)
    if kind == 0:
        return luck.randbytes(luck.randrange(largest))
    changed = bytearray(data)
    if kind in (1, 2):
        for _ in range(luck.randint(1, 8)):
            changed[luck.randrange(len(changed))] = luck.randrange(256)
    elif kind == 3:
        del changed[luck.randrange(len(changed)) :]
    elif kind == 4:
        at = luck.randrange(len(changed))
        changed[at:at] = luck.randbytes(luck.randrange(100))
    else:  # right up to a place behind the header, and any bytes from there on
        at = luck.randrange(HEADER.size, len(changed))
        changed[at:] = luck.randbytes(len(changed) - at)
    return bytes(changed)


def fuzz(count: int, say: Callable[[str], None] = print) -> dict[str, Any]:
    """What `count` changed datagrams do to a robot, from team members and from strangers; memory before and after."""
    victim, luck = node(VICTIM), random.Random(0)
    good: list[bytes] = []
    exceptions = 0
    rss: list[int] = []
    traced = 0
    for number in range(count):
        if number == count // 10:
            rss.append(_resident())
        if number == count - 2 * (count // 10):  # tracing is slow; what it holds is made anew until it is counted
            tracemalloc.start()
        if number == count - count // 10:
            rss.append(_resident())
            traced = tracemalloc.get_traced_memory()[0]
        if number % 1000 == 0:  # newer ones than those that came through
            said = [entry(luck, origin, (number + 1) * SECOND) for origin in (BAD, 3, 4)]
            good = [sent(1, one) for one in said]
            victim.due(number * SECOND, [BEHIND])  # it passes on what it believes, as robots do
        data = fuzzed(number, good[number % 3], 1500)
        peer = luck.randrange(2**40) if number % 50 == 0 else number % ROBOTS if number % 10 == 0 else BAD
        try:
            victim.on_datagram(peer, data, number * SECOND)
        except Exception:
            exceptions += 1
        if number % 100_000 == 99_999:
            say(f"{number + 1} of {count} fuzzed datagrams")
    grown = tracemalloc.get_traced_memory()[0] - traced
    tracemalloc.stop()
    false = [one for one in victim.robot.known() if isinstance(one, Entry) and not _true(one)]
    return {
        "datagrams": count,
        "exceptions": exceptions,
        "false_news": len(false),
        "refused": dict(sorted(victim.counters.refused.items())),
        "resident_growth_bytes": rss[1] - rss[0],
        "traced_growth_bytes": grown,
        "traced_over": count // 10,
    }


def _true(one: Entry) -> bool:
    """Whether its origin has signed it, by its private key rather than by what the robot under attack does."""
    return key(one.origin).sign(FORM.signed(one.body)) == one.signature  # Ed25519 signs the same the same way


def _resident() -> int:
    """Bytes of memory that this process has now."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


FLOODS = ("none", "garbage", "repeated", "bad signatures", "signed")
_PATIENCE = 300  # seconds that processes may take to start
PERIOD = 0.5  # seconds between two control instants
HONEST = (3, 4, 5, 6, 7, 8)


def flooded(kind: str, seconds: float) -> dict[str, Any]:
    """How old the news of honest robots is, and how late control instants are, while robot 0 floods over UDP."""
    addresses = {robot: ("127.0.0.1", port) for robot, port in zip((BAD, VICTIM, *HONEST), _ports(8), strict=True)}
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    others = [context.Process(target=_honest, args=(addresses, stop), daemon=True)]
    if kind != "none":
        others.append(context.Process(target=_flood, args=(kind, addresses, stop), daemon=True))
    port, victim = UDP(VICTIM, addresses), node(VICTIM, now=time.time_ns())
    try:
        for process in others:
            process.start()
        silent = {*HONEST, *([] if kind == "none" else [BAD])}
        deadline = time.monotonic() + _PATIENCE
        while silent:  # until all have been heard
            for peer, data in port.poll(0.1):
                silent.discard(peer)
                victim.on_datagram(peer, data, time.time_ns())
            if time.monotonic() > deadline:
                raise MastError(f"nothing came from robots {sorted(silent)} in {_PATIENCE} s: is the machine too busy?")
        victim.counters = Counters()
        ages, late = _lived(victim, port, seconds)
    finally:
        stop.set()
        for process in others:
            process.join(10)
        port.close()
    counters: Counters = victim.counters
    return {
        "flood": kind,
        "seconds": seconds,
        "datagrams_per_second": round(counters.datagrams_in / seconds),
        "rate_limited": counters.refused["rate limited"],
        "bad_signatures": counters.refused["bad signature"],
        "honest_known": len({one.origin for one in victim.robot.known()} & set(HONEST)),
        "age_median_s": round(float(np.median(ages)), 3) if ages else None,
        "age_99_s": round(float(np.quantile(ages, 0.99)), 3) if ages else None,
        "late_median_ms": round(1e3 * float(np.median(late)), 2),
        "late_worst_ms": round(1e3 * max(late), 2),
        "deadlines_missed": sum(one > PERIOD for one in late),
        "instants": len(late),
    }


def _lived(victim: Node, port: UDP, seconds: float) -> tuple[list[float], list[float]]:
    """The victim's loop: ages of honest robots' news at each instant, and how long after it the command was there."""
    ages: list[float] = []
    late: list[float] = []
    begun, instant = time.monotonic(), 0
    backlog: list[tuple[int, bytes]] = []
    while instant * PERIOD < seconds:
        now = time.monotonic()
        if now >= begun + instant * PERIOD:
            victim.control(time.time_ns(), np.zeros(WIDTH), (0.0, 0.0))
            late.append(time.monotonic() - begun - instant * PERIOD)
            known = victim.ages(time.time_ns())
            ages += [known[robot] / SECOND for robot in HONEST if robot in known]
            for to, data in victim.due(time.time_ns(), HONEST):
                port.send(data, to)
            instant += 1
        until = begun + instant * PERIOD
        backlog = backlog or port.poll(max(0.0, min(0.05, until - time.monotonic())))[::-1]
        while backlog and time.monotonic() < until:
            peer, data = backlog.pop()
            victim.on_datagram(peer, data, time.time_ns())
    return ages, late


def _honest(addresses: dict[int, tuple[str, int]], stop: Any) -> None:
    """Robots that tell the victim where they are, twice a second."""
    nodes = [node(robot, now=time.time_ns(), hop=1) for robot in HONEST]
    ports = [UDP(robot, addresses) for robot in HONEST]
    while not stop.wait(PERIOD):
        for one, port in zip(nodes, ports, strict=True):
            now = time.time_ns()
            for peer, data in port.poll():
                one.on_datagram(peer, data, now)
            one.control(now, np.zeros(WIDTH), (float(one.name), 0.0))
            for to, data in one.due(now + 1, [VICTIM]):
                port.send(data, to)
    for port in ports:
        port.close()


def _flood(kind: str, addresses: dict[int, tuple[str, int]], stop: Any) -> None:
    """As much as one process sends."""
    luck, port = random.Random(0), UDP(BAD, addresses)
    once, number = entry(luck, BAD, time.time_ns()), 0
    while not stop.is_set():
        number += 1
        if kind == "garbage":
            data = luck.randbytes(1400)
        elif kind == "repeated":
            data = sent(number, once)
        else:
            body = FORM.body(BAD if kind == "signed" else 3, time.time_ns(), np.zeros(2), np.zeros(WIDTH))
            signature = key(BAD).sign(FORM.signed(body)) if kind == "signed" else bytes(64)
            data = sent(number, FORM.entry(body, signature))
        port.send(data, VICTIM)
    port.close()


def _ports(count: int) -> list[int]:
    """Ports of this machine that nobody uses."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    found = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return found


@dataclass(frozen=True)
class Config:
    """Attacks, fuzzed datagrams and floods against one robot."""

    attacks: int = 1000
    """Datagrams of each attack."""
    fuzzed: int = 1_000_000
    """Fuzzed datagrams."""
    seconds: float = 10.0
    """Seconds of each flood."""
    out: Path = Path(__file__).parent / "results" / "robot-security.json"
    """Where the results go."""


def main(config: Config) -> None:
    """Do what is not in the file yet; every part is written when it is done."""
    result: dict[str, Any] = {"benchmark": "robot_security", "machine": machine(), "attacks": [], "floods": []}
    if config.out.exists():
        result = json.loads(config.out.read_text())

    def save(found: dict[str, Any]) -> None:
        print(line(found), flush=True)
        config.out.parent.mkdir(parents=True, exist_ok=True)
        part = config.out.with_suffix(".part")
        part.write_text(json.dumps(result, indent=1) + "\n")
        part.replace(config.out)

    for name in ATTACKS:
        if name not in [row["attack"] for row in result["attacks"]]:
            result["attacks"].append(attacked(name, config.attacks))
            save(result["attacks"][-1])
    for kind in FLOODS:
        if kind not in [row["flood"] for row in result["floods"]]:
            result["floods"].append(flooded(kind, config.seconds))
            save(result["floods"][-1])
    if "fuzz" not in result:
        result["fuzz"] = fuzz(config.fuzzed, lambda line: print(line, flush=True))
        save(result["fuzz"])


if __name__ == "__main__":
    command(main, Config, "robot_security")
