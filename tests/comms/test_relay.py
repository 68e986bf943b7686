"""The relay: how old news is, that it never gets older by itself, and that content and stamp stay
together."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mast_swarm import NavigationConfig, chance
from mast_swarm.comms import Channel, Relay, RelayState
from mast_swarm.comms.config import periods
from mast_swarm.comms.held import slot_of, stamp_of
from mast_swarm.errors import MastError
from mast_swarm.space import Graph, hops, radius_graph, reachable
from relaying import Network, Stamps, Story, batched, by_events, counted

DELAYS = [0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 1.0, 1.5, 2.0, 2.5, 3.7]


def graph_of(adjacency: Tensor) -> Graph:
    """The graph of a matrix [B, N, N] bool, [b, i, j]: i hears j; every edge twice, as graphs may give
    them."""
    b, i, j = adjacency.nonzero(as_tuple=True)
    n = adjacency.shape[1]
    return Graph((b * n + j).repeat(2), (b * n + i).repeat(2), len(adjacency), n)


def line(robots: int) -> Tensor:
    near = torch.zeros(1, robots, robots, dtype=torch.bool)
    near[0].diagonal(1).fill_(True)
    return near | near.transpose(1, 2)


def random_links(seed: int, step: int, batch: int, robots: int, share: float) -> Tensor:
    rng = torch.Generator().manual_seed(seed * 1000 + step)
    return torch.rand(batch, robots, robots, generator=rng) < share


def content(batch: int, robots: int, step: int) -> tuple[Tensor, Tensor]:
    """A message and a position that tell origin and stamp."""
    j = torch.arange(robots, dtype=torch.float32).expand(batch, robots)
    b = torch.arange(batch, dtype=torch.float32)[:, None].expand(batch, robots)
    return torch.stack((b, j, torch.full_like(j, step)), -1), torch.stack((j, j * 1000 + step), -1)


def check_content(state: RelayState) -> None:
    """Everything anyone holds, in any layer, is what its origin said at its stamp."""
    b, _, _, j = held = (state.table >= 0).nonzero(as_tuple=True)
    entry = state.table[held]
    message, position = state.messages[b, slot_of(entry), j], state.positions[b, slot_of(entry), j]
    expected = torch.stack((b, j, stamp_of(entry)), -1).float()
    assert torch.equal(message, expected)
    assert torch.equal(position, torch.stack((expected[:, 1], expected[:, 1] * 1000 + expected[:, 2]), -1).double())
    assert (stamp_of(entry) <= state.step).all()


def advance(relay: Relay, state: RelayState, adjacency: Tensor) -> RelayState:
    """Sample, check, and go on to the next instant."""
    batch, robots = state.alive.shape
    graph = graph_of(adjacency)
    state = relay.sample(state, *content(batch, robots, state.step), graph)
    check_content(state)
    return relay.exchange(state, graph)


def settled(relay: Relay, adjacency: Tensor, steps: int) -> RelayState:
    """The state at instant `steps` on a still graph, sampled."""
    batch, robots, _ = adjacency.shape
    state = relay.start(range(batch), robots, 3)
    for _ in range(steps):
        state = advance(relay, state, adjacency)
    return relay.sample(state, *content(batch, robots, steps), graph_of(adjacency))


@pytest.mark.parametrize("dt", [1.0, 0.2])
@pytest.mark.parametrize("delay", DELAYS)
def test_age_on_a_still_graph(delay: float, dt: float) -> None:
    delay = delay if dt == 1.0 else round(delay / 5, 6)
    links = random_links(3, 0, 2, 12, 0.12)
    links = torch.cat((links, line(12)))
    steps = math.ceil(12 * delay / dt) + 3
    state = settled(Relay(Channel(delay=delay), dt), links, steps)
    far = hops(graph_of(links))
    ratio = Fraction(str(delay)) / Fraction(str(dt))
    assert far.max() == 11
    for h in range(-1, int(far.max()) + 1):
        expected = -1 if h < 0 else steps - math.ceil(h * ratio)
        assert (state.stamps[far == h] == expected).all(), h
    check_content(state)


def test_ten_hops_of_a_tenth_of_a_second_take_one_second() -> None:
    state = settled(Relay(Channel(delay=0.1), 1.0), line(13), 5)
    assert state.stamps[0, 0].tolist() == [5] + [4] * 10 + [3] * 2


@pytest.mark.parametrize("delay", [0.3, 1.0, 2.5])
def test_news_arrives_when_its_hops_are_done_and_not_before(delay: float) -> None:
    relay = Relay(Channel(delay=delay), 1.0)
    state = relay.start([0], 10, 3)
    for n in range(30):
        seen = relay.sample(state, *content(1, 10, n), graph_of(line(10))).stamps[0, 0]
        for h in range(10):
            age = math.ceil(h * Fraction(str(delay)))
            assert seen[h] == (n - age if n >= age else -1)
        state = advance(relay, state, line(10))


def living_rows(story: Story, channel: Channel, told: list[Stamps]) -> list[list[list[int]]]:
    """What those hold who live: the others decide nothing, so how they forget is nobody's business."""
    return [
        [row for row, lives in zip(stamps, alive, strict=True) if lives]
        for stamps, alive in zip(told, story.alive(channel), strict=True)
    ]


