"""The search for hyper-parameters: resumes, refuses other settings, and shares a study over PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import matplotlib
import pyarrow.parquet as pq
import pytest
import torch

import mast_swarm
from mast_swarm.errors import MastError
from mast_swarm.train.config import TrainConfig, changed, from_toml
from mast_swarm.train.database import masked, without_passwords
from mast_swarm.train.study import counted, open_study, others_of, try_again, url_of
from mast_swarm.train.tune import Stop, configured, objective, proposed, search_of, stoppable, tune
from mast_swarm.train.tune_config import TuneConfig
from mast_swarm.train.watch import watched
from mast_swarm.view.search import search_plots
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
    study = tune("navigation", settings(out=tmp_path), SMALL, search_plots)
    assert {name: matplotlib.rcParams[name] for name in style} == style
    assert len(study.trials) == 3 and isinstance(study.pruner, optuna.pruners.HyperbandPruner)
    params = [trial.params for trial in study.trials]
    before = pq.read_table(tmp_path / "trials.parquet").to_pylist()
    assert {row["number"] for row in before} == {0, 1, 2} and all(0 <= row["dropout"] <= 1 for row in before)
    assert (tmp_path / "history.png").stat().st_size > 1000
    assert not (tmp_path / "importance.png").exists()  # of 3 trials nobody knows
    again = tune("navigation", settings(out=tmp_path, trials=5), SMALL)
    assert len(again.trials) == 5 and len({row.params["lr"] for row in again.trials}) == 5
    assert [trial.params for trial in again.trials[:3]] == params
    assert len(tune("navigation", settings(out=tmp_path, trials=5), SMALL).trials) == 5
    other = settings(out=tmp_path, layers=(1, 2), most=4)
    with pytest.raises(MastError, match=r"other settings \(layers: 1 1, not 1 2; most: 2, not 4\)"):
        tune("navigation", other, SMALL)
    with pytest.raises(MastError, match=r"\(world.agents of the recipe: 6, not 5\)"):
        tune("navigation", settings(out=tmp_path), SMALL | {"world": {"agents": 5, "scenario": "clusters-1"}})


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
    assert 0 <= objective(EndedAt(tried), base, settings(most=2), Stop()) <= 1
    base = changed(base, {"epochs": 3})
    with pytest.raises(optuna.TrialPruned):
        objective(EndedAt(tried), base, settings(most=3), Stop())


@pytest.mark.slow
def test_coverage_is_searched_for_the_least_cost(tmp_path: Path) -> None:
    small = SMALL | {"world": {"agents": 4, "features": 3}}
    study = tune("coverage", settings(out=tmp_path), small)
    ended = [trial.value for trial in study.trials if trial.state is optuna.trial.TrialState.COMPLETE]
    assert len(study.trials) == 3 and ended and study.best_value == min(ended) > 0


@pytest.mark.slow
def test_the_best_settings_are_complete_and_say_what_to_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = tmp_path / "given.toml"
    given.write_text('environments = 2\nsteps = 4\nbatch = 4\nvalidation = 2\nvalidation_steps = 3\nclip = "none"\n'
        "epochs = 77\n[world]\nagents = 6\n")  # fmt: skip
    out = tmp_path / "a folder"
    args = ("--least", 1, "--most", 2, "--recipe", "tiny", "--layers", 1, 1, "--head-dim", 8, 8, "--config", given)
    assert mast("tune", "navigation", "--trials", 1, *args, "--device", "cpu", "--out", out) == 0
    command = f"mast train navigation --recipe tiny --config '{out}/best.toml'"
    assert (out / "best.toml").read_text().startswith(f"# {command}\n")
    told = capsys.readouterr().out
    assert told.startswith(f"search: {out}; study 'navigation': 0 of 1 trial finished\n") and "\ntrial 0: " in told
    assert "\n1 of 1 trial finished; best" in told and told.endswith(f"settings: {command}\n")
    search = search_of("navigation", settings(config=given))
    study = optuna.load_study(study_name="navigation", storage=url_of(str(out / "study.db")))
    named = recipe("tiny")
    own = {"epochs": named.epochs, "validate_every": named.validate_every, "seed": named.seed}
    assert from_toml(out / "best.toml", named) == changed(configured(search.base, study.best_params), own)


def left(out: Path, states: tuple[str, ...]) -> Any:
    """A study with trials that nobody runs any more, as they were left."""
    search = search_of("navigation", settings(out=out), SMALL)
    study = open_study(url_of(str(out / "study.db")), "navigation", settings(out=out), search.base)
    for state in states:
        trial = study.ask()
        proposed(trial, settings(out=out))
        if state == "ended":
            trial.set_user_attr("ended", "out of memory")
        if state != "killed":
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
    return study


@pytest.mark.slow
def test_what_was_interrupted_is_tried_again_before_anything_new(tmp_path: Path) -> None:
    before = left(tmp_path, ("interrupted", "killed", "ended"))
    again = "to be tried again from the first epoch"
    assert counted(before, 2) == f"0 of 2 trials finished, 1 failed, 1 under way, 1 {again}"
    others_of(url_of(str(tmp_path / "study.db")), "navigation").fail_dead(before)
    for _ in range(2):  # those that wait for their turn are not tried again yet
        assert counted(before, 2) == f"0 of 2 trials finished, 1 failed, 2 {again}"
        try_again(before)
    study = tune("navigation", settings(out=tmp_path, trials=2), SMALL)
    assert re.fullmatch(r"2 of 2 trials finished( \(1 ended early\))?, 1 failed", counted(study, 2))
    assert [trial.params for trial in study.trials[3:]] == [trial.params for trial in study.trials[:2]]
    try_again(study)
    assert len(study.trials) == 5  # each once


def test_a_trial_whose_process_lives_is_left_alone_and_one_that_kills_is_given_up(tmp_path: Path) -> None:
    study = left(tmp_path, ("killed",))
    url = url_of(str(tmp_path / "study.db"))
    code = f"""
