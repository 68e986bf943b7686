"""Policies as the page takes them: two ONNX files each, and one list of all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mast_swarm.errors import MastError
from mast_swarm.interop.onnx import LIMIT, packages, policy_folder, write
from mast_swarm.interop.team import exact_halves, team_functions
from mast_swarm.model.policy import Policy, load_learned

SHOWN = ("navigation/mast-m", "navigation/mast-l", "coverage/mast-m")
_ROBOTS = 40  # of the team on which files are compared with torch


def export_policies(
    names: Iterable[str], folder: Path, progress: Callable[[str], None] = lambda line: None
) -> list[dict[str, Any]]:
    """Write the files of policies, each a shipped one as TASK/NAME or a folder; what the page's list says of them."""
    made = []
    for name in names:
        about = _export(name, folder)
        made.append(about)
        progress(f"{folder / about['folder']}: {about['bytes'] / 1e6:.1f} MB, commands differ by {about['parity']:.1e}")
    return made


def _export(name: str, folder: Path) -> dict[str, Any]:
    onnx = packages()
    policy = load_learned(policy_folder(name)).eval().requires_grad_(False)
    if not isinstance(policy, Policy):
        raise MastError(f"{name} is of kind {policy.config.kind}: the playground runs MAST policies")
    config = policy.config
    if config.task not in {shown.split("/")[0] for shown in SHOWN}:
        raise MastError(f"{name} is for the task '{config.task}': the playground has navigation and coverage")
    out = folder / "-".join(Path(name).parts[-2:])
    out.mkdir(parents=True, exist_ok=True)
    for part, function in team_functions(policy).items():
        write(onnx, function, out / f"{part}.onnx")
        exact_halves(onnx, out / f"{part}.onnx")
    found = _difference(policy, out)
    if not found <= LIMIT:
        raise MastError(f"{name}: onnxruntime differs from torch by {found:.1e}, expected at most {LIMIT:g}")
    exploration = {
        "time_s": config.exploration_time,
        "reach_m": config.exploration_reach,
        "memory": config.exploration_memory,
        "spread_m": config.exploration_spread,
        "push": config.exploration_push,
    }
    return {
        "name": name,
        "folder": out.name,
        "task": config.task,
        "variant": config.variant,
        "layers": config.layers,
        "heads": config.heads,
        "message_width": config.message_width,
        "observation_shape": list(config.observation_shape),
        "outputs": policy.outputs,
        "attention_radius": config.attention_radius,
        "exploration": None if config.exploration_time is None else exploration,
        "parity": found,
        "bytes": sum(file.stat().st_size for file in out.glob("*.onnx")),
    }


@torch.no_grad()
def _difference(policy: Policy, folder: Path) -> float:
    """The largest difference in a prediction from torch, of a team that hears each other without delay."""
    import onnxruntime

    rng, config = torch.Generator().manual_seed(0), policy.config
    radius = config.attention_radius or float("inf")
    features = torch.randn(_ROBOTS, *config.observation_shape, generator=rng)
    positions = (torch.rand(_ROBOTS, 2, generator=rng, dtype=torch.float64) - 0.5) * 3 * min(radius, config.wavelength)
    every, one = np.arange(_ROBOTS), np.zeros(_ROBOTS, np.int64)
    run = {part: onnxruntime.InferenceSession(folder / f"{part}.onnx") for part in ("perceive", "team")}
    message = run["perceive"].run(["message"], {"features": features.numpy()})[0]
    given = {
        "messages": message,
        "positions": positions.numpy(),
        **dict.fromkeys(("entry", "merged", "number"), every[None]),
        **dict.fromkeys(("first_view", "view"), one),
        **dict.fromkeys(("first_column", "column"), every),
        "allowed": (torch.cdist(positions, positions) < radius).numpy()[None],
        "rows": np.full(config.layers, _ROBOTS),
        "widths": np.full(config.layers + 1, _ROBOTS),
    }
    read = [one.name for one in run["team"].get_inputs()]  # few layers do not need all lists
    found = run["team"].run(["prediction"], {name: given[name] for name in read})[0]
    expected = policy.decide(policy.perceive(features[None]), positions[None], path="dense")[0]
    return float(np.abs(found - expected.numpy()).max() / config.action_scale)


def write_index(folder: Path, policies: list[dict[str, Any]]) -> None:
    """The list of what is in the folder."""
    from mast_swarm.play.config import INDEX

    (folder / INDEX).write_text(json.dumps(policies, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":  # python -m mast_swarm.play.policies FOLDER: what `make web` runs
    import sys

    target = Path(sys.argv[1])
    write_index(target, export_policies(SHOWN, target, print))
