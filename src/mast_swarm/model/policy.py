"""The MAST policy, and how any learned policy is made from a config or loaded from a folder or the zoo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from mast_swarm import zoo
from mast_swarm.errors import MastError, unknown
from mast_swarm.explore import Trail, explored
from mast_swarm.model.attention import Pattern, Weighed, allowed
from mast_swarm.model.config import ModelConfig, PolicyConfig
from mast_swarm.model.encoding import Rotation, make_encoding, near_origin
from mast_swarm.model.learned import (
    Learned,
    Observed,
    check_finite,
    check_message,
    check_positions,
    seeded,
)
from mast_swarm.model.lists import feed
from mast_swarm.model.lpac import LPAC
from mast_swarm.model.mast import MAST
from mast_swarm.model.perception import make_perception
from mast_swarm.model.windowed import prepare
from mast_swarm.space import components, reachable
from mast_swarm.survey import Survey
from mast_swarm.zoo import CONFIG_FILE, WEIGHTS_FILE


class Policy(Learned):
    """Perception -> message -> (lift) -> MAST -> MLP -> command.

    Initial weights depend on `seed` alone. Under autocast positions and phases stay fp32, and so does the residual
    stream, except where GPU kernels run or train the blocks (`trained`).
    """

    Config: ClassVar[type[ModelConfig]] = PolicyConfig
    config: PolicyConfig

    def __init__(self, config: PolicyConfig | None = None, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config = PolicyConfig() if config is None else config
        d = config.width
        with seeded(seed):
            self.perception = make_perception(config)
            self.lift = nn.Identity() if config.message_width == d else nn.Linear(config.message_width, d)
            self.encoding = make_encoding(config)
            self.goal = nn.Parameter(torch.randn(d) / d**0.5) if config.variant == "C" else None
            self.mast = MAST(config)
            self.head = nn.Sequential(nn.Linear(d, 2 * d), nn.LeakyReLU(inplace=True), nn.Linear(2 * d, config.outputs))
        self.eval()

    def inputs(self, observation: Observed) -> dict[str, Tensor]:
        """What `forward` takes, by name: the component as it needs it, the goals if it may see them."""
        given, graph = {"features": observation.features, "positions": observation.positions}, observation.graph
        if self.config.component_mask:
            given["component"] = reachable(graph) if graph.directed else components(graph)
        if self.config.variant == "C" and observation.goals is not None:
            given["goals"] = observation.goals
        return given

    def decide(
        self,
        message: Tensor,
        positions: Tensor,
        component: Tensor | None = None,
        goals: Tensor | None = None,
        *,
        path: str = "auto",
    ) -> Tensor:
        """Predictions [B, N, 2 or 3] from messages [B, N, d_msg] at positions [B, N, 2] metres.

        A prediction is the command in units of u_max, and with exploration the expert's expected speed.
        component: labels [B, N] int64 of the connected components, or a matrix [B, N, N] bool ([b, i, j]:
        what j says can reach i), or None when all are connected; read by variant M alone. goals [B, G, 2]
        metres, read by variant C alone. path: how attention is computed, auto or one of `windowed.PATHS`.
        """
        self.check(message, positions, component, goals)
        robots = positions.shape[1]
        x, positions = self._tokens(message, positions, goals)
        pattern = self.pattern(positions, component, path)
        return self._answer(pattern.arrange(x), pattern)[:, :robots]

    def _answer(self, x: Tensor, pattern: Pattern) -> Tensor:
        """Predictions [B, T, 2 or 3] from tokens x [B, T, d] in the pattern's order."""
        return pattern.restore(self.act(self.mast(x, pattern)))  # few numbers are quickly put back in their order

    def pattern(self, positions: Tensor, component: Tensor | None, path: str) -> Pattern:
        """Who attends to whom among tokens at positions [B, T, 2]; component and path as in `decide`."""
        return prepare(self.config, positions, self._masking(component), self._turning, path)

    def _masking(self, component: Tensor | None) -> Tensor | None:
        """The components, where the policy keeps attention within them."""
        return component if self.config.component_mask else None

    def _turning(self, positions: Tensor) -> Rotation | None:
        """What turns the queries and keys of tokens at positions [..., T, 2] metres."""
        return self.encoding.rotation(positions.double() - near_origin(positions))

    def weigh(
        self, message: Tensor, positions: Tensor, component: Tensor | None = None, goals: Tensor | None = None
    ) -> list[Tensor]:
        """What each token attends to when `decide` is given the same: of each layer the weights [B, H, T, T], with the
        robots first and then the goals, if it sees any."""
        self.check(message, positions, component, goals)
        x, positions = self._tokens(message, positions, goals)
        mask = allowed(positions, self.config.attention_radius, self._masking(component))
        pattern = Weighed(mask, self._turning(positions))
        self.mast(x, pattern)
        return pattern.weights

    def _tokens(self, message: Tensor, positions: Tensor, goals: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Embedded tokens [B, T, d], and their positions [B, T, 2] metres; T = N + G, robots first."""
        x = self.lift(message.to(self.dtype)).to(self.dtype)  # [B, N, d]
        if self.goal is not None and goals is not None:
            x = torch.cat((x, self.goal_tokens(goals)), dim=1)
            positions = torch.cat((positions, goals.to(positions.dtype)), dim=1)
        return self.encoding.embed(x, positions), positions

    def goal_tokens(self, goals: Tensor) -> Tensor:
        """What stands for goals [B, G, 2] before their places are known, [B, G, d]."""
        assert self.goal is not None
        return self.goal.expand(goals.shape[0], goals.shape[1], -1)

    def act(self, y: Tensor) -> Tensor:
        """Predictions [..., 2 or 3] from what the last layer gives, [..., d]."""
        return feed(self.head, y, self.dtype) * self.config.action_scale

    def forward(
        self,
        features: Tensor,
        positions: Tensor,
        component: Tensor | None = None,
        goals: Tensor | None = None,
        *,
        path: str = "auto",
    ) -> Tensor:
        """Predictions [B, N, 2 or 3] from features [B, N, ...]; the rest as in `decide`."""
        few = features.shape[2:].numel() < self.config.width and features.shape[:2] == positions.shape[:2]
        if self.config.variant == "C" or not few:
            return self.decide(self.perceive(features), positions, component, goals, path=path)
        # Few numbers per robot are quickly put in the pattern's order, as they are of predictions: tokens are not.
        self.check(None, positions, component)
        pattern = self.pattern(positions, component, path)
        message = self.perceive(pattern.arrange(features))
        self.check(message, positions)
        x, _ = self._tokens(message, pattern.arrange(positions))
        return self._answer(x, pattern)

    def trail(self, dt: float) -> Trail | None:
        """As in `Learned`: where the policy explores and remembers."""
        places, config = self.config.exploration_memory, self.config
        return Trail(places, config.exploration_spread, dt) if places and config.exploration_time else None

    def survey(self, side: float) -> Survey | None:
        """As in `Learned`: where the policy explores and has a map."""
        cell = self.config.exploration_survey
        return Survey(side=side, cell=cell) if cell is not None and self.config.exploration_time else None

    def command(
        self, prediction: Tensor, landmark: Tensor, seeds: Tensor, time: Tensor, away: Tensor | None = None
    ) -> Tensor:
        """As in `Learned`: where the policy explores, headings fill what the prediction leaves open."""
        if self.config.exploration_time is None:
            return prediction
        units, reach = time / self.config.exploration_time, self.config.exploration_reach
        return explored(prediction, landmark, seeds, units, reach, away, self.config.exploration_push)

    def check(
        self, message: Tensor | None, positions: Tensor, component: Tensor | None = None, goals: Tensor | None = None
    ) -> None:
        """Raise an error that names what is wrong with the input of `decide`, if anything is."""
        check_positions(positions)
        if message is not None:
            check_message(message, positions, self.config.message_width)
        batch, robots, _ = positions.shape
        if component is not None:
            matrix = component.dtype == torch.bool
            expected = (batch, robots, robots) if matrix else (batch, robots)
            if component.shape != expected:
                kind = "component matrix (bool)" if matrix else "component labels"
                raise MastError(f"{kind} have shape {tuple(component.shape)}: expected {expected}")
        if self.config.variant == "C":
            if goals is None:
                raise MastError("a policy of variant C needs the goals: pass goals [B, G, 2] metres")
            if goals.ndim != 3 or goals.shape[0] != batch or goals.shape[-1] != 2:
                raise MastError(f"goals have shape {tuple(goals.shape)}: expected [{batch}, G, 2] metres")
        check_finite(positions=positions, messages=message, goals=goals)

    @classmethod
    def load(cls, name: str | Path) -> Policy:
        """As `load_learned`, for a MAST policy; any other is an error."""
        policy = load_learned(name)
        if not isinstance(policy, cls):
            raise MastError(f"'{name}' is a policy of kind {policy.config.kind}: expected {cls.Config.kind}")
        return policy


KINDS: dict[str, type[Learned]] = {policy.Config.kind: policy for policy in (Policy, LPAC)}


def make(config: ModelConfig, *, seed: int = 0) -> Learned:
    """The policy that a config describes, untrained; its weights depend on `seed` alone."""
    return KINDS[config.kind](config, seed=seed)


def load_learned(name: str | Path) -> Learned:
    """The policy in a folder, or the one of that name in the zoo (such as "navigation/mast-m")."""
    folder = _folder(name)
    policy = make(_read_config(folder / CONFIG_FILE))
    _load_weights(policy, folder / WEIGHTS_FILE)
    return policy


def config_of(name: str | Path) -> ModelConfig:
    """What `load_learned` would read the weights for."""
    return _read_config(_folder(name) / CONFIG_FILE)


def _folder(name: str | Path) -> Path:
    folder, shipped = Path(name), zoo.policies()
    if folder.is_dir():
        zoo.check_no_run(folder)
        return folder
    if str(name) not in shipped:
        if folder.exists():
            raise MastError(f"'{folder}' is a file: expected a policy folder or a name from the zoo")
        raise unknown("policy", str(name), shipped)
    return shipped[str(name)]


def _read_config(file: Path) -> ModelConfig:
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise MastError(f"cannot read '{file}': {error.strerror}") from error
    except ValueError as error:  # neither JSON nor even text
        raise MastError(f"'{file}' is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise MastError(f"'{file}' holds a JSON {type(fields).__name__}: expected an object of config fields")
    try:
        kind = str(fields.get("kind", Policy.Config.kind))
        if kind not in KINDS:
            raise unknown("kind of policy", kind, KINDS)
        return KINDS[kind].Config.from_dict(fields)
    except MastError as error:
        raise MastError(f"'{file}': {error}") from error


def _load_weights(policy: Learned, file: Path) -> None:
    try:
        weights = load_file(file)
    except OSError as error:
        why = error.strerror or ("no such file" if not file.exists() else "permission denied")
        raise MastError(f"cannot read '{file}': {why}") from error
    except SafetensorError as error:
        raise MastError(f"'{file}' is truncated or no safetensors file: {error}") from error
    expected = policy.state_dict()
    for name, tensor in expected.items():
        if name not in weights:
            raise MastError(f"'{file}' lacks tensor '{name}' that its config.json asks for")
        if weights[name].shape != tensor.shape:
            shapes = f"{list(weights[name].shape)}, config.json asks for {list(tensor.shape)}"
            raise MastError(f"'{file}': tensor '{name}' has shape {shapes}")
        if weights[name].dtype == torch.bfloat16 and tensor.is_floating_point():  # saved in half the space
            weights[name] = weights[name].to(tensor.dtype)
        if weights[name].dtype != tensor.dtype:
            raise MastError(f"'{file}': tensor '{name}' is {weights[name].dtype}, expected {tensor.dtype}")
        if not torch.isfinite(weights[name]).all():
            raise MastError(f"'{file}': tensor '{name}' holds NaN or infinity")
    for name in weights:
        if name not in expected:
            raise MastError(f"'{file}' holds tensor '{name}' that its config.json knows nothing of")
    policy.load_state_dict(weights)
