"""What faults of the network, of clocks and of robots do to a team: python -m benchmarks.robot_faults [--seeds 100].

Fifty robots look for fifty goals for 200 s. Each has the node that runs on real robots: signed datagrams, its own
trust, its own stamps, over the virtual network, whose clock moves only when told. All faults have the same starts.
Each finished run is a row in benchmarks/results/robot-faults.json; the same command goes on where it stopped.

Three things are done once for the whole team rather than once in each robot, because they give the same there: what
the bytes of an entry say, whether they are rightly signed, and what the same weights make of what each robot holds (the
batched computation of `mast_swarm.comms`, which tests hold equal to one robot's).
"""

from __future__ import annotations

import json
import multiprocessing
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kept import command
from benchmarks.measure import machine
from mast_swarm.errors import MastError
from mast_swarm.robot import Entry, Exported, Faults, Format, Node, Team, Trust, VirtualNetwork, model_hash

SECOND = 10**9
ROBOTS, SECONDS = 50, 200
POLICY = "navigation/mast-m"
QUICK = SECOND // 100  # what the network takes


@dataclass(frozen=True)
class Trouble:
    """What goes wrong in a run."""

    words: str
    network: Faults = field(default_factory=lambda: Faults(delay=QUICK))
    killed: float = 0.0  # share of the robots that stop for good, each at a random time
    parted: tuple[int, int] | None = None  # from when to when, seconds, a random half hears nothing of the other
    skew: int = 0  # ticks that a robot's clock is off, at most
    max_age: int | None = None  # ticks after which robots forget news


