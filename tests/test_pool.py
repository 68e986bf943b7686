"""Work in local processes: results as they come, errors by name, dead processes' work done again."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import active_children
from pathlib import Path

import pytest

from mast_swarm import workers
from mast_swarm.errors import MastError
from mast_swarm.pool import Job, Local, check_reachable, pool


def square(x: int) -> int:
    return x * x


def wrong() -> None:
    raise MastError("this cell cannot be")


def dies_once(mark: str) -> int:
    """Kills its own process the first time."""
    if not Path(mark).exists():
        Path(mark).touch()
        os._exit(9)
    return 7


@pytest.mark.parametrize("processes", [1, 2])
def test_all_jobs_come_back(processes: int) -> None:
    jobs = [Job(str(n), square, (n,)) for n in range(5)]
    assert {job.name: found for job, found in Local(processes).run(jobs)} == {str(n): n * n for n in range(5)}


@pytest.mark.parametrize("processes", [1, 2])
def test_jobs_are_asked_for_when_a_process_is_free(processes: int) -> None:
    """Whoever gives jobs may stop giving: what was begun comes back, and nothing further begins."""
    given: list[int] = []
    back: list[int] = []

    def coming() -> Iterator[Job]:
        for n in range(20):
            if len(back) >= 3:
                return
            given.append(n)
            yield Job(str(n), square, (n,))

    for _, found in Local(processes).run(coming()):
        back.append(found)
    assert sorted(back) == [n * n for n in given] and 3 <= len(given) <= 3 + processes


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_a_job_may_wait_for_another(processes: int) -> None:
    """Where there is a job only after another has ended, a free process is given none, and asks again then."""
    back: list[int] = []

    def coming() -> Iterator[Job | None]:
        yield Job("first", square, (3,))
        yield Job("second", square, (4,))
        while 9 not in back:
            yield None
        yield Job("after the first", square, (back[0],))

    for _, found in Local(processes).run(coming()):
        back.append(found)
    assert sorted(back) in ([9, 16, 81], [9, 16, 256])


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_arrives_as_it_is(processes: int) -> None:
    with pytest.raises(MastError, match="cannot be"):
        list(Local(processes).run([Job("a", square, (1,)), Job("b", wrong)]))


def gives_up() -> None:
    raise EOFError("of its own")


def test_errors_that_are_not_ours_say_where_they_come_from() -> None:
    with pytest.raises(EOFError, match="of its own") as raised:
        list(Local(2).run([Job("a", square, (1,)), Job("b", gives_up)]))
    assert "in gives_up" in raised.value.__notes__[0]
    with pytest.raises(KeyboardInterrupt):  # one process alone has heard it
        list(Local(2).run([Job("a", square, (1,)), Job("b", signal.raise_signal, (signal.SIGINT,))]))
    assert not active_children()


class Odd(Exception):
    """One that is not made again from what it says."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__("odd")


def odd() -> None:
    raise Odd(1, 2)


def unsendable() -> object:
    return lambda: 1


class OddInput(MastError):
    """Bad input that is not made again from what it says."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} in {where}")


def odd_input() -> None:
    raise OddInput("three", "a file of two")


class Mute(Exception):
    """One that cannot even be told."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__()

    def __str__(self) -> str:
        raise ValueError


def mute() -> None:
    raise Mute(1, 2)


class Unreadable:
    """What a process is given, and cannot make again."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return int, ("no number",)


@pytest.mark.parametrize(
    ("function", "kind", "told"),
    [
        (odd, RuntimeError, "Odd: odd"),
        (unsendable, AttributeError, "lambda"),
        (odd_input, MastError, "^three in a file of two$"),
        (mute, RuntimeError, "Mute: an error that cannot be told"),
    ],
)
def test_what_no_other_process_can_read_is_told(
    function: Callable[[], object], kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told):
        list(Local(2).run([Job("a", square, (1,)), Job("b", function)]))
    assert not active_children()


def test_work_that_no_process_can_read_is_told() -> None:
    """It is no process that died, for which the work would be tried again."""
    with pytest.raises(ValueError, match="no number"):
        list(Local(2).run([Job("a", square, (1,)), Job("b", square, (Unreadable(),))]))  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="lambda"):  # what cannot be sent at all
        list(Local(2).run([Job("a", square, (1,)), Job("b", lambda: 1)]))
    assert not active_children()


def ends(how: int) -> None:
    """Ends its own process: by a signal, or with an exit code where it is below 0."""
    if how < 0:
        os._exit(-how)
    os.kill(os.getpid(), how)
    time.sleep(60)


@pytest.mark.parametrize(
    ("how", "told"),
    [(-9, r" \(exit code 9\)$"), (signal.SIGSEGV, r" \(SIGSEGV\)$"), (signal.SIGKILL, ": is memory short")],
)
def test_what_dies_again_and_again_is_named(how: int, told: str) -> None:
    with pytest.raises(MastError, match=f"a process died 3 times over worst{told}"):
        list(Local(2).run([Job("a", square, (1,)), Job("worst", ends, (how,)), Job("c", square, (2,))]))
    assert not active_children()


def test_a_script_that_runs_again_in_each_process_is_told_what_it_lacks(tmp_path: Path) -> None:
    script = "from mast_swarm.pool import Job, Local\nlist(Local(2).run([Job('a', abs, (1,)), Job('b', abs, (2,))]))\n"
    (tmp_path / "bare.py").write_text(script)
    told = subprocess.run([sys.executable, str(tmp_path / "bare.py")], capture_output=True, text=True, timeout=180)
    assert told.stderr.rstrip().endswith("put what starts it under `if __name__ == '__main__':`")


_OWN = """
import numba
import mast_swarm

