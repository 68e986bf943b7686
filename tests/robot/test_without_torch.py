"""Robots run where torch is not installed: a team on a virtual network from key files to commands, and the example."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import blocked
from mast_swarm.robot import Exported, Robot
from mast_swarm.robot.command import load_body

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("cryptography")

EXAMPLE = blocked.ROOT / "examples" / "one_robot.py"
# Six robots and six goals: signed messages over a network with loss, each robot with the exported policy for itself.
TEAM = """
import sys
from pathlib import Path
import numpy as np
from mast_swarm.robot import Exported, Faults, Format, NavigationFeatures, Node, Stamps, Trust, VirtualNetwork
from mast_swarm.robot import model_hash
from mast_swarm.robot.trust import new_team

exported, folder = Path(sys.argv[1]), Path(sys.argv[2])
new_team(folder, 6)
policy, second = Exported(exported), 10**9
features, speed = NavigationFeatures(policy.manifest), policy.manifest["control"]["max_speed_m_s"]
model = model_hash(exported / "perceive.onnx", exported / "decide.onnx")
nodes = []
for i in range(6):
    trust = Trust.load(folder, i)
    form = Format(trust.team.identity, model, policy.manifest["d_msg"])
    rules = {"now": 0, "hop": second, "stamps": Stamps(folder / f"stamp-{i}")}
    nodes.append(Node(trust, form, policy.perceive, policy.predict, **rules))
luck = np.random.default_rng(1)
places, goals, velocity = luck.uniform(-120, 120, (6, 2)), luck.uniform(-120, 120, (6, 2)), np.zeros((6, 2))
network = VirtualNetwork(Faults(delay=second // 10, loss=0.2), seed=1)
ports = [network.join(i) for i in range(6)]
for t in range(80):
    now = t * second
    for i, node in enumerate(nodes):
        sensed = features.sensed(places[i], velocity[i], goals - places[i], np.delete(places, i, 0) - places[i])
        prediction = node.control(now, sensed.features, sensed.position)
        velocity[i] = speed * policy.command(prediction, landmark=sensed.landmark, seed=1, robot=i, time=t)
    places += velocity
    for moment in range(now, now + second, second // 10):
        network.advance(moment)
        for node, port in zip(nodes, ports):
            for peer, data in port.poll():
                node.on_datagram(peer, data, moment)
            for to, data in node.due(moment, [i for i in range(6) if i != node.name]):
                port.send(data, to)
reached = (np.linalg.norm(goals[:, None] - places, axis=2).min(1) < 5).sum()
held = min(len(node.robot.known()) for node in nodes)
print(reached, "goals,", held, "known,", min(node.counters.verified for node in nodes), "verified")
assert not set(sys.modules) & {"torch", "numba", "scipy", "tyro", "onnx"}
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from mast_swarm.cli import main

    folder = tmp_path_factory.mktemp("exported") / "robot"
    assert not main(["export", "navigation/mast-m", str(folder)])
    return folder


def check(printed: str) -> None:
    reached, known, verified = (int(word) for word in printed.split() if word.isdigit())
    assert reached >= 5 and known == 6 and verified > 100


def test_a_team_without_torch(exported: Path, tmp_path: Path) -> None:
    check(blocked.run(TEAM, exported, tmp_path / "team"))


def test_a_team_in_an_environment_with_the_extra_alone(exported: Path, tmp_path: Path) -> None:
    python = blocked.environment(tmp_path / "venv")
    with pytest.raises(AssertionError, match="No module named 'torch'"):
        blocked.run_with(python, "import torch")
    check(blocked.run_with(python, TEAM, exported, tmp_path / "team"))


def test_commands_where_there_is_no_torch(tmp_path: Path) -> None:
    python = blocked.environment(tmp_path / "venv")
    code = "import sys; sys.argv[0] = 'mast'; from mast_swarm.cli import main; main()"

    def mast(*args: object) -> str:
        return blocked.run_with(python, code, *args)

    assert "2 robots, 0 revoked" in mast("team", "new", tmp_path / "team", "--robots", 2)
    assert "2 robots, 0 revoked" in mast("team", "show", tmp_path / "team" / "team.json")
    told = mast("doctor")
    assert "torch is not installed" in told and "robots: ok, " in told and "FAILED" not in told
    for verb in ("demo", "swarm", "list"):
        with pytest.raises(AssertionError) as found:
            mast(verb)
        (line,) = str(found.value).splitlines()[:1]
        assert line.startswith(f"mast: mast {verb} needs the package tyro, which is not installed: pip install")
        assert "Traceback" not in str(found.value)
    with pytest.raises(AssertionError, match=r"\nModuleNotFoundError: mast_swarm.Navigation needs the package torch, "):
        blocked.run_with(python, "import mast_swarm; mast_swarm.Navigation")


def test_every_module_of_the_robot_imports_without_torch() -> None:
    code = """
import importlib, pkgutil, mast_swarm.robot
names = [one.name for one in pkgutil.iter_modules(mast_swarm.robot.__path__, "mast_swarm.robot.")]
print(len([importlib.import_module(name) for name in names]))
"""
    assert int(blocked.run(code)) >= 14


def test_the_example(exported: Path) -> None:
    text = EXAMPLE.read_text()
    lines = [line for line in text.split('"""', 2)[2].splitlines() if line.strip()]
    assert len(lines) <= 30 and "mast_swarm.robot" in text and "tasks" not in text
    assert text.split('"""', 2)[2].strip() in (blocked.ROOT / "docs" / "robots.md").read_text()
    code = f"sys.argv = ['one_robot.py', sys.argv[1]]; exec(open({str(EXAMPLE)!r}).read(), {{'__name__': '__main__'}})"
    assert float(blocked.run(code, exported).split()[0]) < 5


def test_two_bodies_of_the_example_reach_two_goals(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, clock = Exported(exported), [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    place = f"{blocked.ROOT / 'examples' / 'body.py'}:MyRobot"
    bodies: list[Any] = [load_body(place, i, {"policy": str(exported), "yard": str(tmp_path / "yard")}) for i in (0, 1)]
    robots = [Robot(i, policy.perceive, policy.predict, hop=10**8) for i in (0, 1)]
    for second in range(60):
        clock[0], now = float(second), second * 10**9
        sensed = [body.sense() for body in bodies]
        for robot, seen in zip(robots, sensed, strict=True):
            robot.sense(now, seen.features, seen.position)
        for robot, other in zip(robots, reversed(robots), strict=True):
            robot.hear(now, other.known()[:1])
        for i, (robot, seen) in enumerate(zip(robots, sensed, strict=True)):
            command = policy.command(robot.decide(), landmark=seen.landmark, robot=i, time=second)
            bodies[i].command(command * policy.manifest["control"]["max_speed_m_s"])
    for body in bodies:
        body.close()
    ends = [line.split(" m from goal ") for line in capsys.readouterr().out.splitlines()]
    assert {goal for _, goal in ends} == {"0", "1"} and max(float(away) for away, _ in ends) < 5