import sys
from mast_swarm.train.study import InFile
with InFile({url!r}).alive({study.trials[0]._trial_id}):
    print("alive", flush=True)
    sys.stdin.read()
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None and process.stdout.readline() == "alive\n"
    others = others_of(url, "navigation")
    others.fail_dead(study)
    assert study.trials[0].state.name == "RUNNING"
    process.kill()
    process.wait(20)
    for begun in (1, 2, 3):
        others.fail_dead(study)
        assert study.trials[-1].state.name == "FAIL"
        try_again(study)
        assert len(study.trials) == min(begun + 1, 3)
        if begun < 3:
            assert proposed(study.ask(), settings()) == study.trials[0].params
    assert counted(study, 5) == "0 of 5 trials finished, 1 failed"


def test_who_asks_to_stop_is_heard_in_training_and_never_in_the_middle_of_a_report() -> None:
    """What a database is being told is told whole: cut off it would stay locked."""
    told: list[str] = []
    with pytest.raises(KeyboardInterrupt), stoppable() as stop:
        with stop.heard(at_once=True), stop.heard(at_once=False):
            signal.raise_signal(signal.SIGINT)
            told.append("whole")
        told.append("more training")
    assert told == ["whole"]
    with stoppable() as stop:
        signal.raise_signal(signal.SIGINT)  # between two trials
        with pytest.raises(KeyboardInterrupt), stop.heard(at_once=True):
            told.append("another training")
    assert told == ["whole"]
    with pytest.raises(KeyboardInterrupt), stoppable() as stop, stop.heard(at_once=True):
        signal.raise_signal(signal.SIGINT)
        told.append("training")
    assert told == ["whole"]


def test_who_is_to_end_ends_whatever_else_is_asked() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with stoppable() as stop:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
                signal.raise_signal(number)
            assert not heard and stop.asked == signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


