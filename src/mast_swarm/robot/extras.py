"""Packages of the extra `robot` and its kin, which only those need who run robots over a network."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from mast_swarm.errors import MastError


def needed(module: str, package: str, why: str, extra: str = "robot") -> Any:
    """A module of another package, or one line that says how to get it."""
    try:
        return import_module(module)
    except ImportError:
        raise MastError(f"{why} the package {package}: pip install 'mast-swarm[{extra}]'") from None
