"""The command `mast`: one sub-command per verb. Nothing heavy is imported until a verb runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from mast_swarm.cli.verbs import TOPICS, VERBS
from mast_swarm.errors import MastError, lacking, terminable, told_by, unknown


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point. Bad input: one line on stderr and status 2; Ctrl-C: status 130, SIGTERM: 143."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        if not args or args[0] in ("-h", "--help"):
            print(_help())
        elif args[0] == "--version":
            from mast_swarm import __version__

            print(f"mast {__version__}")
        else:
            with terminable():  # some verbs have a way of their own
                run(args)
    except MastError as error:
        print(f"mast: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except (MemoryError, RuntimeError) as error:
        signs = ("can't allocate memory", "out of memory")  # as torch says it, of a CPU's and of a GPU's
        if isinstance(error, RuntimeError) and not any(text in str(error) for text in signs):
            raise
        print("mast: out of memory: give a smaller world, fewer --agents or a smaller --batch", file=sys.stderr)
        raise SystemExit(2) from None
    except BrokenPipeError:  # the reader of our output left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except KeyboardInterrupt as stopped:
        print(f"mast: {str(stopped) or 'interrupted; what was finished is kept'}", file=sys.stderr)
        raise SystemExit(128 + told_by(stopped)) from None


def run(args: Sequence[str]) -> None:
    """Run a command; whatever it raises is left to the caller."""
    if args[0] not in VERBS:
        raise unknown("command", args[0], VERBS)
    module, function = VERBS[args[0]][0].split(":")
    try:
        getattr(import_module(f"{__name__}.{module}"), function)(list(args[1:]))
    except ModuleNotFoundError as error:
        line = lacking(f"mast {args[0]}", error)
        if line is None:
            raise
        raise MastError(line) from None


def _help() -> str:
    width = max(map(len, VERBS))
    lines = ["usage: mast COMMAND [options]", "", "MAST: a team of robots that act together with nobody in charge."]
    for topic, rows in TOPICS.items():
        lines += ["", topic, *(f"  {name:<{width}}  {summary}" for name, (_, summary) in rows.items())]
    lines += ["", "mast COMMAND --help shows a command's options."]
    return "\n".join(lines)
