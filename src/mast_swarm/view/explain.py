"""Why a robot does what it does: where its attention goes, how old its news is, and on what its command depends.

A robot's view is a set of T tokens: itself, what it holds of other robots, and all goals if its policy sees them. In
each of L layers and H heads it attends to those in its window. These have attended to their own windows in the layer
below: so its command depends on all that L windows, one after the other, reach. That is its receptive field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mast_swarm.comms.decentral import DecentralPolicy
from mast_swarm.comms.held import slot_of, stamp_of
from mast_swarm.errors import MastError
from mast_swarm.evaluate.actors import Decentral
from mast_swarm.evaluate.policies import load_policy
from mast_swarm.model.attention import Weighed, allowed
from mast_swarm.model.learned import Learned
from mast_swarm.model.policy import Policy
from mast_swarm.observation import Observed
from mast_swarm.tasks.world import State, World
from mast_swarm.view.plots import save_figure
from mast_swarm.view.style import INK, LINE, SCENE, SOFT, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST = 30  # tokens that the table of a plot shows


@dataclass(frozen=True)
class Explanation:
    """One robot's decision. The T tokens of its view are ordered by their distance from it; the first is itself."""

    robot: int
    origins: np.ndarray  # [T] int64: whose news each token is; of a goal its number
    goals: np.ndarray  # [T] bool: tokens that are goals, not robots
    positions: np.ndarray  # [T, 2] metres, where the origin was when it said so
    ages: np.ndarray  # [T] seconds since then; 0 in central execution
    weights: np.ndarray  # [L, H, T]: what the robot attends to; of each layer and head they sum to 1
    windows: (
        np.ndarray
    )  # [T] int64: windows between token and robot, 0 of itself; -1: its command does not depend on it
    influence: np.ndarray  # [T]: how much the prediction changes with the token's message (norm of the derivative)
    prediction: np.ndarray  # [2]: the command in units of max_speed; [3] with the expected speed of one that explores
    attention_radius: float | None  # metres; None: no window

    @property
    def receptive_field(self) -> np.ndarray:
        """The numbers of the robots on whose news the command depends, itself among them, in ascending order."""
        return np.sort(self.origins[(self.windows >= 0) & ~self.goals])

    @property
    def attention(self) -> np.ndarray:
        """The mean of the weights over layers and heads, [T]."""
        return self.weights.mean(axis=(0, 1))

    def __str__(self) -> str:
        """In words: how much the robot holds, what of it matters, and how old that is."""
        robots, field = int((~self.goals).sum()) - 1, self.receptive_field
        old = self.ages[self.windows >= 0].max()
        first = np.argsort(-self.attention, kind="stable")[:3]
        named = ", ".join(f"{self._name(token)} {self.attention[token]:.0%}" for token in first)
        return (
            f"robot {self.robot} holds news of {robots} others; its command depends on {len(field) - 1} of them, with "
            f"news up to {old:g} s old; it attends to {named}"
        )

    def _name(self, token: int) -> str:
        if token == 0:
            return "itself"
        return f"{'goal' if self.goals[token] else 'robot'} {self.origins[token]}"

    def plot(self, path: str | Path) -> Path:
        """A map of what the robot holds, and a table of its attention by layer and head; the path again."""
        from matplotlib.figure import Figure

        with style():
            figure = Figure(figsize=(12.4, 5.6), layout="constrained")
            halves: Any = figure.subfigures(1, 2, width_ratios=(1.0, 1.25))
            self._map(halves[0].add_subplot())
            self._table(halves[1])
            return save_figure(figure, Path(path))

    def _map(self, axes: Axes) -> None:
        """Tokens where they were, coloured by age; lines as wide as the attention."""
        from matplotlib.patches import Circle

        axes.grid(False)
        own, matters = self.positions[0], self.windows >= 0
        reach = self.attention_radius
        if reach is not None:
            axes.add_patch(Circle(tuple(own), reach, fill=False, ls="--", color=SOFT, lw=1.0, label="attention window"))
        for token in np.flatnonzero(self.attention[1:] > 0.002) + 1:
            width = 0.5 + 20 * float(self.attention[token])
            axes.plot(
                *zip(own, self.positions[token], strict=True), color=SCENE["robot"], alpha=0.45, lw=width, zorder=1
            )
        rest = ~matters & ~self.goals
        if rest.any():
            x, y = self.positions[rest].T
            axes.scatter(x, y, s=26, facecolors="none", edgecolors=SOFT, lw=0.9, label="held, unused")
        for goals, marker, label in ((False, "o", "news that matters"), (True, "s", "goal")):
            chosen = matters & (self.goals == goals)
            chosen[0] = False
            if not chosen.any():
                continue
            x, y = self.positions[chosen].T
            dots = axes.scatter(
                x, y, c=self.ages[chosen], s=44, marker=marker, cmap="viridis_r", vmin=0,
                vmax=max(1e-9, self.ages[matters].max()), edgecolors="white", lw=0.7, zorder=3, label=label,
            )  # fmt: skip
            if not goals and self.ages[matters].max() > 0:
                axes.figure.colorbar(dots, ax=axes, label="age of the news (s)", shrink=0.6, pad=0.01)
        axes.plot(
            *own, marker="*", ms=17, color=SCENE["unseen"], mec="white", ls="", zorder=4, label=f"robot {self.robot}"
        )
        far = np.abs(self.positions[matters] - own).max() if matters.sum() > 1 else 10.0
        length = 0.22 * max(far, reach or 0.0)
        axes.annotate(
            "", xy=tuple(own + length * self.prediction[:2]), xytext=tuple(own), zorder=5,
            arrowprops={"arrowstyle": "-|>", "color": SCENE["unseen"], "lw": 2.0},
        )  # fmt: skip
        axes.set(
            aspect="equal", adjustable="datalim", xlabel="x (m)", ylabel="y (m)", title=f"What robot {self.robot} holds"
        )
        axes.legend(loc="upper left", fontsize=8, handletextpad=0.4, labelspacing=0.5, frameon=True, edgecolor=LINE)

    def _table(self, figure: Any) -> None:
        """The tokens that it attends to most, by distance: age, influence, and weights by layer and head."""
        layers, heads, _ = self.weights.shape
        most = np.sort(np.argsort(-self.weights.max(axis=(0, 1)), kind="stable")[:_MOST])
        most = most[(self.weights[..., most] > 0).any(axis=(0, 1))]
        age, influence, table = figure.subplots(
            3, 1, sharex=True, height_ratios=(1, 1, max(2.5, 0.17 * layers * heads))
        )
        x = np.arange(len(most))
        age.bar(x, self.ages[most], color=SCENE["robot"])
        age.set(ylabel="age (s)", title="Its attention, nearest first")
        age.set_ylim(0.0, 1.05 * self.ages[most].max() or 1.0)
        influence.bar(x, self.influence[most] / self.influence.sum(), color=SCENE["robot"])
        influence.set(ylabel="share of\ninfluence")
        shown = self.weights.reshape(layers * heads, -1)[:, most]
        picture = table.imshow(shown, aspect="auto", cmap="magma_r", vmin=0, interpolation="nearest")
        for line in np.arange(heads, layers * heads, heads) - 0.5:
            table.axhline(line, color=INK, lw=0.8)
        table.grid(False)
        table.set_yticks(np.arange(layers) * heads + (heads - 1) / 2, [f"layer {n + 1}" for n in range(layers)])
        names = ["itself" if n == 0 else f"{'g' if self.goals[n] else ''}{self.origins[n]}" for n in most]
        table.set_xticks(x, names, rotation=90 if len(most) > 12 else 0, fontsize=8)
        what = "robot (g: goal)" if self.goals[most].any() else "robot"
        table.set(xlabel=f"{what}; the rows of a layer are its heads")
        figure.colorbar(picture, ax=table, label="weight", shrink=0.8, pad=0.01)


