"""The configurations of learned policies: every number that shapes their networks. Imports no torch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from mast_swarm.errors import MastError, unknown

VARIANTS = ("M", "L", "C")
ENCODINGS = ("rope-g", "rope-l", "ape-g", "ape-l", "mlp", "none")


class ModelConfig:
    """What the configurations of all learned policies have. Each is a frozen dataclass of its own."""

    kind: ClassVar[str]
    """Which network it describes; stands in config.json, where none stands for `mast`."""
    task: str
    perception: str
    observation_dim: int | tuple[int, int, int]
    message_dim: int | None
    action_scale: float
    attention_radius: float | None = None
    exploration_time: float | None = None

    @property
    def width(self) -> int:
        """Width of the embeddings."""
        raise NotImplementedError

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of one robot's observation, as the world's config gives it."""
        return (self.observation_dim,) if isinstance(self.observation_dim, int) else self.observation_dim

    @property
    def message_width(self) -> int:
        """Floats in one message, d_msg."""
        return self.width if self.message_dim is None else self.message_dim

    @property
    def outputs(self) -> int:
        """Numbers in a prediction: the command, and where the policy explores the expert's expected speed."""
        return 2 if self.exploration_time is None else 3

    @property
    def field(self) -> float | None:
        """How far away from a robot messages can change its command, metres: the receptive field; None: anywhere."""
        return None

    def to_dict(self) -> dict[str, Any]:
        """The kind and the fields, as JSON can hold them."""
        return {"kind": self.kind, **dataclasses.asdict(self)}  # type: ignore[call-overload]

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """The reverse of `to_dict`. Absent fields take their defaults; an unknown one is an error."""
        fields = {key: value for key, value in given.items() if key != "kind"}
        if given.get("kind", cls.kind) != cls.kind:
            raise MastError(f"kind is {given['kind']!r}: expected {cls.kind!r}")
        known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        for key in fields:
            if key not in known:
                raise unknown("config key", key, known)
        return cls(**fields)

    def _check(self, counts: tuple[str, ...], lengths: tuple[str, ...], optional: Mapping[str, str]) -> None:
        """Raise an error for a field out of its range: whole numbers from 1, positive numbers, names; `optional`
        says what None means."""
        if isinstance(self.observation_dim, list):  # as JSON gives it
            object.__setattr__(self, "observation_dim", tuple(self.observation_dim))
        shape = self.observation_dim
        if not (isinstance(shape, int) or (isinstance(shape, tuple) and len(shape) == 3)):
            raise MastError(
                f"observation_dim is {shape!r}: expected a whole number, or three: channels, height and width"
            )
        values = [(name, getattr(self, name)) for name in counts]
        for name, value in values + [("observation_dim", length) for length in self.observation_shape]:
            if name in optional and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise MastError(f"{name} is {value!r}: expected a whole number of at least 1")
        for name in lengths:
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


