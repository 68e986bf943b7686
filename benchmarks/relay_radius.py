"""How often a relay radius changes what robots decide on.

MAST-M drives a team, and several relays listen to it at once: one without a limit, the others with a relay radius. A
robot's command is the same with and without where it holds the same news (origin and stamp) of the places in its
receptive field. Counted are all robots at all instants from the 30th second on: the share of those that hold the same;
and, as a share of the news in the field without a limit, the news that is missing or older with it, and the news that
is there only with it: without a limit there is newer news, of a place outside the field.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import benchmark, line
from mast_swarm import Channel, Navigation, NavigationConfig, Relay
from mast_swarm.comms import relay as relays
from mast_swarm.comms.held import RelayState, slot_of
from mast_swarm.comms.near import NearState
from mast_swarm.evaluate.actors import Central, Decentral
from mast_swarm.evaluate.loop import Loop
from mast_swarm.model.policy import Policy

STARTS, STEPS, SETTLED = 2, 90, 30
CASES = ((400, 1.0), (400, 0.2))  # robots, seconds per hop


def seen(state: RelayState | NearState, field: float) -> Tensor:
    """[B, N, N]: the stamp of j that i holds of a place in its field; -1: none."""
    batch, slots, robots, _ = state.positions.shape
    first = torch.arange(batch)[:, None, None] * slots
    place = (first + slot_of(state.newest).clamp_max(slots - 1)) * robots + torch.arange(robots)
    apart = (state.positions.flatten(0, 2)[place] - state.places[:, :, None]).square().sum(-1)
    return state.stamps.where(apart < field * field, -1)


@torch.inference_mode()
def compare(agents: int, delay: float) -> list[dict[str, Any]]:
    world, policy = Navigation(NavigationConfig(agents=agents)), Policy.load("navigation/mast-m")
    seeds, field, dt = range(STARTS), policy.config.field, world.config.dt
    assert field is not None
    auto = Decentral(policy, Channel(delay, relay_radius="auto"), world).channel
    assert auto is not None and auto.radius is not None
    relays.LISTED = 1  # the same news as in a table, sooner
    radii = {"the field": field, "auto": auto.radius, "1.5 fields": 1.5 * field}
    heard = {name: Relay(Channel(delay, relay_radius=radius), dt) for name, radius in (radii | {"none": None}).items()}
    held = {name: relay.start(seeds, agents, 1) for name, relay in heard.items()}
    loop = Loop(world, Central(policy, world))
    loop.start(seeds)
    total = {name: [0, 0, 0, 0, 0] for name in radii}
    for step in range(STEPS):
        observation = loop.sense()
        said = torch.zeros(STARTS, agents, 1)
        for name, relay in heard.items():
            held[name] = relay.sample(held[name], said, observation.positions, observation.graph)
        if step >= SETTLED:
            free = seen(held["none"], field)
            for name in radii:
                mine = seen(held[name], field)
                less, more = (free >= 0) & (mine < free), (free < 0) & (mine >= 0)
                same = ~(free != mine).any(-1)
                counts = (same.sum(), same.numel(), less.sum(), (free >= 0).sum(), more.sum())
                total[name] = [a + int(b) for a, b in zip(total[name], counts, strict=True)]
        for name, relay in heard.items():
            held[name] = relay.exchange(held[name], observation.graph)
        loop.move(loop.decide())
    return [
        {
            "agents": agents,
            "delay_s": delay,
            "limit": name,
            "radius_m": radii[name],
            "robots_with_the_same_news": same / robots,
            "news_missing_or_older": less / news,
            "news_too_much": more / news,
        }
        for name, (same, robots, less, news, more) in total.items()
    ]


def main() -> dict[str, Any]:
    rows = []
    for case in CASES:
        found = compare(*case)
        print("\n".join(map(line, found)), flush=True)
        rows += found
    return {"policy": "navigation/mast-m", "starts": STARTS, "steps": STEPS, "rows": rows}


if __name__ == "__main__":
    benchmark("relay_radius", __doc__, main)
