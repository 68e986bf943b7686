"""Many policies trained at once, as one family: each sees its own rollouts, replay and batches, as it would alone.

What a single run does is done here for all: the same start states, the same drivers, the same places of the replay, the
same rates. What the expert drives is the same for all members, so that the expert is asked about it once. Rounding
differs from a single run's, and with it in time the rollouts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.model.config import PolicyConfig
from mast_swarm.model.family import Family, related
from mast_swarm.train import checkpoint, snapshot
from mast_swarm.train.config import TrainConfig, from_plain, plain
from mast_swarm.train.folder import METRICS
from mast_swarm.train.learner import Learner, imitation_loss
from mast_swarm.train.replay import Replay
from mast_swarm.train.teacher import expert_of
from mast_swarm.train.trainer import RunOptions, Trainer

LOSSES, HEADLINES = "member_losses", "member_headlines"  # in the rows of metrics.jsonl, a number per member


def trainable_together(configs: Sequence[TrainConfig]) -> bool:
    """Whether runs of these settings can be one: all but the policy is the same, and the policies are a family."""
    policies, reads = [one.policy for one in configs], getattr(expert_of(configs[0]), "reads", None)
    if reads is None or "component" in reads:  # such an expert's answer depends on the policy
        return False
    if not all(isinstance(one, PolicyConfig) for one in policies) or not related(cast("list[PolicyConfig]", policies)):
        return False
    return len({repr(replace(one, policy=policies[0])) for one in configs}) == 1 and not configs[0].start


def _policy(config: TrainConfig) -> PolicyConfig:
    return cast(PolicyConfig, config.policy)


def _masked(config: TrainConfig) -> bool:
    return _policy(config).component_mask


class FamilyLearner(Learner):
    """The updates of all members in one."""

    policy: Family

    def __init__(self, config: TrainConfig, replay: Replay, device: torch.device, policy: Family) -> None:
        # Tensor by tensor: each member's gradient is clipped by itself.
        super().__init__(config, replay, device, policy=policy, flat=False)
        self.loss_sums = torch.zeros(len(policy.configs), device=device)  # of each member

    def batch_loss(self, batch: dict[str, Tensor]) -> Tensor:
        """The sum of the members' losses: the gradient of each member's weights is that of its own."""
        members, scale, norm = len(self.policy.configs), self.config.policy.action_scale, self.config.loss == "norm"
        prediction, target = (
            one.unflatten(0, (members, -1)) / scale for one in (self.predicted(batch), batch["target"])
        )
        weight = batch.get("weight", torch.ones_like(batch["target"][..., 0])).unflatten(0, (members, -1))
        losses = torch.vmap(lambda p, t, w: imitation_loss(p, t, w, norm=norm))(prediction, target, weight)
        self.loss_sums += losses.detach()
        return losses.sum()

    def clip(self, longest: float) -> None:
        """Each member's gradient by itself."""
        gradients = [parameter.grad for parameter in self.policy.parameters() if parameter.grad is not None]
        lengths = torch.stack([one.flatten(1).norm(dim=1) for one in gradients]).norm(dim=0)  # [V]
        scale = (longest / (lengths + 1e-6)).clamp(max=1.0)
        for one in gradients:
            one.mul_(scale.view(-1, *[1] * (one.ndim - 1)))

    def _capture(self) -> None:
        summed = self.loss_sums.clone()
        super()._capture()
        self.loss_sums.copy_(summed)

    def tensors(self) -> dict[str, Tensor]:
        return super().tensors() | {"loss_sums": self.loss_sums}

    def restore(self, tensors: dict[str, Tensor], done: int) -> None:
        super().restore(tensors, done)
        self.loss_sums.copy_(tensors["loss_sums"])


class FamilyTrainer(Trainer):
    """The run of a family: one folder, one checkpoint, and the policies best/0, best/1, ... and last/0, ..."""

    learner: FamilyLearner

    def __init__(self, configs: Sequence[TrainConfig], options: RunOptions, resumed: bool = False) -> None:
        if dist.is_initialized() and dist.get_world_size() > 1:
            raise MastError("a family is trained by one process: leave torchrun away")
        if not trainable_together(configs):
            raise MastError(
                "runs can be one family only if they differ in nothing but their policies' encodings, windows and "
                "masks, and their expert knows everything: train them one by one"
            )
        self.configs, self.copies = tuple(configs), len(configs)
        self.bests: list[float | None] = [None] * self.copies
        # What is sensed and kept is what any member reads: of those with the component mask, if there are some.
        reads_most = next((one for one in configs if _masked(one)), configs[0])
        super().__init__(reads_most, options, resumed)

    @staticmethod
    def begun(configs: Sequence[TrainConfig], options: RunOptions) -> FamilyTrainer:
        """The run in the folder where its last checkpoint left it, or a new one."""
        if not (options.out / checkpoint.FILE).exists():
            return FamilyTrainer(configs, options)
        about = checkpoint.about(options.out)
        if [from_plain(one) for one in about.get("members", [])] != list(configs):
            raise MastError(f"{options.out} holds a run of other policies: give another folder")
        trainer = FamilyTrainer(configs, options, resumed=True)
        snapshot.restore(trainer, about)
        trainer.bests = about["bests"]
        return trainer

    def _learner(self, resumed: bool) -> Learner:
        family = Family([_policy(one) for one in self.configs], seed=self.config.seed)
        return FamilyLearner(self.config, self.replay, self.options.device, family)

    def one_epoch(self) -> dict[str, Any]:
        before = self.learner.done if not self.within.step else self.within.updates
        if not self.within.step:
            self.learner.loss_sums.zero_()
        row = super().one_epoch()
        if "loss" in row:
            losses = (self.learner.loss_sums / max(1, self.learner.done - before)).tolist()
            row |= {"loss": sum(losses) / len(losses), LOSSES: losses}
        return row

    def _judged(self, values: list[float]) -> float:
        for number, (value, best) in enumerate(zip(values, self.bests, strict=True)):
            if self.metric.better(value, best):
                self.bests[number] = value
                self._keep_member("best", number)
        assert self.within.row is not None
        self.within.row[HEADLINES] = values
        return sum(values) / len(values)

    def _keep_policy(self, name: str) -> None:
        for number in range(self.copies):
            self._keep_member(name, number)

    def _keep_member(self, name: str, number: int) -> None:
        cast(Family, self.learner.shipped).member(number).save(self.options.out / name / str(number), overwrite=True)

    def _again(self) -> str:
        return "the same command"

    def _stop(self) -> MastError:
        losses = zip(map(_policy, self.configs), self.learner.loss_sums.tolist(), strict=True)
        bad = [
            f"{one.variant} {one.encoding} {one.attention_radius}" for one, loss in losses if not math.isfinite(loss)
        ]
        return MastError(f"{super()._stop()}; the policies whose loss it is: {', '.join(bad) or 'unknown'}")

    def _more(self) -> dict[str, Any]:
        return {"members": [plain(one) for one in self.configs], "bests": self.bests}


def rows_of(out: Path, number: int, headline: str) -> list[dict[str, Any]]:
    """The numbers of each epoch of one member, as its own run would have them; seconds are those of the family."""
    found = []
    for line in (out / METRICS).read_text().splitlines():
        row = json.loads(line)
        losses, headlines = row.pop(LOSSES, None), row.pop(HEADLINES, None)
        row |= {} if losses is None else {"loss": losses[number]}
        row |= {} if headlines is None else {headline: headlines[number]}
        found.append(row)
    return found