def check_agreement(story: Story, channel: Channel) -> None:
    """The batched relay, a network of robots and (with delay) the events in a queue give equal stamps, and the first
    two count as many links on the way of each."""
    network = Network(story, channel)
    stamps, hops = zip(*((stamps, network.hops()) for stamps in network.run()), strict=True)
    expected = living_rows(story, channel, list(stamps))
    assert living_rows(story, channel, batched(story, channel)) == expected
    found_stamps, found_hops = zip(*counted(story, channel), strict=True)
    assert living_rows(story, channel, list(found_stamps)) == expected
    assert living_rows(story, channel, list(found_hops)) == living_rows(story, channel, list(hops))
    if channel.delay > 0:
        assert living_rows(story, channel, by_events(story, channel)) == expected


RATIOS = [0.1, 0.3, 1 / 3, 0.37, 0.5, 0.6, 2 / 3, 0.7, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0, 2.5, 3.0]


@pytest.mark.parametrize("ratio", [0.0, *RATIOS])
def test_the_relay_is_a_network_of_robots(ratio: float) -> None:
    story = Story(7, robots=8, steps=14, dt=0.2, share=0.18)
    check_agreement(story, Channel(delay=ratio * 0.2))


@pytest.mark.parametrize("ratio", [0.0, 0.5, 0.6, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("limits", [{"relay_radius": 60.0}, {"max_age": 0.7}, {"relay_radius": 45.0, "max_age": 0.5}])
def test_limits_hold_in_all_of_them(ratio: float, limits: dict[str, float]) -> None:
    story = Story(5, robots=8, steps=12, dt=0.2, share=0.3)
    channel = Channel(delay=ratio * 0.2, loss=0.2, failure=0.02, **limits)
    check_agreement(story, channel)
    free = dataclasses.replace(channel, relay_radius=None, max_age=None)
    assert (ratio == 0 and "relay_radius" not in limits) or batched(story, channel) != batched(story, free)


@settings(deadline=None, max_examples=100)
@given(
    st.integers(0, 10**6),
    st.sampled_from([0.0, *RATIOS, 0.1234]) | st.fractions(Fraction(1, 10), 3, max_denominator=10).map(float),
    st.integers(1, 7),
    st.sampled_from([1.0, 0.2, 0.1]),
    st.sampled_from([0.08, 0.2, 0.5]),
    st.sampled_from([(0.0, 0.0), (0.3, 0.05)]),
    st.sampled_from([None, 30.0, 70.0]),
    st.sampled_from([None, 0.5, 1.0, 3.3]),
)
def test_all_of_them_agree_whatever_happens(
    seed: int,
    ratio: float,
    robots: int,
    dt: float,
    share: float,
    trouble: tuple[float, float],
    radius: float | None,
    age: float | None,
) -> None:
    if ratio == 0.1234:  # 5,000 ticks per period: the network of robots looks at each, so a short story will do
        robots, steps = min(robots, 3), 3
    else:
        steps = 9
    channel = Channel(ratio * dt, *trouble, relay_radius=radius, max_age=None if age is None else age * dt)
    check_agreement(Story(seed, robots, steps, dt, share), channel)


def test_a_newer_stamp_that_waits_does_not_stop_an_older_one_that_is_due() -> None:
    """tau = 0.6 dt on a line: the news of the robot before it is passed on at 1.2 dt, though newer came at 1.0 dt."""
    relay = Relay(Channel(delay=0.6), 1.0)
    state = relay.start([0], 3, 3)
    for n in range(3):
        seen = relay.sample(state, *content(1, 3, n), graph_of(line(3))).stamps[0, 2].tolist()
        assert seen == [[-1, -1, 0], [-1, 0, 1], [0, 1, 2]][n]
        state = advance(relay, state, line(3))


def test_a_table_grows_where_a_changing_graph_makes_more_stamps_wait() -> None:
    relay = Relay(Channel(delay=0.37), 1.0)
    assert relay.timing.layers == 2
    layers = 0
    state = relay.start([0], 12, 3)
    for n in range(30):
        state = advance(relay, state, random_links(3, n, 1, 12, 0.12))
        layers = max(layers, state.table.shape[1])
    assert layers > 2


@pytest.mark.parametrize(("delay", "layers"), [(0.0, 1), (0.1, 1), (1.0, 1), (0.6, 2), (1.5, 2), (2.0, 2), (3.0, 3)])
def test_layers_are_those_that_a_still_graph_needs(delay: float, layers: int) -> None:
    relay = Relay(Channel(delay=delay), 1.0)
    assert relay.timing.layers == settled(relay, line(6), 20).table.shape[1] == layers


@given(
    st.integers(1, 1000),
    st.integers(1, 1000),
    st.sampled_from([1.0, 0.2, 0.1, 0.05, 1 / 30, 0.7, 3.0]) | st.floats(1e-3, 1e3),
)
def test_ratios_are_those_that_were_meant(p: int, q: int, dt: float) -> None:
    for seconds in (p / q * dt, p * dt / q, dt / q * p, dt / (q / p), p * (dt / q)):
        assert periods(seconds, dt) == Fraction(p, q)


def test_ratios_by_example() -> None:
    assert periods(0.1 * 0.2, 0.2) == Fraction(1, 10)
    assert periods(0.3, 0.1) == periods(0.1 + 0.1 + 0.1, 0.1) == 3
    assert periods(1 / 3, 1) == Fraction(1, 3)
    assert periods(1e-9, 1.0) == Fraction(1, 10**9)
    assert periods(0, 0.2) == 0
    assert periods(1.23456789012, 1.0) == Fraction(123456789012, 10**11)  # as its decimals say


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 10**6),
    st.sampled_from([0.0, *DELAYS]),
    st.integers(1, 9),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([0.0, 0.05, 0.5]),
)
def test_content_matches_stamps_and_stamps_never_go_back(
    seed: int, delay: float, robots: int, loss: float, failure: float
) -> None:
    relay = Relay(Channel(delay, loss, failure, seed), 1.0)
    state = relay.start([1, 2], robots, 3)
    before = torch.full((2, robots, robots), -1, dtype=torch.int32)
    dead = torch.zeros(2, robots, dtype=torch.bool)
    for n in range(15):
        links = random_links(seed, n, 2, robots, 0.3)
        alive, sampled = state.alive, relay.sample(state, *content(2, robots, n), graph_of(links))
        check_content(sampled)
        stamps = sampled.stamps
        own = stamps.diagonal(dim1=1, dim2=2)
        assert (own[alive] == n).all()  # one's own entry is always current
        assert delay == 0 or (stamps >= before).all()
        assert delay == 0 or torch.equal(stamps[dead], before[dead])  # the dead learn nothing
        others = ~torch.eye(robots, dtype=torch.bool).expand_as(stamps)
        if loss == 1:
            assert (stamps[others] == -1).all()
        before, dead = stamps, ~alive
        state = relay.exchange(sampled, graph_of(links))
        check_content(state)


