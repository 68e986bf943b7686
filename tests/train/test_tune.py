"""The search for hyper-parameters: resumes, refuses other settings, and shares a study over PostgreSQL."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import pyarrow.parquet as pq
import pytest

from mast_swarm.errors import MastError
from mast_swarm.train.config import TrainConfig, changed
from mast_swarm.train.tune import configured, masked, objective, tune
from mast_swarm.train.tune_config import TuneConfig
from shared import mast, one_line, recipe

optuna = pytest.importorskip("optuna", reason="optuna is not installed: pip install 'mast-swarm[tune]'")

SMALL = {"environments": 2, "steps": 4, "batch": 4, "validation": 2, "validation_steps": 3}
SMALL |= {"world": {"agents": 6, "scenario": "clusters-1"}}
RANGES: dict[str, Any] = {"layers": (1, 1), "heads": (1, 2), "head_dim": (8, 8), "lr": (1e-4, 1e-2)}


def settings(**changes: Any) -> TuneConfig:
    return TuneConfig(**{"trials": 3, "least": 1, "most": 2, "recipe": "tiny", "device": "cpu", **RANGES, **changes})


def test_the_space_is_the_papers() -> None:
    given = TuneConfig()
    assert (given.trials, given.least, given.most, given.factor) == (400, 10, 100, 4)
    assert (given.layers, given.heads, given.head_dim) == ((2, 10), (1, 8), (16, 128))
    assert (given.lr, given.weight_decay, given.dropout) == ((1e-8, 1e-2), (1e-16, 1.0), (0.0, 1.0))
    base = recipe("search")
    assert (base.policy.encoding, base.policy.attention_radius) == ("mlp", None)
    tried = {"layers": 3, "heads": 2, "head_dim": 20, "lr": 1e-3, "weight_decay": 1e-5, "dropout": 0.25}
    found = configured(base, tried)
    assert isinstance(found, TrainConfig) and (found.lr, found.weight_decay) == (1e-3, 1e-5)
    assert (found.policy.layers, found.policy.width, found.policy.dropout) == (3, 40, 0.25)


@pytest.mark.slow
def test_a_study_goes_on_where_it_was_and_is_not_mixed_with_another(tmp_path: Path) -> None:
    style = {name: value for name, value in matplotlib.rcParams.items() if not name.startswith("backend")}
    study = tune("navigation", settings(out=tmp_path), SMALL)
    assert {name: matplotlib.rcParams[name] for name in style} == style  # Optuna's plots have a style of their own
    assert len(study.trials) == 3 and isinstance(study.pruner, optuna.pruners.HyperbandPruner)
    params = [trial.params for trial in study.trials]
    before = pq.read_table(tmp_path / "trials.parquet").to_pylist()
    assert {row["number"] for row in before} == {0, 1, 2} and all(0 <= row["dropout"] <= 1 for row in before)
    assert (tmp_path / "best.toml").read_text().count("=") == 6 and (tmp_path / "history.png").stat().st_size > 1000
    again = tune("navigation", settings(out=tmp_path, trials=5), SMALL)
    assert len(again.trials) == 5 and len({row.params["lr"] for row in again.trials}) == 5
    assert [trial.params for trial in again.trials[:3]] == params
    assert len(tune("navigation", settings(out=tmp_path, trials=5), SMALL).trials) == 5
    with pytest.raises(MastError, match=r"other settings \(layers\)"):
        tune("navigation", settings(out=tmp_path, layers=(1, 2)), SMALL)


class EndedAt(optuna.trial.FixedTrial):  # type: ignore[misc,name-defined]
    """A trial that is to be ended from an epoch on."""

    last, ended = 0, 2

    def report(self, value: float, step: int) -> None:
        self.last = step

    def should_prune(self) -> bool:
        return self.last >= self.ended


@pytest.mark.slow
def test_a_trial_that_came_to_its_last_epoch_counts_whatever_the_pruner_says() -> None:
    tried = {"layers": 1, "heads": 1, "head_dim": 8, "lr": 1e-3, "weight_decay": 1e-5, "dropout": 0.0}
    base = changed(recipe("tiny"), SMALL | {"epochs": 2, "validate_every": 1})
    assert 0 <= objective(EndedAt(tried), base, settings(most=2)) <= 1
    base = changed(base, {"epochs": 3})
    with pytest.raises(optuna.TrialPruned):
        objective(EndedAt(tried), base, settings(most=3))


@pytest.mark.slow
def test_coverage_is_searched_for_the_least_cost(tmp_path: Path) -> None:
    small = SMALL | {"world": {"agents": 4, "features": 3}}
    study = tune("coverage", settings(out=tmp_path), small)
    ended = [trial.value for trial in study.trials if trial.state is optuna.trial.TrialState.COMPLETE]
    assert len(study.trials) == 3 and ended and study.best_value == min(ended) > 0
    assert (tmp_path / "best.toml").read_text().count("=") == 6


def test_bad_settings_end_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for args, said in (
        (("--trials", 0), "--trials"),
        (("--least", 5, "--most", 2), "--most"),
        (("--lr", 1e-2, 1e-4), "--lr"),
        (("--head-dim", 16, 30), "multiples of 4"),
        (("--storage", "mysql://somewhere/x"), "postgresql://"),
        (("--ray", "127.0.0.1:9"), "--storage"),
    ):
        assert mast("tune", "navigation", *args, "--out", tmp_path) == 2
        assert said in one_line(capsys)


def test_a_database_that_does_not_answer_is_named_without_its_password(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    began = time.monotonic()
    url = "postgresql://me:very-secret@127.0.0.1:9/studies"
    assert mast("tune", "navigation", "--storage", url, "--out", tmp_path) == 2
    told = one_line(capsys)
    assert "127.0.0.1:9/studies" in told and "secret" not in told and time.monotonic() - began < 15
    assert masked(url) == "postgresql://me:***@127.0.0.1:9/studies"


def find_server() -> Path:
    found = [Path("/usr/lib/postgresql"), *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)][1:]
    found += [Path(path).parent for path in [shutil.which("initdb")] if path]
    for folder in found:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    pytest.skip("PostgreSQL is not installed here (no initdb): apt-get install postgresql")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a PostgreSQL server of our own, on loopback."""
    binaries, folder = find_server(), tmp_path_factory.mktemp("postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    who: dict[str, Any] = {}
    if os.geteuid() == 0:  # PostgreSQL does not run as root
        who = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        for path in (folder, *list(folder.parents)[:3]):
            if path != Path("/tmp"):
                path.chmod(0o755)
        shutil.chown(folder, "nobody", "nogroup")
    password = folder / "password"
    password.write_text("sesame")
    password.chmod(0o644)
    made = [binaries / "initdb", "-D", folder / "data", "-U", "mast", "-A", "scram-sha-256", f"--pwfile={password}"]
    done = subprocess.run(made, capture_output=True, text=True, **who)
    if done.returncode:
        pytest.skip(f"PostgreSQL cannot start here: {done.stderr.strip().splitlines()[-1]}")
    listen = ["-p", str(port), "-c", "listen_addresses=127.0.0.1", "-k", str(folder), "-F"]
    command = [binaries / "postgres", "-D", folder / "data", *listen]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **who)
    try:
        for _ in range(300):
            try:
                import psycopg

                psycopg.connect(f"postgresql://mast:sesame@127.0.0.1:{port}/postgres", connect_timeout=2).close()
                break
            except psycopg.OperationalError:
                if server.poll() is not None:
                    pytest.skip("PostgreSQL ended as soon as it started")
                time.sleep(0.1)
        yield f"postgresql://mast:sesame@127.0.0.1:{port}/postgres"
    finally:
        server.send_signal(signal.SIGINT)  # without waiting for those who are still connected
        server.wait(20)


@pytest.mark.slow
def test_two_workers_share_a_study_in_postgresql(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = settings(storage=database, trials=4, workers=2, out=tmp_path / "one")
    study = tune("navigation", given, SMALL)
    counted = [trial for trial in study.trials if trial.state.name in ("COMPLETE", "PRUNED")]
    assert 4 <= len(counted) <= 5 and len({trial.params["lr"] for trial in counted}) == len(counted)
    again = tune("navigation", settings(storage=database, trials=4, out=tmp_path / "two"), SMALL)  # another machine
    assert len(again.trials) == len(study.trials)
    assert (tmp_path / "two" / "trials.parquet").exists()
    wrong = database.replace("sesame", "not-sesame")
    assert mast("tune", "navigation", "--storage", wrong, "--out", tmp_path / "three") == 2
    told = one_line(capsys)
    assert "password" in told and "sesame" not in told
