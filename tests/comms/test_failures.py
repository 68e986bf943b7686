"""Failures: the same robots fail whatever drives the team."""

from __future__ import annotations

import torch

from mast_swarm import chance
from mast_swarm.comms import Channel, Relay
from mast_swarm.comms.failures import survivors
from mast_swarm.space import Graph


def test_failures_are_those_of_the_relay_and_for_good() -> None:
    nobody = Graph(*torch.zeros(2, 0, dtype=torch.int64), 3, 20)
    relay = Relay(Channel(delay=1.0, failure=0.1, seed=4), 1.0)
    state = relay.start([5, 6, 7], 20, 1)
    keys, alive = chance.keys_of(4, [5, 6, 7], torch.device("cpu")), torch.ones(3, 20, dtype=torch.bool)
    for step in range(10):
        state = relay.exchange(relay.sample(state, torch.zeros(3, 20, 1), torch.zeros(3, 20, 2), nobody), nobody)
        after = survivors(alive, keys, step, 0.1)
        assert torch.equal(after, state.alive) and not (after & ~alive).any()
        alive = after
    assert 0 < alive.sum() < 60 and not torch.equal(alive[0], alive[1])
    assert survivors(alive, keys, 10, 0.0) is alive
