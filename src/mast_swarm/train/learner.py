"""One update: a batch from the replay, the loss, the gradient, AdamW, and the averaged weights."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from mast_swarm.errors import MastError
from mast_swarm.evaluate.graphs import captured
from mast_swarm.evaluate.policies import find_learned
from mast_swarm.model.learned import Learned
from mast_swarm.model.policy import load_learned, make
from mast_swarm.tasks.registry import task_of
from mast_swarm.train.checkpoint import differences
from mast_swarm.train.config import TrainConfig
from mast_swarm.train.optimiser import FlatAdamW, PlainAdamW, Settings, alike
from mast_swarm.train.replay import Replay
from mast_swarm.train.team import in_half_precision, world_of

_SMOOTH = 0.01  # in units of u_max: errors shorter than this count by their square


class Learner:
    """Holds the policy, its optimiser and the averaged policy; `update()` learns one batch.

    On one GPU the whole update is one captured CUDA graph: drawing the batch, forward, backward, AdamW and average.
    There the weights lie in one piece (`FlatAdamW`), and the network that learns has them in half precision: the very
    numbers that autocast would make of them. With several processes each learns its share of the batch and
    DistributedDataParallel averages the gradients.
    """

    def __init__(
        self,
        config: TrainConfig,
        replay: Replay,
        device: torch.device,
        processes: int = 1,
        first: Learned | None = None,
        policy: Learned | None = None,
        flat: bool | None = None,
    ) -> None:
        """first: a policy whose weights are where learning starts; None: random ones. policy: what learns, if it is not
        made of the settings. flat: whether weights lie in one piece; None: on one GPU."""
        self.config, self.replay, self.device = config, replay, device
        self.world = world_of(config, device)  # unpacks what the replay keeps
        self.policy = (make(config.policy, seed=config.seed) if policy is None else policy).to(device)
        if first is not None:
            self.policy.load_state_dict(first.state_dict())
        self.extras = self.policy.surroundings(config.world.side)
        self.average = copy.deepcopy(self.policy).requires_grad_(False) if config.ema else None
        self.total = (config.epochs - config.collect) * config.updates_an_epoch(processes)
        self.done = 0
        self.rate = torch.tensor(
            config.lr, dtype=torch.float32 if device.type == "cuda" else torch.float64, device=device
        )
        self.half = in_half_precision(config, device)
        alone = processes == 1 and device.type == "cuda"
        self.optimiser = self._adamw(alone if flat is None else flat)
        # Who drives the robots while the policy learns: on a GPU both at once, so that it has weights of its own.
        self.acting, self._handed = self.optimiser.apart() if device.type == "cuda" else (self.policy, ([], []))
        self.network: nn.Module = self.optimiser.network
        if device.type == "cuda":
            self.network.compile(dynamic=False)
            self.acting.compile(dynamic=False)
        if processes > 1:
            self.network = DistributedDataParallel(self.policy, device_ids=[device] if device.type == "cuda" else None)
        self.uniform = torch.zeros(
            config.batch // processes, dtype=torch.float64, device=device
        )  # what chooses the next batch
        self.loss = torch.zeros((), device=device)  # of the last update
        self.loss_sum = torch.zeros((), device=device)
        self._run: Callable[[], None] | None = None if alone else self._update

    def _adamw(self, flat: bool) -> PlainAdamW | FlatAdamW:
        settings = Settings(self.config.weight_decay, self.config.clip, self.config.ema)
        if flat:
            return FlatAdamW(self.policy, self.average, self.rate, settings, torch.bfloat16 if self.half else None)
        return PlainAdamW(self.policy, self.average, self.rate, settings, self.clip)

    @property
    def shipped(self) -> Learned:
        """The weights to validate and to keep."""
        return self.policy if self.average is None else self.average

    def hand_over(self) -> None:
        """Robots are driven by what has been learned so far."""
        if self._handed[0]:
            with torch.no_grad():
                torch._foreach_copy_(*self._handed)

    def update(self, uniform: Tensor) -> None:
        """Learn the batch that `uniform` [batch] in [0, 1) chooses; the loss is left in `self.loss`."""
        self.uniform.copy_(uniform, non_blocking=True)
        self.rate.fill_(learning_rate(self.config, self.done, self.total))
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
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.half):
            self.network.train()  # batch norm learns here and nowhere else
            prediction = self.network(**given, **self.extras)
            self.network.eval()
        return prediction

    def _update(self) -> None:
        batch = self.replay.draw(self.uniform)
        if self.config.mirrored:
            batch = self.world.mirrored(batch, (self.replay.left(self.uniform) * 8).long())
        loss = self.batch_loss(batch)
        self.optimiser.learn(loss)
        self.loss.copy_(loss.detach())
        self.loss_sum += self.loss

    def clip(self, longest: float) -> None:
        """Scale the gradient of the policy down to that length, if it is longer."""
        nn.utils.clip_grad_norm_(self.policy.parameters(), longest, foreach=True)

    def _capture(self) -> None:
        """Capture the update; the warm-up's changes to weights and optimiser are put back."""
        before = {name: value.clone() for name, value in self.tensors().items()}
        loss_sum = self.loss_sum.clone()
        try:
            self._run = captured(self._update, self.device)
        except Exception as error:  # of the compiler, which has many kinds, or of a capture
            if isinstance(error, MastError | torch.OutOfMemoryError) or isinstance(self.optimiser, PlainAdamW):
                raise
            self._put_back(before, loss_sum)
            self._go_on_plainly(error)
            self._capture()
        else:
            self._put_back(before, loss_sum)

    def _put_back(self, before: dict[str, Tensor], loss_sum: Tensor) -> None:
        with torch.no_grad():  # in place: the graph holds these very tensors
            for name, value in self.tensors().items():
                value.copy_(before[name]) if name in before else value.zero_()  # torch's AdamW begins without any
            self.loss_sum.copy_(loss_sum)
        self.optimiser.refresh()

    def _go_on_plainly(self, error: Exception) -> None:
        """From here on by torch's AdamW, on each tensor of the policy itself."""
        logging.getLogger("mast_swarm").warning(
            "the update cannot run on weights in one piece, and torch's AdamW takes its place: %s: %s",
            type(error).__name__,
            (str(error).splitlines() or ["no reason given"])[0],
        )
        kept = {name: {k: v.clone() for k, v in state.items()} for name, state in self.optimiser.state.items()}
        self.optimiser = self._adamw(flat=False)
        self.optimiser.take_up(kept)
        self.network = self.policy
        if self.device.type == "cuda":
            self.network.compile(dynamic=False)
            self._handed = alike(self.acting, self.policy)

    def tensors(self) -> dict[str, Tensor]:
        """All that an update changes, by name, for a checkpoint."""
        found = {f"policy.{name}": value for name, value in self.policy.state_dict().items()}
        if self.average is not None:
            found |= {f"average.{name}": value for name, value in self.average.state_dict().items()}
        for name, state in self.optimiser.state.items():
            found |= {f"optimiser.{name}.{key}": value for key, value in state.items()}
        return found

    def restore(self, tensors: dict[str, Tensor], done: int) -> None:
        """Take up a checkpoint's tensors after `done` updates."""
        self.done = done
        self.policy.load_state_dict(under(tensors, "policy."))
        if self.average is not None:
            self.average.load_state_dict(under(tensors, "average."))
        names = dict(self.policy.named_parameters())
        self.optimiser.take_up({name: under(tensors, f"optimiser.{name}.") for name in names})

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


def starting_policy(config: TrainConfig) -> Learned:
    """The policy whose weights a run begins with; one that does not fit the settings is an error."""
    found = load_learned(find_learned(config.start, task_of(config.world).name))
    given, wanted = (
        {name: tuple(value.shape) for name, value in policy.state_dict().items()}
        for policy in (found, make(config.policy))
    )
    task = task_of(config.world).name
    if found.config.task != task:
        raise MastError(f"--from {config.start} was trained for {found.config.task}, not for {task}: give another")
    if found.config.kind != config.policy.kind or given != wanted:
        different = differences(config.policy.to_dict(), found.config.to_dict(), "policy.")
        raise MastError(
            f"--from {config.start} does not fit the policy of the settings: {'; '.join(different)}; give the recipe "
            "that it was trained with, or its sizes"
        )
    return found
