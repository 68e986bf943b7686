"""A team cut into strips: several processes give what one with the whole team gives."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch import Tensor

from mast_swarm.comms.strips import Strips, _packed, _unpacked, halo_bytes
from mast_swarm.errors import MastError
from mast_swarm.model import Policy, PolicyConfig
from mast_swarm.space import components, nearest, neighbour_graph

TOLERANCE = 1e-5
SEED, TIME = torch.tensor([7]), torch.tensor([30.0])
STEPS, PATIENCE = 4, timedelta(seconds=60)


def policy_of(**fields: object) -> Policy:
    config = PolicyConfig(**{"layers": 2, "heads": 2, "head_dim": 8, "attention_radius": 90.0, **fields})  # type: ignore[arg-type]
    policy = Policy(config, seed=1).requires_grad_(False)
    with torch.no_grad():
        for block in policy.mast.blocks:
            block.attention.qkv.weight.mul_(3.0)  # attention that cares whom it attends to
    return policy


@dataclass
class Case:
    """A whole team, and what one process makes of it."""

    policy: Policy
    positions: Tensor  # [N, 2]
    links: Tensor  # [e, 2]

    def __post_init__(self) -> None:
        rng = torch.Generator().manual_seed(len(self.positions))
        self.features = torch.randn(len(self.positions), 14, generator=rng)
        self.landmark = torch.randn(len(self.positions), 2, generator=rng) * 200

    def labels(self) -> Tensor:
        size = len(self.positions)
        label = torch.arange(size)
        for _ in range(size):  # each takes the lowest label of those it can talk to
            a, b = self.links.unbind(1)
            label = label.scatter_reduce(0, torch.cat((a, b)), torch.cat((label[b], label[a])), "amin")
        return label

    def prediction(self) -> Tensor:
        return self.policy(self.features[None], self.positions[None], self.labels()[None])[0]

    def command(self) -> Tensor:
        return self.policy.command(self.prediction()[None], self.landmark[None], SEED, TIME)[0]


def linked(positions: Tensor, k: int) -> Tensor:
    """Each with its k nearest, as pairs (who, whom)."""
    if k == 0:
        return torch.zeros(0, 2, dtype=torch.int64)
    _, index = nearest(positions[None], positions[None], k, exclude_self=True)
    who = torch.arange(len(positions))[:, None].expand(-1, k)
    return torch.stack((who, index[0]), dim=-1)[index[0] >= 0]


def shuffled(positions: Tensor) -> Tensor:
    return positions[torch.randperm(len(positions), generator=torch.Generator().manual_seed(0))]


def scattered(robots: int, width: float, height: float = 300.0, seed: int = 0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.rand(robots, 2, generator=rng) * torch.tensor([width, height])


def clustered(robots: int, seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    centre = torch.rand(5, 2, generator=rng) * torch.tensor([1500.0, 200.0])
    return centre[torch.randint(5, (robots,), generator=rng)] + 40 * torch.randn(robots, 2, generator=rng)


def line(robots: int, y: float) -> Tensor:
    return torch.stack((torch.arange(robots) * 12.0, torch.full((robots,), y)), dim=1)


def chains() -> Tensor:
    """Two chains side by side across all strips: each is a component, and windows reach over both."""
    return shuffled(torch.cat((line(80, 0.0), line(80, 40.0))))


def hairpin() -> Tensor:
    """Two chains that are one component, but only because of their right end."""
    bend = torch.stack((torch.full((3,), 80 * 12.0), torch.tensor([8.0, 20.0, 32.0])), dim=1)
    return shuffled(torch.cat((line(80, 0.0), line(80, 40.0), bend)))


def case(make: Callable[[], Tensor], k: int = 2, **fields: object) -> Callable[[], Case]:
    return lambda: Case(policy_of(**fields), make(), linked(make(), k))


CASES: dict[str, Callable[[], Case]] = {
    "even": case(lambda: scattered(150, 1500)),
    "window only": case(lambda: scattered(150, 1500), variant="L"),
    "narrow messages, absolute places": case(lambda: scattered(120, 1500), message_dim=5, encoding="ape-g"),
    "one layer": case(lambda: scattered(100, 900), layers=1),
    "three layers": case(lambda: scattered(200, 1800), layers=3, k=3),
    "exploring": case(lambda: scattered(100, 1200), exploration_time=20.0),
    "clusters": case(lambda: clustered(160, 1)),
    "other clusters": case(lambda: clustered(90, 2), k=1),
    "chains": case(chains),
    "hairpin": case(hairpin),
    "no links": case(lambda: scattered(60, 800), k=0),
    "100 km away": case(lambda: scattered(150, 1500) + 1e5),
    "all in one strip": case(lambda: torch.stack((torch.full((60,), 5.0), torch.arange(60) * 7.0), dim=1)),
    "one robot": case(lambda: torch.ones(1, 2), k=0),
    "halo wider than strips": case(lambda: scattered(100, 400), attention_radius=160.0),
}


def moved(positions: Tensor, step: int) -> Tensor:
    """Where robots are after some steps, by a wind that blows either way."""
    return positions + step * torch.stack((150 * torch.sin(positions[:, 1] / 20), 0 * positions[:, 1]), dim=1)


def journey() -> list[Case]:
    start, policy = scattered(120, 1200), policy_of()
    return [Case(policy, p, linked(p, 2)) for p in (moved(start, step) for step in range(STEPS))]


def run(strips: Strips, whole: Case, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Predictions and commands of the robots of given ids."""
    links = whole.links[torch.isin(whole.links[:, 0], ids)]
    prediction = strips.decide(ids, whole.features[ids], whole.positions[ids], links)
    return prediction, strips.command(ids, prediction, whole.landmark[ids], SEED, TIME)