@dataclass(frozen=True)
class _View:
    """The T tokens that a robot decides from."""

    origins: Tensor  # [T] int64
    goals: Tensor  # [T] bool
    messages: Tensor  # [T, d_msg]; of goals anything
    positions: Tensor  # [T, 2] metres
    ages: Tensor  # [T] seconds
    mask: Tensor | None  # [T, T] bool: who may attend to whom; None: all to all
    own: int  # which of them is the robot itself


def explain(
    policy: Policy | str,
    state: Observed | DecentralPolicy | Decentral | State,
    robot: int,
    *,
    environment: int = 0,
    world: World[Any, Any] | None = None,
) -> Explanation:
    """Why a robot of an environment decides as it does.

    policy: a MAST policy, or its name. state: either what robots sense (`world.observe(state)`, or the state itself
    and its `world`), for central execution, where everything is known at once; or a `DecentralPolicy` after its `act`,
    for what the robot held when it last decided, delays and losses included.
    """
    policy = _mast(policy, world)
    seen: Any = state.run if isinstance(state, Decentral) else state
    if isinstance(seen, State):
        if world is None:
            raise MastError("a state does not say what robots sense: give its world too, or world.observe(state)")
        seen = world.observe(seen)
    if isinstance(seen, DecentralPolicy):
        view = _held(seen, robot, environment)
    elif hasattr(seen, "features"):
        if world is not None:
            seen = world.shown(seen, policy.config.observation_shape)
        view = _observed(policy, seen, robot, environment)
    else:
        raise MastError(
            f"cannot explain {type(state).__name__}: give an observation or a DecentralPolicy that has acted"
        )
    return _explained(policy, view, robot)


def _mast(policy: Any, world: World[Any, Any] | None) -> Policy:
    if isinstance(policy, str):
        policy = load_policy(policy) if world is None else load_policy(policy, world.task)
    if not isinstance(policy, Policy):
        kind = policy.config.kind if isinstance(policy, Learned) else type(policy).__name__
        raise MastError(f"a policy of kind {kind} has no attention to explain: give a MAST policy")
    return policy


def _check(number: int, count: int, what: str) -> None:
    if not 0 <= number < count:
        raise MastError(f"{what} is {number}: expected 0 to {count - 1}")


