"""AdamW, and what goes with it: the gradient's norm is clipped before, the averaged weights follow after.

There are two ways with one meaning. `PlainAdamW` is torch's, tensor by tensor. A policy has some seventy tensors: each
is converted to half precision before it is used, its gradient is converted back, measured, clipped, and so on: hundreds
of small kernels. `FlatAdamW` has numbers of one kind in one piece of memory: one kernel does it all, and writes the
weights as products take them too.

Symbols: P numbers, of which the first H are those that products take in half precision.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mast_swarm.kernels import USABLE, on_gpu, tried
from mast_swarm.model.learned import Learned

gpu: Any = None  # the module of GPU kernels, where there is a GPU and Triton
if USABLE:
    from mast_swarm.train import optimiser_kernels as gpu

BETAS, EPS = (0.9, 0.999), 1e-8  # of AdamW
_APART = 64  # numbers: tensors begin at multiples of it, so that kernels read them in wide pieces


@dataclass(frozen=True)
class Settings:
    """Of AdamW."""

    weight_decay: float
    clip: float | None  # the largest norm of the gradient
    ema: float | None  # how much of the averaged weights stays at each step


class PlainAdamW:
    """Torch's, on each tensor of the policy."""

    def __init__(
        self,
        policy: Learned,
        average: Learned | None,
        rate: Tensor,
        settings: Settings,
        clip: Callable[[float], None],
    ) -> None:
        """rate: a scalar, read at each step; clip: scales the policy's gradient down to a length."""
        self.network, self.rate, self.settings, self.clip = policy, rate, settings, clip
        on_gpu = rate.device.type == "cuda"
        self.adamw = torch.optim.AdamW(
            policy.parameters(),
            lr=rate if on_gpu else float(rate),
            weight_decay=settings.weight_decay,
            fused=True,
            capturable=on_gpu,
        )
        self.averages = alike(average, policy)

    @property
    def state(self) -> dict[str, dict[str, Tensor]]:
        """What is kept of each parameter, by name: nothing before the first step."""
        kept = self.adamw.state
        return {name: kept[value] for name, value in self.network.named_parameters() if value in kept}

    def take_up(self, state: dict[str, dict[str, Tensor]]) -> None:
        """Go on from what another kept, and from the policy's weights as they are now."""
        for name, parameter in self.network.named_parameters():
            if state.get(name):
                self.adamw.state[parameter] = {k: v.to(parameter.device, copy=True) for k, v in state[name].items()}

    def refresh(self) -> None:
        """The policy's weights have changed from outside, which the network is to know: here it is the policy."""

    def learn(self, loss: Tensor) -> None:
        """One step down the gradient of the network's loss."""
        self.adamw.zero_grad(set_to_none=True)
        loss.backward()
        if self.settings.clip is not None:
            self.clip(self.settings.clip)
        if self.rate.device.type != "cuda":
            self.adamw.param_groups[0]["lr"] = float(self.rate)
        self.adamw.step()
        if self.averages[0] and self.settings.ema is not None:
            torch._foreach_lerp_(*self.averages, 1 - self.settings.ema)

    def apart(self) -> tuple[Learned, tuple[list[Tensor], list[Tensor]]]:
        """A copy of the network in memory of its own; and what has to be copied, into what and from where, for it to be
        the same again."""
        twin = copy.deepcopy(self.network).requires_grad_(False)
        return twin, alike(twin, self.network)


