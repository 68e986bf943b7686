"""`mast robot`: one robot alone, with a body from a user's file. Needs no torch, and nothing but the extra `robot`."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mast_swarm.errors import MastError, MastWarning, plain, unknown
from mast_swarm.robot.body import Body
from mast_swarm.robot.exported import Exported, read_manifest
from mast_swarm.robot.log import Log
from mast_swarm.robot.node import Node
from mast_swarm.robot.pilot import SECOND, Pace, Pilot, Step
from mast_swarm.robot.stamps import Stamps
from mast_swarm.robot.transport import Transport
from mast_swarm.robot.trust import TEAM_FILE, Team, Trust, folder_of
from mast_swarm.robot.udp import UDP
from mast_swarm.robot.wire import HASH, Format
from mast_swarm.robot.zenoh import Zenoh

TRANSPORTS = ("udp", "zenoh")
_LEAVING = 1.0  # seconds that threads of a body may outlive the command


@dataclass(frozen=True)
class Settings:
    """One robot of a team: who it is, what it runs, and how it reaches the others."""

    folder: str
    """What `mast export` wrote."""
    robot: int
    """Its number."""
    listen: str
    """Where it listens, HOST:PORT."""
    peers: Mapping[int, str] = field(default_factory=dict)
    """The others, number -> HOST:PORT."""
    team: str | None = None
    """The team's folder or file; None: messages are neither signed nor verified."""
    key: str | None = None
    """Its key file; None: that in the team's folder."""
    transport: str = "udp"
    """udp or zenoh."""
    pace: Pace = field(default_factory=Pace)
    """When it does what."""
    relay_radius: float | None = None
    """Metres: news from farther is neither kept nor passed on."""
    max_age: float | None = None
    """Seconds of the mission: older news is neither kept nor passed on."""
    safe: float | None = None
    """Metres that centres of robots are kept apart by the safety layer; None: there is none."""
    float32: bool = False
    """Write messages as float32; else as float16."""
    stamps: str | None = None
    """Where its stamps are remembered; None: nowhere."""
    map_side: float | None = None
    """Metres of the square that the team searches, for policies with a map; None: that of the policy's world."""
    map_middle: Sequence[float] = (0.0, 0.0)
    """The middle of that square, metres in the team's frame."""


def open_robot(
    settings: Settings,
    body: Body,
    *,
    on_step: Callable[[Step], None] | None = None,
    through: Callable[[Transport], Transport] = lambda network: network,
    say: Callable[[str], None] | None = None,
) -> Pilot:
    """A robot that is ready to run. through: what its transport is put into, for simulated networks."""
    policy = Exported(settings.folder)
    if "decide" not in policy.manifest["functions"]:
        floats = policy.manifest.get("exchange", {}).get("floats", 0)
        raise MastError(
            f"a policy of kind {policy.manifest['kind']} is not run on robots: each of its exchanges carries "
            f"{floats:,} numbers to every neighbour, which no datagram holds; give a MAST policy"
        )
    if settings.robot in settings.peers:
        raise MastError(f"robot {settings.robot} is among its own peers: give it as --robot, and the others as --peer")
    everyone = sorted({settings.robot, *settings.peers})
    if settings.team is None:
        trust = Trust.unsigned(hashlib.sha256(b"unsigned").digest()[:HASH], settings.robot, everyone)
    else:
        trust = Trust.load(Path(settings.team), settings.robot, None if settings.key is None else Path(settings.key))
    for peer in settings.peers:
        trust.team.check(peer)
    form = Format(
        trust.team.identity,
        policy.model,
        policy.manifest["d_msg"],
        kind="float32" if settings.float32 else "float16",
    )
    age = settings.max_age
    network = through(_network(settings, trust.team.identity))
    try:
        stamps = Stamps(None if settings.stamps is None else Path(settings.stamps))
        node = Node(
            trust,
            form,
            policy.perceive,
            policy.predict,
            now=time.time_ns(),
            hop=settings.pace.node_hop,
            again=settings.pace.node_again,
            relay_radius=settings.relay_radius,
            max_age=None if age is None else round(age / settings.pace.speed * SECOND),
            stamps=stamps,
            maps=settings.pace.handed(policy.survey(settings.map_side, settings.map_middle)),
            say=say,
        )
        hooks: Any = {"on_step": on_step, "say": say, "team": _changes(settings.team)}
        return Pilot(body, policy, node, network, settings.pace, peers=settings.peers, safe=settings.safe, **hooks)
    except MastError:
        network.close()
        raise


def _changes(team: str | None) -> Callable[[], Team | None]:
    """What gives the team of a file or folder when that has changed since it was last asked."""
    if team is None:
        return lambda: None
    file = Path(team) / TEAM_FILE if Path(team).is_dir() else Path(team)

    def when() -> tuple[int, int] | None:
        try:
            found = file.stat()
        except OSError:  # just being replaced
            return None
        return found.st_mtime_ns, found.st_size

    last = when()

    def changed() -> Team | None:
        nonlocal last
        now = when()
        if now is None or now == last:
            return None
        last = now
        return Team.load(file)

    return changed


