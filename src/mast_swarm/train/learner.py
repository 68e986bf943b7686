"""One update: a batch from the replay, the loss, the gradient, AdamW, and the averaged weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from mast_swarm.model.learned import Learned
from mast_swarm.model.policy import make
from mast_swarm.train.config import TrainConfig
from mast_swarm.train.graphs import captured
from mast_swarm.train.replay import Replay
from mast_swarm.train.team import world_of

_SMOOTH = 0.01  # in units of u_max: errors shorter than this count by their square


class Learner:
    """Holds the policy, its optimiser and the averaged policy; `update()` learns one batch.

    On one GPU the whole update is one captured CUDA graph: drawing the batch, forward, backward, AdamW and average.
    With several processes each learns its share of the batch and DistributedDataParallel averages the gradients.
    """

    def __init__(
        self,
        config: TrainConfig,
        replay: Replay,
        device: torch.device,
        processes: int = 1,
        first: Learned | None = None,
        policy: Learned | None = None,
    ) -> None:
        """first: a policy whose weights are where learning starts; None: random ones. policy: what learns, if it is not
        made of the settings."""
        self.config, self.replay, self.device = config, replay, device
        self.world = world_of(config, device)  # unpacks what the replay keeps
        self.policy = (make(config.policy, seed=config.seed) if policy is None else policy).to(device)
        if first is not None:
            self.policy.load_state_dict(first.state_dict())
        self.extras = self.policy.surroundings(config.world.side)
        self.average = copy.deepcopy(self.policy).requires_grad_(False) if config.ema else None
        averaged = self.average.state_dict() if self.average is not None else {}  # running statistics too
        self.averaged = [value for value in averaged.values() if value.is_floating_point()]
        self.learned = [self.policy.state_dict()[name] for name, v in averaged.items() if v.is_floating_point()]
        if device.type == "cuda":
            self.policy.compile(dynamic=False)
        self.network: nn.Module = self.policy
        if processes > 1:
            self.network = DistributedDataParallel(self.policy, device_ids=[device] if device.type == "cuda" else None)
        self.total = (config.epochs - config.collect) * config.updates_an_epoch(processes)
        self.done = 0
        self.rate = torch.tensor(config.lr, device=device)
        self.optimiser = torch.optim.AdamW(
            self.policy.parameters(),
            lr=self.rate if device.type == "cuda" else config.lr,
            weight_decay=config.weight_decay,
            fused=True,
            capturable=device.type == "cuda",
        )
        self.uniform = torch.zeros(
            config.batch // processes, dtype=torch.float64, device=device
        )  # what chooses the next batch
        self.loss = torch.zeros((), device=device)  # of the last update
        self.loss_sum = torch.zeros((), device=device)
        self._run: Callable[[], None] | None = None if processes == 1 and device.type == "cuda" else self._update

    @property
    def shipped(self) -> Learned:
        """The weights to validate and to keep."""
        return self.policy if self.average is None else self.average

    def update(self, uniform: Tensor) -> None:
        """Learn the batch that `uniform` [batch] in [0, 1) chooses; the loss is left in `self.loss`."""
        self.uniform.copy_(uniform, non_blocking=True)
        self._set_rate()
        if self._run is None:
            self._capture()
        cast(Callable[[], None], self._run)()
        self.done += 1

    def batch_loss(self, batch: dict[str, Tensor]) -> Tensor:
        """`imitation_loss` in units of the policy's action scale, of samples as the replay keeps them."""
        scale = self.config.policy.action_scale
        weight, norm = batch.get("weight"), self.config.loss == "norm"
        return imitation_loss(self.predicted(batch) / scale, batch["target"] / scale, weight, norm=norm)

    def predicted(self, batch: dict[str, Tensor]) -> Tensor:
        """What the policy predicts of samples, in training mode."""
        given = {name: value for name, value in batch.items() if name not in ("target", "weight")}
        given["features"] = self.world.unpack(given["features"], given["positions"])
        half = self.config.precision == "bf16" and self.device.type == "cuda"
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=half):
            self.network.train()  # batch norm learns here and nowhere else
            prediction = self.network(**given, **self.extras)
            self.network.eval()
        return prediction

    def _update(self) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        batch = self.replay.draw(self.uniform)
        if self.config.mirrored:
            batch = self.world.mirrored(batch, (self.replay.left(self.uniform) * 8).long())
        loss = self.batch_loss(batch)
        loss.backward()
        if self.config.clip is not None:
            self.clip(self.config.clip)
        self.optimiser.step()
        if self.average is not None and self.config.ema is not None:
            torch._foreach_lerp_(self.averaged, self.learned, 1 - self.config.ema)
        self.loss.copy_(loss.detach())
        self.loss_sum += self.loss

    def clip(self, longest: float) -> None:
        """Scale the gradient down to that length, if it is longer."""
        nn.utils.clip_grad_norm_(self.policy.parameters(), longest, foreach=True)

    def _set_rate(self) -> None:
        rate = learning_rate(self.config, self.done, self.total)
        if self.device.type == "cuda":
            self.rate.fill_(rate)
        else:
            for group in self.optimiser.param_groups:
                group["lr"] = rate

    def _capture(self) -> None:
        """Capture the update; the warm-up's changes to weights and optimiser are put back."""
        weights = copy.deepcopy(self.policy.state_dict())
        averaged = copy.deepcopy(self.average.state_dict()) if self.average is not None else None
        state = copy.deepcopy(self.optimiser.state_dict()) if self.optimiser.state else None
        summed = self.loss_sum.clone()
        run = captured(self._update, self.device)
        self.policy.load_state_dict(weights)
        if self.average is not None and averaged is not None:
            self.average.load_state_dict(averaged)
        with torch.no_grad():  # in place: the graph holds these very tensors
            for index, parameter in enumerate(self.policy.parameters()):
                for name, value in self.optimiser.state[parameter].items():
                    value.copy_(state["state"][index][name]) if state else value.zero_()
        self.loss_sum.copy_(summed)  # an epoch that goes on midway has one already
        self._run = run

    def tensors(self) -> dict[str, Tensor]:
        """All that an update changes, by name, for a checkpoint."""
        found = {f"policy.{name}": value for name, value in self.policy.state_dict().items()}
        if self.average is not None:
            found |= {f"average.{name}": value for name, value in self.average.state_dict().items()}
        for name, parameter in self.policy.named_parameters():
            for key, value in self.optimiser.state.get(parameter, {}).items():  # nothing before the first update
                found[f"optimiser.{name}.{key}"] = value
        return found

    def restore(self, tensors: dict[str, Tensor], done: int) -> None:
        """Take up a checkpoint's tensors after `done` updates."""
        self.done = done
        self.policy.load_state_dict(under(tensors, "policy."))
        if self.average is not None:
            self.average.load_state_dict(under(tensors, "average."))
        for name, parameter in self.policy.named_parameters():
            kept = under(tensors, f"optimiser.{name}.")
            if kept:  # nothing yet before the first update
                self.optimiser.state[parameter] = {k: v.to(parameter.device, copy=True) for k, v in kept.items()}

    def finite(self) -> bool:
        """Whether weights and losses are finite numbers."""
        weights: list[Tensor] = list(self.policy.parameters())
        return bool(torch.stack([*torch._foreach_norm(weights), self.loss, self.loss_sum]).isfinite().all())


def under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names start so, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def imitation_loss(prediction: Tensor, target: Tensor, weight: Tensor | None = None, *, norm: bool = False) -> Tensor:
    """Mean squared error of the command, and of the speed where it is predicted: [B, N, 2 or 3] each -> scalar.

    weight [B, N]: of each robot's error; None: all count alike. norm: of the command the mean length of the error in
    place of its square.
    """
    error = (prediction.float() - target).square()
    command = error[..., :2].mean(-1)
    if norm:  # smooth at 0, where the length has no gradient
        command = (2 * command + _SMOOTH**2).sqrt() - _SMOOTH
    speed = 0 if target.shape[-1] == 2 else error[..., 2]
    each = command + speed  # [B, N]
    return (each if weight is None else each * weight).mean()


def learning_rate(config: TrainConfig, done: int, total: int) -> float:
    """The rate of update number `done` of `total`."""
    if config.schedule == "constant":
        return config.lr
    warm = max(1, round(0.02 * total))
    if done < warm:
        return config.lr * (done + 1) / warm
    progress = (done - warm) / max(1, total - warm)
    return config.lr * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))
