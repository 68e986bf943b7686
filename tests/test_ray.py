"""A real Ray cluster of two nodes on this machine, one of which dies in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import mast_swarm
from mast_swarm.errors import MastError
from mast_swarm.evaluate.config import settled
from mast_swarm.evaluate.run import evaluate
from mast_swarm.pool import Job, Ray
from mast_swarm.tasks.registry import find
from shared import mast, one_line

ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'mast-swarm[cluster]'")
from ray.cluster_utils import Cluster  # noqa: E402

from clustering import doomed  # noqa: E402

PATHS = (Path(mast_swarm.__file__).parents[1], Path(__file__).parent)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head with one processor; nodes join and leave in the tests."""
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "OMP_NUM_THREADS", "RAY_health_check_period_ms")}
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, PATHS))
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ |= {"RAY_health_check_period_ms": "500", "RAY_health_check_failure_threshold": "4"}
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield made
    ray.shutdown()
    made.shutdown()
    for name, value in before.items():
        os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)


def begun(folder: Path, node: str) -> set[str]:
    """The jobs that a node has begun."""
    return {path.name.split("-")[0] for path in folder.iterdir() if node in path.name}


@pytest.mark.slow
def test_the_work_of_a_dead_node_is_done_again(cluster: Any, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=1)
    workers = Ray(cluster.address)
    try:
        found, killed = {}, False
        jobs = [Job(str(n), doomed, (str(tmp_path), node.node_id, n)) for n in range(8)]
        for job, value in workers.run(jobs):  # the first comes back once the node is at work
            found[job.name] = value
            if not killed:
                assert begun(tmp_path, node.node_id), "the second node was given nothing to do"
                cluster.remove_node(node, allow_graceful=False)
                killed = True
        assert found == {str(n): n * n for n in range(8)}
        elsewhere = {path.name.split("-")[0] for path in tmp_path.iterdir() if node.node_id not in path.name}
        assert begun(tmp_path, node.node_id) & elsewhere  # what it had was done again
    finally:
        workers.close()


@pytest.mark.slow
def test_an_evaluation_is_the_same_with_and_without_a_cluster(cluster: Any, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=1)
    given = {"policy": ("dhba-2", "lsap"), "agents": 15, "episodes": 8, "steps": 40, "device": "cpu", "batch": 2}
    task, back = find("navigation"), []

    def progress(policy: str, done: int, total: int) -> None:
        back.append(done)
        if sum(done > 0 for done in back) == 2:  # something has come back, more is on its way
            cluster.remove_node(node, allow_graceful=False)

    evaluate(task, settled(task, **given, out=tmp_path / "cluster", ray=cluster.address), progress)
    evaluate(task, settled(task, **given, out=tmp_path / "here"))
    one, other = (pq.read_table(tmp_path / where / "episodes.parquet") for where in ("cluster", "here"))
    assert one.equals(other) and one.num_rows == 2 * 8 * 41

    (tmp_path / "cluster" / "summary.json").unlink()  # as if it had been stopped: it goes on without the cluster
    _, summary = evaluate(task, settled(task, **given, out=tmp_path / "cluster", resume=True))
    assert summary["complete"] is True and summary["precision"] == "fp32"


@pytest.mark.slow
def test_an_experiment_whose_driver_is_stopped_goes_on_and_ends_as_without_a_cluster(
    cluster: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    node = cluster.add_node(num_cpus=1)
    given = ("reproduce", "ablation", "--quick", "--device", "cpu", "--out")  # it trains policies and evaluates them
    there, here = (*given, tmp_path / "cluster", "--ray", cluster.address), (*given, tmp_path / "here")
    # Interrupts reach it even where the tests themselves run in the background.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = [sys.executable, "-c", f"{code}from mast_swarm.cli import main; main()", *map(str, there)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None and driver.stderr is not None
        began = next(line for line in driver.stdout if line.startswith("1 of 7: "))  # the first policy is kept
        driver.send_signal(signal.SIGINT)
        _, said = driver.communicate(timeout=60)
    assert driver.returncode == 130, f"{began}{said}"
    assert "of 7 cells are kept; the same command goes on" in said
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cluster/cells").iterdir()}
    assert 1 <= len(kept) < 7 and not (tmp_path / "cluster/tables").exists()

    capfd.readouterr()
    assert mast(*there) == 0
    assert f"{7 - len(kept)} of {7 - len(kept)}: " in capfd.readouterr().out
    assert all(path.stat().st_mtime_ns == before for path, before in kept.items())
    assert mast(*here, "--jobs", os.cpu_count()) == 0  # processes of one thread each, as those of the cluster
    one, other = (pq.read_table(tmp_path / where / "tables/ablation.parquet") for where in ("cluster", "here"))
    assert one.equals(other) and len(set(one["policy"].to_pylist())) == 4
    cluster.remove_node(node)


@pytest.mark.slow
def test_an_error_on_a_cluster_is_one_line(cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workers = Ray(cluster.address)
    try:
        with pytest.raises(MastError, match="unknown"):
            list(workers.run([Job("a", find, ("nothing",))]))
    finally:
        workers.close()


@pytest.mark.slow
def test_what_no_machine_has_is_refused(cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--agents", 9, "--episodes", 1, "--steps", 1, "--out", tmp_path / "run", "--ray", cluster.address)
    assert mast("evaluate", "navigation", "--policy", "lsap", *given, "--gpus", 1) == 2
    assert "takes 1 CPU and 1 GPU of one machine" in (told := one_line(capsys)) and " x 1 CPU and 0 GPU:" in told
    assert mast("evaluate", "navigation", "--policy", "lsap", *given, "--gpus", 1.5) == 2
    assert "--gpus is 1.5: give a share of one" in one_line(capsys)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_what_an_autoscaler_may_bring_is_waited_for(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_NODE_TYPE_NAME", "workers")  # as `ray up` and KubeRay start a node
        node = cluster.add_node(num_cpus=1)
    workers = Ray(cluster.address)
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.extend(n for _, n in workers.run([Job("a", abs, (-3,), 1.0)])))
    try:
        waiting.start()
        waiting.join(2.0)
        assert waiting.is_alive() and "waiting for one that has them" in capsys.readouterr().err
        cluster.add_node(num_cpus=1, num_gpus=1)
        waiting.join(60.0)
        assert found == [3]
    finally:
        workers.close()
        cluster.remove_node(node)


def test_an_address_where_nobody_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    began = time.monotonic()
    given = ("--agents", 9, "--episodes", 1, "--steps", 1, "--out", tmp_path / "run", "--ray", "127.0.0.1:9")
    assert mast("evaluate", "navigation", "--policy", "lsap", *given) == 2
    assert "127.0.0.1:9" in one_line(capsys) and time.monotonic() - began < 20
    assert not (tmp_path / "run").exists()