def _network(settings: Settings, team: bytes) -> Transport:
    if settings.transport == "udp":
        addresses = {robot: address(given) for robot, given in settings.peers.items()}
        return UDP(settings.robot, {**addresses, settings.robot: address(settings.listen)})
    if settings.transport != "zenoh":
        raise unknown("transport", settings.transport, TRANSPORTS)
    # Of two robots one calls the other, so that there is one connection between them.
    others = [endpoint(given) for robot, given in sorted(settings.peers.items()) if robot < settings.robot]
    return Zenoh(settings.robot, team, listen=[endpoint(settings.listen)], connect=others)


def address(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT; [HOST]:PORT for numbers of IPv6."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        raise MastError(f"'{text}' is no address: expected HOST:PORT, as 192.168.1.13:7000")
    return host.removeprefix("[").removesuffix("]"), int(port)


def endpoint(text: str) -> str:
    """HOST:PORT as Zenoh names it; what names a protocol itself (tls/HOST:PORT) stays."""
    if "/" in text:
        return text
    address(text)
    return f"tcp/{text}"


def load_body(reference: str, robot: int, options: Mapping[str, str]) -> Body:
    """The body that "file.py:Class" or "module:Class" names, made with the options, and `robot` where it takes one."""
    place, _, name = reference.rpartition(":")
    if not place:
        raise MastError(f"'{reference}' is no body: expected file.py:Class")
    try:
        if place.endswith(".py"):
            found = importlib.util.spec_from_file_location("mast_body", place)
            if found is None or found.loader is None or not Path(place).is_file():
                raise MastError(f"there is no file '{place}' to take the body from")
            module = importlib.util.module_from_spec(found)
            sys.modules["mast_body"] = module
            found.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
        kind = getattr(module, name, None)
    except MastError:
        raise
    except Exception as error:  # whatever a user's file raises
        raise MastError(f"the body's file '{place}' cannot be used: {type(error).__name__}: {error}") from error
    if kind is None:
        raise unknown(f"body in '{place}'", name, [one for one in vars(module) if not one.startswith("_")])
    try:
        given: dict[str, Any] = dict(options)
        if "robot" in inspect.signature(kind).parameters:
            given["robot"] = robot
        return kind(**given)
    except Exception as error:
        raise MastError(f"the body {name} cannot be made: {error}") from error


def run(args: Sequence[str], prog: str = "mast robot") -> None:
    """The command: returns when the robot was told to stop, raises a MastError when it has to."""
    given = _parser(prog).parse_args(list(args))
    if (given.team is None) is not given.unsigned:
        raise MastError(
            "give --team DIR, so that messages are signed and verified; or --unsigned, in a closed room"
            if given.team is None
            else "--unsigned has no use for a --team: give one of the two"
        )
    peers = {}
    for text in given.peer:
        number, _, at = text.partition("=")
        if not number.isascii() or not number.isdigit() or not at:
            raise MastError(f"--peer {text}: expected NUMBER=HOST:PORT, as 4=192.168.1.14:7000")
        if int(number) in peers:
            raise MastError(f"--peer {text}: robot {number} was given already")
        peers[int(number)] = at
    options = {}
    for text in given.body_option:
        name, found, value = text.partition("=")
        if not found or not name.isidentifier():
            raise MastError(f"--body-option {text}: expected NAME=VALUE")
        options[name] = value
    stamps = given.stamps
    if stamps is None and given.team is not None:
        stamps = str(folder_of(given.team) / f"robot-{given.robot}.stamp")
    settings = Settings(
        folder=given.folder,
        robot=given.robot,
        listen=given.listen,
        peers=peers,
        team=given.team,
        key=given.key,
        transport=given.transport,
        pace=Pace(
            _rate(given.folder) if given.rate is None else given.rate, given.hop, given.patience, seed=given.seed
        ),
        relay_radius=given.relay_radius,
        max_age=given.max_age,
        safe=_distance(given.folder) if given.safe == 0 else given.safe,
        float32=given.float32,
        stamps=stamps,
        map_side=given.map_side,
        map_middle=_point(given.map_middle),
    )
    with _leaving(), contextlib.nullcontext() if given.log is None else Log(given.log, given.robot) as log:
        body = load_body(given.body, given.robot, options)
        try:
            pilot = open_robot(settings, body, on_step=log)
        except MastError:
            with contextlib.suppress(Exception):  # whatever a user's body raises
                getattr(body, "close", lambda: None)()
            raise
        others = f"talks to {_listed(peers)}" if peers else "alone, without --peer"
        print(
            f"robot {given.robot}: {pilot.policy.manifest['policy']}, {given.transport} at {given.listen}, {others}, "
            f"{settings.pace.rate:g} decision{'s' if settings.pace.rate != 1 else ''} per second",
            flush=True,
        )
        pilot.run()


@contextlib.contextmanager
def _leaving() -> Iterator[None]:
    """Afterwards the process ends when its main thread does, even if a body has left threads that go on.

    A robot that has said why it stops is to be gone, so that whoever watches over it can start it again.
    """

    def leave() -> None:
        threading.main_thread().join()
        ends = time.monotonic() + _LEAVING
        for one in left:
            one.join(max(0.0, ends - time.monotonic()))
        if any(one.is_alive() for one in left):
            atexit._run_exitfuncs()  # bodies may turn motors off there
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    before, status = set(threading.enumerate()), 2
    try:
        yield
        status = 0
    finally:
        left = [one for one in threading.enumerate() if one not in before and not one.daemon]
        if left:
            threading.Thread(target=leave, name="leaving", daemon=True).start()


def _listed(peers: Mapping[int, str]) -> str:
    """Robots in words, few by their numbers."""
    if len(peers) > 5:
        return f"{len(peers)} others"
    *others, last = (str(robot) for robot in sorted(peers))
    return f"robots {', '.join(others)} and {last}" if others else f"robot {last}"


def _point(text: str) -> tuple[float, float]:
    """X,Y in metres."""
    try:
        x, y = (float(part) for part in text.split(","))
    except ValueError:
        raise MastError(f"--map-middle {text}: expected X,Y in metres, as 500000,4000000") from None
    return x, y


def _rate(folder: str) -> float:
    """Control instants per second, as the policy was trained."""
    control = read_manifest(Path(folder)).get("control")
    if control is None:
        raise MastError("the manifest does not say how often the policy decides: give --rate")
    return 1 / control["dt_s"]


def _distance(folder: str) -> float:
    """Metres that centres of robots keep apart, as the policy's world has them: twice the radius of a robot."""
    radius = (read_manifest(Path(folder))["observation"]["world"] or {}).get("robot_radius")
    if radius is None:
        raise MastError("the manifest does not say how large robots are: give --safe METRES, twice their radius")
    return 2 * radius


def program(args: Sequence[str] | None = None) -> None:
    """As a program of its own: errors and warnings in one line."""
    with warnings.catch_warnings():
        plain_warnings()
        try:
            run(sys.argv[1:] if args is None else args, "python -m mast_swarm.robot")
        except MastError as error:
            print(f"mast: {error}", file=sys.stderr)
            raise SystemExit(2) from None
        except KeyboardInterrupt:
            raise SystemExit(130) from None


def plain_warnings() -> None:
    """Warnings of this package as one line, without the place in the code."""
    before = warnings.showwarning

    def show(message: Any, category: Any, *rest: Any, **more: Any) -> None:
        if issubclass(category, MastWarning):
            print(f"mast: warning: {message}", file=sys.stderr, flush=True)
        else:
            before(message, category, *rest, **more)

    warnings.showwarning = show


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = plain(argparse.ArgumentParser(prog=prog, description="Run one robot of a team, with a body of yours."))
    add = parser.add_argument
    add("folder", metavar="DIR", help="what `mast export` wrote")
    add("--robot", type=int, required=True, help="its number in the team")
    add("--body", required=True, metavar="FILE.py:CLASS", help="what senses and moves: see docs/robots.md")
    add("--body-option", action="append", default=[], metavar="NAME=VALUE", help="given to the class; repeat it")
    add("--listen", required=True, metavar="HOST:PORT", help="where it listens")
    add("--peer", action="append", default=[], metavar="N=HOST:PORT", help="another robot; repeat it for each")
    add("--team", metavar="DIR", help="folder of the team, or its team.json (`mast team new` makes one)")
    add("--key", metavar="FILE", help="its key file; else that in the team's folder")
    add("--unsigned", action="store_true", help="neither sign nor verify messages, in a closed room")
    add("--transport", choices=TRANSPORTS, default="udp", help="what carries messages (udp)")
    add("--rate", type=float, metavar="HZ", help="decisions per second; else as the policy was trained")
    add("--hop", type=float, default=0.1, metavar="S", help="seconds between two rounds of messages (0.1)")
    add("--patience", type=float, default=2.0, metavar="S", help="seconds that the body may take to answer (2)")
    add("--relay-radius", type=float, metavar="M", help="keep and pass on no news from farther than this")
    add("--max-age", type=float, metavar="S", help="keep and pass on no news that is older")
    add(
        "--safe",
        type=float,
        nargs="?",
        const=0.0,
        metavar="M",
        help="run the safety layer: keep the robot's centre this far from those that its body senses (twice the radius "
        "of a robot, where the policy's world has one)",
    )
    add("--seed", type=int, default=0, help="of the mission, the same for all: how robots explore (0)")
    add("--map-side", type=float, metavar="M", help="side of the square that robots search, where the policy has a map")
    add("--map-middle", default="0,0", metavar="X,Y", help="its middle in the team's frame, the same for all (0,0)")
    add("--float32", action="store_true", help="write messages as float32, not as float16")
    add("--log", metavar="FILE.mcap", help="write what it does to a file that Foxglove opens; needs the package mcap")
    add("--stamps", metavar="FILE", help="where its stamps are remembered; else robot-N.stamp beside team.json")
    return parser
