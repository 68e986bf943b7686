"""`mast play`: the playground."""

from __future__ import annotations


def play_verb(args: list[str]) -> None:
    from mast_swarm.cli.reading import parse
    from mast_swarm.play.config import PlayConfig

    config = parse(PlayConfig, args, "mast play")
    from mast_swarm.play.run import play

    play(config)
