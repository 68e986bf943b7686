"""Decentralized execution: the fast way gives what one full pass a robot gives; without delay, the central."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from mast_swarm import chance
from mast_swarm.comms import Channel, DecentralPolicy, RelayState, decentral, views
from mast_swarm.comms.held import slot_of
from mast_swarm.comms.views import attend as attend_views
from mast_swarm.errors import MastError, MastWarning
from mast_swarm.evaluate.cost import decided_flops
from mast_swarm.model import Policy, PolicyConfig, lists
from mast_swarm.model.attention import attend
from mast_swarm.model.config import ENCODINGS
from mast_swarm.space import Graph, components, nearest, neighbour_graph, reachable


@dataclass(frozen=True)
class Seen:
    features: Tensor
    positions: Tensor
    graph: Graph

    @property
    def landmark(self) -> Tensor:
        return torch.zeros_like(self.positions)


def make(**fields: Any) -> Policy:
    policy = Policy(PolicyConfig(**{"layers": 3, "heads": 2, "head_dim": 8, **fields}), seed=1).double().eval()
    with torch.no_grad():
        for block in policy.mast.blocks:
            block.attention.qkv.weight.mul_(2.0)
    return policy.requires_grad_(False)


def journey(seeds: list[int], robots: int, steps: int, directed: bool = False, offset: float = 0.0) -> list[Seen]:
    """Robots that move through 700 m, each linked to its two nearest; an environment is made from its seed."""
    seen = []
    for n in range(steps):
        parts = []
        for seed in seeds:
            rng = torch.Generator().manual_seed(seed)
            start = (torch.rand(robots, 2, generator=rng, dtype=torch.float64) - 0.5) * 700 + offset
            heading = torch.randn(robots, 2, generator=rng, dtype=torch.float64) * 20
            rng.manual_seed(seed * 1000 + n)
            parts.append((torch.randn(robots, 14, generator=rng, dtype=torch.float64), start + n * heading))
        features, positions = (torch.stack(part) for part in zip(*parts, strict=True))
        _, index = nearest(positions, positions, 2, exclude_self=True)
        seen.append(Seen(features, positions, neighbour_graph(index, directed=directed)))
    return seen


def naive(policy: Policy, state: RelayState) -> Tensor:
    """One full pass of the policy a robot, on the entries that it holds."""
    command = torch.zeros(*state.alive.shape, 2, dtype=policy.dtype)
    newest = state.newest
    for b, i in state.alive.nonzero().tolist():
        origin = (newest[b, i] >= 0).nonzero()[:, 0]
        slot = slot_of(newest[b, i, origin])
        message, positions = state.messages[b, slot, origin], state.positions[b, slot, origin]
        whole = policy.decide(message[None], positions[None])
        command[b, i] = whole[0, (origin == i).nonzero()[0, 0]]
    return command


def counted(policy: Policy, state: RelayState, shared: bool) -> decentral.Work:
    """What commands depend on, from the robots downwards: a row of a layer reads those of its window one below.

    shared: rows are one where they stand for the same message and read the same ones.
    """
    layers, radius = policy.config.layers, policy.config.attention_radius or torch.inf
    messages: set[Any] = set()
    rows: list[dict[Any, int]] = [{} for _ in range(layers)]  # of each row its window's size
    queries: list[set[Any]] = [set() for _ in range(layers)]
    for b, i in state.alive.nonzero().tolist():
        origins = (state.newest[b, i] >= 0).nonzero()[:, 0].tolist()
        held = {j: (b, int(slot_of(state.newest[b, i, j])), j) for j in origins}
        place = {j: state.positions[b, slot, j] for j, (_, slot, _) in held.items()}
        near = {j: [m for m in held if m == j or (place[j] - place[m]).norm() < radius] for j in held}
        messages |= {held[j] for j in held if (place[j] - place[i]).norm() < 1.001 * layers * radius}
        needed = [{i}]
        while len(needed) < layers:
            needed.insert(0, {m for j in needed[0] for m in near[j]})
        name: dict[int, Any] = held
        for n, those in enumerate(needed):
            queries[n] |= {name[j] for j in those}
            here = {j: (name[j], frozenset(name[m] for m in near[j])) for j in those}
            name = here if shared else {j: (b, i, j, n) for j in those}
            rows[n] |= {name[j]: len(near[j]) for j in those}
    asked = [len(messages), *map(len, queries[1:])]
    return decentral.Work(len(messages), asked, [len(row) for row in rows], [sum(row.values()) for row in rows])


@pytest.mark.parametrize("radius", [None, 120.0, 250.0])
@pytest.mark.parametrize("shared", [True, False])
def test_what_is_counted_is_what_commands_depend_on(
    radius: float | None, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make(attention_radius=radius)
    run = DecentralPolicy(policy, Channel(0.2, 0.1, 0.02), 1.0)
    run.start([3, 4])
    for seen in journey([3, 4], 13, 8):
        run.act(seen)
    monkeypatch.setitem(views._WORTH, "cpu", torch.inf if shared else 0.0)
    found = decentral.count(policy, state_of(run))
    assert found == counted(policy, state_of(run), shared) and found.rows[0] >= found.rows[1] > found.rows[2]
    assert not state_of(run).alive.all() and (radius is None or found != counted(policy, state_of(run), not shared))
    state_of(run).alive.fill_(False)
    assert decentral.count(policy, state_of(run)).rows == [0, 0, 0]


@pytest.mark.parametrize("message_dim", [None, 4])
def test_arithmetic_counted_is_arithmetic_done(message_dim: int | None) -> None:
    policy = make(message_dim=message_dim)
    run = DecentralPolicy(policy, Channel(1.0), 1.0)
    run.start([3, 4])
    for seen in journey([3, 4], 13, 8):
        with FlopCounterMode(display=False) as done:
            run.act(seen)
    work = decentral.count(policy, state_of(run))
    looked = 4 * policy.config.width * sum(work.pairs)  # by loops of our own
    assert decided_flops(policy.config, 2 * 13, work) == done.get_total_flops() + looked


def same(a: Tensor, b: Tensor, tolerance: float = 1e-9) -> bool:
    return torch.allclose(a, b, rtol=0, atol=tolerance)


def state_of(run: DecentralPolicy) -> RelayState:
    assert run.state is not None
    return run.state


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 10**6),
    st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    st.sampled_from(ENCODINGS),
    st.sampled_from(["M", "L"]),
    st.sampled_from([None, 120.0, 250.0]),
    st.integers(1, 4),
    st.integers(1, 14),
    st.sampled_from([(0.0, 0.0), (0.3, 0.1)]),
    st.sampled_from([None, 4]),
)
def test_the_fast_way_equals_one_full_pass_a_robot(
    seed: int,
    delay: float,
    encoding: str,
    variant: str,
    radius: float | None,
    layers: int,
    robots: int,
    trouble: tuple[float, float],
    message_dim: int | None,
) -> None:
    policy = make(encoding=encoding, variant=variant, attention_radius=radius, layers=layers, message_dim=message_dim)
    run = DecentralPolicy(policy, Channel(delay, *trouble), 1.0)
    run.start([seed, seed + 1])
    for seen in journey([seed, seed + 1], robots, 6):
        command = run.act(seen)
    assert same(command, naive(policy, state_of(run)))
    assert (command[~state_of(run).alive] == 0).all()


def test_the_paper_s_policy_in_fp32() -> None:
    policy = Policy(seed=2).eval()
    run = DecentralPolicy(policy, Channel(delay=1.0), 1.0)
    run.start([5])
    for seen in journey([5], 40, 12, offset=100_000.0):
        command = run.act(Seen(seen.features.float(), seen.positions.float(), seen.graph))
    state = state_of(run)
    assert len(torch.unique(state.stamps)) > 4
    assert same(command, naive(policy.requires_grad_(False), state), 1e-5)


@pytest.mark.parametrize("variant", ["M", "L"])
def test_without_delay_it_is_central_execution(variant: str) -> None:
    policy, central = make(variant=variant), make(variant="M")
    run = DecentralPolicy(policy, Channel(delay=0.0), 1.0)
    run.start([1, 2])
    parts = 0
    for seen in journey([1, 2], 15, 5):
        component = components(seen.graph)
        parts += len(component.unique()) - 1
        command = run.act(seen)
        assert same(command, central(seen.features, seen.positions, component))
    assert parts > 0


def test_directed_links_without_delay() -> None:
    """Each robot runs on those who reach it.

    With one layer that is central execution with the reachability mask. With more it is not: in its own view a
    robot lets any two that both reach it attend to each other, though these may not hear each other.
    """
    for layers in (1, 3):
        policy = make(layers=layers, attention_radius=None)
        run = DecentralPolicy(policy, Channel(delay=0.0), 1.0)
        run.start([3])
        for seen in journey([3], 12, 3, directed=True):
            command, reach = run.act(seen), reachable(seen.graph)
            assert not torch.equal(reach, reach.transpose(1, 2))
            for i in range(12):
                team = reach[0, i].nonzero()[:, 0]
                alone = policy(seen.features[:, team], seen.positions[:, team])
                assert same(command[0, i], alone[0, (team == i).nonzero()[0, 0]])
            assert same(command, policy(seen.features, seen.positions, reach)) == (layers == 1)


def test_delay_matters() -> None:
    policy = make()
    commands = []
    for delay in (0.0, 1.0):
        run = DecentralPolicy(policy, Channel(delay=delay), 1.0)
        run.start([1])
        for seen in journey([1], 15, 6):
            command = run.act(seen)
        commands.append(command)
    assert not same(*commands, 1e-4)


def test_an_environment_acts_alike_in_any_batch_and_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, channel = make(), Channel(delay=0.4, loss=0.2, failure=0.02, seed=3)

    def commands(seeds: list[int]) -> Tensor:
        run = DecentralPolicy(policy, channel, 1.0)
        run.start(seeds)
        return torch.stack([run.act(seen) for seen in journey(seeds, 11, 8)], dim=1)

    whole = commands([4, 8, 15])
    for b, seed in enumerate([4, 8, 15]):
        assert same(whole[b], commands([seed])[0])
    for rows in (1, 40, 150):
        monkeypatch.setitem(decentral.ROWS, "cpu", rows)
        assert same(whole, commands([4, 8, 15]))


def test_chunks_cover_every_view_once_and_keep_environments_whole() -> None:
    for size in (1, 2, 4, 8, 30):
        parts = list(views.chunks(5, 4, 10, size * 10, 10**6))
        assert [i for part in parts for i in range(part.start, part.stop)] == list(range(20))
        assert all(part.stop - part.start <= size for part in parts)
    assert [p.stop for p in views.chunks(5, 4, 10, 90, 10**6)] == [8, 16, 20]
    assert [p.stop for p in views.chunks(2, 5, 10, 30, 10**6)] == [3, 5, 8, 10]


def test_without_delay_the_work_is_that_of_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, rows = make(), []
    monkeypatch.setattr(decentral, "attend", lambda *args: rows.append(len(args[3].itself)) or attend_views(*args))
    run = DecentralPolicy(policy, Channel(delay=0.0), 1.0)
    run.start([1, 2])
    run.act(journey([1, 2], 15, 1)[0])
    assert max(rows) <= 30


def test_rows_that_share_a_name_by_accident_are_not_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make()
    run = DecentralPolicy(policy, Channel(delay=1.0), 1.0)
    run.start([1])
    for seen in journey([1], 12, 6):
        command = run.act(seen)
    monkeypatch.setattr(chance, "combine", lambda key, *counters: torch.zeros_like(key))
    assert same(command, decentral.decide(policy, state_of(run)))


@pytest.mark.parametrize("way", [lists.attend_lists, lists._attend_gathered])
@pytest.mark.parametrize("gathered", [1 << 26, 100])
def test_attention_over_lists_is_masked_attention(way: Any, gathered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "_GATHERED", gathered)
    rng = torch.Generator().manual_seed(0)
    q, kv = torch.randn(9, 12, generator=rng), torch.randn(20, 24, generator=rng)
    asks = torch.randint(0, 9, (30,), generator=rng)
    mask = torch.rand(30, 20, generator=rng) < 0.3
    mask[:, 4] = True
    count = mask.sum(1)
    ragged = lists.Lists(mask.nonzero()[:, 1], count.cumsum(0) - count, count)
    key, value = kv.view(20, 2, 3, 4).permute(1, 2, 0, 3)[:, None]  # [1, H, 20, d_a] each
    expected = attend(q[asks].view(1, 30, 3, 4).transpose(1, 2), key, value, mask[None])
    assert same(way(q, asks, kv, ragged, 3), expected.transpose(1, 2).reshape(30, 12), 1e-6)


def test_clairvoyant_policies_are_refused() -> None:
    with pytest.raises(MastError, match="variant C sees every goal"):
        DecentralPolicy(make(variant="C"), Channel(), 1.0)


def test_a_run_must_be_started_for_what_it_observes() -> None:
    run = DecentralPolicy(make(), Channel(delay=1.0), 1.0)
    with pytest.raises(MastError, match="2 environments are observed but 0 were started"):
        run.act(journey([1, 2], 3, 1)[0])
    run.start([1, 2])
    run.act(journey([1, 2], 3, 1)[0])
    with pytest.raises(MastError, match="the run began with others"):
        run.act(journey([1, 2], 4, 1)[0])
    run.start([1])
    lone = journey([1], 1, 1)[0]
    assert run.act(lone).shape == (1, 1, 2)
    with pytest.raises(MastError, match="positions hold NaN"):
        run.act(Seen(lone.features, lone.positions * float("nan"), lone.graph))
    with pytest.raises(MastError, match="positions have shape"):
        run.act(Seen(lone.features, lone.positions[0], lone.graph))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("delay", [0.0, 0.3, 1.0, 2.5])
def test_a_gpu_gives_the_same_stamps_and_commands(delay: float) -> None:
    channel, results = Channel(delay, loss=0.2, failure=0.02, seed=5), []
    for device in ("cpu", "cuda"):
        run = DecentralPolicy(make().to(device), channel, 1.0)
        run.start([1, 2])
        for seen in journey([1, 2], 15, 8):
            graph = Graph(seen.graph.source.to(device), seen.graph.target.to(device), 2, 15)
            command = run.act(Seen(seen.features.to(device), seen.positions.to(device), graph))
        state = state_of(run)
        results.append((state.stamps.cpu(), state.alive.cpu(), state.entries.cpu(), command.cpu()))
    for a, b in zip(*results, strict=True):
        assert same(a.double(), b.double())


UTM = torch.tensor([500_000.0, 5_000_000.0], dtype=torch.float64)


@pytest.mark.parametrize("delay", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("trouble", [{}, {"relay_radius": 300.0, "max_age": 2.0, "failure": 0.05}])
def test_commands_do_not_depend_on_where_in_the_world_the_team_is(delay: float, trouble: dict[str, float]) -> None:
    policy = Policy(seed=2).eval().requires_grad_(False)
    commands = []
    for origin in (torch.zeros(2, dtype=torch.float64), UTM):
        run = DecentralPolicy(policy, Channel(delay, **trouble), 1.0)
        run.start([5])
        steps = [Seen(s.features.float(), s.positions + origin, s.graph) for s in journey([5], 40, 8)]
        commands.append(torch.stack([run.act(seen) for seen in steps]))
    assert (commands[0][-1] != 0).any()
    assert same(*commands, 1e-5)
    if delay == 0 and not trouble:
        central = [policy(seen.features, seen.positions, components(seen.graph)) for seen in steps]
        assert same(commands[1], torch.stack(central), 1e-5)


def test_a_world_in_fp32_is_as_good_as_its_own_rounding() -> None:
    policy = Policy(seed=2).eval().requires_grad_(False)
    commands = []
    for origin in (torch.zeros(2, dtype=torch.float64), UTM):
        run = DecentralPolicy(policy, Channel(1.0), 1.0)
        run.start([5])
        for seen in journey([5], 40, 8):
            positions = (seen.positions + UTM).float()  # what such a world knows, in whole or half metres
            here = positions.double() - UTM + origin
            command = run.act(Seen(seen.features.float(), positions if origin.any() else here, seen.graph))
        commands.append(command)
    assert same(*commands, 1e-5)


@dataclass(frozen=True)
class OneWay(Graph):
    directed: bool = True


@pytest.mark.parametrize(
    ("fields", "delay", "warned"),
    [({}, 0.0, True), ({}, 1.0, False), ({"variant": "L"}, 0.0, False), ({"layers": 1}, 0.0, False)],
)
def test_directed_links_without_delay_are_spoken_of_once_an_episode(
    fields: dict[str, Any], delay: float, warned: bool
) -> None:
    run = DecentralPolicy(make(**fields), Channel(delay), 1.0)
    run.start([3])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for seen in journey([3], 6, 3, directed=True):
            graph = OneWay(seen.graph.source, seen.graph.target, 1, 6)
            run.act(Seen(seen.features, seen.positions, graph))
    assert [warning.category for warning in said] == [MastWarning] * warned
    assert not warned or ("differ from central" in str(said[0].message) and said[0].filename == __file__)
