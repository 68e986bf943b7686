"""The playground in headless Chromium: what a frame and a control period cost, and how many of each come per second.

The page draws in one thread and computes in others, so the two are apart: while a control period is computed, robots
glide between the last two. How many come per second depends on what else the machine does (its load is in the file).
CPU time does not, or much less: all that the browser spends, drawing alone and computing alone. Graphics are drawn by
the CPU here, in a browser without a GPU. The same control period is also computed by torch on one thread, right before.

    make web && python -m benchmarks.play
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import benchmark, line
from mast_swarm.comms import Channel
from mast_swarm.evaluate.actors import make_actor
from mast_swarm.evaluate.loop import Loop
from mast_swarm.play.config import SITE
from mast_swarm.play.server import folder_files, make_server, running
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.tasks.navigation.world import Navigation

sys.path.append(str(Path(__file__).parent.parent / "tests"))  # how tests drive a browser

CASES = (("mast-m", 32, 1.0), ("mast-m", 100, 0.0), ("mast-m", 100, 1.0), ("dhba-8", 100, 0.0))
SETTLED, TIMED, SECONDS, SPEED = 10, 5, 10.0, 10
NAMES = {"mast-m": "navigation/mast-m", "dhba-8": "dhba"}


def begun(policy: str, robots: int, delay: float) -> Loop:
    world = Navigation(NavigationConfig(agents=robots, scenario="clusters-5"))
    loop = Loop(world, make_actor(policy, world, Channel(delay=delay) if policy == "mast-m" else None))
    loop.start([1])
    return loop


def in_torch(loop: Loop) -> float:
    """CPU milliseconds of a settled control period."""
    with torch.inference_mode():
        for _ in range(SETTLED):
            loop.step()
        began = time.process_time()
        for _ in range(TIMED):
            loop.step()
    return 1000 * (time.process_time() - began) / TIMED


def spent(root: int) -> float:
    """CPU milliseconds that a process and all below it have used so far."""
    parents, used = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            parents[int(folder.name)], used[int(folder.name)] = int(fields[1]), int(fields[11]) + int(fields[12])

    def below(process: int) -> bool:
        while process and process != root:
            process = parents.get(process, 0)
        return process == root

    return 1000 * sum(ticks for process, ticks in used.items() if below(process)) / os.sysconf("SC_CLK_TCK")


def in_page(page: Any, policy: str, robots: int, delay: float, start: Any) -> dict[str, float]:
    """The same team in the page: a settled control period, a frame, and 10 s of play."""
    given = {
        "task": "navigation",
        "drives": NAMES[policy],
        "seed": 1,
        "positions": start.positions[0].flatten().tolist(),
        "goals": start.goals[0].flatten().tolist(),
        "channel": {"delay": delay},
    }
    root = page.browser.service.process.pid
    page.run("Object.assign(mastPlay.own, arguments[0])", {"drives": NAMES[policy], "delay": delay, "robots": robots})
    page.ask("mastPlay.reset({ ...arguments[0], radius: undefined })", given)
    page.ask("mastPlay.advance(arguments[0])", SETTLED)
    before = spent(root)
    took = statistics.median(page.ask("mastPlay.simulation.ask('step')")["took"] for _ in range(TIMED))
    period = (spent(root) - before) / TIMED
    page.run("mastPlay.drawing = setInterval(() => { mastPlay.dirty = true; }, 4)")
    before, frames = spent(root), page.run("return mastPlay.frames")
    time.sleep(SECONDS / 2)
    drawn = page.run("clearInterval(mastPlay.drawing); return mastPlay.frames") - frames
    frame = (spent(root) - before) / max(drawn, 1)
    page.run("mastPlay.settings.speed = arguments[0]; mastPlay.toggle()", SPEED)
    time.sleep(2)
    count = "return [performance.now(), mastPlay.frames, mastPlay.runs.at(-1).points.length]"
    first = page.run(count)
    time.sleep(SECONDS)
    last = page.run(count)
    page.run("mastPlay.toggle()")
    rates = [1000 * (last[k] - first[k]) / (last[0] - first[0]) for k in (1, 2)]
    return {
        "period_ms": took,
        "period_cpu_ms": period,
        "frame_cpu_ms": frame,
        "frames_per_second": rates[0],
        "periods_per_second": rates[1],
    }


def main() -> dict[str, Any]:
    from browsing import chromium
    from playing import Page

    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as browser:
        browser.set_script_timeout(600)
        with running(make_server("127.0.0.1", 0, folder_files(SITE))) as url:
            for policy, robots, delay in CASES:
                loop = begun(policy, robots, delay)
                start = loop.state
                plain = in_torch(loop)
                page = Page(browser, f"{url}#robots=4&policy=dhba")
                threads = page.run("return mastPlay.threads")
                found = in_page(page, policy, robots, delay, start)
                rows.append(
                    {
                        "policy": policy,
                        "robots": robots,
                        "delay_s": delay,
                        **found,
                        "torch_cpu_ms": plain,
                        "ratio": found["period_cpu_ms"] / plain,
                        "load": os.getloadavg()[0],
                    }
                )
                print(line(rows[-1]), flush=True)
    return {"cores": os.cpu_count(), "threads": threads, "asked_speed": SPEED, "rows": rows}


if __name__ == "__main__":
    benchmark("play", __doc__, main)