def refusals(rank: int, size: int) -> list[str]:
    """What this process is told when one of them is given something wrong."""
    whole = CASES["even"]()
    ids = torch.arange(len(whole.positions))[rank::size]
    links = whole.links[ids]
    nan, double = whole.positions[ids].clone(), whole.positions[ids]
    if rank == 1:
        nan[3, 0], double = torch.nan, double.double()
    strips = Strips(whole.policy)
    said = []
    attempts: list[Callable[[], object]] = [
        lambda: strips.cut(nan),
        lambda: strips.halo(10.0, nan),
        lambda: strips.decide(ids, whole.features[ids], nan, links),
        lambda: strips.decide(ids, whole.features[ids], whole.positions[ids], None if rank == 1 else links),
        lambda: strips.decide(ids, whole.features[ids], whole.positions[ids], links + 400 * (rank == 1)),
        lambda: strips.decide(ids, whole.features[ids], double, links),
        lambda: strips.decide(ids // size, whole.features[ids], whole.positions[ids], links // size),
        lambda: strips.decide(ids, whole.features[ids], whole.positions[ids], links),  # and all is well again
    ]
    for attempt in attempts:
        try:
            attempt()
            said.append("")
        except MastError as error:
            said.append(str(error))
    return said


def one_of_several(rank: int, size: int, folder: Path) -> None:
    """What each process does: every case, the journey, and what is refused."""
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting-{size}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size, timeout=PATIENCE)
    found: dict[str, Tensor] = {}
    for name, made in CASES.items():
        whole = made()
        strips = Strips(whole.policy)
        ids = torch.arange(len(whole.positions))[rank::size]
        at_random = run(strips, whole, ids)[0]
        found |= {f"{name}/dealt": ids, f"{name}/at random": at_random}
        strips.cut(whole.positions[ids])
        ids, positions, features = strips.share_out(ids, whole.positions[ids], whole.features[ids])
        assert torch.equal(positions, whole.positions[ids]) and torch.equal(features, whole.features[ids])
        prediction, command = run(strips, whole, ids)
        found |= {f"{name}/ids": ids, f"{name}/prediction": prediction, f"{name}/command": command}
        found[f"{name}/traffic"] = torch.tensor([strips.halo_rows, strips.sent_bytes])
    steps = journey()
    strips, ids = Strips(steps[0].policy), torch.arange(len(steps[0].positions))[rank::size]
    strips.cut(steps[0].positions[ids])
    for step, whole in enumerate(steps):
        ids, _ = strips.share_out(ids, whole.positions[ids])
        found |= {f"step {step}/ids": ids, f"step {step}/prediction": run(strips, whole, ids)[0]}
    save_file({name: value.contiguous() for name, value in found.items()}, folder / f"{size}-{rank}.safetensors")
    (folder / f"{size}-{rank}.txt").write_text("\n".join(refusals(rank, size)))
    dist.destroy_process_group()