@dataclasses.dataclass(frozen=True)
class PolicyConfig(ModelConfig):
    """A MAST policy. The defaults are the paper's for observations of 14 numbers (2.38 million parameters).

    Symbols of the paper: L layers, H heads, d_a head_dim, d = H d_a, R_att attention_radius, lambda
    wavelength.

    Departures from the paper's letter: the softmax of eq. (sdpa_sum_mask) runs over the allowed keys only
    (the paper prints the mask in the numerator alone), and RoPE phases are taken relative to a point near the
    team, which changes nothing but rounding.
    """

    kind: ClassVar[str] = "mast"

    task: str = ""
    """What the policy was made for; names the world it runs in. Empty: nothing yet."""
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
    observation_dim: int | tuple[int, int, int] = 14
    """Numbers in one robot's observation; of an image its channels, height and width."""
    perception: str = "mlp"
    """The network that turns an observation into a message: mlp for numbers, cnn for images."""
    action_scale: float = 1.0
    """What the network's output is multiplied by to give predictions in units of u_max."""
    dropout: float = 0.0
    """Share of the numbers that each half of a block adds which training leaves out, at random; 0 in the paper."""
    exploration_time: float | None = None
    """Seconds over which an exploring robot turns to a new heading; None: the policy does not explore."""
    exploration_reach: float = 300.0
    """Metres from the nearest thing of interest at which an exploring robot has turned back to it."""
    exploration_memory: int = 0
    """Places that an exploring robot remembers, one every 10 s: it turns away from where it has been. 0: none."""
    exploration_spread: float = 150.0
    """Metres over which a remembered place loses its effect."""
    exploration_push: float = 2.0
    """What remembered places weigh at most, against a heading that weighs 1."""
    exploration_survey: float | None = None
    """Metres of a cell of the map that robots share of where they have looked, by which they search; None: no map."""

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise unknown("variant", str(self.variant), VARIANTS)
        if self.encoding not in ENCODINGS:
            raise unknown("encoding", str(self.encoding), ENCODINGS)
        self._check(
            counts=("layers", "heads", "head_dim", "message_dim"),
            lengths=(
                *("wavelength", "action_scale", "attention_radius"),
                *("exploration_time", "exploration_reach", "exploration_spread", "exploration_push"),
                "exploration_survey",
            ),
            optional={
                "message_dim": "None for the width",
                "attention_radius": "None for no window",
                "exploration_time": "None for no exploration",
                "exploration_survey": "None for no map",
            },
        )
        if not (isinstance(self.dropout, int | float) and 0 <= self.dropout <= 1):
            raise MastError(f"dropout is {self.dropout!r}: expected a share from 0 to 1")
        memory = self.exploration_memory
        if not isinstance(memory, int) or isinstance(memory, bool) or memory < 0:
            raise MastError(f"exploration_memory is {memory!r}: expected a whole number of places, 0 for none")
        if self.exploration_survey is not None and self.exploration_time is None:
            raise MastError(
                "exploration_survey is set, but the policy does not explore: set exploration_time too, or "
                "exploration_survey to None (null in a file)"
            )
        if self.head_dim % 4:
            raise MastError(f"head_dim is {self.head_dim}: expected a multiple of 4 (two axes, complex)")

    @property
    def field(self) -> float | None:
        """L windows, one after the other."""
        return None if self.attention_radius is None else self.layers * self.attention_radius

    @property
    def component_mask(self) -> bool:
        """Whether central execution keeps attention within connected components."""
        return self.variant == "M"

    @property
    def width(self) -> int:
        """Width of the embeddings, d = H d_a."""
        return self.heads * self.head_dim

    @property
    def position_scale(self) -> float:
        """Metres that the MLP encoding reads as 1."""
        return self.wavelength


@dataclasses.dataclass(frozen=True)
class LPACConfig(ModelConfig):
    """LPAC-K3, the graph baseline (1.8 million parameters)."""

    kind: ClassVar[str] = "lpac"

    task: str = ""
    """What the policy was made for; names the world it runs in. Empty: nothing yet."""
    layers: int = 5
    """Graph layers."""
    hops: int = 3
    """Hops of each layer (K)."""
    width: int = 256
    """Width of the graph layers."""
    head_width: int = 32
    """Width of the hidden layer between the last graph layer and the command."""
    message_dim: int = 32
    """Floats that perception gives each robot."""
    position_scale: float = 1024.0
    """Metres that become 1 where the policy is not told how wide the world is: the width of the training world."""
    action_scale: float = 1.0
    """What the network's output is multiplied by: one standard deviation of the expert's commands (units of u_max)."""
    observation_dim: int | tuple[int, int, int] = (4, 32, 32)
    """Numbers in one robot's observation; of an image its channels, height and width."""
    perception: str = "cnn"
    """The network that turns an observation into a message: mlp for numbers, cnn for images."""

    def __post_init__(self) -> None:
        self._check(
            counts=("layers", "hops", "width", "head_width", "message_dim"),
            lengths=("position_scale", "action_scale"),
            optional={},
        )

    @property
    def exchanges(self) -> int:
        """Times that a robot hears its neighbours for one decision: one per hop of each layer."""
        return self.layers * self.hops


MODELS: dict[str, type[ModelConfig]] = {model.kind: model for model in (PolicyConfig, LPACConfig)}
"""The kinds of learned policies."""