class Flat:
    """The parameters of a policy in one piece of memory, and copies of the policy that learn and act.

    The policy itself stays in fp32: it is what is kept and shipped. `network` is what learns. It has the first H
    numbers in half precision and shares all others with the policy, the running statistics too.
    """

    def __init__(self, policy: Learned, half: torch.dtype | None) -> None:
        """half: the precision of products; None: that of the weights, and H is 0."""
        first = _always_in_half(policy) if half is not None else set()
        self.spans: dict[str, tuple[int, torch.Size]] = {}  # where each begins, those in half precision first
        self.border = self.size = 0  # H, P
        for name, parameter in sorted(policy.named_parameters(), key=lambda item: item[0] not in first):
            self.spans[name] = self.size, parameter.shape
            self.size += -(-parameter.numel() // _APART) * _APART
            if name in first:
                self.border = self.size
        self.weights = self.move(policy)  # [P]
        self.rest = self.weights[self.border :]
        self.half = self.weights[: self.border].to(half or torch.float32)  # [H]
        self.network = self._twin(policy, self.half, self.rest)
        for name, buffer in policy.named_buffers():
            module, leaf = _at(self.network, name)
            module._buffers[leaf] = buffer

    def move(self, policy: Learned) -> Tensor:
        """A policy's parameters go into one piece of memory, [P]."""
        memory = next(policy.parameters()).detach().new_zeros(self.size)
        for name, view in self.views(memory).items():
            module, leaf = _at(policy, name)
            parameter = getattr(module, leaf)
            view.copy_(parameter.detach())
            parameter.data = view
        return memory

    def views(self, memory: Tensor) -> dict[str, Tensor]:
        """The parts of memory [P] that are parameters, by name."""
        return {name: _cut(memory, begin, shape) for name, (begin, shape) in self.spans.items()}

    def split(self, half: Tensor, rest: Tensor) -> dict[str, Tensor]:
        """The same of memory in two pieces, [H] and [P - H]."""
        return {
            name: _cut(half, begin, shape) if begin < self.border else _cut(rest, begin - self.border, shape)
            for name, (begin, shape) in self.spans.items()
        }

    def refresh(self) -> None:
        """The network has the policy's weights again."""
        self.half.copy_(self.weights[: self.border])

    def apart(self) -> tuple[Learned, tuple[list[Tensor], list[Tensor]]]:
        """A copy of the network in memory of its own; and what has to be copied, into what and from where, for it to be
        the same again."""
        half, rest = self.half.clone(), self.rest.clone()
        twin = self._twin(self.network, half, rest).requires_grad_(False)
        statistics = [
            [value for value in policy.buffers() if value.is_floating_point()] for policy in (twin, self.network)
        ]
        return twin, ([half, rest, *statistics[0]], [self.half, self.rest, *statistics[1]])

    def _twin(self, policy: Learned, half: Tensor, rest: Tensor) -> Learned:
        twin = copy.deepcopy(policy)
        for name, memory in self.split(half, rest).items():
            module, leaf = _at(twin, name)
            setattr(module, leaf, nn.Parameter(memory))
        return twin


class FlatAdamW:
    """The same on weights that lie in one piece, by one kernel on a GPU."""

    def __init__(
        self, policy: Learned, average: Learned | None, rate: Tensor, settings: Settings, half: torch.dtype | None
    ) -> None:
        """half: the precision of products; None: that of the weights."""
        self.flat, self.rate, self.settings = Flat(policy, half), rate, settings
        flat = self.flat
        self.network = flat.network
        self.average = None if average is None else flat.move(average)  # [P]
        self.averages = alike(average, policy, but=flat.spans)  # running statistics
        self.leaves = [dict(flat.network.named_parameters())[name] for name in flat.spans]
        self.gradient = torch.zeros_like(flat.half), torch.zeros_like(flat.rest)
        self._between = [memory.new_zeros(_APART) for memory in self.gradient]
        self.steps = torch.zeros((), device=rate.device)
        self.mean, self.square = torch.zeros_like(flat.weights), torch.zeros_like(flat.weights)
        means, squares = flat.views(self.mean), flat.views(self.square)
        self.state = {  # as in `PlainAdamW`
            name: {"step": self.steps, "exp_avg": means[name], "exp_avg_sq": squares[name]} for name in flat.spans
        }

    def take_up(self, state: dict[str, dict[str, Tensor]]) -> None:
        """As in `PlainAdamW`."""
        for memory in (self.steps, self.mean, self.square):
            memory.zero_()
        for name, own in self.state.items():
            for key, value in state.get(name, {}).items():  # nothing of a parameter that has never had a gradient
                own[key].copy_(value)
        self.refresh()

    def refresh(self) -> None:
        """As in `PlainAdamW`."""
        self.flat.refresh()

    def apart(self) -> tuple[Learned, tuple[list[Tensor], list[Tensor]]]:
        """As in `PlainAdamW`."""
        return self.flat.apart()

    def learn(self, loss: Tensor) -> None:
        """One step down the gradient of the network's loss."""
        found = torch.autograd.grad(loss, self.leaves, allow_unused=True)
        with torch.no_grad():
            self._gather(found)
            self.steps += 1
            if gpu is not None and on_gpu(self.steps):
                tried("AdamW", self._by_kernels, self._plainly)
            else:
                self._plainly()
            if self.averages[0] and self.settings.ema is not None:
                torch._foreach_lerp_(*self.averages, 1 - self.settings.ema)

    def _gather(self, found: Sequence[Tensor | None]) -> None:
        """The gradients side by side, with zeros in between. Joined, for torch copies lists of tensors 65,536 numbers
        at a time, each piece by one program."""
        pieces: list[list[Tensor]] = [[], []]
        for leaf, (begin, _), gradient in zip(self.leaves, self.flat.spans.values(), found, strict=True):
            which, whole = int(begin >= self.flat.border), torch.zeros_like(leaf) if gradient is None else gradient
            pieces[which] += [whole.flatten(), self._between[which][: -leaf.numel() % _APART]]
        for into, parts in zip(self.gradient, pieces, strict=True):
            if parts:
                torch.cat(parts, out=into)

    def _by_kernels(self) -> None:
        flat, how = self.flat, self.settings
        kept = (flat.weights, self.mean, self.square, flat.half, self.average)
        gpu.adamw(self.gradient, *kept, self.rate, self.steps, how.weight_decay, how.clip, how.ema or 0.0, BETAS, EPS)

    def _plainly(self) -> None:
        flat, how, (first, second) = self.flat, self.settings, BETAS
        gradient = torch.cat((self.gradient[0].float(), self.gradient[1]))
        if how.clip is not None:
            gradient *= (how.clip / (torch.linalg.vector_norm(gradient) + 1e-6)).clamp_max(1)
        self.mean.lerp_(gradient, 1 - first)
        self.square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        of_mean, of_square = (1 - torch.exp(self.steps.double() * math.log(beta)) for beta in BETAS)
        flat.weights.mul_(1 - self.rate * how.weight_decay)
        scale = (self.square / of_square.float()).sqrt_().add_(EPS)
        flat.weights.sub_(self.mean / scale * (self.rate / of_mean).float())
        flat.refresh()
        if self.average is not None and how.ema is not None:
            self.average.lerp_(flat.weights, 1 - how.ema)


def alike(one: Learned | None, other: Learned, but: Container[str] = ()) -> tuple[list[Tensor], list[Tensor]]:
    """The weights and running statistics of two policies, but for those of these names, in the same order; none of
    nobody."""
    if one is None:
        return [], []
    theirs = other.state_dict()
    ours = {name: v for name, v in one.state_dict().items() if v.is_floating_point() and name not in but}
    return list(ours.values()), [theirs[name] for name in ours]


def _cut(memory: Tensor, begin: int, shape: torch.Size) -> Tensor:
    return memory[begin : begin + shape.numel()].view(shape)


def _at(policy: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The module that has the parameter or buffer of this name, and what it is called there."""
    path, _, leaf = name.rpartition(".")
    return policy.get_submodule(path), leaf


def in_half(policy: Learned, half: torch.dtype) -> Learned:
    """A copy for products in half precision, which has the weights that they take in it already: autocast would convert
    each anew in every pass. `alike` says what to copy when the policy has learned more."""
    twin = copy.deepcopy(policy).requires_grad_(False)
    for name in _always_in_half(policy):
        module, leaf = _at(twin, name)
        setattr(module, leaf, nn.Parameter(getattr(module, leaf).to(half), requires_grad=False))
    return twin


def _always_in_half(policy: nn.Module) -> set[str]:
    """The names of weights that autocast takes in half precision wherever they are used: the linear layers of a
    transformer's blocks, and those before and after them but for the first of the head, whose weights say what the
    policy's own precision is."""
    if not hasattr(policy, "mast"):
        return set()
    parts = ("mast.", "lift", "perception.mlp.", "head.2")
    layers = {name: layer for name, layer in policy.named_modules() if name.startswith(parts)}
    linear = {name: layer for name, layer in layers.items() if isinstance(layer, nn.Linear)}
    return {f"{name}.{leaf}" for name, layer in linear.items() for leaf, _ in layer.named_parameters()}