@dataclass
class Runs:
    size: int
    found: list[dict[str, Tensor]]
    said: list[list[str]]

    def team(self, case: str, what: str, ids: str = "ids") -> Tensor:
        """What the processes found, put together in the order of ids."""
        place = torch.cat([found[f"{case}/{ids}"] for found in self.found])
        assert torch.equal(place.sort().values, torch.arange(len(place)))
        return torch.cat([found[f"{case}/{what}"] for found in self.found])[place.argsort()]


@pytest.fixture(scope="module", params=[2, 3])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    size, folder = request.param, tmp_path_factory.mktemp("strips")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2])  # where the processes find this file, however pytest was begun
        mp.spawn(one_of_several, (size, folder), nprocs=size)
    found = [load_file(folder / f"{size}-{rank}.safetensors") for rank in range(size)]
    return Runs(size, found, [(folder / f"{size}-{rank}.txt").read_text().split("\n") for rank in range(size)])


def test_strips_predict_what_the_whole_team_does(runs: Runs) -> None:
    for name, made in CASES.items():
        whole = made()
        for what, ids in (("prediction", "ids"), ("at random", "dealt")):
            wrong = (runs.team(name, what, ids) - whole.prediction()).abs().max()
            assert wrong < TOLERANCE, f"{name}, {what}: {wrong:g}"
        torch.testing.assert_close(runs.team(name, "command"), whole.command(), rtol=0, atol=2 * TOLERANCE)


def test_that_is_not_for_nothing(runs: Runs) -> None:
    """Halos and labels of the whole team matter to these teams, and halos are less than everyone."""
    for name in ("even", "chains", "hairpin"):
        whole = CASES[name]()
        ids = runs.found[0][f"{name}/ids"]
        features, positions = whole.features[ids][None], whole.positions[ids][None]
        alone = whole.policy(features, positions, whole.labels()[ids][None])[0]
        assert (alone - whole.prediction()[ids]).abs().max() > 100 * TOLERANCE
        for found in (runs.found[0], runs.found[-1]):
            assert 0 < found[f"{name}/traffic"][0] < len(whole.positions) - len(found[f"{name}/ids"])
    hair = CASES["hairpin"]()  # one component: cut the bend off and there are two
    assert hair.labels().unique().numel() == 1
    arms = (hair.positions[:, 1] > 20).long()
    assert (
        hair.policy(hair.features[None], hair.positions[None], arms[None])[0] - hair.prediction()
    ).abs().max() > 1e-3


def test_strips_hold_about_equally_many(runs: Runs) -> None:
    for name in ("even", "clusters", "chains"):
        sizes = [len(found[f"{name}/ids"]) for found in runs.found]
        assert max(sizes) - min(sizes) <= 2, name
        highest = [CASES[name]().positions[found[f"{name}/ids"], 0].max() for found in runs.found]
        lowest = [CASES[name]().positions[found[f"{name}/ids"], 0].min() for found in runs.found]
        assert all(high < low for high, low in zip(highest[:-1], lowest[1:], strict=True)), name
    for name in ("all in one strip", "one robot"):  # the others work with nothing
        sizes = [len(found[f"{name}/ids"]) for found in runs.found]
        assert sorted(sizes)[:-1] == [0] * (runs.size - 1)


def test_robots_that_move_change_owner(runs: Runs) -> None:
    owners = []
    for step, whole in enumerate(journey()):
        wrong = (runs.team(f"step {step}", "prediction") - whole.prediction()).abs().max()
        assert wrong < TOLERANCE, f"step {step}: {wrong:g}"
        owner = [torch.full_like(found[f"step {step}/ids"], rank) for rank, found in enumerate(runs.found)]
        ids = torch.cat([found[f"step {step}/ids"] for found in runs.found])
        owners.append(torch.cat(owner)[ids.argsort()])
    assert all((a != b).sum() > 2 for a, b in itertools.pairwise(owners))


def test_what_travels_is_the_halo(runs: Runs) -> None:
    config = CASES["window only"]().policy.config
    row = config.message_width * 4 + 2 * 4 + 8
    halo, sent = torch.stack([found["window only/traffic"] for found in runs.found]).sum(0).tolist()
    boxes = runs.size * (runs.size - 1) * 4 * 8
    assert sent == halo * row + boxes
    # As foretold from the size of the square, but that this team is a strip of 1500 m, and its ends send one halo.
    foretold = halo_bytes(config, 150, 1500.0) * (runs.size - 1)
    assert 0.7 < halo * row / foretold < 1.3