@torch.no_grad()
def _observed(policy: Policy, seen: Observed, robot: int, environment: int) -> _View:
    """What central execution decides from: everything that is sensed now."""
    batch, robots, _ = seen.positions.shape
    _check(environment, batch, "environment")
    _check(robot, robots, "robot")
    given = policy.inputs(seen)
    messages = policy.perceive(seen.features[environment : environment + 1])[0]
    places, component = seen.positions[environment], given.get("component")
    kinds = torch.zeros(robots, dtype=torch.bool, device=places.device)
    origins = torch.arange(robots, device=places.device)
    goals = given["goals"][environment] if "goals" in given else None
    if goals is not None:  # tokens of their own, after the robots
        messages = torch.cat((messages, messages.new_zeros(len(goals), messages.shape[1])))
        places = torch.cat((places, goals.to(places.dtype)))
        kinds = torch.cat((kinds, kinds.new_ones(len(goals))))
        origins = torch.cat((origins, torch.arange(len(goals), device=places.device)))
    one = None if component is None else component[environment : environment + 1]
    mask = allowed(places[None], policy.config.attention_radius, one)
    ages = torch.zeros(len(places), dtype=torch.float64, device=places.device)
    return _View(origins, kinds, messages, places, ages, None if mask is None else mask[0], robot)


def _held(run: DecentralPolicy, robot: int, environment: int) -> _View:
    """What a robot held when it last decided."""
    state = run.state
    if state is None:
        raise MastError("nobody has decided yet: call start and act first")
    batch, robots = state.alive.shape
    _check(environment, batch, "environment")
    _check(robot, robots, "robot")
    if not bool(state.alive[environment, robot]):
        raise MastError(f"robot {robot} of environment {environment} has failed: it decides nothing")
    entry = state.newest[environment, robot]  # [N]
    origins = (entry >= 0).nonzero()[:, 0]
    slots = slot_of(entry[origins])
    places = state.positions[environment, slots, origins]
    ages = (state.step - stamp_of(entry[origins])).double() * run.dt
    mask = allowed((places - places.mean(0))[None], run.policy.config.attention_radius, None)
    messages = state.messages[environment, slots, origins]
    own = int((origins == robot).nonzero()[0, 0])
    kinds = torch.zeros_like(origins, dtype=torch.bool)
    return _View(origins, kinds, messages, places, ages, None if mask is None else mask[0], own)


def _explained(policy: Policy, view: _View, robot: int) -> Explanation:
    windows = _windows(view, policy.config.layers)
    away = (view.positions - view.positions[view.own]).norm(dim=-1)
    away[view.own] = -1.0  # itself first, also before one that stands on the same spot
    order = away.argsort(stable=True)
    used = order[windows[order] >= 0]
    weights, influence, prediction = _computed(policy, view, used)
    layers, heads = len(weights), policy.config.heads
    every = np.zeros((layers, heads, len(order)))
    shares = np.zeros(len(order))
    chosen = (windows[order] >= 0).cpu().numpy()
    every[..., chosen], shares[chosen] = torch.stack(weights).double().cpu().numpy(), influence.cpu().numpy()
    parts: Sequence[Tensor] = (view.origins, view.goals, view.positions.double(), view.ages, windows)
    origins, goals, positions, ages, steps = (part[order].cpu().numpy() for part in parts)
    return Explanation(
        robot=robot,
        origins=origins,
        goals=goals,
        positions=positions,
        ages=ages,
        weights=every,
        windows=steps,
        influence=shares,
        prediction=prediction.double().cpu().numpy(),
        attention_radius=policy.config.attention_radius,
    )


def _windows(view: _View, layers: int) -> Tensor:
    """How many windows lie between each token and the robot, [T] int64; -1: more than there are layers."""
    reached = torch.zeros_like(view.goals)
    reached[view.own] = True
    found = torch.where(reached, 0, -1)
    for layer in range(1, layers + 1):
        seen = torch.ones_like(reached) if view.mask is None else view.mask[reached].any(0)
        found = found.where(reached | ~seen, layer)
        reached = reached | seen
    return found


def _computed(policy: Policy, view: _View, used: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
    """The policy's own layers on the tokens [U] of the receptive field, the robot first: weights of the robot's row, L
    of [H, U]; influence [U]; and its prediction."""
    messages = view.messages[used].to(policy.dtype)
    places = view.positions[used]
    mask = None if view.mask is None else view.mask[used][:, used][None]
    with torch.enable_grad():
        messages = messages.detach().requires_grad_()
        x = policy.lift(messages).to(policy.dtype)[None]
        if policy.goal is not None:
            x = torch.where(view.goals[used][None, :, None], policy.goal, x)
        x = policy.encoding.embed(x, places[None])
        pattern = Weighed(mask, policy.encoding.rotation((places - places.mean(0).round()).double()[None]))
        prediction = policy.act(policy.mast(x, pattern))[0, 0]
        slopes = [torch.autograd.grad(part, messages, retain_graph=True)[0] for part in prediction[:2]]
    influence = torch.stack(slopes).square().sum((0, 2)).sqrt()
    return [layer[0, :, 0].detach() for layer in pattern.weights], influence, prediction.detach()
