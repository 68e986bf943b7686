"""One control period of the relay with a relay radius: a table of all pairs against lists of those within the radius.

Robots walk at random at 5 m/s, 100 per square kilometre, each linked to its 3 nearest; a message takes one control
period per hop, the relay radius is what auto gives MAST-M, and 25 periods have filled what robots hold. Bytes are those
of the state without the messages' content.
"""

from __future__ import annotations

import math
import statistics
import time
from typing import Any

import torch

from benchmarks.measure import benchmark
from mast_swarm import Channel, Relay, nearest, neighbour_graph
from mast_swarm.comms import relay as relays

SETTLED, STEPS, RADIUS = 25, 5, 1100.0
CASES = ((1_000, "table"), (1_000, "lists"), (10_000, "lists"))


@torch.inference_mode()
def measure(agents: int, kept: str) -> dict[str, Any]:
    relays.LISTED = 1 if kept == "lists" else agents + 1
    relay, rng = Relay(Channel(1.0, relay_radius=RADIUS), 1.0), torch.Generator().manual_seed(0)
    state, times = relay.start([0], agents, 1), []
    positions = torch.rand(1, agents, 2, generator=rng) * 1000 * math.sqrt(agents / 100)
    for _ in range(SETTLED + STEPS):
        positions = positions + 5 * torch.nn.functional.normalize(torch.randn(1, agents, 2, generator=rng), dim=-1)
        graph = neighbour_graph(nearest(positions, positions, 3, exclude_self=True)[1])
        began = time.perf_counter()
        state = relay.exchange(relay.sample(state, torch.zeros(1, agents, 1), positions, graph), graph)
        times.append(time.perf_counter() - began)
    tensors = [value for value in vars(state).values() if isinstance(value, torch.Tensor)]
    held = sum(tensor.nbytes for tensor in tensors)
    news = int((state.newest >= 0).sum()) if agents <= 1_000 else len(state.origin)
    seconds = statistics.median(times[SETTLED:])
    return {"agents": agents, "kept": kept, "relay_ms": 1e3 * seconds, "bytes": held, "news_per_robot": news / agents}


def main() -> dict[str, Any]:
    return {"radius_m": RADIUS, "rows": [measure(*case) for case in CASES]}


if __name__ == "__main__":
    benchmark("relay_lists", __doc__, main)
