"""Robots as processes against the simulation, and how many of them this machine runs: python -m benchmarks.swarm.

agreement: each start state once as a swarm of processes and once in the simulation, with the same delay per hop.
nearby: the same start state simulated several times with commands that are off by a thousandth of the top speed: how
much of a difference is due to the start state itself, which small things can send another way.
fit: larger and larger teams until control deadlines are missed.
Each row is written to benchmarks/results/swarm.json as soon as it is measured; what the file has is not measured again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq
import torch

from benchmarks.kept import command
from benchmarks.measure import line, machine
from mast_swarm import Channel, rollout
from mast_swarm.evaluate.actors import make_actor
from mast_swarm.evaluate.loop import Loop
from mast_swarm.evaluate.policies import fitting
from mast_swarm.files import read_json, write_json
from mast_swarm.swarm.config import SwarmConfig, swarm_defaults
from mast_swarm.swarm.run import swarm
from mast_swarm.tasks import registry as tasks

SCRATCH = Path("runs/bench-swarm")
_OFF = 1e-3  # of the top speed: what float16 messages and another order of sums may change


@dataclass(frozen=True)
class Config:
    """Robots as processes against the simulation, and how many of them this machine runs."""

    part: tuple[Literal["agreement", "nearby", "fit"], ...] = ("agreement", "nearby", "fit")
    """What to measure."""
    task: str = "navigation"
    """Whose world and policy."""
    robots: int = 16
    """Of the agreement, and of what is nearby."""
    rate: float = 2.0
    """Control instants per second."""
    episodes: int = 6
    """Start states of these."""
    steps: int = 200
    """Control periods of these."""
    copies: int = 16
    """How often what is nearby is simulated."""
    transport: tuple[Literal["udp", "zenoh"], ...] = ("udp", "zenoh")
    """What carries the messages."""
    teams: tuple[int, ...] = (16, 24, 32, 48, 64, 96)
    """Sizes of teams that are tried, in this order, until deadlines are missed."""
    fit_steps: int = 40
    """Control periods of each of these."""
    out: Path = Path(__file__).parent / "results"
    """Folder for the file."""


def ran(config: SwarmConfig) -> dict[str, Any]:
    """The summary of a swarm, with the machine's load while it ran."""
    shutil.rmtree(SCRATCH, ignore_errors=True)
    found = swarm(replace(config, out=SCRATCH))[1]
    rows = pq.read_table(SCRATCH / "steps.parquet").to_pylist()
    shutil.rmtree(SCRATCH)
    curves = {name: [row[name] for row in rows] for name in found["metrics"]}
    return found | {"load_after": round(os.getloadavg()[0], 1), "curves": curves}


def row(found: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a summary."""
    deadlines = found["deadlines"]
    return {
        "transport": found["transport"],
        "robots": found["robots"]["started"],
        "robots_alive": found["robots"]["alive"],
        "control_hz": found["control_hz"],
        "met": deadlines["met"],
        "missed": deadlines["missed"],
        "late_at_the_world": deadlines["late_at_the_world"],
        "command_ms_median": round(deadlines["command_ms_median"], 1),
        "command_ms_p99": round(deadlines["command_ms_p99"], 1),
        "command_ms_max": round(deadlines["command_ms_max"], 1),
        "bytes_per_robot_and_second": round(found["bytes_per_robot_and_second"]),
        "news_age_mean_s": round(found["news_age_s"]["mean"], 3),
        "load_before": round(found["machine"]["load_before"], 1),
        "load_after": found["load_after"],
    }


def simulated(config: SwarmConfig, metric: str) -> list[float]:
    """The metric over the simulated run of the same start state."""
    seed, scenario = config.start()
    world = tasks.find(config.task).make(fitting(config.settled, [config.policy]))
    channel = Channel(delay=config.hop)
    run = rollout(world, config.policy, [seed], config.steps, channel=channel, scenarios=[scenario])
    return run.metrics[metric][0].tolist()


def both(curves: dict[str, list[float]]) -> dict[str, float]:
    """Of each curve its end, and its mean over the mission."""
    ends = {name: round(curve[-1], 4) for name, curve in curves.items()}
    return ends | {f"{name}_mean": round(sum(curve) / len(curve), 4) for name, curve in curves.items()}


def agreement(config: Config, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A row per start state and transport, less those that there are."""
    task = tasks.find(config.task)
    metric = task.metric.name
    base = replace(
        swarm_defaults(task, config.task), robots=config.robots, rate=config.rate, steps=config.steps, delay=None
    )
    known = {(one["task"], one["episode"], one["transport"]) for one in rows}
    for episode in range(config.episodes):
        missing = [one for one in config.transport if (config.task, episode, one) not in known]
        chosen = replace(base, episode=episode)
        expected = simulated(chosen, metric) if missing else []
        for transport in missing:
            found = ran(replace(chosen, transport=transport))
            values = both({"processes": found["curves"][metric], "simulated": expected})
            yield {"task": config.task, "episode": episode, "metric": metric, **values, **row(found)}


def nearby(config: Config, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A row per start state, less those that there are."""
    task = tasks.find(config.task)
    metric, known = task.metric.name, {(one["task"], one["episode"]) for one in rows}
    for episode in range(config.episodes):
        if (config.task, episode) in known:
            continue
        chosen = replace(swarm_defaults(task, config.task), robots=config.robots, steps=config.steps, episode=episode)
        seed, scenario = chosen.start()
        world = task.make(fitting(chosen.settled, [chosen.policy]))
        loop = Loop(world, make_actor(chosen.policy, world, Channel(delay=chosen.hop)), precision="fp32", safe=False)
        luck = torch.Generator().manual_seed(episode)
        with torch.inference_mode():
            loop.start([seed] * config.copies, [scenario] * config.copies)
            for _ in range(config.steps):
                loop.sense()
                command = loop.decide()
                loop.move(command + _OFF * torch.randn(command.shape, generator=luck, dtype=command.dtype))
            ends = world.metrics(loop.state)[metric].double()
        spread = {"low": float(ends.min()), "high": float(ends.max()), "std": float(ends.std())}
        about = {"task": config.task, "episode": episode, "metric": metric, "copies": config.copies, "off": _OFF}
        yield {**about, **{name: round(value, 4) for name, value in spread.items()}}


def fit(config: Config, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A row per team, up to the first that misses deadlines, less those that there are."""
    task = tasks.find(config.task)
    base = replace(swarm_defaults(task, config.task), rate=config.rate, steps=config.fit_steps)
    known = {(one["task"], one["transport"], one["robots"]): one for one in rows}
    for transport in config.transport:
        for robots in config.teams:
            found = known.get((config.task, transport, robots))
            if found is None:
                found = {"task": config.task, **row(ran(replace(base, robots=robots, transport=transport)))}
                yield found
            if found["missed"] or found["late_at_the_world"]:
                break


def main(config: Config) -> None:
    """Measure, and write after every row."""
    parts = {"agreement": agreement, "nearby": nearby, "fit": fit}
    file = config.out / "swarm.json"
    kept = read_json(file) or {}
    for name in config.part:
        rows = kept.get(name, [])
        for one in parts[name](config, rows):
            print(line(one), flush=True)
            rows.append(one)
            kept |= {"benchmark": "swarm", "machine": machine() | {"cores": os.cpu_count()}, name: rows}
            write_json(file, kept)


if __name__ == "__main__":
    command(main, Config, "swarm")