def test_bad_input_of_one_process_stops_all(runs: Runs) -> None:
    (first, *_), second = runs.said[0], runs.said[1]
    assert first == "process 1 was given bad input: see its error"
    for attempt in range(3):
        assert second[attempt] == "positions hold NaN or infinity: expected finite numbers"
        assert all(said[attempt] == first for rank, said in enumerate(runs.said) if rank != 1)
    assert "pass links [e, 2]" in second[3] and runs.said[0][3] == first
    for said in runs.said:
        assert said[4].startswith("links name robot 4") and "no process owns" in said[4]
        assert "expected the same types and shapes in all" in said[5]
        assert said[6].startswith("a robot is owned twice")
        assert said[7] == ""


@pytest.mark.parametrize("name", ["even", "window only", "exploring", "hairpin", "one robot"])
def test_one_process_is_the_policy_itself(name: str) -> None:
    whole = CASES[name]()
    strips = Strips(whole.policy)
    strips.cut(whole.positions)
    ids, positions = strips.share_out(torch.arange(len(whole.positions)), whole.positions)
    assert torch.equal(positions, whole.positions)
    prediction, command = run(strips, whole, ids)
    torch.testing.assert_close(prediction, whole.prediction(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(command, whole.command(), rtol=1e-5, atol=1e-6)
    assert strips.sent_bytes == strips.halo_rows == 0


@pytest.mark.parametrize(("perception", "shape"), [("mlp", 14), ("cnn", (1, 8, 8))])
def test_no_robots_at_all(perception: str, shape: int | tuple[int, int, int]) -> None:
    strips = Strips(policy_of(perception=perception, observation_dim=shape))
    strips.cut(torch.zeros(0, 2))
    features = torch.zeros(0, *strips.policy.config.observation_shape)
    ids, positions, features = strips.share_out(torch.arange(0), torch.zeros(0, 2), features)
    prediction = strips.decide(ids, features, positions, torch.zeros(0, 2, dtype=torch.int64))
    assert prediction.shape == strips.command(ids, prediction, positions, SEED, TIME).shape == (0, 2)


def test_labels_are_those_of_the_graph() -> None:
    positions = scattered(90, 900)
    whole = Case(policy_of(), positions, linked(positions, 1))
    _, index = nearest(positions[None], positions[None], 1, exclude_self=True)
    assert torch.equal(whole.labels(), components(neighbour_graph(index))[0])
    assert torch.equal(Strips(whole.policy)._components(torch.arange(90), whole.links), whole.labels())


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_rows_of_any_type_travel_as_bytes(rows: int) -> None:
    columns = [torch.rand(9, 3) > 0.5, torch.arange(9), torch.rand(9, 2, 2), torch.rand(9, 5).bfloat16()]
    columns += [column.repeat_interleave(2, 0)[::2] for column in columns]  # with gaps between their rows
    row = torch.arange(rows) * 2
    back = _unpacked(_packed(columns, row), columns)
    assert all(torch.equal(a[row], b) and a.dtype == b.dtype for a, b in zip(columns, back, strict=True))


def test_what_cannot_be_cut_is_refused() -> None:
    with pytest.raises(MastError, match="without attention window"):
        Strips(policy_of(attention_radius=None))
    with pytest.raises(MastError, match="variant C"):
        Strips(policy_of(variant="C"))
    with pytest.raises(MastError, match="without attention window"):
        halo_bytes(PolicyConfig(attention_radius=None), 10, 100.0)
    strips, ids, positions, features = Strips(policy_of()), torch.arange(3), torch.zeros(3, 2), torch.zeros(3, 14)
    links = torch.zeros(1, 2, dtype=torch.int64)
    with pytest.raises(MastError, match="call cut first"):
        strips.share_out(ids, positions)
    with pytest.raises(MastError, match="expected floats"):
        strips.cut(positions[None])
    with pytest.raises(MastError, match=r"expected int64 \[n\]"):
        strips.decide(ids.float(), features, positions, links)
    with pytest.raises(MastError, match="expected a row a robot"):
        strips.decide(ids, features[:2], positions, links)
    with pytest.raises(MastError, match="features have shape"):
        strips.decide(ids, features[:, :5], positions, links)
    with pytest.raises(MastError, match="pairs of ids"):
        strips.decide(ids, features, positions, links[0])
