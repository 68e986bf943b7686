"""What manifest.json says of exported files: all that a robot's engineer needs to run them."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mast_swarm import __version__
from mast_swarm.errors import MastError
from mast_swarm.files import plain
from mast_swarm.interop.graphs import Carry, Function
from mast_swarm.model.learned import Learned
from mast_swarm.model.policy import Policy
from mast_swarm.robot.exported import FORMAT
from mast_swarm.tasks.base import WorldConfig

_FEATURES = (
    "in this order; what is measured, in its unit, is divided by the scale; first: the number of the first value, or "
    "of the channel of an image"
)
_EXCHANGE = (
    "Every tau seconds a robot sends two things to all that hear it: `sent`, as carry last gave it, and its degree, "
    "the number of robots that it hears now. What it hears from others becomes one row of `heard` and one of `degrees` "
    "for each of them. Before the first exchange it has heard nobody. At a control instant it takes its new message "
    "and position, runs carry on what the last exchange brought, and acts on the command. If it exchanges several "
    "times in a control period, it runs carry after each of them with the same message and position."
)
_SENT = (
    "layer by layer; in a layer z_0, z_1 .. z_(hops - 1), each as wide as `widths` says; z_0 is the layer's input, z_k "
    "what the robot made of its neighbours' z_(k - 1): their sum weighted by 1 / sqrt(own degree x theirs), which "
    "carry computes; the own degree is the number of rows of `heard`"
)


def describe(
    policy: Learned, weights: Path, world: WorldConfig | None, functions: dict[str, Function], name: str
) -> dict[str, Any]:
    """All but the files' hashes and how exact they are. weights: the file with the policy's own; world: the settings
    of its world; name: the policy's, or its folder."""
    config = policy.config
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "made_by": f"mast-swarm {__version__}",
        "policy": Path(name).name if Path(name).is_dir() else name,
        "kind": config.kind,
        "task": config.task or None,
        "variant": None,
        "weights": {"file": weights.name, "sha256": sha256(weights)},
        "d_msg": config.message_width,
        "outputs": policy.outputs,
        "dtype": "float32",
        "action_scale": config.action_scale,
        "action_scale_is": "applied in the files already",
        "attention_radius_m": config.attention_radius,
        "exploration": None,
        "functions": {key: {"inputs": one.inputs, "outputs": one.outputs} for key, one in functions.items()},
        "observation": perceived(config.observation_shape, world),
    }
    if isinstance(policy, Policy):
        manifest |= _mast(policy, world)
    if world is not None:
        manifest["control"] = {
            "dt_s": world.dt,
            "max_speed_m_s": world.max_speed,
            "is": "seconds between two decisions; a command of length 1 is this speed",
        }
    if "carry" in functions:
        manifest["exchange"] = _exchange(functions["carry"].module)
    return json.loads(json.dumps(manifest, default=plain))


def sha256(file: Path) -> str:
    """The hash of what a file holds."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _mast(policy: Policy, world: WorldConfig | None) -> dict[str, Any]:
    config, radius = policy.config, policy.config.attention_radius
    exploration: dict[str, Any] | None = None
    if config.exploration_time is not None:
        exploration = {
            "time_s": config.exploration_time,
            "reach_m": config.exploration_reach,
            "is": "mast_swarm.robot.explore makes a command of a prediction; its landmark is the nearest thing of "
            "interest that the robot senses, relative, metres",
        }
        if config.exploration_memory:
            exploration["memory"] = {
                "places": config.exploration_memory,
                "spread_m": config.exploration_spread,
                "push": config.exploration_push,
                "is": "the robot turns away from the last places where it was, one every 10 s: explore.Trail",
            }
        if config.exploration_survey is not None:
            exploration["survey"] = _survey(config.exploration_survey, world)
    return {
        "variant": config.variant,
        "encoding": config.encoding,
        "receptive_field_m": None if radius is None else radius * config.layers,
        "receptive_field_is": "news of robots farther than this changes nothing and may be left out; null: all counts",
        "exploration": exploration,
    }


def _survey(cell: float, world: WorldConfig | None) -> dict[str, Any]:
    """The map of where robots have looked."""
    if world is None:
        raise MastError(
            "the policy has a map of where robots have looked (exploration_survey), of the square of its world, and "
            "names no task whose world that is: give --task"
        )
    return {
        "cell_m": cell,
        "side_m": world.side,
        "is": "a robot that is left idle searches by a map with cells of this size, which neighbours hand each other: "
        "mast_swarm.robot.survey; side: of the square that the team works in, whose middle is the origin",
    }


def perceived(shape: tuple[int, ...], world: WorldConfig | None) -> dict[str, Any]:
    """What perceive reads, features of this shape: their parts in their order."""
    images, parts = len(shape) == 3, [] if world is None else [asdict(part) for part in world.sensed()]
    parts = parts[: shape[0]] if images else parts  # a policy may take the first maps alone
    first = 0
    for part in parts:
        part["first"] = first
        first += 1 if images else math.prod(part["shape"])
    named = bool(parts) and first == shape[0]
    return {
        "shape": shape,
        "dtype": "float32",
        "features": parts if named else [],
        "features_are": _FEATURES if named else "not named by the task",
        "world": None if world is None else asdict(world),
        "world_is": "the settings that the scales hold for: those of the policy's run, or else the task's own",
    }


def _exchange(carry: Any) -> dict[str, Any]:
    """What LPAC's robots send each other."""
    assert isinstance(carry, Carry)
    return {
        "floats": carry.size,
        "hops": carry.policy.config.hops,
        "widths": carry.widths,
        "is": _EXCHANGE,
        "order_of_sent": _SENT,
    }
