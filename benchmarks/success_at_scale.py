"""Success rate of MAST-M and of baselines against the size of the team: python -m benchmarks.success_at_scale [--help].

The start states are the mix of `clusters`, 100 robots per square kilometre, the same for every policy. Each size has a
small JSON file; what a file has is not run again, unless the weights of a shipped policy have changed since. So a run
that was stopped goes on where it was, and a policy can be added later and on another machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks import kept
from mast_swarm.errors import MastError
from mast_swarm.evaluate.config import EvaluateConfig
from mast_swarm.files import write_json
from mast_swarm.tasks.navigation.config import NavigationConfig

OUT = Path(__file__).parents[1] / "docs" / "results" / "navigation" / "scale"
TIMES = (200.0, 800.0)  # seconds


@dataclass(frozen=True)
class Driver:
    """A policy, how it is run, and up to which size of the team that can be waited for."""

    policy: str
    most: int
    delay: float | None = None  # seconds a hop, for robots that decide alone; None: one place
    relay_radius: Literal["auto"] | None = None  # of robots that decide alone; None: no limit


DRIVERS = {
    "mast-m": Driver("mast-m", 1_000_000),
    "mast-m-alone": Driver("mast-m", 1_000, delay=1.0),
    "mast-m-alone-near": Driver("mast-m", 100_000, delay=1.0, relay_radius="auto"),
    "dhba-8": Driver("dhba-8", 10_000),
    "dhba-8-explore": Driver("dhba-8-explore", 1_000),
    "lsap": Driver("lsap", 1_000),
}


@dataclass(frozen=True)
class SuccessConfig(kept.RunConfig):
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

    def __post_init__(self) -> None:
        kept.check_known(self.policy, DRIVERS)
        if min(self.agents, default=0) < 10:
            raise MastError(f"--agents {' '.join(map(str, self.agents))}: give sizes from 10, the largest cluster")

    def episodes(self, agents: int) -> int:
        """Episodes of a size: as many of each of the nine pairs of cluster sizes."""
        return 9 * min(12, max(1, self.robots // (9 * agents)))


def run_driver(name: str, agents: int, config: SuccessConfig) -> dict[str, Any]:
    """One policy on all start states of a size: how it was run, and the success rate at each of the instants."""
    driver = DRIVERS[name]
    settings = EvaluateConfig(
        world=NavigationConfig(agents=agents),
        policy=(driver.policy,),
        episodes=config.episodes(agents),
        steps=round(max(TIMES)),
        delay=driver.delay,
        relay_radius=driver.relay_radius,
        seed=config.seed,
        device=config.device,
        precision=config.precision,
    )

    def at_times(folder: Path, summary: dict[str, Any]) -> dict[str, Any]:
        rows = [row for row in summary["rows"] if row["metric"] == "success_rate" and row["t"] in TIMES]
        limit = {} if driver.relay_radius is None else {"relay_radius": driver.relay_radius}
        return {**limit, "success_rate": [{key: row[key] for key in ("t", "mean", "ci95")} for row in rows]}

    return kept.run(settings, f"{agents}-{name}", config.scratch, at_times)


def run_size(agents: int, config: SuccessConfig) -> str:
    """Bring the file of a size up to date; what was run, in words."""
    path = config.out / f"{agents}.json"
    about = {"agents": agents, "scenario": "clusters", "episodes": config.episodes(agents), "seed": config.seed}
    have, told = kept.read(path, about)["policies"], []
    for name in config.policy:
        now = kept.weights("navigation", DRIVERS[name].policy)
        if agents > DRIVERS[name].most or (name in have and have[name]["weights"] == now):
            continue
        have[name] = run_driver(name, agents, config)
        write_json(path, {**about, "policies": {known: have[known] for known in DRIVERS if known in have}})
        told.append(f"{name} " + ", ".join(f"{row['mean']:.3f}" for row in have[name]["success_rate"]))
    return "; ".join(told) or "already there"


def main(config: SuccessConfig) -> None:
    config.out.mkdir(parents=True, exist_ok=True)
    for agents in sorted(config.agents):
        print(f"{agents:,} robots: {run_size(agents, config)}", flush=True)


if __name__ == "__main__":
    kept.command(main, SuccessConfig, "success_at_scale")
