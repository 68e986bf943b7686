"""`mast team`: whom robots trust. Needs no more than robots have, so that keys can be made and looked at there."""

from __future__ import annotations

import argparse
from pathlib import Path

from mast_swarm.errors import plain, unknown

# What the help of `mast team` says of each, and what its own says.
_TEAM = {
    "new": (
        "make a team and its keys",
        "Make the keys of a new team: a folder with team.json for all robots, and keys/robot-N.key for robot N alone.",
    ),
    "add": ("add robots", "Add robots to a team. Every robot then needs the new team.json."),
    "revoke": (
        "take robots out",
        "Take robots out of a team, for good. The others refuse them once they have the new team.json.",
    ),
    "show": ("show who belongs to it", "Show who belongs to a team."),
}


def team_verb(args: list[str]) -> None:
    given = args[0] if args else "--help"
    if given not in _TEAM:
        if given not in ("-h", "--help"):
            raise unknown("team command", given, _TEAM)
        lines = [f"  {name:<10} {summary}" for name, (summary, _) in _TEAM.items()]
        print("\n".join(["usage: mast team WHAT DIR [options]", "", "WHAT is one of", *lines]))
        return
    config = _parser(given).parse_args(args[1:])
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


def _parser(given: str) -> argparse.ArgumentParser:
    parser = plain(argparse.ArgumentParser(prog=f"mast team {given}", description=_TEAM[given][1]))
    folder = "the team's folder; it is made" if given == "new" else "the team's folder, or its team.json"
    parser.add_argument("folder", metavar="DIR", type=Path, help=folder)
    if given == "new":
        parser.add_argument("--robots", type=int, default=8, metavar="INT", help="how many robots (8)")
    elif given == "add":
        parser.add_argument("--robots", type=int, default=1, metavar="INT", help="how many more (1)")
    elif given == "revoke":
        parser.add_argument("robots", type=int, nargs="+", metavar="NUMBER", help="their numbers")
    return parser