@pytest.mark.parametrize("directed", [False, True])
def test_without_delay_everyone_holds_exactly_what_can_reach_it_now(directed: bool) -> None:
    relay = Relay(Channel(delay=0.0), 1.0)
    state = relay.start([0, 1], 9, 3)
    for n in range(6):  # the graph changes, so news of the steps before would show
        links = random_links(5, n, 2, 9, 0.12)
        links = links if directed else links | links.transpose(1, 2)
        sampled = relay.sample(state, *content(2, 9, n), graph_of(links))
        check_content(sampled)
        reach = reachable(graph_of(links))
        assert not reach.all()
        assert torch.equal(sampled.stamps, torch.where(reach, n, -1).to(torch.int32))
        state = relay.exchange(sampled, graph_of(links))


@pytest.mark.parametrize("delay", [0.0, 0.4, 1.0, 2.5])
def test_the_news_of_the_dead_ages_and_the_living_go_on(delay: float) -> None:
    relay = Relay(Channel(delay=delay), 1.0)
    state = settled(relay, line(5), 20)
    state = dataclasses.replace(state, alive=torch.tensor([[True, True, False, True, True]]))
    last = state.stamps[0, 0].clone()
    for n in range(20, 40):
        graph = graph_of(line(5))
        state = relay.sample(state, *content(1, 5, n), graph)
        check_content(state)
        state = relay.exchange(state, graph)
    final = relay.sample(state, *content(1, 5, 40), graph_of(line(5)))
    stamps = final.stamps[0]
    age = math.ceil(Fraction(str(delay)))
    assert stamps[0, :2].tolist() == [40, 40 - age] and stamps[4, 3:].tolist() == [40 - age, 40]
    if delay == 0:
        assert stamps[0, 2:].tolist() == [-1, -1, -1]
    else:
        assert last[2] <= stamps[0, 2] <= 20  # what was on its way still arrives
        assert (stamps[0, 3:] <= 20).all() and (stamps[0, 3:] >= last[3:]).all()


