"""Success rate of MAST-M and of baselines against the size of the team: python -m benchmarks.success_at_scale [--help].

The start states are the mix of `clusters`, 100 robots per square kilometre, the same for every policy. Each size has a
small JSON file; what a file has is not run again, so a run that was stopped goes on where it was, and a policy can be
added later and on another machine.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from mast_swarm.errors import MastError
from mast_swarm.evaluate.config import EvaluateConfig
from mast_swarm.evaluate.run import evaluate
from mast_swarm.files import write_json
from mast_swarm.view.terminal import bars
from mast_swarm.world.config import NavigationConfig

OUT = Path(__file__).parents[1] / "docs" / "results" / "navigation" / "scale"
TIMES = (200.0, 800.0)  # seconds


@dataclass(frozen=True)
class Driver:
    """A policy, how it is run, and up to which size of the team that can be waited for."""

    policy: str
    most: int
    delay: float | None = None  # seconds a hop, for robots that decide alone; None: one place


DRIVERS = {
    "mast-m": Driver("mast-m", 1_000_000),
    "mast-m-alone": Driver("mast-m", 1_000, delay=1.0),
    "dhba-8": Driver("dhba-8", 10_000),
    "lsap": Driver("lsap", 1_000),
}


@dataclass(frozen=True)
class SuccessConfig:
    """Run teams of several sizes; what is finished in the folder is kept."""

    agents: tuple[int, ...] = (100, 1_000, 10_000, 100_000)
    """Sizes of the team."""
    policy: tuple[str, ...] = tuple(DRIVERS)
    """Who drives; a size that is too large for one is left out."""
    robots: int = 30_000
    """Robots over all episodes of a size: so many episodes, in nines from 9 to 108."""
    seed: int = 3
    """Chooses the start states, as in `mast evaluate`."""
    out: Path = OUT
    """Folder for the files."""
    scratch: Path = Path("runs/success-at-scale")
    """Folder for what is not finished."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to run."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of learned policies on a GPU."""

    def __post_init__(self) -> None:
        for name in self.policy:
            if name not in DRIVERS:
                raise MastError(f"there is no policy '{name}' here: give some of {', '.join(DRIVERS)}")
        if min(self.agents, default=0) < 10:
            raise MastError(f"--agents {' '.join(map(str, self.agents))}: give sizes from 10, the largest cluster")

    def episodes(self, agents: int) -> int:
        """Episodes of a size: as many of each of the nine pairs of cluster sizes."""
        return 9 * min(12, max(1, self.robots // (9 * agents)))


def run_driver(name: str, agents: int, config: SuccessConfig) -> dict[str, Any]:
    """One policy on all start states of a size: how it was run, and the success rate at each of the instants."""
    driver = DRIVERS[name]
    folder = config.scratch / f"{agents}-{name}"
    settings = EvaluateConfig(
        world=NavigationConfig(agents=agents),
        policy=(driver.policy,),
        episodes=config.episodes(agents),
        steps=round(max(TIMES)),
        delay=driver.delay,
        seed=config.seed,
        out=folder,
        resume=True,
        device=config.device,
        precision=config.precision,
    )
    resumed, began = folder.exists(), time.monotonic()
    with bars() as bar:
        _, summary = evaluate("navigation", settings, bar(f"{agents:,} {name}"))
    rows = [row for row in summary["rows"] if row["metric"] == "success_rate" and row["t"] in TIMES]
    shutil.rmtree(folder)
    return {
        "delay": driver.delay,
        **{key: summary[key] for key in ("version", "device")},
        "precision": "fp32" if summary["device"].endswith("CPU") else config.precision,
        "seconds": None if resumed else round(time.monotonic() - began, 1),
        "success_rate": [{"t": row["t"], "mean": row["mean"], "ci95": row["ci95"]} for row in rows],
    }


def run_size(agents: int, config: SuccessConfig) -> str:
    """Bring the file of a size up to date; what was run, in words."""
    path = config.out / f"{agents}.json"
    about = {"agents": agents, "scenario": "clusters", "episodes": config.episodes(agents), "seed": config.seed}
    found = json.loads(path.read_text()) if path.exists() else {**about, "policies": {}}
    if {name: found.get(name) for name in about} != about:
        raise MastError(f"{path} was made with other settings: give another --out")
    told = []
    for name in config.policy:
        if name in found["policies"] or agents > DRIVERS[name].most:
            continue
        found["policies"][name] = ran = run_driver(name, agents, config)
        found["policies"] = {known: found["policies"][known] for known in DRIVERS if known in found["policies"]}
        write_json(path, found)
        told.append(f"{name} " + ", ".join(f"{row['mean']:.3f}" for row in ran["success_rate"]))
    return "; ".join(told) or "already there"


def main(config: SuccessConfig) -> None:
    config.out.mkdir(parents=True, exist_ok=True)
    for agents in sorted(config.agents):
        print(f"{agents:,} robots: {run_size(agents, config)}", flush=True)


if __name__ == "__main__":
    try:
        main(tyro.cli(SuccessConfig, prog="python -m benchmarks.success_at_scale"))
    except MastError as error:
        sys.exit(f"success_at_scale: {error}")
    except KeyboardInterrupt:
        sys.exit("success_at_scale: interrupted; the same command goes on")
