"""Many MAST policies of the same sizes as one: every layer holds the weights of all of them, so that one pass and one
update serve all. A GPU that a single small policy leaves idle is busy with a family.

Members may differ in their encoding, its wavelength and the radius of attention, and in whether they have the component
mask (M and L). Environments come member by member: of V members and V B environments, those from v B on are member v's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mast_swarm.errors import MastError
from mast_swarm.model.attention import Pattern
from mast_swarm.model.config import PolicyConfig
from mast_swarm.model.encoding import Absolute, Encoding, MLPEncoding, Rotary, Rotation, turns, waves
from mast_swarm.model.mast import MAST
from mast_swarm.model.policy import Policy
from mast_swarm.model.windowed import prepare
from mast_swarm.observation import Observed

_WINDOW = 1.0  # metres of the one window that all members have, in places that are scaled to their own
_FREE = ("variant", "encoding", "wavelength", "attention_radius")  # what members may differ in


def related(configs: Sequence[PolicyConfig]) -> bool:
    """Whether policies of these configs can be one family."""
    alike = [replace(one, **{name: getattr(configs[0], name) for name in _FREE}) for one in configs]
    numbers = configs[0].perception == "mlp"  # convolutions and batch norm have no stacked form here
    return numbers and len(set(alike)) == 1 and len({one.variant == "C" for one in configs}) == 1


class Linears(nn.Module):
    """V linear layers: x [V B, ..., in] -> [V B, ..., out]."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([one.weight.detach() for one in layers]))  # [V, out, in]
        self.bias = nn.Parameter(torch.stack([one.bias.detach() for one in layers]))  # [V, out]

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(len(self.weight), -1, x.shape[-1])
        return torch.baddbmm(self.bias[:, None], rows, self.weight.mT).view(*x.shape[:-1], -1)


class Norms(nn.Module):
    """V layer norms: x [V B, ..., d] -> the same."""

    def __init__(self, layers: Sequence[nn.LayerNorm]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([one.weight.detach() for one in layers]))  # [V, d]
        self.bias = nn.Parameter(torch.stack([one.bias.detach() for one in layers]))
        self.eps = layers[0].eps

    def forward(self, x: Tensor) -> Tensor:
        normed = F.layer_norm(x, x.shape[-1:], eps=self.eps).view(len(self.weight), -1, x.shape[-1])
        return torch.addcmul(self.bias[:, None], normed, self.weight[:, None]).view_as(x)


