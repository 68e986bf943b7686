"""`mast bench`: what it counts, what it measures, what it refuses, and the files it leaves."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from mast_swarm.comms import Channel
from mast_swarm.errors import MastError
from mast_swarm.evaluate import bench, cost, measure
from mast_swarm.evaluate.bench import Setting, bench_scale
from mast_swarm.evaluate.bench_config import DecentralBenchConfig, ScaleConfig, WorldBenchConfig
from mast_swarm.evaluate.measure import Clock, file_name, medians
from mast_swarm.evaluate.rollout import rollout
from mast_swarm.model import Policy, PolicyConfig
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.tasks.navigation.world import Navigation
from shared import mast, one_line

CPU = torch.device("cpu")
DENSITY = 100.0  # robots per square kilometre


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few repeats, and no large team to warm up with."""
    monkeypatch.setattr(bench, "SECONDS", 0.0)
    monkeypatch.setattr(bench, "WARM", (8,))
    monkeypatch.setattr(bench, "SETTLED", 3)
    monkeypatch.setattr(bench, "arithmetic", lambda device, precision: (1e11, "a guess"))


def printed(code: str) -> list[float]:
    """The numbers that a process of its own prints: memory that other tests have freed would be used again here."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [float(line) for line in done.stdout.splitlines()]


def test_arithmetic_is_that_of_a_count_by_hand() -> None:
    config = PolicyConfig(layers=2, heads=1, head_dim=4, observation_dim=3)
    # d = 4: perception 3x8 and 8x4; a block 4x12, 4x4, 4x8, 8x4 and 5 neighbours' scores and values; head 4x8, 8x2.
    products = 24 + 32 + 2 * (48 + 16 + 32 + 32 + 2 * 4 * 5) + 32 + 16
    assert cost.forward_flops(config, 5) == 2 * products
    lifted = PolicyConfig(layers=2, heads=1, head_dim=4, observation_dim=3, message_dim=2)
    assert cost.forward_flops(lifted, 5) == 2 * (products - 32 + 16 + 8)  # perception 8x2, and the lift 2x4
    # The weights' share is twice the weights, but for biases, norms and the encoding, which are no products.
    policy = Policy(PolicyConfig())
    weights = sum(p.numel() for name, p in policy.named_parameters() if p.ndim == 2)
    assert cost.forward_flops(policy.config, 0) == 2 * weights


def test_growth_fits_a_line() -> None:
    sizes = [100, 1_000, 10_000, 100_000, 1_000_000]
    times = [7.0, 7.0, *(12.0 + 5e-5 * size for size in sizes[2:])]
    grown = cost.growth(sizes, times)
    assert grown is not None
    assert (grown["overhead"], grown["each"]) == (pytest.approx(12.0), pytest.approx(5e-5))
    assert (grown["from"], grown["to"], grown["points"]) == (10_000, 1_000_000, 3)  # what is small does not count
    assert grown["off"] == pytest.approx(0.0, abs=1e-9) and grown["first"] == times[2]
    assert grown["times_time"] == pytest.approx(times[-1] / times[2])
    assert grown["times_faster_than_n"] == pytest.approx(times[-1] / times[2] / 100)
    few = cost.growth([50, 100, 200, 400], [9.0, 9.0, 2.0, 4.0])
    assert few is not None and (few["from"], few["overhead"], few["each"]) == (
        200,
        pytest.approx(0.0),
        pytest.approx(0.01),
    )
    steep, falling = cost.growth([50, 100], [1.0, 4.0]), cost.growth([50, 100], [4.0, 1.0])
    assert steep is not None and steep["overhead"] == 0.0 and 0.02 < steep["each"] < 0.04
    assert steep["off"] == pytest.approx(max(50 * steep["each"] - 1, 1 - 25 * steep["each"]))
    assert falling is not None and falling["each"] == 0.0 and 1.0 < falling["overhead"] < 4.0
    assert cost.growth([50], [1.0]) is None


def test_a_clock_counts_what_has_a_name() -> None:
    def run(clock: Clock) -> None:
        time.sleep(0.2)
        clock.mark()
        clock.mark("nothing")
        time.sleep(0.2)
        clock.mark()
        time.sleep(0.1)
        clock.mark("something")

    found = medians(run, CPU, 0.0, least=2, warm=0)
    assert list(found) == ["nothing", "something", "whole"]
    assert found["nothing"] < 50 and found["something"] > 99
    assert found["whole"] < 1.2 * (found["nothing"] + found["something"])


def test_medians_leave_out_warm_runs_and_stop_in_time() -> None:
    runs: list[float] = []

    def run(clock: Clock) -> None:
        clock.mark()
        time.sleep(0.5 if len(runs) < 2 else 0.001)
        runs.append(0)
        clock.mark("work")

    assert medians(run, CPU, 0.0, least=3, warm=2)["work"] < 400 and len(runs) == 5
    runs.clear()
    medians(run, CPU, 60.0, most=7, warm=2)
    assert len(runs) == 9


ABOVE = """
import torch
from mast_swarm.evaluate.measure import Memory