def test_failures_come_at_their_rate_and_are_for_good() -> None:
    relay = Relay(Channel(delay=1.0, failure=0.02, seed=4), 1.0)
    state = relay.start(range(20), 50, 3)
    assert state.alive.all()
    for n in range(30):
        nobody = torch.zeros(20, 50, 50, dtype=torch.bool)
        after = relay.exchange(relay.sample(state, *content(20, 50, n), graph_of(nobody)), graph_of(nobody))
        assert not (after.alive & ~state.alive).any()
        state = after
    assert state.alive.float().mean().item() == pytest.approx(0.98**30, abs=0.05)


def test_losses_come_at_their_rate_and_independently() -> None:
    everyone = ~torch.eye(30, dtype=torch.bool).expand(8, 30, 30)
    relay = Relay(Channel(delay=1.0, loss=0.25, seed=1), 1.0)
    state = relay.start(range(8), 30, 3)
    heard = []
    for n in range(2):  # of each step only fresh news counts: it came over the direct link
        state = advance(relay, state, everyone)
        heard.append((state.stamps == n)[everyone])
    for fresh in heard:
        assert fresh.float().mean().item() == pytest.approx(0.75, abs=0.02)
    both = (heard[0] & heard[1]).float().mean().item()
    assert both == pytest.approx(0.75**2, abs=0.02)
    forward = heard[0].view(8, 30, 29)
    matrix = torch.zeros(8, 30, 30, dtype=torch.bool)
    matrix[everyone] = forward.flatten()
    assert not torch.equal(matrix, matrix.transpose(1, 2))  # each direction has its own luck


