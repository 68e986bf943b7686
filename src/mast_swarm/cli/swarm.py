"""`mast robot` and `swarm`: one robot of a team, and a whole team of processes in a simulated world."""

from __future__ import annotations

import warnings
from functools import partial

from mast_swarm.errors import MastError


def robot_verb(args: list[str]) -> None:
    from mast_swarm.robot import command

    with warnings.catch_warnings():
        command.plain_warnings()
        command.run(args)


def swarm_verb(args: list[str]) -> None:
    from mast_swarm.cli.reading import given_in, option, own_names, parse
    from mast_swarm.swarm.config import SwarmConfig, swarm_defaults
    from mast_swarm.tasks import DEFAULT
    from mast_swarm.tasks import registry as tasks

    given = option(args, "--task") or DEFAULT
    if option(args, "--agents") is not None:
        raise MastError("mast swarm has --robots in place of --agents")
    config = parse(SwarmConfig, args, "mast swarm", swarm_defaults(tasks.find(given), given))
    config = config.completed(given_in(args, [*own_names(config.world), "robots"]))
    from rich.console import Console
    from rich.live import Live

    from mast_swarm.swarm.run import swarm
    from mast_swarm.swarm.table import table

    console = Console()
    with Live(console=console, refresh_per_second=4) as live:
        folder, _ = swarm(
            config,
            tell=partial(console.print, soft_wrap=True, markup=False, highlight=False),
            show=lambda log: live.update(table(log)),
        )
    if not console.is_terminal:
        print()  # where the table stands still it ends without one
    for what in ("summary.json", "steps.parquet", "robots.parquet", "replay.html"):
        print(f"{what.partition('.')[0]}: {folder / what}")