TROUBLES = {
    "none": Trouble("no fault"),
    "loss": Trouble("30 % of the datagrams are lost", Faults(delay=QUICK, loss=0.3)),
    "killed": Trouble("20 % of the robots are killed at random times", killed=0.2),
    "killed-forgotten": Trouble("the same, and robots forget news older than 30 s", killed=0.2, max_age=30 * SECOND),
    "partition": Trouble("for 40 s a random half hears nothing of the other", parted=(60, 100)),
    "corruption": Trouble("5 % of the datagrams are changed on the way", Faults(delay=QUICK, corruption=0.05)),
    "disorder": Trouble(
        "20 % come twice, 20 % are held back for 0.7 s, up to 0.2 s of jitter",
        Faults(delay=QUICK, jitter=SECOND // 5, duplication=0.2, reordering=0.2, hold=7 * SECOND // 10),
    ),
    "skew": Trouble("each clock is off by up to 1 s", skew=SECOND),
}


@dataclass(frozen=True)
class RememberingFormat(Format):
    """Reads the same entry once for the whole team."""

    known: dict[bytes, Entry] = field(default_factory=dict)

    def decode(self, data: bytes, at: int) -> tuple[Entry, int] | str:
        ends = at + self.entry_size
        entry = self.known.get(data[at:ends])
        if entry is not None:
            return entry, ends
        found = super().decode(data, at)
        if not isinstance(found, str) and found[1] == ends:
            self.known[data[at:ends]] = found[0]
        return found


class Remembering(Trust):
    """Checks real signatures, and of the same bytes once for the whole team."""

    def __init__(self, team: Team, robot: int, private: Any, known: dict[tuple[int, bytes, bytes], bool]) -> None:
        super().__init__(team, robot, private)
        self._known = known

    def verify(self, origin: int, signed: bytes, signature: bytes) -> bool:
        asked = (origin, signed, signature)
        if asked not in self._known:
            self._known[asked] = super().verify(*asked)
        return self._known[asked]


class Run:
    """One team in one trouble. robots, seconds: smaller for tests."""

    def __init__(self, trouble: Trouble, seed: int, robots: int = ROBOTS) -> None:
        import torch

        from mast_swarm.tasks.navigation.config import NavigationConfig
        from mast_swarm.tasks.navigation.world import Navigation

        torch.set_num_threads(1)
        self.trouble, self.seed, self.robots = trouble, seed, robots
        self.world = Navigation(NavigationConfig(agents=robots))
        scenario = self.world.config.scenarios(seed + 1)[seed]
        self.state = self.world.reset([seed], [scenario])
        self.policy, self.exported, self.model = _policy()
        luck = random.Random(f"{seed} of a run")
        self.killed_at = {robot: luck.uniform(0, SECONDS) for robot in luck.sample(range(robots), robots)}
        for robot in list(self.killed_at)[round(trouble.killed * robots) :]:
            del self.killed_at[robot]
        self.halves = [set(luck.sample(range(robots), robots // 2))]
        self.halves.append(set(range(robots)) - self.halves[0])
        self.clock = [luck.randint(-trouble.skew, trouble.skew) for _ in range(robots)]
        self.network = VirtualNetwork(trouble.network, seed=seed)
        self.ports = [self.network.join(robot) for robot in range(robots)]
        self.alive = np.ones(robots, bool)
        self.said: dict[tuple[int, int], bytes] = {}  # what each robot has really said
        self.newest = np.full((robots, robots), -1, np.int64)  # stamps [holder, origin] at the last instant
        self.went_back = self.false = self.commands = 0
        self.nodes = self._made()

    def _made(self) -> list[Node]:
        team, keys = _team(self.robots)
        form = RememberingFormat(team.identity, self.model, self.policy.config.message_width)
        known: dict[tuple[int, bytes, bytes], bool] = {}
        # A message makes one hop per second, in rounds half-way between control instants; see `Node`.
        rules: dict[str, Any] = {"hop": SECOND // 4, "again": 3 * SECOND // 4, "max_age": self.trouble.max_age}
        return [
            Node(
                Remembering(team, robot, keys[robot], known),
                form,
                np.asarray,
                list,  # what a robot holds; commands come of it below
                now=10 * SECOND + self.clock[robot],
                say=lambda line: None,
                **rules,
            )
            for robot in range(self.robots)
        ]

    def run(self, seconds: int = SECONDS) -> dict[str, Any]:
        """What came of it."""
        success = [self._success()]
        for second in range(seconds):
            self._control(second)
            for share in (0.25, 0.5, 0.51, 0.52, 0.75):
                self._exchange(10 * SECOND + second * SECOND + round(share * SECOND), tell=share == 0.5)
            success.append(self._success())
        ages = self._ages(10 * SECOND + (seconds - 1) * SECOND)
        refused: dict[str, int] = {}
        for node in self.nodes:
            for reason, count in node.counters.refused.items():
                refused[reason] = refused.get(reason, 0) + count
        expected = sum(min(int(at) + 1, seconds) if at < seconds else seconds for at in self.killed_at.values())
        expected += seconds * (self.robots - len(self.killed_at))
        return {
            "success": {str(t): round(success[t], 4) for t in (50, 100, 150, 200) if t <= seconds},
            "living": int(self.alive.sum()),
            "commands_missing": expected - self.commands,
            "stamps_back": self.went_back,
            "false_news": self.false,
            "age_median_s": round(float(statistics.median(ages)), 3) if ages else None,
            "known_share": round(len(ages) / max(1, int(self.alive.sum()) * (int(self.alive.sum()) - 1)), 4),
            "refused": dict(sorted(refused.items())),
            "network": dict(sorted(self.network.counts.items())),
            "bytes_per_robot_s": round(sum(n.counters.bytes_out for n in self.nodes) / self.robots / seconds),
        }

    def _control(self, second: int) -> None:
        import torch

        now = 10 * SECOND + second * SECOND
        for robot, at in self.killed_at.items():
            if at < second and self.alive[robot]:
                self.alive[robot] = False
                self.network.leave(robot)
        if self.trouble.parted is not None:
            begins, ends = self.trouble.parted
            self.network.part(*(self.halves if begins <= second < ends else ()))
        seen = self.world.observe(self.state)
        with torch.no_grad():
            message = self.policy.perceive(seen.features)[0].numpy()
        places = seen.positions[0].double().numpy()
        held: list[list[Entry]] = [[] for _ in range(self.robots)]
        for robot in np.flatnonzero(self.alive).tolist():
            held[robot] = self.nodes[robot].control(now + self.clock[robot], message[robot], places[robot])
            own = held[robot][0]
            self.said[robot, own.stamp] = own.packed
        prediction = self._predictions(held)
        velocity = np.zeros((self.robots, 2), np.float32)
        for robot in np.flatnonzero(self.alive).tolist():
            velocity[robot] = self.exported.command(
                prediction[robot],
                landmark=seen.landmark[0, robot].numpy(),
                seed=self.seed,
                robot=robot,
                time=second + self.clock[robot] / SECOND,
            )
            self.commands += bool(np.isfinite(velocity[robot]).all())
        adjacency = seen.graph.adjacency()[0].numpy()
        self.hearers = [[i for i in np.flatnonzero(adjacency[:, r]).tolist() if i != r] for r in range(self.robots)]
        self.state = self.world.step(self.state, torch.from_numpy(velocity)[None])  # the dead stand still

    def _predictions(self, held: list[list[Entry]]) -> np.ndarray:
        """Of each robot from what it holds, [N, 3]; and looks whether that is true, and no older than before."""
        import torch

        from mast_swarm.comms.decentral import decide
        from mast_swarm.comms.held import RelayState

        slots: list[dict[int, tuple[int, Entry]]] = [{} for _ in range(self.robots)]
        table = np.full((self.robots, self.robots), -1, np.int64)
        stamps = np.full((self.robots, self.robots), -1, np.int64)
        for robot, entries in enumerate(held):
            for entry in entries:
                of = slots[entry.origin]
                if entry.stamp not in of:
                    of[entry.stamp] = (len(of), entry)
                    self.false += self.said.get((entry.origin, entry.stamp)) != entry.packed
                table[robot, entry.origin] = of[entry.stamp][0]
                stamps[robot, entry.origin] = entry.stamp
        own = np.eye(self.robots, dtype=bool) & self.alive
        self.went_back += int(((stamps < self.newest) & (stamps >= 0)).sum() + (stamps <= self.newest)[own].sum())
        self.newest = np.maximum(self.newest, stamps)
        many = max(1, *(len(of) for of in slots))
        message = np.zeros((1, many, self.robots, self.nodes[0].form.width), np.float32)
        places = np.zeros((1, many, self.robots, 2))
        for origin, of in enumerate(slots):
            for slot, entry in of.values():
                message[0, slot, origin], places[0, slot, origin] = entry.message, entry.position
        nothing = torch.zeros(1, dtype=torch.int64)
        state = RelayState(
            step=0,
            chance=nothing,
            table=torch.from_numpy(table)[None, None],
            messages=torch.from_numpy(message),
            positions=torch.from_numpy(places),
            alive=torch.from_numpy(self.alive)[None],
            transmissions=nothing,
            entries=nothing,
            spare=0,
        )
        return decide(self.policy, state)[0].numpy()

    def _exchange(self, now: int, tell: bool) -> None:
        """One moment: robots take what has come and confirm it, or tell their neighbours what they know."""
        self.network.advance(now)
        living = np.flatnonzero(self.alive).tolist()
        for robot in living:
            for peer, data in self.ports[robot].poll():
                self.nodes[robot].on_datagram(peer, data, now + self.clock[robot])
        for robot in living:
            node = self.nodes[robot]
            out = node.due(now + self.clock[robot], self.hearers[robot]) if tell else node.confirmations()
            for to, data in out:
                self.ports[robot].send(data, to)

    def _success(self) -> float:
        """Goals on which a living robot is, as a share of those that the living could be on."""
        goals, places = self.state.goals[0].numpy(), self.state.positions[0].numpy()[self.alive]
        distance = np.linalg.norm(goals[:, None] - places, axis=2)
        reached = (distance < self.world.config.success_radius).any(axis=1).sum()
        return float(reached / max(1, min(len(goals), len(places))))

    def _ages(self, now: int) -> list[float]:
        """How old the news is that living robots hold of other living ones, seconds."""
        return [
            (now + self.clock[origin] - self.newest[robot, origin]) / SECOND
            for robot in np.flatnonzero(self.alive)
            for origin in np.flatnonzero(self.alive)
            if robot != origin and self.newest[robot, origin] >= 0
        ]


@cache
def _policy() -> tuple[Any, Exported, bytes]:
    """The weights in torch, the same as robots have them, and their hash."""
    from mast_swarm import zoo
    from mast_swarm.interop.onnx import export
    from mast_swarm.model.policy import load_learned

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "robot"
        export(POLICY, folder)
        exported = Exported(folder)
        model = model_hash(folder / "perceive.onnx", folder / "decide.onnx")
    return load_learned(zoo.policies()[POLICY]).eval(), exported, model


@cache
def _team(robots: int) -> tuple[Team, list[Any]]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    keys = [Ed25519PrivateKey.from_private_bytes(bytes([robot, *range(31)])) for robot in range(robots)]
    return Team(b"faults-8", {i: key.public_key().public_bytes_raw() for i, key in enumerate(keys)}), keys


def one(fault: str, seed: int, make: Callable[[], Run] | None = None, seconds: int = SECONDS) -> dict[str, Any]:
    """A row; a crash is one too."""
    began = time.process_time()
    row: dict[str, Any] = {"fault": fault, "seed": seed, "crash": None}
    try:
        row |= (Run(TROUBLES[fault], seed) if make is None else make()).run(seconds)
    except Exception as error:
        row["crash"] = f"{type(error).__name__}: {error}"
    return row | {"cpu_s": round(time.process_time() - began, 1)}


@dataclass(frozen=True)
class Config:
    """Faults of networks, clocks and robots, and what becomes of the team."""

    seeds: int = 100
    """Start states per fault; `clusters` goes round its nine pairs of cluster sizes."""
    faults: tuple[str, ...] = tuple(TROUBLES)
    """Which to run."""
    workers: int = 1
    """Processes, one core each."""
    out: Path = Path(__file__).parent / "results" / "robot-faults.json"
    """File that keeps every finished run."""


def _named(job: tuple[str, int]) -> dict[str, Any]:
    return one(*job)


def main(config: Config) -> None:
    for name in config.faults:
        if name not in TROUBLES:
            raise MastError(f"there is no fault '{name}': give some of {', '.join(TROUBLES)}")
    about = {"robots": ROBOTS, "seconds": SECONDS, "policy": POLICY}
    found: dict[str, Any] = {"benchmark": "robot_faults", "machine": machine(), **about, "rows": []}
    if config.out.exists():
        found = json.loads(config.out.read_text())
        if {name: found.get(name) for name in about} != about:
            raise MastError(f"{config.out} was made with other settings: give another --out")
    done = {(row["fault"], row["seed"]) for row in found["rows"]}
    jobs = [(fault, seed) for seed in range(config.seeds) for fault in config.faults if (fault, seed) not in done]
    print(f"{len(done)} runs are there, {len(jobs)} to do", flush=True)
    began = time.monotonic()
    _save(config.out, found)
    with multiprocessing.get_context("spawn").Pool(config.workers) as pool:
        for number, row in enumerate(pool.imap_unordered(_named, jobs), 1):
            found["rows"].append(row)
            _save(config.out, found)
            left = (time.monotonic() - began) / number * (len(jobs) - number)
            at_end = row.get("success", {}).get(str(SECONDS), row["crash"])
            print(f"{number}/{len(jobs)} {row['fault']} {row['seed']}: {at_end}, {left / 60:.0f} min left", flush=True)


def _save(file: Path, found: dict[str, Any]) -> None:
    """Write the file, whole or not at all: a line per run."""
    found["rows"].sort(key=lambda row: (row["seed"], list(TROUBLES).index(row["fault"])))
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    about = {name: value for name, value in found.items() if name != "rows"}
    about["faults"] = {name: trouble.words for name, trouble in TROUBLES.items()}
    rows = ",\n".join("  " + json.dumps(row) for row in found["rows"])
    part.write_text(json.dumps(about, indent=1).removesuffix("\n}") + f',\n "rows": [\n{rows}\n ]\n}}\n')
    part.replace(file)


if __name__ == "__main__":
    command(main, Config, "robot_faults")