@pytest.mark.parametrize("delay", [0.0, 0.3, 1.0, 2.5])
def test_an_environment_meets_the_same_luck_in_any_batch(delay: float) -> None:
    channel = Channel(delay=delay, loss=0.4, failure=0.05, seed=9)

    def run(seeds: list[int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        relay = Relay(channel, 1.0)
        state = relay.start(seeds, 8, 3)
        for n in range(10):
            links = torch.cat([random_links(s, n, 1, 8, 0.3) for s in seeds])
            state = relay.sample(state, *content(len(seeds), 8, n), graph_of(links))
            state = relay.exchange(state, graph_of(links)) if n < 9 else state
        return state.stamps, state.alive, state.transmissions, state.entries

    together, alone, swapped = run([3, 7, 3]), run([7]), run([7, 3])
    for all_, one, other in zip(together, alone, swapped, strict=True):
        assert torch.equal(all_[1], one[0]) and torch.equal(all_[1], other[0])
        assert torch.equal(all_[0], all_[2]) and torch.equal(all_[0], other[1])
    assert not torch.equal(together[0][0], together[0][1])


def test_slots_grow_as_needed_and_are_used_again() -> None:
    relay = Relay(Channel(delay=1.0), 1.0)
    state = settled(relay, line(40), 60)
    slots = state.messages.shape[1]
    assert 40 <= slots <= 64  # the robot at an end has 40 different ages among its holders, and no more
    check_content(state)
    for _ in range(80):
        state = advance(relay, state, line(40))
    assert state.messages.shape[1] == slots


def test_links_are_counted_where_age_does_not_tell_them() -> None:
    """Robot 2 hears robot 1 late, and so its old news of robot 0 has crossed two links all the same."""
    relay = Relay(Channel(delay=1.0), 1.0)
    relay.counted = 1
    state = relay.start([0], 3, 3)
    near, late = torch.zeros(2, 1, 3, 3, dtype=torch.bool)
    near[0, 1, 0] = True  # 1 hears 0 at first, and later only 2 hears 1
    late[0, 2, 1] = True
    for links in [near, *[late] * 4]:
        state = advance(relay, state, links)
    seen = relay.sample(state, *content(1, 3, state.step), graph_of(late))
    assert (seen.step - seen.stamps[0, 2]).tolist() == [5, 1, 0]
    assert seen.hops[0].tolist() == [[0, -1, -1], [1, 0, -1], [2, 1, 0]]


def test_states_are_values() -> None:
    relay = Relay(Channel(delay=1.0), 1.0)
    relay.counted = 2
    state = settled(relay, line(4), 3)
    kept = {f.name: torch.as_tensor(getattr(state, f.name)).clone() for f in dataclasses.fields(state)}
    for _ in range(5):
        advance(relay, state, line(4))
    assert all(torch.equal(torch.as_tensor(getattr(state, name)), value) for name, value in kept.items())


def test_transmissions_are_counted() -> None:
    # A line of three: 4 links. Each carries all that its sender holds: 1 each, then 2 + 3 + 3 + 2.
    relay = Relay(Channel(delay=1.0), 1.0)
    state = relay.start([0], 3, 3)
    counts = []
    for _ in range(3):
        state = advance(relay, state, line(3))
        counts.append((int(state.transmissions), int(state.entries)))
    assert counts == [(4, 4), (8, 14), (12, 26)]
    # Half the delay: two rounds a period, the second still counted where it brings no news.
    state = settled(Relay(Channel(delay=0.5), 1.0), line(3), 1)
    assert (int(state.transmissions), int(state.entries)) == (8, 4 + 10)
    instant = settled(Relay(Channel(delay=0.0), 1.0), line(3), 0)
    assert (int(instant.transmissions), int(instant.entries)) == (4, 12)


def test_rounds_that_bring_nothing_are_counted_as_if_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def counts() -> tuple[list[int], list[int], Tensor]:
        state = settled(Relay(Channel(delay=0.25, loss=0.2, seed=2), 1.0), line(5), 12)
        return state.transmissions.tolist(), state.entries.tolist(), state.stamps

    quick = counts()
    whole = Relay._hop_together

    def without_shortcut(self: Relay, state: RelayState, graph: Graph) -> RelayState:
        # A link from a robot that is always heard anew keeps every round worth running.
        with monkeypatch.context() as patch:
            patch.setattr(Tensor, "__bool__", lambda tensor: False)
            return whole(self, state, graph)

    monkeypatch.setattr(Relay, "_hop_together", without_shortcut)
    slow = counts()
    assert quick[:2] == slow[:2] and torch.equal(quick[2], slow[2])


@given(counter=st.integers(-(2**63), 2**63 - 1), key=st.integers(-(2**63), 2**63 - 1))
def test_a_number_and_a_tensor_name_the_same_event(counter: int, key: int) -> None:
    """A number is mixed on the host: to send it to a GPU would mean to wait."""
    keys = torch.tensor([key])
    assert torch.equal(chance.combine(keys, counter, 3), chance.combine(keys, torch.tensor(counter), torch.tensor([3])))


def test_chance_is_even_and_has_no_pattern() -> None:
    key = chance.keys_of(0, range(200), torch.device("cpu"))
    drawn = chance.uniform(chance.combine(key[:, None, None], 3, torch.arange(50)[:, None], torch.arange(40)))
    assert drawn.min() >= 0 and drawn.max() < 1
    assert torch.histc(drawn, 20, 0, 1).div(drawn.numel()).sub(0.05).abs().max() < 0.002
    for axis in range(3):
        a, b = drawn.transpose(0, axis)[:-1].flatten(), drawn.transpose(0, axis)[1:].flatten()
        assert abs(torch.corrcoef(torch.stack((a, b)))[0, 1]) < 0.01
    assert len(torch.unique(chance.keys_of(1, [-1, 0, 2**63, 2**64 - 2], torch.device("cpu")))) == 4


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"delay": -0.1}, "delay is -0.1"),
        ({"delay": float("nan")}, "delay is nan"),
        ({"delay": None}, "delay is None"),
        ({"loss": 1.1}, "loss is 1.1: expected a probability"),
        ({"loss": -1}, "loss is -1"),
        ({"failure": float("inf")}, "failure is inf"),
        ({"seed": 0.5}, "seed is 0.5"),
        ({"relay_radius": 0.0}, "relay_radius is 0.0 m: expected a positive number, or None"),
        ({"relay_radius": float("nan")}, "relay_radius is nan"),
        ({"relay_radius": "near"}, "relay_radius is 'near': expected metres, auto, or None"),
        ({"max_age": -1.0}, "max_age is -1.0 s: expected a positive number, or None"),
        ({"max_age": "1"}, "max_age is '1'"),
    ],
)
def test_wrong_channels_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(MastError, match=message):
        Channel(**fields)