memory = Memory(torch.device("cpu"))
big = torch.ones(30_000_000)
del big
print(memory.peak())
memory.restart()
print(memory.peak())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only there a peak can be forgotten")
def test_memory_is_the_peak_above_what_there_was() -> None:
    first, then = printed(ABOVE)
    assert 1.1e8 < first < 3e8
    assert then < 5e7


def test_names_of_files_bear_the_machine() -> None:
    assert file_name("scale", "NVIDIA H200") == "scale-nvidia-h200"
    assert (
        file_name("world", "Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz") == "world-intel-r-core-tm-i7-9750h-cpu-2-60ghz"
    )
    about = measure.machine(CPU)
    assert about["device"] and about["kind"] == "cpu" and about["torch"] == torch.__version__


def test_a_product_tells_what_the_device_can_do() -> None:
    flops, source = measure.arithmetic(CPU, "fp32")
    assert 1e8 < flops < 1e15 and "2048" in source


def test_scale_from_the_command_line(quick: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mast("bench", "scale", "--agents", 400, 50, "--device", "cpu", "--out", tmp_path) == 0
    told = capsys.readouterr().out
    (file,) = tmp_path.glob("scale-*.json")
    assert f"written: {file}" in told and f"plot: {file.with_suffix('.png')}" in told
    assert "50 robots: " in told and "s per robot" in told and "a dense training step takes" in told
    assert file.with_suffix(".png").stat().st_size > 10_000
    found = json.loads(file.read_text())
    assert found["machine"]["device"] and (found["precision"], found["policy"]) == ("fp32", "navigation/mast-m")
    small, large = found["rows"]
    assert (small["agents"], small["path"], large["agents"], large["path"]) == (50, "dense", 400, "kernel")
    for row in (small, large):
        assert list(row["parts_ms"]) == ["observe", "components", "policy", "motion", "metric"]
        assert min(row["parts_ms"].values()) > 0 and row["step_ms"] > row["parts_ms"]["policy"]
        assert row["robots_per_s"] == pytest.approx(1e3 * row["agents"] / row["step_ms"])
        assert min(row["forward_ms"], row["dense_ms"]) > 0
        flops = cost.forward_flops(PolicyConfig(exploration_time=100.0), row["neighbours"])
        assert row["floor_ms"] == pytest.approx(1e3 * row["agents"] * flops / 1e11)
    assert 5 < large["neighbours"] < 21
    assert found["against_dense"] == [{"agents": 400, "ratio": large["dense_ms"] / large["forward_ms"]}]
    assert (found["training"]["agents"], found["training"]["path"]) == (400, "kernel")
    assert found["growth"]["step"]["times_time"] == pytest.approx(large["step_ms"] / small["step_ms"])


def test_dense_runs_only_where_it_may(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "DENSE_SECONDS", 0.0)
    first, second, third = bench_scale(ScaleConfig(agents=(20, 40, 60)), CPU)["rows"]
    assert "dense_ms" in first  # nothing is known of it before
    assert "dense_ms" not in second and "dense_ms" not in third
    monkeypatch.setattr(bench, "DENSE_SECONDS", math.inf)
    monkeypatch.setattr(bench, "free_memory", lambda device: cost.step_bytes(PolicyConfig(), 60, DENSITY))
    monkeypatch.setattr(cost, "_DENSE", 10**9)
    assert "dense_ms" not in bench_scale(ScaleConfig(agents=(60,)), CPU)["rows"][0]


def test_world_and_decentral_from_the_command_line(
    quick: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mast("bench", "world", "--sizes", "3x20", "1x60", "--device", "cpu", "--out", tmp_path) == 0
    assert mast("bench", "decentral", "--sizes", "2x12", "--device", "cpu", "--out", tmp_path) == 0
    assert (
        mast("bench", "decentral", "--sizes", "2x12", "--precision", "bf16", "--device", "cpu", "--out", tmp_path) == 0
    )
    told = capsys.readouterr().out
    assert "3 x 20 robots: " in told and "2 x 12 robots: " in told
    for file in tmp_path.glob("*.json"):
        assert f"plot: {file.with_suffix('.png')}" in told and file.with_suffix(".png").stat().st_size > 10_000
    (world,) = (json.loads(file.read_text()) for file in tmp_path.glob("world-*.json"))
    assert [(row["environments"], row["agents"]) for row in world["rows"]] == [(3, 20), (1, 60)]
    first = world["rows"][0]
    assert list(first["parts_ms"]) == ["motion", "metric", "observe"]
    assert first["robots_per_s"] == pytest.approx(1e3 * 60 / first["step_ms"])
    half, alone = (json.loads(file.read_text()) for file in sorted(tmp_path.glob("decentral-*.json")))
    assert (alone["precision"], half["precision"]) == ("fp32", "bf16") and list(tmp_path.glob("decentral-*-bf16.json"))
    (row,) = alone["rows"]
    assert list(row["parts_ms"]) == ["perceive", "relay", "decide"]
    assert row["ratio"] == pytest.approx(row["step_ms"] / row["central_ms"])
    assert row["robots_per_s"] == pytest.approx(1e3 * 24 / row["step_ms"])
    rows = row["rows_per_robot"]
    assert len(rows) == 4 and rows[0] > rows[-1] == 1.0 and alone["flops_a_second"] == half["flops_a_second"] == 1e11
    each = 1e8 * row["floor_ms"] / 24  # operations per robot; a row takes about a million, a message half of one
    assert 1e6 * sum(rows) < each < 2e6 * sum(rows) and row["floor_ms"] == half["rows"][0]["floor_ms"]


@torch.inference_mode()
def test_what_is_measured_is_what_evaluation_runs() -> None:
    setting = Setting(ScaleConfig(), CPU)
    assert setting.name == "navigation/mast-m" and setting.density(20) == pytest.approx(DENSITY)
    world = Navigation(NavigationConfig(agents=20, scenario="clusters-1"))
    for channel, loop in ((None, setting.together(20)), (Channel(delay=1.0), setting.alone(1, 20))):
        ran = rollout(world, setting.policy, [0], 6, channel=channel)
        for _ in range(6):
            bench._whole_step(loop)(Clock(CPU))
        assert torch.equal(loop.state.positions, ran.state.positions)
    # Settling moves robots by another hand, and leaves tables as old as if they had decided alone.
    loop = setting.alone(1, 20)
    bench._settle(loop, setting.policy, [0])
    held = loop.actor.run.state
    assert held.step == bench.SETTLED - 1 and int(held.stamps[0, 0, 0]) == bench.SETTLED - 1
    assert int((held.stamps >= 0).sum()) > 60


def test_a_task_without_policies_is_measured_with_an_untrained_one(quick: None) -> None:
    task = Path(__file__).parents[2] / "examples" / "flocking.py"
    found = bench_scale(ScaleConfig(task=f"{task}:TASK", agents=(20,)), CPU)
    assert (found["task"], found["policy"]) == ("flocking", "untrained") and found["rows"][0]["step_ms"] > 0
    with pytest.raises(MastError, match="unknown policy 'mast-m'"):
        Setting(ScaleConfig(task=f"{task}:TASK", policy="mast-m"), CPU)


TOO_LARGE = [
    (("scale", "--agents", 100, 10**10), "10,000,000,000 robots, 24 kB each", "fewer --agents"),
    (("world", "--sizes", "1x50", "1000000x1000000"), "1,000,000 x 1,000,000 robots", "smaller --sizes"),
    (("decentral", "--sizes", "1x10000000"), "1 x 10,000,000 robots, with a table", "smaller --sizes"),
    (
        ("decentral", "--sizes", "1x100000000", "--relay-radius", "auto"),
        "1 x 100,000,000 robots, with lists",
        "smaller --sizes",
    ),
]


@pytest.mark.parametrize(("args", "what", "advice"), TOO_LARGE, ids=[str(args[0][-1]) for args in TOO_LARGE])
def test_what_does_not_fit_is_refused_before_it_starts(
    args: tuple[object, ...], what: str, advice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mast("bench", *args, "--device", "cpu", "--out", tmp_path) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert what in printed.err and advice in printed.err
    assert " would take about " in printed.err and " GB are free here" in printed.err
    assert not list(tmp_path.iterdir())


def test_default_sizes_are_those_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(ScaleConfig(), CPU)
    monkeypatch.setattr(bench, "free_memory", lambda device: cost.step_bytes(setting.model, 3_000, DENSITY))
    assert bench._fitting(setting, ScaleConfig()) == [100, 300, 1_000, 3_000]
    monkeypatch.setattr(bench, "free_memory", lambda device: None)
    assert bench._fitting(setting, ScaleConfig(agents=(10**9, 5))) == [5, 10**9]


STEP = f"""
import torch
from mast_swarm.evaluate import cost
from mast_swarm.evaluate.bench import Setting
from mast_swarm.evaluate.bench_config import ScaleConfig
from mast_swarm.evaluate.measure import Memory

cpu, agents = torch.device("cpu"), 4_000
setting = Setting(ScaleConfig(), cpu)
with torch.inference_mode():
    setting.together(agents).step()  # loads what is compiled
    memory = Memory(cpu)
    loop = setting.together(agents)
    memory.restart()
    loop.step()
print(memory.peak())
print(cost.step_bytes(setting.model, agents, {DENSITY}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only there a peak can be forgotten")
def test_the_estimate_that_refuses_is_above_what_a_step_takes() -> None:
    peak, needed = printed(STEP)
    assert needed / 3 < peak < 1.2 * needed


MEASURED = [  # environments, robots, device, bytes: from the files in benchmarks/results
    (100, 100, "cuda", 4.84e9),
    (1, 1_000, "cuda", 1.23e9),
    (1, 10_000, "cuda", 6.88e9),
    (9, 100, "cpu", 2.54e8),
    (1, 1_000, "cpu", 3.16e8),
]


@pytest.mark.parametrize(("environments", "agents", "device", "seen"), MEASURED)
def test_estimates_of_deciding_alone_are_above_what_was_measured(
    environments: int, agents: int, device: str, seen: float
) -> None:
    needed = cost.decentral_bytes(PolicyConfig(), environments, agents, DENSITY, device)
    assert seen < needed < 3 * seen
    assert cost.table_bytes(1, 100, device, layers=10) > 3 * cost.table_bytes(1, 100, device)


def test_lists_let_a_hundred_thousand_robots_alone_fit_on_a_gpu() -> None:
    held = [cost.list_bytes(1, agents, DENSITY, 1100.0, "cuda") for agents in (10_000, 100_000)]
    assert held[1] == pytest.approx(10 * held[0])
    assert cost.decentral_bytes(PolicyConfig(), 1, 100_000, DENSITY, "cuda", held[1]) < 60e9
    assert cost.decentral_bytes(PolicyConfig(), 1, 100_000, DENSITY, "cuda") > 140e9


def test_arithmetic_of_a_decision_alone() -> None:
    """Of one layer it is that of a forward pass, less what all robots share: perception and the first projections."""
    one = PolicyConfig(layers=1)
    shared = 2.0 * (14 * 2 * 256 + 2 * 256 * 256 + 3 * 256 * 256)
    neighbours = cost.expected_neighbours(one, DENSITY)
    assert cost.alone_flops(one, DENSITY) == pytest.approx(cost.forward_flops(one, neighbours) - shared)
    assert cost.alone_rows(PolicyConfig(), DENSITY) == pytest.approx([177.7, 79.5, 20.6, 1.0], abs=0.1)
    assert cost.alone_flops(PolicyConfig(), DENSITY) == pytest.approx(2.97e8, rel=0.02)


def test_neighbours_follow_from_the_density() -> None:
    assert cost.expected_neighbours(PolicyConfig(), 100.0) == pytest.approx(20.63, abs=0.01)
    with pytest.raises(MastError, match="set attention_radius"):
        cost.expected_neighbours(PolicyConfig(attention_radius=None), 100.0)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("scale", "--agents", 0), "--agents has 0"),
        (("world", "--sizes", "10"), "--sizes has '10': give environments x robots"),
        (("decentral", "--sizes", "1x0"), "--sizes has '1x0'"),
        (("scal",), "unknown benchmark 'scal': did you mean scale"),
        (("scale", "--agents", 9, "--out", "/proc/mast"), "cannot write to /proc/mast"),
    ],
)
def test_bad_input_is_one_line(args: tuple[object, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert mast("bench", *args) == 2
    assert message in one_line(capsys)


def test_without_a_name_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert mast("bench") == mast("bench", "--help") == 0
    told = capsys.readouterr().out
    assert mast("bench", "wrld") == 2
    assert capsys.readouterr().out in told
    for name in ("train", "scale", "world", "decentral"):
        assert sum(line.startswith(f"  {name} ") for line in told.splitlines()) == 2


def test_every_size_by_default_can_be_read() -> None:
    for device in ("cpu", "cuda"):
        assert ScaleConfig().sizes(device) == tuple(sorted(ScaleConfig.teams[device]))
        for kind in (WorldBenchConfig, DecentralBenchConfig):
            assert len(kind().pairs(device)) == len(kind.teams[device])
    assert ScaleConfig(agents=(9, 3, 9)).sizes("cpu") == (3, 9)
    assert WorldBenchConfig(sizes=("2x5",)).pairs("cuda") == [(2, 5)]


@pytest.mark.parametrize("name", ["train", "scale", "world", "decentral"])
def test_help_loads_nothing_heavy(name: str) -> None:
    run = f"main(['bench', {name!r}, '--help'])"
    code = f"import sys; from mast_swarm.cli import main\ntry: {run}\nexcept SystemExit: pass"
    code += "\nassert not {'torch', 'numba', 'scipy', 'matplotlib'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and f"usage: mast bench {name}" in done.stdout, done.stderr
