"""What `mast export` writes: onnxruntime computes what torch computes, robot by robot, and the manifest says how."""

from __future__ import annotations

import hashlib
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shared import mast, one_line

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from mast_swarm import zoo
from mast_swarm.comms import Channel, DecentralPolicy
from mast_swarm.comms.decentral import decide
from mast_swarm.errors import MastError
from mast_swarm.evaluate.policies import suiting
from mast_swarm.interop import onnx as exporter
from mast_swarm.interop.onnx import LIMIT, export
from mast_swarm.interop.parity import Difference
from mast_swarm.model.config import ENCODINGS, LPACConfig, PolicyConfig
from mast_swarm.model.policy import Policy, load_learned, make
from mast_swarm.robot import News, Robot
from mast_swarm.robot.exported import Exported
from mast_swarm.robot.handed import Handed
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.tasks.navigation.world import Navigation
from mast_swarm.tasks.registry import find

ROOT = Path(__file__).parent.parent.parent
RENDEZVOUS = f"{ROOT / 'examples' / 'rendezvous.py'}:TASK"


def small(folder: Path, **fields: Any) -> Path:
    """The folder of an untrained policy with small layers, whose attention is not flat."""
    policy = Policy(PolicyConfig(**{"layers": 2, "heads": 2, "head_dim": 8, **fields}), seed=1)
    with torch.no_grad():
        for block in policy.mast.blocks:
            block.attention.qkv.weight.mul_(3.0)
    policy.save(folder)
    return folder


@pytest.mark.parametrize(
    "name", ["navigation/mast-m", "navigation/mast-l", "coverage/mast-m", "coverage/lpac-k3"], ids=lambda n: n
)
def test_shipped_policies_agree_and_the_manifest_describes_them(name: str, tmp_path: Path) -> None:
    manifest = export(name, tmp_path / "out")
    assert manifest == json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["parity"]["largest_command_difference"] <= LIMIT and manifest["parity"]["states"] >= 65
    second = "carry.onnx" if name.endswith("lpac-k3") else "decide.onnx"
    files = {file.name for file in (tmp_path / "out").iterdir()}
    assert files == {"manifest.json", "perceive.onnx", second} == {"manifest.json", *manifest["files"]}
    for file, told in manifest["files"].items():
        content = (tmp_path / "out" / file).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (told["bytes"], told["sha256"])
        assert str(ROOT).encode() not in content  # nothing of the machine that made it
    weights = (zoo.policies()[name] / "model.safetensors").read_bytes()
    assert manifest["weights"]["sha256"] == hashlib.sha256(weights).hexdigest()
    policy = load_learned(name)
    assert manifest["outputs"] == policy.outputs and manifest["d_msg"] == policy.config.message_width
    assert manifest["observation"]["shape"] == list(policy.config.observation_shape)
    parts = manifest["observation"]["features"]
    assert parts and all(part["name"] and part["meaning"] and part["scale"] > 0 for part in parts)
    last = parts[-1]["first"] + (1 if len(policy.config.observation_shape) == 3 else parts[-1]["shape"][0])
    assert last == policy.config.observation_shape[0]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding(encoding: str, tmp_path: Path) -> None:
    manifest = export(small(tmp_path / "policy", encoding=encoding, exploration_time=50.0), tmp_path / "out")
    assert manifest["parity"]["largest_command_difference"] <= LIMIT
    assert manifest["observation"]["features"] == []  # a policy of no task
    assert manifest["exploration"]["time_s"] == 50.0


@pytest.mark.parametrize("fields", [{"attention_radius": None}, {"message_dim": 5, "variant": "L"}, {"layers": 1}])
def test_other_shapes(fields: dict[str, Any], tmp_path: Path) -> None:
    manifest = export(small(tmp_path / "policy", task="navigation", **fields), tmp_path / "out")
    assert manifest["parity"]["largest_command_difference"] <= LIMIT and manifest["parity"]["states"] == 65