def test_the_radius_auto_is_the_field_and_what_robots_move_meanwhile() -> None:
    channel, team = Channel(1.0, relay_radius="auto"), NavigationConfig(agents=400)  # in 2000 m, 5 m/s, 1 s
    # 1000 m at 50 m per hop are 20 hops: the news is 20 s old, in which a robot moves 100 m.
    assert channel.fitted(1000.0, team).radius == 1100.0
    assert dataclasses.replace(channel, delay=0.25).fitted(1000.0, team).radius == 1025.0
    assert dataclasses.replace(channel, delay=0.0).fitted(1000.0, team).radius == 1000.0
    assert dataclasses.replace(channel, max_age=8.0).fitted(1000.0, team).radius == 1040.0
    assert channel.fitted(None, team).radius is None  # a policy without window looks everywhere
    given = Channel(1.0, relay_radius=70.0)
    assert given.fitted(1000.0, team) is given
    with pytest.raises(MastError, match="relay radius auto depends on the policy and the world"):
        Relay(channel, 1.0)


def test_wrong_periods_are_named() -> None:
    with pytest.raises(MastError, match="dt is 0"):
        Relay(Channel(delay=1.0), 0)
    with pytest.raises(MastError, match="more than 1000 control periods"):
        Relay(Channel(delay=500.0), 0.1)


def test_an_age_beyond_all_numbers_is_as_good_as_none() -> None:
    states = []
    for age in (None, 1e20):
        relay = Relay(Channel(1.0, max_age=age), 1.0)
        state, positions = relay.start([3], 4, 2), torch.arange(8.0).view(1, 4, 2)
        graph = radius_graph(positions, 3.0)
        for _ in range(3):
            state = relay.exchange(relay.sample(state, torch.zeros(1, 4, 2), positions, graph), graph)
        states.append(state)
    assert torch.equal(states[0].table, states[1].table)
