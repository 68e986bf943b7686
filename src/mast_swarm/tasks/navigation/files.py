"""Start states from a CSV file: a header `environment,kind,x,y`, then a row per robot or goal, in metres from the
middle of the square, x to the right and y up."""

from __future__ import annotations

import csv
from functools import lru_cache

import numpy as np

from mast_swarm.errors import MastError
from mast_swarm.files import readable

_COLUMNS = ["environment", "kind", "x", "y"]
_KINDS = ("robot", "goal")
_FARTHEST = 1e9  # metres from the middle, which single precision still squares


def read_starts(path: str, agents: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Robots [N, 2] and goals [M, 2] of environment number `seed` modulo the file's count."""
    environments = _environments(path)
    robots, goals = environments[seed % len(environments)]
    if len(robots) != agents:
        raise MastError(
            f"{path} has {len(robots)} robots per environment but {agents} were asked: give that number, or none"
        )
    return robots.copy(), goals.copy()


def robots_in(path: str) -> int:
    """How many robots each environment of a file has."""
    return len(_environments(path)[0][0])


def environments_in(path: str) -> int:
    """How many environments a file has."""
    return len(_environments(path))


def _environments(path: str) -> list[tuple[np.ndarray, np.ndarray]]:
    file = readable(path)
    return _read(path, file.stat().st_mtime_ns if file.exists() else 0)


@lru_cache(maxsize=8)
def _read(path: str, modified: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """All environments of a file; read once, and again only when the file changes."""
    begun = 1
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:  # Excel begins it with a mark
            rows = []
            for row in (lines := csv.reader(file, strict=True)):
                rows.append(row)
                begun = lines.line_num + 1  # the next row
    except csv.Error as error:
        raise MastError(f"{path} line {begun}: {error}; look for a quote that is not closed") from None
    except (OSError, UnicodeDecodeError) as error:
        raise MastError(f"cannot read start states from {path}: {error}") from None
    if not rows or [cell.strip() for cell in rows[0]] != _COLUMNS:
        raise MastError(f"{path} line 1: expected the header {','.join(_COLUMNS)}")
    points: dict[str, dict[str, list[tuple[float, float]]]] = {}
    taken: dict[tuple[str, float, float], int] = {}  # line of the robot on a spot
    for number, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        environment, kind, x, y = _row(path, number, row)
        if kind == "robot" and taken.setdefault((environment, x, y), number) != number:
            first_line = taken[environment, x, y]
            raise MastError(
                f"{path} line {number}: a robot on the spot of the one in line {first_line}; move one of them"
            )
        points.setdefault(environment, {k: [] for k in _KINDS})[kind].append((x, y))
    if not points:
        raise MastError(f"{path} has a header but no rows: add a row for each robot and goal")
    first = next(iter(points.values()))
    for name, found in points.items():
        for kind in _KINDS:
            if len(found[kind]) != len(first[kind]) or not found[kind]:
                raise MastError(
                    f"{path}: environment {name} has {len(found[kind])} {kind}s; every environment needs as many "
                    f"as the first ({len(first[kind])}), at least 1"
                )
    return [tuple(np.array(found[kind], dtype=np.float32) for kind in _KINDS) for found in points.values()]  # type: ignore[misc]


def _row(path: str, number: int, row: list[str]) -> tuple[str, str, float, float]:
    """One checked row; the error names its line."""
    if len(row) != len(_COLUMNS):
        raise MastError(f"{path} line {number}: {len(row)} columns, expected {len(_COLUMNS)} ({','.join(_COLUMNS)})")
    environment, kind, *numbers = (cell.strip() for cell in row)
    if kind not in _KINDS:
        raise MastError(f"{path} line {number}: kind is '{kind}', expected robot or goal")
    try:
        x, y = (float(cell) for cell in numbers)
    except ValueError:
        raise MastError(f"{path} line {number}: '{','.join(numbers)}' is not two numbers x,y in metres") from None
    if not (abs(x) <= _FARTHEST and abs(y) <= _FARTHEST):
        raise MastError(f"{path} line {number}: x,y is {x},{y}; give metres, at most {_FARTHEST:g}")
    return environment, kind, x, y