def test_robots_far_outside_the_window_change_nothing(tmp_path: Path) -> None:
    export(small(tmp_path / "policy", attention_radius=100.0), tmp_path / "out")
    exported, rng = Exported(tmp_path / "out"), np.random.default_rng(0)
    messages, positions = rng.normal(size=(6, 16)), rng.uniform(-40, 40, (6, 2))
    positions[3:] += 5000
    assert np.allclose(exported.decide(messages, positions), exported.decide(messages[:3], positions[:3]), atol=1e-6)
    assert not np.allclose(
        exported.decide(messages, positions), exported.decide(messages[:2], positions[:2]), atol=1e-3
    )
    positions[1] = positions[0] + (100.0, 0.0)  # the window does not reach that far: nearer than the radius
    positions[2] = positions[0] + (-100.0, 0.0)
    assert np.allclose(exported.decide(messages, positions), exported.decide(messages[:1], positions[:1]), atol=1e-6)


@pytest.mark.parametrize("name", ["navigation/mast-m", "navigation/mast-l", "one that remembers", "one with a map"])
def test_robots_with_exported_files_do_what_the_simulation_does(name: str, tmp_path: Path) -> None:
    """A network of robots without torch, N = 12, a hop per control period, against the batched simulation."""
    if name in ("one that remembers", "one with a map"):
        shape = {"task": "navigation", "layers": 2, "heads": 2, "head_dim": 8}
        made = Policy(
            PolicyConfig(
                **shape,
                exploration_time=50.0,
                exploration_memory=2,
                exploration_spread=60.0,
                exploration_push=5.0,
                exploration_survey=25.0 if name == "one with a map" else None,
            ),
            seed=1,
        )
        made.head[2].bias.data[2] = 1.0  # untrained, it would have all stand still
        made.save(tmp_path / "policy")
        name = str(tmp_path / "policy")
    manifest = export(name, tmp_path / "out")
    exported, policy = Exported(tmp_path / "out"), load_learned(name)
    assert isinstance(policy, Policy)
    assert ("memory" in manifest["exploration"]) == bool(policy.config.exploration_memory)
    trails = [exported.trail() for _ in range(12)]
    world, seed = Navigation(NavigationConfig(agents=12)), 5
    assert ("survey" in manifest["exploration"]) == (policy.config.exploration_survey is not None)
    surveys = [exported.survey(world.config.side) for _ in range(12)]
    maps = [None if survey is None else Handed(survey, hop=1, again=1) for survey in surveys]
    robots = [Robot(i, exported.perceive, exported.predict, hop=1) for i in range(12)]
    run = DecentralPolicy(policy, Channel(delay=1.0), 1.0, policy.survey(world.config.side))
    run.start([seed])
    searched = 0
    state, hears = world.reset([seed]), np.zeros((12, 12), dtype=bool)
    for now in range(25):
        observation = world.observe(state)
        said: list[list[News]] = [robot.offer(now) for robot in robots]
        for i, robot in enumerate(robots):
            for j in hears[i].nonzero()[0]:
                robot.hear(now, said[j])
        hand_over(maps, hears, now)
        for i, robot in enumerate(robots):
            robot.sense(now, observation.features[0, i].numpy(), observation.positions[0, i].numpy())
        command = run.act(observation)
        assert run.state is not None
        predicted = decide(policy, run.state)[0].numpy()
        for i, robot in enumerate(robots):
            prediction = robot.decide()
            assert np.abs(prediction - predicted[i]).max() < LIMIT
            trail, landmark = trails[i], observation.landmark[0, i].numpy()
            away = None if trail is None else trail.away(observation.positions[0, i].numpy(), float(now))
            done = exported.command(prediction, landmark=landmark, seed=seed, robot=i, time=float(now), away=away)
            handed = maps[i]
            if handed is not None:
                sights = observation.sights[0, i].numpy()
                done = handed.searched(now, observation.positions[0, i].numpy(), sights, done, prediction)
                searched += handed.survey.searching
            expected = command[0, i] / command[0, i].norm().clamp_min(1)
            assert np.abs(done - expected.numpy()).max() < LIMIT
        hears = observation.graph.adjacency()[0].numpy()
        state = world.step(state, command)
    assert max(len(robot.known()) for robot in robots) > 4  # they have heard of each other
    assert bool(searched) == (surveys[0] is not None)


def hand_over(maps: list[Handed | None], hears: np.ndarray, now: int) -> None:
    """Robots hand their maps to those that hear them. hears [N, N]: i hears j."""
    offered = [None if one is None else one.offer(now) for one in maps]
    for i, j in np.argwhere(hears & ~np.eye(len(maps), dtype=bool)):
        one, other, marks = maps[i], maps[j], offered[j]
        if one is not None and other is not None and marks is not None:
            one.hear(now, j, other.position, other.survey.searching, marks)