def test_a_search_says_what_begins_and_how_far_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mast_swarm.train.watch._LOOK", 0.02)  # s
    given = settings(out=tmp_path, trials=4, most=8)
    study = left(tmp_path, ("interrupted", "killed"))
    try_again(study)
    seen: list[Mapping[str, tuple[int, int]]] = []

    def until(wanted: Mapping[str, tuple[int, int]]) -> None:
        end = time.monotonic() + 60
        while seen[-1:] != [wanted]:
            assert time.monotonic() < end, seen[-1:]
            time.sleep(0.02)

    kept: list[int] = []
    with watched(study, given, lambda: kept.append(len(study.trials)), seen.append):
        trial = study.ask()
        proposed(trial, given)
        until({"finished trials": (0, 4), "epochs of trial 1": (0, 8), "epochs of trial 2": (0, 8)})
        trial.report(0.5, 3)
        until({"finished trials": (0, 4), "epochs of trial 1": (0, 8), "epochs of trial 2": (3, 8)})
        study.tell(trial, 0.75)
        until({"finished trials": (1, 4), "epochs of trial 1": (0, 8)})
        monkeypatch.setattr("mast_swarm.train.watch._LOOK", 60.0)  # s: it has ended before anybody looks again
        time.sleep(0.1)
        quick = study.ask()
        proposed(quick, given)
        quick.report(0.25, 1)
        study.tell(quick, 0.25)
    begins, ends, *late = capsys.readouterr().out.splitlines()  # what began before is not told again
    assert late[0].startswith("trial 3 begins: ")
    assert late[1].startswith("trial 3: 0.250 after 1 epoch, complete, ") and len(late) == 2
    assert begins.startswith("trial 2 begins, as trial 0 did: layers 1, heads ") and ", dropout 0." in begins
    assert ends.startswith("trial 2: 0.750 after 3 epochs, complete, ") and len(kept) == 3


