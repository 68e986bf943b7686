"""The playground in headless Chromium: frames per second that it draws, control periods per second that it computes.

The page draws in one thread and computes in others, so the two are apart: while a control period is computed, robots
glide on between the last two. Absolute numbers are those of the machine as it was (its cores and load are in the file).
The time of a control period is therefore also given against torch, which computes the same for the same team right
before, on one thread.

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

from benchmarks.measure import write
from mast_swarm.comms import Channel
from mast_swarm.evaluate.actors import make_actor
from mast_swarm.evaluate.loop import Loop
from mast_swarm.play.config import SITE
from mast_swarm.play.server import folder_files, make_server, running
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.tasks.navigation.world import Navigation

sys.path.append(str(Path(__file__).parent.parent / "tests"))  # how tests drive a browser

CASES = (("mast-m", 32, 1.0), ("mast-m", 100, 0.0), ("mast-m", 100, 1.0), ("dhba-8", 100, 0.0))
SETTLED, TIMED, SECONDS = 10, 5, 10.0
NAMES = {"mast-m": "navigation/mast-m", "dhba-8": "dhba"}


def begun(policy: str, robots: int, delay: float) -> Loop:
    world = Navigation(NavigationConfig(agents=robots, scenario="clusters-5"))
    loop = Loop(world, make_actor(policy, world, Channel(delay=delay) if policy == "mast-m" else None))
    loop.start([1])
    return loop


def in_torch(loop: Loop) -> float:
    """Milliseconds of a settled control period."""
    times = []
    with torch.inference_mode():
        for step in range(SETTLED + TIMED):
            began = time.perf_counter()
            loop.step()
            if step >= SETTLED:
                times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def in_page(page: Any, policy: str, robots: int, delay: float, start: Any) -> dict[str, float]:
    """The same team in the page: milliseconds of a settled control period, then frames and periods of 10 s of play."""
    given = {
        "task": "navigation",
        "drives": NAMES[policy],
        "seed": 1,
        "positions": start.positions[0].flatten().tolist(),
        "goals": start.goals[0].flatten().tolist(),
        "channel": {"delay": delay},
    }
    page.run("Object.assign(mastPlay.own, arguments[0])", {"drives": NAMES[policy], "delay": delay, "robots": robots})
    page.ask("mastPlay.reset({ ...arguments[0], radius: undefined })", given)
    page.ask("mastPlay.advance(arguments[0])", SETTLED)
    took = statistics.median(page.ask("mastPlay.simulation.ask('step')")["took"] for _ in range(TIMED))
    page.run("mastPlay.settings.speed = 10; mastPlay.toggle()")
    time.sleep(2)
    count = "return [performance.now(), mastPlay.frames, mastPlay.runs.at(-1).points.length]"
    before = page.run(count)
    time.sleep(SECONDS)
    after = page.run(count)
    page.run("mastPlay.toggle()")
    seconds = (after[0] - before[0]) / 1000
    frames, periods = ((after[k] - before[k]) / seconds for k in (1, 2))
    return {"period_ms": took, "frames_per_second": frames, "periods_per_second": periods}


def main() -> None:
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
                threads = page.run("return Math.min(4, navigator.hardwareConcurrency)")
                found = in_page(page, policy, robots, delay, start)
                rows.append(
                    {
                        "policy": policy,
                        "robots": robots,
                        "delay_s": delay,
                        **found,
                        "torch_ms": plain,
                        "ratio": found["period_ms"] / plain,
                        "load": os.getloadavg()[0],
                    }
                )
                print(rows[-1], flush=True)
    write("play", {"cores": os.cpu_count(), "threads": threads, "asked_speed": 10, "rows": rows})


if __name__ == "__main__":
    main()