def test_a_map_is_of_the_world_of_the_policy(tmp_path: Path) -> None:
    fields = {"exploration_time": 50.0, "exploration_survey": 40.0}
    manifest = export(small(tmp_path / "policy", task="navigation", **fields), tmp_path / "out")
    told = manifest["exploration"]["survey"]
    assert (told["cell_m"], told["side_m"]) == (40.0, NavigationConfig().side)
    exported = Exported(tmp_path / "out")
    survey, larger = exported.survey(), exported.survey(2000.0, (5e5, 4e6))
    assert survey is not None and survey.along == round((1000 + 300) / 40)
    assert larger is not None and larger.along == round((2000 + 300) / 40) and larger.covers((5e5, 4e6))
    del exported.manifest["exploration"]["survey"]  # as those of earlier releases are
    assert exported.survey() is None
    with pytest.raises(MastError, match=r"has a map of where robots have looked .* names no task .* give --task"):
        export(small(tmp_path / "no task", **fields), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_lpac_robots_that_hear_nobody(tmp_path: Path) -> None:
    config = LPACConfig(layers=2, hops=2, width=12, head_width=5, message_dim=6, observation_dim=4, perception="mlp")
    policy = make(config, seed=1)
    policy.save(tmp_path / "policy")
    manifest = export(tmp_path / "policy", tmp_path / "out")
    assert manifest["exchange"]["floats"] == 2 * (8 + 12) and manifest["parity"]["states"] == 35
    exported = Exported(tmp_path / "out")
    features = np.arange(4.0)
    message, position = exported.perceive(features), np.array([100.0, 200.0])
    command, sent = exported.carry(message, position, 1000.0, np.zeros((0, 40)), [])
    alone = torch.zeros(1, 1, 1, dtype=torch.bool)
    expected = policy(torch.tensor(features)[None, None], torch.tensor(position)[None, None], alone, 1000.0)
    assert np.allclose(command, expected[0, 0].detach(), atol=1e-6)
    assert np.allclose(sent[:8], [*message, 0.1, 0.2], atol=1e-6) and sent.shape == (40,)
    with pytest.raises(MastError, match=r"heard have shape \[1, 3\]: expected \[1, 40\]"):
        exported.carry(message, position, 1000.0, np.zeros((1, 3)), [1])
    with pytest.raises(MastError, match="kind lpac has no function decide: it has perceive and carry"):
        exported.decide(np.zeros((1, 6)), np.zeros((1, 2)))


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_other_precisions_say_what_they_lose(precision: str, tmp_path: Path) -> None:
    exact = export("navigation/mast-m", tmp_path / "exact")
    manifest = export("navigation/mast-m", tmp_path / "out", precision=precision)
    assert manifest["precision"] == precision and "loss" not in exact
    assert manifest["parity"] == exact["parity"]  # of the fp32 graphs that they are made from
    loss = manifest["loss"]
    assert exact["parity"]["largest_command_difference"] < loss["largest_command_difference"]
    assert loss["largest_command_difference"] < {"fp16": 1e-3, "int8": 0.1}[precision]
    assert 0 < loss["mean_command_difference"] < loss["largest_command_difference"]
    share = manifest["files"]["decide.onnx"]["bytes"] / exact["files"]["decide.onnx"]["bytes"]
    assert share < {"fp16": 0.52, "int8": 0.28}[precision]


def test_a_task_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = find(RENDEZVOUS)
    make(suiting(task), seed=0).save(tmp_path / "policy")
    assert mast("export", tmp_path / "policy", tmp_path / "out", "--task", RENDEZVOUS) == 0
    printed = capsys.readouterr()
    assert printed.err == "" and "decide.onnx" in printed.out and "parity: fp32" in printed.out
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["task"] == "rendezvous" and manifest["parity"]["states"] == 65
    assert manifest["observation"]["features_are"] == "not named by the task"
    assert manifest["observation"]["world"]["reach"] == 160.0


def test_a_run_has_the_settings_of_its_world(tmp_path: Path) -> None:
    from mast_swarm.train.config import plain, recipe

    config = recipe("best", find("navigation"))
    world = NavigationConfig(agents=7, length_scale=50.0)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(
        json.dumps(plain(config) | {"world": plain(config)["world"] | {"agents": 7, "length_scale": 50.0}})
    )
    manifest = export(small(tmp_path / "run" / "best", task="navigation"), tmp_path / "out")
    assert manifest["observation"]["features"][1]["scale"] == world.length_scale == 50.0
    assert manifest["parity"]["states"] == 5 + 5 * 7


@pytest.mark.parametrize("task", ["navigation", "coverage"])
def test_features_are_what_the_tasks_say(task: str) -> None:
    """Whoever follows the description makes the features that a policy was trained with."""
    settings: dict[str, Any] = {"agents": 6}
    if task == "coverage":
        settings |= {"side": 256.0, "features": 4, "seen_map": True}
    world = find(task).make(find(task).Config(**settings))
    state = world.reset([0])
    state = world.step(state, torch.rand(1, 6, 2) - 0.5)
    parts, features = world.config.sensed(), world.observe(state).features[0]
    names, at = [part.name for part in parts], state.positions[0]
    assert len(set(names)) == len(names)
    if task == "coverage":
        assert [part.shape for part in parts] == [tuple(features.shape[2:])] * features.shape[1]
        x, y = names.index("neighbours_x"), names.index("neighbours_y")
        for i in range(6):
            near = [j for j in range(6) if j != i and (at[j] - at[i]).norm() < world.config.communication_range]
            total = sum(((at[j] - at[i]) / parts[x].scale for j in near), torch.zeros(2))
            assert torch.allclose(features[i, [x, y]].sum((1, 2)), total, atol=1e-5)
        assert features[:, names.index("boundary")].max() == 1.0
        assert torch.all((features[:, names.index("density")] > 1e-6) <= (features[:, names.index("seen")] > 0))
        return
    assert sum(part.shape[0] for part in parts) == features.shape[1] == 14
    given, first = {}, 0
    for part in parts:
        given[part.name] = features[:, first : first + part.shape[0]] * part.scale  # in the part's unit
        first += part.shape[0]
    assert torch.allclose(given["last_command"], state.velocity[0] * world.config.max_speed)
    for kind, places in (("goal", state.goals[0]), ("robot", at)):
        away = torch.cdist(at, places) + (torch.eye(6) * 1e9 if kind == "robot" else 0)
        for number in (1, 2, 3):
            nearest = places[away.argsort(1)[:, number - 1]] - at
            assert torch.allclose(given[f"{kind}_{number}"], nearest, atol=1e-3)


def test_wrong_inputs(tmp_path: Path) -> None:
    export(small(tmp_path / "policy"), tmp_path / "out")
    exported = Exported(tmp_path / "out")
    with pytest.raises(MastError, match=r"features have shape \[13\]: expected \[14\]"):
        exported.perceive(np.zeros(13))
    with pytest.raises(MastError, match="features hold NaN or infinity"):
        exported.perceive(np.full(14, np.nan))
    with pytest.raises(MastError, match=r"messages have shape \[2, 3\]: expected \[any, 16\]"):
        exported.decide(np.zeros((2, 3)), np.zeros((2, 2)))
    with pytest.raises(MastError, match=r"positions have shape \[3, 2\]: expected \[2, 2\]"):
        exported.decide(np.zeros((2, 16)), np.zeros((3, 2)))
    with pytest.raises(MastError, match=r"messages have shape \[0, 16\]: expected 1 or more"):
        exported.decide(np.zeros((0, 16)), np.zeros((0, 2)))
    with pytest.raises(MastError, match="kind mast has no function carry"):
        exported.carry(np.zeros(16), np.zeros(2), 1.0, np.zeros((0, 0)), [])
    file = tmp_path / "out" / "decide.onnx"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(MastError, match=r"is not the file that manifest.json describes"):
        Exported(tmp_path / "out")
    (tmp_path / "out" / "manifest.json").write_text('{"format": 99}')
    with pytest.raises(MastError, match="has format 99: expected 1"):
        Exported(tmp_path / "out")
    with pytest.raises(MastError, match=r"cannot read .*manifest.json"):
        Exported(tmp_path)


def test_a_difference_fails_the_command_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = small(tmp_path / "policy")
    for found in (Difference(states=3, worst=2e-4), Difference(states=3, worst=float("nan"))):
        monkeypatch.setattr(exporter, "compare", lambda *given, found=found: found)
        assert mast("export", policy, tmp_path / "out") == 2
        assert "differs from torch by" in (line := one_line(capsys)) and "nothing was written" in line
        assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_a_wrong_graph_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mast_swarm.interop.graphs import Decide

    monkeypatch.setattr(Decide, "_window", lambda self, relative: None)  # attends to everyone
    with pytest.raises(MastError, match="onnxruntime differs from torch"):
        export(small(tmp_path / "policy"), tmp_path / "out")


def test_not_a_number_is_never_small() -> None:
    found, nothing = Difference(), torch.zeros(2)
    found.add(np.zeros(2), nothing, np.array([np.nan, 0.0]), nothing)
    found.add(np.zeros(2), nothing, np.zeros(2), nothing)
    assert not found.worst <= LIMIT


def test_mistakes_end_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert mast("export", "navigation/mast-k", out) == 2
    assert "unknown policy 'navigation/mast-k': did you mean" in one_line(capsys)
    assert mast("export", "navigation/mast-c", out) == 2
    assert "variant C sees every goal and runs centrally only" in one_line(capsys)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("")
    for used in (tmp_path / "used", tmp_path / "used" / "file"):
        assert mast("export", "navigation/mast-m", used) == 2
        assert "is already used: give a folder that is new or empty" in one_line(capsys)
    assert mast("export", tmp_path / "used" / "file", out) == 2
    assert "is a file: expected a policy folder" in one_line(capsys)
    assert mast("export", tmp_path / "used", "navigation/mast-m") == 2
    assert f"the policy comes first, then the folder: mast export navigation/mast-m {tmp_path}" in one_line(capsys)
    assert mast("export", tmp_path / "used", out) == 2
    assert "is no policy folder, it has no config.json: give one that `mast train` wrote" in one_line(capsys)
    (tmp_path / "used" / "manifest.json").write_text('{"format": 1, "policy": "navigation/mast-l"}')
    assert mast("export", tmp_path / "used", out) == 2
    assert "is exported already, robots run it as it is: give navigation/mast-l to" in one_line(capsys)
    small(tmp_path / "run" / "best")
    assert mast("export", tmp_path / "run", out) == 2
    assert f"is a training run: give {tmp_path}/run/best or" in one_line(capsys)
    assert mast("export", small(tmp_path / "other", task="nowhere"), out) == 2
    assert "task nowhere, which is not installed: give --task" in one_line(capsys)
    assert mast("export", small(tmp_path / "third", task="navigation"), out, "--task", RENDEZVOUS) == 2
    assert "is for the task navigation, not for rendezvous" in one_line(capsys)
    assert mast("export", small(tmp_path / "fourth", task="navigation", observation_dim=10), out) == 2
    assert "takes observations of shape [10]" in one_line(capsys)
    with pytest.raises(MastError, match="unknown precision 'fp8'"):
        export("navigation/mast-m", out, precision="fp8")
    assert not out.exists()


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_without_the_extra_one_line_says_what_to_install(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # importing it fails
    assert mast("export", "navigation/mast-m", tmp_path / "out") == 2
    assert f"needs the package {package}: pip install 'mast-swarm[export]'" in one_line(capsys)
    if package == "onnxruntime":
        with pytest.raises(MastError, match="onnxruntime is not installed: pip install onnxruntime"):
            importlib.import_module("mast_swarm.robot.exported").runtime()


def test_a_robot_needs_no_torch(tmp_path: Path) -> None:
    export(small(tmp_path / "policy"), tmp_path / "out")
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from mast_swarm.robot.exported import Exported\n"
        f"robot = Exported({str(tmp_path / 'out')!r})\n"
        "print(robot.command(robot.decide([robot.perceive([0.1] * 14)], [[4e6, 5e5]])).shape)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "(2,)\n", ran.stderr


def test_a_perception_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mast_swarm.model import perception

    class Halves(perception.MLPPerception):
        def forward(self, features: torch.Tensor) -> torch.Tensor:
            return super().forward(features * 0.5).tanh()

    class Strange(perception.MLPPerception):
        def forward(self, features: torch.Tensor) -> torch.Tensor:
            return torch.special.i1(super().forward(features))

    monkeypatch.setitem(perception._REGISTERED, "halves", Halves)
    monkeypatch.setitem(perception._REGISTERED, "strange", Strange)
    assert export(small(tmp_path / "one", perception="halves"), tmp_path / "out")["parity"]["states"] == 5
    with pytest.raises(MastError, match=r"perceive.onnx cannot be written: .*; use operations that ONNX has"):
        export(small(tmp_path / "two", perception="strange"), tmp_path / "other")
    assert not (tmp_path / "other").exists()
