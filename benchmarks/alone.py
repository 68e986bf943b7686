"""What a robot that decides alone must hold and compute, in a large team with a relay radius: counted, not timed.

Robots of a uniform start, 100 per square kilometre, a message taking one control period per hop, the relay radius that
auto gives MAST-M, and 30 control periods that have filled what robots hold. Counted for the robots that have a whole
receptive field around them: entries held, messages held by anybody per robot, rows of each layer that a robot's
command depends on, and how many of them are different once rows alike in several views are one.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch

from benchmarks.measure import write
from mast_swarm.comms import decentral, views
from mast_swarm.comms.near import NearState
from mast_swarm.evaluate.bench import SETTLED, Setting, _settle
from mast_swarm.evaluate.bench_config import DecentralBenchConfig

AGENTS = 1_000


@torch.inference_mode()
def count() -> dict[str, Any]:
    setting = Setting(DecentralBenchConfig(device="cpu"), torch.device("cpu"))
    loop, config = setting.alone(1, AGENTS, "auto"), setting.model
    _settle(loop, setting.policy, [0])
    state = loop.actor.run.state  # type: ignore[attr-defined]
    assert isinstance(state, NearState) and config.field is not None
    local = decentral._local(state, torch.float32)
    stored, entry, own = decentral._entries(state, local, config.field)
    places = state.places[0] - state.places[0].mean(0)
    inside = places.abs().amax(1) < loop.world.config.side / 2 - config.field
    entry, own = entry[inside], own[inside]
    found = views.look(entry, own, local[stored], config.attention_radius, config.layers)
    different, work = [], None
    with mock.patch.dict(views._WORTH, cpu=float("inf")):  # rows alike are looked for in every layer
        for _ in range(config.layers):
            work = views.nodes(found, work, len(stored))
            different.append(len(work.itself) / len(entry))
    return {
        "agents": AGENTS,
        "settled_steps": SETTLED,
        "robots_counted": len(entry),
        "news_per_robot": float(state.start.diff()[inside].double().mean()),
        "entries_in_field": float((entry >= 0).sum(1).double().mean()),
        "messages_held_per_robot": len(stored) / AGENTS,
        "rows_per_robot": [rows / len(entry) for rows in found.rows[1:]],
        "different_rows_per_robot": different,
    }


if __name__ == "__main__":
    write("alone", count())