def begun_search(out: Path, workers: int, trials: int = 999) -> subprocess.Popen[str]:
    """A search in a process of its own that has finished a trial."""
    ranges = ("--layers", "1", "1", "--heads", "1", "2", "--head-dim", "8", "8", "--device", "cpu")
    (out / "small.toml").write_text("environments = 2\nsteps = 4\nbatch = 4\nvalidation = 2\nvalidation_steps = 3\n")
    given = ("--recipe", "tiny", "--least", "1", "--most", "3", "--config", str(out / "small.toml"), *ranges)
    given += ("--trials", str(trials))
    command = [sys.executable, "-m", "mast_swarm", "tune", "navigation", *given, "--workers", str(workers)]
    process = subprocess.Popen(
        [*command, "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None and process.stdout.readline().startswith(f"search: {out}; study 'navigation': ")
    while not re.search(r"^trial .* epochs?, ", line := process.stdout.readline()):
        assert line  # else it has ended
    return process


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_ends_in_one_line_that_says_how_to_go_on(tmp_path: Path, workers: int) -> None:
    process = begun_search(tmp_path, workers)
    time.sleep(1)
    assert pq.read_table(tmp_path / "trials.parquet").num_rows >= 1 and (tmp_path / "best.toml").exists()
    os.killpg(process.pid, signal.SIGINT)
    told = process.communicate(timeout=180)[1]
    *before, last = told.splitlines()
    assert process.returncode == 130 and all(line.startswith("finished trials: ") for line in before), told
    stands = r"\d+ of 999 trials finished( \(\d+ ended early\))?(, \d to be tried again from the first epoch)?"
    assert re.fullmatch(f"mast: interrupted; {stands}; what was finished is kept; the same command goes on", last), told


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc to find a worker by")
def test_a_search_goes_on_when_one_of_its_workers_is_killed(tmp_path: Path) -> None:
    """As by a system that is short of memory: the others, which are in a trial, end in good order and begin again."""
    process = begun_search(tmp_path, 2, trials=40)  # which go on for seconds
    workers = [pid for pid in children(process.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(workers[0], signal.SIGKILL)
    told = process.communicate(timeout=300)
    assert process.returncode == 0, told
    study = optuna.load_study(study_name="navigation", storage=url_of(str(tmp_path / "study.db")))
    assert re.fullmatch(r"40 of 40 trials finished( \(\d+ ended early\))?", counted(study, 40))


@pytest.mark.slow
def test_workers_of_a_command_that_was_killed_end_too(tmp_path: Path) -> None:
    process = begun_search(tmp_path, 2)
    process.kill()
    process.communicate(timeout=180)  # comes to its end when nobody has the pipe any more
    url = url_of(str(tmp_path / "study.db"))
    study = optuna.load_study(study_name="navigation", storage=url)
    others_of(url, "navigation").fail_dead(study)
    assert not [trial for trial in study.trials if trial.state.name == "RUNNING"]


def test_bad_settings_end_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for args, said in (
        (("--trials", 0), "--trials"),
        (("--least", 5, "--most", 2), "--most"),
        (("--lr", 1e-2, 1e-4), "least value first"),
        (("--lr", 0, 1), "above 0"),
        (("--dropout", 0, 2), "between 0 and 1"),
        (("--head-dim", 16, 30), "multiples of 4"),
        (("--storage", "mysql://somewhere/x"), "postgresql://"),
        (("--ray", "127.0.0.1:9"), "--storage"),
    ):
        assert mast("tune", "navigation", *args, "--out", tmp_path) == 2
        assert said in one_line(capsys)
    (tmp_path / "file").touch()
    assert mast("tune", "navigation", "--out", tmp_path / "file" / "in") == 2
    assert "cannot write to" in one_line(capsys)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there_is_said_before_anything_is_made(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert mast("tune", "navigation", "--device", "cuda", "--out", tmp_path / "out") == 2
    assert "no CUDA device" in one_line(capsys) and not (tmp_path / "out").exists()


def test_a_database_that_does_not_answer_is_named_without_its_password(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    began = time.monotonic()
    url = "postgresql://me:very-secret@127.0.0.1:9/studies"
    assert mast("tune", "navigation", "--storage", url, "--out", tmp_path) == 2
    told = one_line(capsys)
    assert "127.0.0.1:9/studies" in told and "secret" not in told and time.monotonic() - began < 15
    assert masked(url) == "postgresql://me:***@127.0.0.1:9/studies"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://127.0.0.1:9/db?user=me&password=sesame", "127.0.0.1:9/db?user=me&password=***"),
        ("postgresql://127.0.0.1:9/db?p%61ssword=ses%61me", "127.0.0.1:9/db?p%61ssword=***"),
        ("postgresql://127.0.0.1:9/db?sslpassword=sesame@x&sslmode=require", "db?sslpassword=***&sslmode=require"),
        ("postgresql://me:ses@me@127.0.0.1:9/db", "postgresql://me:***@127.0.0.1:9/db"),
        ("postgresql://me:ses%40me@127.0.0.1:9/db", "postgresql://me:***@127.0.0.1:9/db"),
        ("postgresql+psycopg://me:ses:me@[::1]:9/db", "postgresql+psycopg://me:***@[::1]:9/db"),
        ("postgresql://me@127.0.0.1:9/db", "postgresql://me@127.0.0.1:9/db"),
        ("postgresql://me:ses/me@127.0.0.1:9/db", "postgresql://***: it names no host"),
        ("postgresql://me:12/ses@me:9/db", "postgresql://***: it names no host"),
        ("postgresql://me:ses?me@127.0.0.1:9/db", "postgresql://***: it names no host"),
        ("postgresql://me:12?a=ses@127.0.0.1:9/db", "postgresql://***: it names no host"),
        ("postgresql:/me:sesame@127.0.0.1:9/db", "postgresql://***: give a file, or"),
        ("mysql://me:sesame@127.0.0.1/db", "mysql://me:***@127.0.0.1/db: give a file, or"),
        ("postgresql:me:sesame@127.0.0.1", "postgresql://***: give a file, or"),
        ("mysql:/me:sesame@127.0.0.1/db", "mysql://***: give a file, or"),
    ],
)
def test_no_message_shows_a_password(
    url: str, shown: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert mast("tune", "navigation", "--trials", 1, "--storage", url, "--out", tmp_path / "out") == 2
    told = one_line(capsys)
    assert shown in told and "ses" not in told, told
    assert not list(tmp_path.iterdir())


def test_what_a_driver_says_is_shown_without_passwords() -> None:
    url = "postgresql://me:ses%40me@127.0.0.1/db?sslpassword=o%70en"
    assert without_passwords("no host 'ses@me' (ses%40me), open: reopened", url) == "no host '***' (***), ***: reopened"
    coded = "postgresql://host/db?password=se%2Fx+y"
    assert without_passwords("se%2Fx+y, se/x+y, se/x y", coded) == "***, ***, ***"
    assert without_passwords("no host 'me'", "postgresql://a:b/c@host") == "***"
    assert masked(url_of("/me@home:1/a.db")) == "sqlite:////me@home:1/a.db"


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
def test_a_trial_of_a_machine_that_died_is_tried_again_from_postgresql(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mast_swarm.train.study._BEAT", 1)  # s
    given = settings(storage=database, study="died", trials=1, out=tmp_path)
    study = open_study(url_of(database), "died", given, search_of("navigation", given, SMALL).base)
    trial = study.ask()
    tried = proposed(trial, given)
    study._storage.record_heartbeat(trial._trial_id)  # type: ignore[attr-defined]
    again = tune("navigation", given, SMALL)
    assert [found.state.name for found in again.trials] == ["FAIL", "COMPLETE"] and again.trials[1].params == tried


def test_what_postgresql_refuses_is_told_without_the_password(
    database: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place = database.partition("@")[2]
    for url in (f"postgresql://mast:open@ses@{place}", f"postgresql://{place}?user=mast&password=open%40ses"):
        assert mast("tune", "navigation", "--trials", 1, "--storage", url, "--out", tmp_path / "out") == 2
        told = one_line(capsys)
        assert "password authentication failed for user" in told and "open" not in told and "ses@" not in told, told
    assert masked(database) == f"postgresql://mast:***@{place}"


@pytest.mark.slow
def test_two_workers_share_a_study_in_postgresql(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = settings(storage=database, trials=4, workers=2, out=tmp_path / "one")
    study = tune("navigation", given, SMALL)
    ended = [trial for trial in study.trials if trial.state.name in ("COMPLETE", "PRUNED")]
    assert len(study.trials) == len(ended) == 4 and len({trial.params["lr"] for trial in ended}) == 4
    assert len(re.findall(r" epochs?, ", capsys.readouterr().out)) == 4
    again = tune("navigation", settings(storage=database, trials=4, out=tmp_path / "two"), SMALL)  # another machine
    assert len(again.trials) == len(study.trials)
    assert (tmp_path / "two" / "trials.parquet").exists()
    wrong = database.replace("sesame", "not-sesame")
    assert mast("tune", "navigation", "--storage", wrong, "--out", tmp_path / "three") == 2
    told = one_line(capsys)
    assert "password" in told and "sesame" not in told


@pytest.mark.slow
def test_a_cluster_s_trials_are_told_by_the_command(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'mast-swarm[cluster]'")
    from ray.cluster_utils import Cluster

    for name, value in (("PYTHONPATH", str(Path(mast_swarm.__file__).parents[1])), ("RAY_USAGE_STATS_ENABLED", "0"),
        ("OMP_NUM_THREADS", "1"), ("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")):  # fmt: skip
        monkeypatch.setenv(name, value)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        given = settings(storage=database, study="ray", trials=4, workers=2, ray=cluster.address, out=tmp_path)
        study = tune("navigation", given, SMALL)
    finally:
        cluster.shutdown()
    assert len(study.trials) == 4 and len(re.findall(r" epochs?, ", capsys.readouterr().out)) == 4
