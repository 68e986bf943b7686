"""The one error that users see: what was given, what was expected, what to do, in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class Terminated(KeyboardInterrupt):
    """SIGTERM: handled as Ctrl-C is."""


class MastError(ValueError):
    """Bad input. The command line prints the message alone and exits with status 2."""


class MastWarning(UserWarning):
    """Something runs, but not as its user may expect."""


def unknown(kind: str, given: str, valid: Iterable[str]) -> MastError:
    """The error for a name that is not registered: names the nearest valid ones."""
    names = sorted(valid)
    near = difflib.get_close_matches(given, names, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}"
    hint = hint if names else "none is known"
    return MastError(f"unknown {kind} '{given}': {hint}")