@numba.njit
def filled(n):
    return n

def work(n):
    mast_swarm.evaluate("navigation", policy=["lsap"], agents=5, episodes=1, steps=2, out=f"r{n}")
    return numba.get_num_threads(), filled(4)

if __name__ == "__main__":
    from mast_swarm.pool import Job, Local
    print(sorted(found for _, found in Local(2).run([Job(str(n), work, (n,)) for n in range(2)])))
"""


@pytest.mark.slow
def test_a_script_that_has_loaded_libraries_has_as_few_threads(tmp_path: Path) -> None:
    """Each process runs the script first: numba then reads how many threads it has before it is told."""
    (tmp_path / "own.py").write_text(_OWN)
    told = subprocess.run([sys.executable, "own.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    threads = max(1, (os.cpu_count() or 1) // 2)
    assert told.stdout == f"[({threads}, 4), ({threads}, 4)]\n", told.stderr


def test_who_is_stopped_as_it_hands_over_work_ends_that_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt of this process alone, which comes when another has its work and nobody has noted that."""
    begin, begun = workers.Worker.begin, []

    def interrupted(self: workers.Worker, *given: object) -> None:
        begin(self, *given)  # type: ignore[arg-type]
        begun.append(time.monotonic())
        if len(begun) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(workers.Worker, "begin", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(Local(2).run([Job("a", time.sleep, (120,)), Job("b", time.sleep, (120,))]))
    assert time.monotonic() - begun[1] < 60


def test_a_dead_process_is_replaced(tmp_path: Path) -> None:
    jobs = [Job("dies", dies_once, (str(tmp_path / "mark"),)), Job("lives", square, (3,))]
    assert {job.name: found for job, found in Local(2).run(jobs)} == {"dies": 7, "lives": 9}


# Where tests run in the background, a shell may have them ignore Ctrl-C: these processes are to hear it.
INTERRUPTED = """
import signal
import sys
import time
from pathlib import Path

from mast_swarm.pool import Job, Local

FOLDER = Path(sys.argv[1])


def quick():
    return 1


def long(mark):
    (FOLDER / mark).touch()
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        (FOLDER / f"{mark} heard").touch()
        raise


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    jobs = [Job("quick", quick), Job("long", long, ("long",))]
    try:
        for job, _ in Local(2).run(jobs):
            (FOLDER / job.name).touch()
    except KeyboardInterrupt:
        print("stopped")
"""


def test_an_interrupt_reaches_work_and_leaves_idle_processes_quiet(tmp_path: Path) -> None:
    """Ctrl-C goes to all processes of a group: one waits here for work and says nothing, one is at work and is told."""
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    run = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        until = time.monotonic() + 60
        while not all((tmp_path / mark).exists() for mark in ("quick", "long")):
            assert time.monotonic() < until and run.poll() is None
            time.sleep(0.05)
        os.killpg(run.pid, signal.SIGINT)
        told = run.communicate(timeout=180)
    finally:
        run.kill()
    assert told == ("stopped\n", "") and run.returncode == 0
    assert (tmp_path / "long heard").exists()


_LATE = """
import signal, sys
from mast_swarm.workers import Worker, end

if __name__ == "__main__":
    worker = Worker(1)
    worker.begin(print, "ready")
    worker.found()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker.interrupt()
    worker.begin(print, "begun all the same")
    try:
        worker.found()
    except KeyboardInterrupt:
        print("told")
    end([worker])
"""


def test_an_interrupt_that_comes_before_the_work_keeps_it_from_being_begun(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(_LATE)
    told = subprocess.run([sys.executable, str(tmp_path / "late.py")], capture_output=True, text=True, timeout=180)
    assert (told.stdout, told.stderr) == ("ready\ntold\n", "")


def test_jobs_that_wait_when_an_interrupt_comes_are_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has ended its job would otherwise take the next from the queue, and nobody would end that."""
    monkeypatch.setattr(workers, "_stopped", False)
    before = signal.getsignal(signal.SIGINT)
    try:
        assert workers.work(square, 3) == 9
        with pytest.raises(KeyboardInterrupt):
            workers.work(signal.raise_signal, signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            workers.work(square, 4)
        monkeypatch.setattr(workers, "_stopped", False)
        assert workers.work(square, 3) == 9
        signal.raise_signal(signal.SIGINT)  # idle: a process that ended here might hold the queue's lock
        with pytest.raises(KeyboardInterrupt):
            workers.work(square, 4)
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_as_a_process_is_started_leaves_no_signal_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that came just before is raised by the call that blocks the signal, when it is blocked already."""
    blocked, change = signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.pthread_sigmask

    def interrupted(how: int, numbers: set[int]) -> set[int]:
        before = change(how, numbers)
        if how == signal.SIG_BLOCK and numbers:
            raise KeyboardInterrupt
        return before

    monkeypatch.setattr(workers.signal, "pthread_sigmask", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt), workers._interrupts("SIG_BLOCK"):
            pass
        assert change(signal.SIG_BLOCK, ()) == blocked
    finally:
        change(signal.SIG_SETMASK, blocked)


_TERMINATED = """
import os
import signal
import sys
import time

from mast_swarm.errors import Terminated, terminable
from mast_swarm.pool import Job, Local


class Stopped(KeyboardInterrupt):
    def __init__(self, told, number):
        super().__init__(told)
        self.signal = number


def careful():
    asked = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: asked.append(number))
    os.write(1, b"careful\\n")  # whole, whatever another process writes
    while not asked:
        time.sleep(0.05)
    time.sleep(1)  # a checkpoint
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise Stopped("where it goes on", asked[0])


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with terminable():
        try:
            for job, _ in Local(2).run([Job("quick", os.write, (1, b"quick\\n")), Job("careful", careful)]):
                os.write(1, f"{job.name} is done\\n".encode())
        except KeyboardInterrupt as stopped:
            print(type(stopped).__name__)
"""


@pytest.mark.parametrize(("number", "told"), [(signal.SIGTERM, "Terminated"), (signal.SIGINT, "KeyboardInterrupt")])
def test_work_that_ends_in_its_own_time_holds_nobody_up(tmp_path: Path, number: int, told: str) -> None:
    """The whole group is told, as by a cluster's scheduler: one process waits for work, one writes a checkpoint."""
    script = tmp_path / "terminated.py"
    script.write_text(_TERMINATED)
    run = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert run.stdout is not None
        lines = {run.stdout.readline() for _ in range(3)}
        assert "careful\n" in lines and "quick is done\n" in lines
        os.killpg(run.pid, number)
        out, errors = run.communicate(timeout=180)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
    assert (out, errors) == (f"{told}\n", "") and run.returncode == 0


_ABANDONED = """
from mast_swarm.pool import Job, Local

if __name__ == "__main__":
    for kept in (running := Local(2).run([Job(str(n), abs, (n,)) for n in range(9)])):
        break
    from mast_swarm.workers import Worker
    worker = Worker(1)  # nor is it ended by anybody
"""


def test_processes_that_nobody_ends_do_not_keep_the_interpreter(tmp_path: Path) -> None:
    (tmp_path / "abandoned.py").write_text(_ABANDONED)
    told = subprocess.run(
        [sys.executable, str(tmp_path / "abandoned.py")], capture_output=True, text=True, timeout=180, check=True
    )
    assert told.stdout == told.stderr == ""


def test_nobody_at_an_address_is_found_out_quickly() -> None:
    began = time.monotonic()
    with pytest.raises(MastError, match=r"127\.0\.0\.1:9"):
        check_reachable("127.0.0.1:9")
    with pytest.raises(MastError, match="HOST:PORT"):
        check_reachable("somewhere")
    assert time.monotonic() - began < 8
    with pytest.raises(MastError, match="1 or more"):
        pool(None, 0)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 404 Not Found\r\n\r\n", b"", None], ids=["http", "closes", "silent"])
def test_what_is_no_cluster_is_told_apart(answer: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself waits for minutes for one that listens and says nothing."""
    monkeypatch.setattr("mast_swarm.pool._REACH", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        held: list[socket.socket] = []

        def serve() -> None:
            held.append(server.accept()[0])
            if answer is not None:
                held[0].recv(1000)
                held.pop().sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(MastError, match=address):
            pool(address)
        thread.join()
        for connection in held:
            connection.close()


_SLOW = """
import signal, sys, time
from mast_swarm.pool import Job, Local

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for job, _ in Local(2).run([Job("quick", print, ("begun",)), Job("slow", time.sleep, (600,))] * 2):
            print(job.name, flush=True)
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_processes_end_with_the_one_that_gives_them_work_and_without_a_word(tmp_path: Path, number: int) -> None:
    script = tmp_path / "slow.py"
    script.write_text(_SLOW)
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline()
    process.send_signal(number)
    told = process.communicate(timeout=180)[1]  # comes to its end when nobody has the pipes any more
    assert process.returncode == (130 if number == signal.SIGINT else -number) and "Traceback" not in told, told
