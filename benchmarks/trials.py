"""One trial of a way to train navigation: as many epochs as fit in some seconds, then evaluations of every robot alone.

    python -m benchmarks.trials wide --seconds 175 --settings '{"recipe": "wide"}' \
        --evaluations '[{"seed": 7101, "episodes": 108, "steps": 800}]' --out runs/trials

Several may share a GPU, so the time is bounded and not the number of epochs: the cosine schedule ends with the time.
An evaluation may name another `policy` (a shipped one, a controller, `dhba-8-explore+memory` or `explorer+memory`), a
`scenario`, `agents`, `central`, `safe`, `options` of the controller `explorer` (as {"horizon": 250}), `changes` of a
learned policy's settings (as {"exploration_survey": null}), and the settings of the channel, whose delay is 1 s unless
it says otherwise; where robots fail, success of the living is counted too.
With --settings null nothing is trained. The result, OUT/NAME.json, has the success rate of every episode at some
instants; the policy lies beside it.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

AT = (20, 50, 100, 200, 400, 800)  # seconds
_PLANNED = (6, 16, 30)  # epochs after which the number of epochs is reckoned anew


@dataclass(frozen=True)
class TrialConfig:
    """Train and evaluate once."""

    name: Annotated[str, tyro.conf.Positional]
    """Of the results."""
    seconds: float = 175.0
    """From the start of the process to the end of training."""
    settings: str = '{"recipe": "wide"}'
    """JSON: of training, with the recipe that they start from; null: nothing is trained."""
    evaluations: str = "[]"
    """JSON: a list of what is evaluated."""
    out: Path = Path("runs/trials")
    """Folder for the results."""
    device: str = "auto"
    """Where to run."""


class Trial:
    def __init__(self, config: TrialConfig, began: float) -> None:
        from mast_swarm.evaluate.actors import pick_device

        self.config, self.began, self.device = config, began, pick_device(config.device)
        self.settings = json.loads(config.settings)
        self.result: dict[str, Any] = {"name": config.name, "settings": self.settings, "evals": []}
        config.out.mkdir(parents=True, exist_ok=True)

    def write(self) -> None:
        (self.config.out / f"{self.config.name}.json").write_text(json.dumps(self.result))

    def train(self) -> None:
        """Leaves the policy in OUT/NAME."""
        from mast_swarm.tasks.registry import find
        from mast_swarm.train.config import changed, recipe
        from mast_swarm.train.trainer import RunOptions, Trainer

        given = dict(self.settings)
        base = changed(recipe(given.pop("recipe", "best"), find("navigation")), given)
        folder = self.config.out / f"{self.config.name}-run"
        trainer = Trainer(base, RunOptions(folder, self.device, checkpoint_seconds=1e9, keep_replay=False))
        ended: list[float] = []

        def report(row: dict[str, Any]) -> None:
            ended.append(time.time())
            self.result.setdefault("training", []).append(row)
            if len(ended) in _PLANNED:
                each = (ended[-1] - ended[-5]) / 4 * 1.02
                left = int((self.began + self.config.seconds - ended[-1]) / each)
                epochs = min(base.epochs, row["epoch"] + max(2, left))
                trainer.config = replace(base, epochs=epochs)
                trainer.learner.total = epochs * base.updates_an_epoch()

        trainer.run(report)
        policy = trainer.learner.shipped
        policy.save(self.config.out / self.config.name, overwrite=True, half=True)
        self.result["config"] = policy.config.to_dict()
        self.write()

    def evaluate(
        self,
        seed: int,
        episodes: int,
        steps: int,
        policy: str | None = None,
        scenario: str = "clusters",
        agents: int = 100,
        central: bool = False,
        safe: bool = False,
        options: dict[str, Any] | None = None,
        changes: dict[str, Any] | None = None,
        **channel: float,
    ) -> None:
        from mast_swarm.comms.config import Channel
        from mast_swarm.evaluate.actors import make_actor
        from mast_swarm.evaluate.loop import Loop
        from mast_swarm.evaluate.rollout import rollout
        from mast_swarm.tasks.navigation.config import NavigationConfig
        from mast_swarm.tasks.navigation.controllers import DhbaExplore, Explorer
        from mast_swarm.tasks.navigation.world import Navigation

        plain: dict[str, Any] = {"dt": 1.0, "max_speed": 5.0}
        made = {
            "dhba-8-explore+memory": lambda: DhbaExplore(8, **plain, exploration_memory=80),
            "explorer+memory": lambda: Explorer(**plain, exploration_memory=80),
            "explorer": lambda: Explorer(**plain, **(options or {})),
        }
        if options is not None and policy != "explorer":
            raise SystemExit(f"options are of the controller explorer: leave them out for {policy}")
        world = Navigation(NavigationConfig(agents=agents, scenario=scenario), self.device)
        drives = str(self.config.out / self.config.name) if policy is None else policy.removeprefix("navigation/")
        driver: Any = made[drives]() if drives in made else drives
        if changes is not None:
            driver = _changed(drives, changes)
        air = None if central else Channel(**{"delay": 1.0, **channel})  # type: ignore[arg-type]
        seeds = [seed * 1_000_000 + episode for episode in range(episodes)]
        how: dict[str, Any] = {"precision": "bf16" if self.device.type == "cuda" else "fp32", "safe": safe}
        scenarios = world.config.scenarios(episodes)
        ran = rollout(world, driver, seeds, steps, channel=air, scenarios=scenarios, **how)
        success = ran.metrics["success_rate"]
        times = [t for t in AT if t <= steps]
        failing = air is not None and air.failure > 0
        living = _living(Loop(world, make_actor(driver, world, air), **how), seeds, times) if failing else {}
        what = {"seed": seed, "episodes": episodes, "scenario": scenario, "agents": agents}
        row: dict[str, Any] = {
            "policy": policy or self.config.name,
            **what,
            "central": central,
            "safe": safe,
            "options": options,
            **({} if changes is None else {"changes": changes}),
            "channel": channel,
            "mean": {t: float(success[:, t].mean()) for t in times},
            "each": {t: [round(float(value), 4) for value in success[:, t]] for t in times},
            "collisions": float(ran.metrics["collisions"].sum(1).mean()),
        } | living
        self.result["evals"].append(row)
        self.write()
        print(
            row["policy"],
            options or changes or "",
            what,
            "safe" if safe else "",
            {t: round(v, 3) for t, v in row["mean"].items()},
            flush=True,
        )


def _changed(name: str, changes: dict[str, Any]) -> Any:
    """A learned policy with other settings of how it is run, as {"exploration_survey": null}, and the same weights."""
    from mast_swarm.evaluate.policies import find_learned
    from mast_swarm.model.policy import load_learned, make

    found = load_learned(find_learned(name, "navigation"))
    other = make(replace(found.config, **changes))
    other.load_state_dict(found.state_dict())
    return other.eval()


def _living(loop: Any, seeds: list[int], times: list[int]) -> dict[str, Any]:
    """Where robots fail: goals on which a living robot is, as a share of those that the living could be on, as in
    `benchmarks.robot_faults`; and how many are living. A rollout keeps neither."""
    import torch

    found: dict[str, Any] = {"living": {}, "served": {}}
    config = loop.world.config
    with torch.inference_mode():
        loop.start(seeds, config.scenarios(len(seeds)))
        for step in range(times[-1] + 1):
            loop.sense()
            command = loop.decide()
            if step in times:
                alive, state = loop.actor.alive, loop.state
                on = torch.cdist(state.goals, state.positions) < config.success_radius  # [B, M, N]
                count = alive.sum(1)
                served = (on & alive[:, None]).any(2).sum(1) / count.clamp(1, on.shape[1])
                found["living"][step] = count.tolist()
                found["served"][step] = [round(share, 4) for share in served.tolist()]
            loop.move(command)
    return found


def main() -> None:
    began = time.time()
    trial = Trial(tyro.cli(TrialConfig), began)
    if trial.settings is not None:
        trial.train()
    for one in json.loads(trial.config.evaluations):
        trial.evaluate(**one)


if __name__ == "__main__":
    main()
