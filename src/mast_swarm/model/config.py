"""The configuration of a policy: every number that shapes its network. Imports no torch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from mast_swarm.errors import MastError, unknown

VARIANTS = ("M", "L", "C")
ENCODINGS = ("rope-g", "rope-l", "ape-g", "ape-l", "mlp", "none")


@dataclasses.dataclass(frozen=True)
class PolicyConfig:
    """A MAST policy. The defaults are the paper's navigation policy (2.38 million parameters).

    Symbols of the paper: L layers, H heads, d_a head_dim, d = H d_a, R_att attention_radius, lambda
    wavelength.

    Departures from the paper's letter: the softmax of eq. (sdpa_sum_mask) runs over the allowed keys only
    (the paper prints the mask in the numerator alone), and RoPE phases are taken relative to a point near the
    team, which changes nothing but rounding.
    """

    task: str = "navigation"
    """What the policy was made for; names the world it runs in."""
    variant: str = "M"
    """M: window and component mask. L: window only. C: every goal is a token too, central only."""
    layers: int = 4
    """Blocks of attention and MLP (L)."""
    heads: int = 4
    """Attention heads (H)."""
    head_dim: int = 64
    """Width of one head (d_a), a multiple of 4: two axes, each a pair of real and imaginary part."""
    message_dim: int | None = None
    """Floats in a message; None: d = heads * head_dim. Otherwise a linear layer lifts it at the receiver."""
    encoding: str = "rope-g"
    """Positional encoding: rope-g, rope-l, ape-g, ape-l, mlp or none (g: geometric, l: linear spacing)."""
    attention_radius: float | None = 250.0
    """Radius of the attention window in metres (R_att); None: no window."""
    wavelength: float = 1000.0
    """Longest wavelength of the encoding in metres (lambda): the width of the training environment."""
    observation_dim: int = 14
    """Numbers in one robot's observation."""
    perception: str = "mlp"
    """The network that turns an observation into a message."""
    exploration_time: float | None = None
    """Seconds over which an exploring robot turns to a new heading; None: the policy does not explore."""
    exploration_reach: float = 300.0
    """Metres from the nearest thing of interest at which an exploring robot has turned back to it."""

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise unknown("variant", str(self.variant), VARIANTS)
        if self.encoding not in ENCODINGS:
            raise unknown("encoding", str(self.encoding), ENCODINGS)
        for name in ("layers", "heads", "head_dim", "observation_dim", "message_dim"):
            value = getattr(self, name)
            if name == "message_dim" and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise MastError(f"{name} is {value!r}: expected a whole number of at least 1")
        if self.head_dim % 4:
            raise MastError(f"head_dim is {self.head_dim}: expected a multiple of 4 (two axes, complex)")
        optional = {"attention_radius": "None for no window", "exploration_time": "None for no exploration"}
        for name in ("wavelength", "exploration_reach", *optional):
            value = getattr(self, name)
            if name in optional and value is None:
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not math.isfinite(value) or value <= 0:
                hint = f" (or {optional[name]})" if name in optional else ""
                raise MastError(f"{name} is {value!r}: expected a positive number{hint}")
        for name in ("task", "perception"):
            if not isinstance(getattr(self, name), str):
                raise MastError(f"{name} is {getattr(self, name)!r}: expected a name")

    @property
    def component_mask(self) -> bool:
        """Whether central execution keeps attention within connected components."""
        return self.variant == "M"

    @property
    def width(self) -> int:
        """Width of the embeddings, d = H d_a."""
        return self.heads * self.head_dim

    @property
    def message_width(self) -> int:
        """Floats in one message, d_msg."""
        return self.width if self.message_dim is None else self.message_dim

    @property
    def position_scale(self) -> float:
        """Metres that the MLP encoding reads as 1."""
        return self.wavelength

    def to_dict(self) -> dict[str, Any]:
        """The fields, as JSON can hold them."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> PolicyConfig:
        """The reverse of `to_dict`. Absent fields take their defaults; an unknown one is an error."""
        known = [field.name for field in dataclasses.fields(cls)]
        for key in fields:
            if key not in known:
                raise unknown("config key", key, known)
        return cls(**fields)
