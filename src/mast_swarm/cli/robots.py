"""`mast export` and `team`: what robots carry, and whom they trust."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from mast_swarm.cli.reading import UNSET, parse
from mast_swarm.errors import unknown


@dataclass(frozen=True)
class ExportConfig:
    """Write what one robot computes as ONNX files that need no torch, with a manifest. Fails if they differ."""

    policy: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="POLICY")]]
    """A shipped policy as TASK/NAME, or a folder."""
    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="DIR")]]
    """A new or empty folder for the files."""
    precision: Literal["fp32", "fp16", "int8"] = "fp32"
    """fp16: weights in half the space; int8: products in 8 bits but in perceive. The loss is measured and stated."""
    task: Annotated[str | None, tyro.conf.DisallowNone, UNSET] = None
    """path/to/file.py:TASK, where the policy's task is not installed."""


def export_verb(args: list[str]) -> None:
    config = parse(ExportConfig, args, "mast export")
    from mast_swarm.interop.onnx import export

    manifest = export(config.policy, config.folder, precision=config.precision, task=config.task)
    for name, file in manifest["files"].items():
        print(f"{config.folder / name}: {file['bytes'] / 1e6:.2f} MB")
    print(f"{config.folder / 'manifest.json'}: of weights {manifest['weights']['sha256']}")
    told = {"parity": "fp32 in onnxruntime against torch", "loss": f"{config.precision} against torch"}
    for key, what in told.items():
        if key in manifest:
            largest, mean = (manifest[key][f"{which}_command_difference"] for which in ("largest", "mean"))
            print(
                f"{key}: {what}, {manifest[key]['states']} states: commands differ by {largest:.1e} at most and by "
                f"{mean:.1e} on average, in units of the longest one"
            )


@dataclass(frozen=True)
class NewTeamConfig:
    """Make the keys of a new team: a folder with team.json for all robots, and keys/robot-N.key for robot N alone."""

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="DIR")]]
    """The team's folder; it is made."""
    robots: int = 8
    """How many robots."""


@dataclass(frozen=True)
class AddRobotsConfig:
    """Add robots to a team. Every robot then needs the new team.json."""

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="DIR")]]
    """The team's folder."""
    robots: int = 1
    """How many more."""


@dataclass(frozen=True)
class RevokeConfig:
    """Take robots out of a team, for good. The others refuse them once they have the new team.json."""

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="DIR")]]
    """The team's folder."""
    robots: tyro.conf.Positional[Annotated[tuple[int, ...], tyro.conf.arg(metavar="NUMBER")]]
    """Their numbers."""


@dataclass(frozen=True)
class ShowTeamConfig:
    """Show who belongs to a team."""

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="DIR")]]
    """The team's folder, or its team.json."""


_TEAM: dict[str, tuple[type[Any], str]] = {
    "new": (NewTeamConfig, "make a team and its keys"),
    "add": (AddRobotsConfig, "add robots"),
    "revoke": (RevokeConfig, "take robots out"),
    "show": (ShowTeamConfig, "show who belongs to it"),
}


def team_verb(args: list[str]) -> None:
    given = args[0] if args else "--help"
    if given not in _TEAM:
        if given not in ("-h", "--help"):
            raise unknown("team command", given, _TEAM)
        lines = [f"  {name:<10} {summary}" for name, (_, summary) in _TEAM.items()]
        print("\n".join(["usage: mast team WHAT DIR [options]", "", "WHAT is one of", *lines]))
        return
    config = parse(_TEAM[given][0], args[1:], f"mast team {given}")
    from mast_swarm.robot import trust

    if given == "show":
        team = trust.Team.load(config.folder)
    elif given == "revoke":
        team = trust.revoke(config.folder, config.robots)
    else:
        before = set() if given == "new" else set(trust.Team.load(config.folder).robots)
        team = (trust.new_team if given == "new" else trust.add_robots)(config.folder, config.robots)
        made = sorted(set(team.robots) - before)
        print(f"new: {', '.join(map(str, made))}; last key: {trust.key_file(trust.folder_of(config.folder), made[-1])}")
    print(f"team {team.identity.hex()}: {len(team.robots)} robots, {len(team.revoked)} revoked, made {team.created}")
    if given == "show":
        for number, key in sorted(team.robots.items()):
            print(f"  {number:>5}  {key.hex()}{'  revoked' if number in team.revoked else ''}")
    else:
        print(f"give {trust.TEAM_FILE} to every robot, and each key to its robot alone")