class Mixed(Encoding):
    """The encodings of all members: each adds what its own adds, and turns by what its own turns."""

    turning: Tensor
    adding: Tensor
    scale: Tensor
    is_added: Tensor
    is_learned: Tensor

    def __init__(self, config: PolicyConfig, members: Sequence[Encoding]) -> None:
        super().__init__(config)
        self.kinds = {type(one) for one in members}
        turning = [one.omega if isinstance(one, Rotary) else torch.zeros(config.head_dim // 4) for one in members]
        adding = [one.omega if isinstance(one, Absolute) else torch.zeros(config.width // 4) for one in members]
        self.register_buffer("turning", torch.stack(turning)[:, None, None], persistent=False)  # [V, 1, 1, K]
        self.register_buffer("adding", torch.stack(adding)[:, None, None], persistent=False)
        for name, kind in (("is_added", Absolute), ("is_learned", MLPEncoding)):
            which = torch.tensor([isinstance(one, kind) for one in members])
            self.register_buffer(name, which[:, None, None, None], persistent=False)
        learned = [one for one in members if isinstance(one, MLPEncoding)]
        if learned:  # members without one have a copy that does nothing and learns nothing
            scale = torch.tensor([one.scale if isinstance(one, MLPEncoding) else 1.0 for one in members])
            self.register_buffer("scale", scale[:, None, None, None], persistent=False)
            own = [one if isinstance(one, MLPEncoding) else learned[0] for one in members]
            self.mlp = cast(MLPEncoding, _stacked(own)).mlp

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        members = len(self.turning)
        x, positions = x.unflatten(0, (members, -1)), positions.unflatten(0, (members, -1))
        if Absolute in self.kinds:
            x = x + torch.where(self.is_added, waves(positions, self.adding), 0.0)
        if MLPEncoding in self.kinds:
            with torch.autocast(positions.device.type, enabled=False):
                learned = self.mlp((positions / self.scale).to(x.dtype).flatten(0, 1)).view_as(x)
                x = x + torch.where(self.is_learned, learned, 0.0)
        return x.flatten(0, 1)

    def rotation(self, positions: Tensor) -> Rotation | None:
        if Rotary not in self.kinds:
            return None
        cos, sin = turns(positions.unflatten(0, (len(self.turning), -1)), self.turning)
        return cos.flatten(0, 1), sin.flatten(0, 1)


class Family(Policy):
    """V policies in one, which give environments [V B, ...] each to its member. Attention looks at all pairs."""

    def __init__(self, configs: Sequence[PolicyConfig], *, seed: int = 0) -> None:
        """The members start as they would alone: their weights depend on their config and `seed`."""
        if not related(configs):
            raise MastError(
                f"policies of one family perceive by an MLP and may differ in {', '.join(_FREE)} only; C stands alone"
            )
        variant = "C" if configs[0].variant == "C" else "M"
        super().__init__(replace(configs[0], variant=variant, attention_radius=_WINDOW), seed=seed)
        self.configs = tuple(configs)
        members = [Policy(config, seed=seed) for config in configs]
        self.perception = _stacked([one.perception for one in members])
        self.lift = cast(nn.Linear, _stacked([one.lift for one in members]))
        self.mast = cast(MAST, _stacked([one.mast for one in members]))
        self.head = cast(nn.Sequential, _stacked([one.head for one in members]))
        self.encoding = Mixed(self.config, [one.encoding for one in members])
        if variant == "C":
            self.goal = nn.Parameter(torch.stack([cast(Tensor, one.goal).detach() for one in members]))  # [V, d]
        scale = [0.0 if one.attention_radius is None else _WINDOW / one.attention_radius for one in configs]
        masked = [one.component_mask for one in configs]
        self.register_buffer("places", torch.tensor(scale)[:, None, None, None], persistent=False)
        self.register_buffer("masked", torch.tensor(masked, dtype=torch.int64)[:, None, None], persistent=False)

    def inputs(self, observation: Observed) -> dict[str, Tensor]:
        given = super().inputs(observation)
        if "component" in given:  # to members without the mask all are one component
            labels = given["component"].unflatten(0, (len(self.configs), -1))
            masked = cast(Tensor, self.masked)
            matrix = labels.dtype == torch.bool  # of who hears whom
            given["component"] = (labels | ~masked.bool()[..., None] if matrix else labels * masked).flatten(0, 1)
        return given

    def pattern(self, positions: Tensor, component: Tensor | None, path: str) -> Pattern:
        if self._masking(component) is None and any(one.component_mask for one in self.configs):
            raise MastError("a family with members that have the component mask needs the components")
        # Windows of any size as one: places are scaled, to one point where there is no window.
        apart = positions.unflatten(0, (len(self.configs), -1))
        scaled = (apart * cast(Tensor, self.places).to(apart.dtype)).flatten(0, 1)
        return prepare(self.config, scaled, self._masking(component), lambda _: self._turning(positions), "dense")

    def goal_tokens(self, goals: Tensor) -> Tensor:
        each = len(goals) // len(self.configs)
        return cast(Tensor, self.goal)[:, None, None].expand(-1, each, goals.shape[1], -1).flatten(0, 1)

    def member(self, number: int) -> Policy:
        """A policy of its own with that member's weights, on the CPU."""
        found = Policy(self.configs[number])
        mine = {name: value[number].detach().cpu() for name, value in self.state_dict().items()}
        found.load_state_dict({name: mine[name] for name in found.state_dict()})
        return found

    def save(self, folder: str | Path, *, overwrite: bool = False, half: bool = False) -> None:
        raise MastError("a family is saved member by member: family.member(0).save(...)")


def _stacked(modules: Sequence[nn.Module]) -> nn.Module:
    """One module of the same make whose layers hold the weights of all of these."""
    first = modules[0]
    if isinstance(first, nn.Linear):
        return Linears(cast("Sequence[nn.Linear]", modules))
    if isinstance(first, nn.LayerNorm):
        return Norms(cast("Sequence[nn.LayerNorm]", modules))
    if next(first.parameters(recurse=False), None) is not None:
        raise MastError(f"a family cannot hold layers of kind {type(first).__name__}: train these policies one by one")
    for name, _ in list(first.named_children()):
        setattr(first, name, _stacked([getattr(one, name) for one in modules]))
    return first
