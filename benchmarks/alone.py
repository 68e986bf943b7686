"""What a robot that decides alone must hold and compute, in a large team with a relay radius: counted, not timed.

Robots of a uniform start, 100 per square kilometre, a message taking one control period per hop, the relay radius that
auto gives MAST-M, and 30 control periods that have filled what robots hold. Counted for the robots that have a whole
receptive field around them: entries held, messages held by anybody per robot, rows of each layer that a robot's
command depends on, how many of them are different once rows alike in several views are one, and how many of these no
robot of the team computed one control period before. The last is also counted for a team of 100 without a relay radius,
over all of its robots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal
from unittest import mock

import torch
from torch import Tensor

from benchmarks.measure import benchmark
from mast_swarm.comms import decentral, views
from mast_swarm.comms.held import slot_of, stamp_of
from mast_swarm.comms.near import NearState
from mast_swarm.comms.relay import Held
from mast_swarm.evaluate.bench import SETTLED, Setting, _settle
from mast_swarm.evaluate.bench_config import DecentralBenchConfig
from mast_swarm.evaluate.loop import Loop

AGENTS, SMALL = 1_000, 100

# What a row is computed from. In the first layer: the message (origin, stamp) that it stands for and those of its
# window; in each later one: the row of the layer below that it goes on from, and the rows of its window there.
Content = tuple[Any, frozenset[Any]]


def listened(agents: int, relay_radius: Literal["auto"] | None) -> tuple[Setting, Loop, Held, Held]:
    """A team, what it holds when tables have filled, and before that what it held one control period earlier."""
    setting = Setting(DecentralBenchConfig(device="cpu"), torch.device("cpu"))
    loop = setting.alone(1, agents, relay_radius)
    _settle(loop, setting.policy, [0], SETTLED - 1)
    before = loop.actor.run.state  # type: ignore[attr-defined]
    _settle(loop, setting.policy, [0], 1)
    return setting, loop, before, loop.actor.run.state  # type: ignore[attr-defined]


def look(setting: Setting, state: Held, counted: Tensor | None = None) -> tuple[views.Views, list[views.Nodes], Tensor]:
    """The views of the counted robots [N] bool (None: of all), the different rows of each layer, and the places in the
    store of the messages that the views are of [U]."""
    config = setting.model
    assert config.field is not None
    local = decentral._local(state, torch.float32)
    stored, entry, own = decentral._entries(state, local, config.field)
    if counted is not None:
        entry, own = entry[counted], own[counted]
    found = views.look(entry, own, local[stored], config.attention_radius, config.layers)
    works: list[views.Nodes] = []
    with mock.patch.dict(views._WORTH, cpu=float("inf")):  # rows alike are looked for in every layer
        for _ in range(config.layers):
            works.append(views.nodes(found, works[-1] if works else None, len(stored)))
    return found, works, stored


def contents(state: Held, works: list[views.Nodes], stored: Tensor, known: dict[Content, int]) -> Iterator[set[int]]:
    """The different rows of each layer by what they are computed from, as numbers that `known` gives each content."""
    newest = state.newest[0]
    held = newest >= 0
    origin = held.nonzero()[:, 1]
    stamp = torch.full((state.positions.shape[1] * len(newest),), -1)  # of each place in the store
    stamp[slot_of(newest[held]) * len(newest) + origin] = stamp_of(newest[held])
    below: list[Any] = list(zip((stored % len(newest)).tolist(), stamp[stored].tolist(), strict=True))
    for work in works:
        assert work.merged is not None  # the first layer has rows that are alike
        lists = work.merged.plain()
        seen, itself = lists.rows.tolist(), work.itself.tolist()
        spans = zip(lists.start.tolist(), lists.count.tolist(), strict=True)
        windows = (frozenset(below[node] for node in seen[start : start + count]) for start, count in spans)
        below = [
            known.setdefault((work.layer, below[node], window), len(known))
            for node, window in zip(itself, windows, strict=True)
        ]
        yield set(below)


def new_rows(setting: Setting, before: Held, now: Held, counted: Tensor | None = None) -> list[tuple[int, int]]:
    """For each layer how many different rows the counted robots compute now, and how many of them nobody did before."""
    known: dict[Content, int] = {}
    earlier, later = (look(setting, state, robots) for state, robots in ((before, None), (now, counted)))
    layers = zip(contents(before, *earlier[1:], known), contents(now, *later[1:], known), strict=True)
    return [(len(rows), len(rows - old)) for old, rows in layers]


@torch.inference_mode()
def count() -> dict[str, Any]:
    setting, loop, before, now = listened(AGENTS, "auto")
    assert isinstance(now, NearState) and setting.model.field is not None
    places = now.places[0] - now.places[0].mean(0)
    counted = places.abs().amax(1) < loop.world.config.side / 2 - setting.model.field
    news = float(now.start.diff()[counted].double().mean())
    found, _, stored = look(setting, now, counted)
    robots, rows = len(found.entry), new_rows(setting, before, now, counted)
    setting, _, before, now = listened(SMALL, None)
    small = new_rows(setting, before, now)
    return {
        "agents": AGENTS,
        "settled_steps": SETTLED,
        "robots_counted": robots,
        "news_per_robot": news,
        "entries_in_field": float((found.entry >= 0).sum(1).double().mean()),
        "messages_held_per_robot": len(stored) / AGENTS,
        "rows_per_robot": [needed / robots for needed in found.rows[1:]],
        "different_rows_per_robot": [different / robots for different, _ in rows],
        "new_rows_per_robot": [new / robots for _, new in rows],
        "small_team": {
            "agents": SMALL,
            "different_rows": [different for different, _ in small],
            "new_rows": [new for _, new in small],
        },
    }


if __name__ == "__main__":
    benchmark("alone", __doc__, count)
