"""How robots and goals start (SPEC 4). A scenario is one function: (seed, config, argument) -> robots, goals.

Every start state comes from its own seed alone, drawn on the CPU in float64 and rounded to float32 once, so that it
is the same in any batch and on any device.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.spatial import cKDTree

from mast_swarm.errors import MastError
from mast_swarm.tasks.base import Starts
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.tasks.navigation.files import read_starts
from mast_swarm.tasks.navigation.text import letters

Points = np.ndarray  # [n, 2] float32, metres

_ROUNDS = 2000  # of resampling before a scenario counts as too dense; a feasible one needs a handful


scenario = Starts("scenario", "scenarios")


def sample(name: str, config: NavigationConfig, seed: int) -> tuple[Points, Points]:
    """Robots [N, 2] and goals [M, 2] of one environment, from the seed alone."""
    if seed < 0:
        raise MastError(f"seed is {seed}: give a whole number, 0 or more")
    found, argument = scenario.find(name)
    return found.sampler(seed, config, argument)


@scenario("clusters", usage="clusters-K")
def clusters(seed: int, config: NavigationConfig, argument: str) -> tuple[Points, Points]:
    """Clusters of K robots and K goals; clusters-A-G for robots and goals apart; plain: drawn from 1, 5, 10."""
    rng = np.random.default_rng(seed)
    if argument:
        sizes = [_cluster_size(part, argument, config.agents) for part in argument.split("-")]
        if len(sizes) > 2:
            raise MastError(f"scenario 'clusters-{argument}': give one size, or two (robots-goals)")
        robot_size, goal_size = sizes[0], sizes[-1]
    else:
        choices = [size for size in (1, 5, 10) if size <= config.agents]
        robot_size, goal_size = rng.choice(choices), rng.choice(choices)
    return _clustered(rng, config, int(robot_size)), _clustered(rng, config, int(goal_size))


@scenario("circle")
def circle(seed: int, config: NavigationConfig, argument: str) -> tuple[Points, Points]:
    """Robots in a ring around the centre, goals anywhere."""
    rng = np.random.default_rng(seed)
    inner, outer = 3 * config.side / 16, 5 * config.side / 16

    def ring(chosen: np.ndarray) -> Points:
        return _polar(rng, chosen.size, inner, outer)

    return _separated(ring, config.agents, config.separation, config), _uniform(rng, config)


@scenario("two-lines")
def two_lines(seed: int, config: NavigationConfig, argument: str) -> tuple[Points, Points]:
    """Robots in a strip on the left, goals in a strip on the right."""
    rng = np.random.default_rng(seed)
    near, far, half = config.side / 4, 3 * config.side / 8, config.side / 2
    return _box(rng, config, (-far, -near), (-half, half)), _box(rng, config, (near, far), (-half, half))


@scenario("text", usage="text:WORD")
def text(seed: int, config: NavigationConfig, argument: str) -> tuple[Points, Points]:
    """Robots anywhere, goals spell a word (ICRA if none is given)."""
    rng = np.random.default_rng(seed)
    return _uniform(rng, config), letters(argument or "ICRA", config.agents, config.side, config.separation, rng)


@scenario("file", usage="file:PATH")
def from_file(seed: int, config: NavigationConfig, argument: str) -> tuple[Points, Points]:
    """Start states from a CSV file: environment,kind,x,y with kind robot or goal; seed s takes environment s mod E."""
    return read_starts(argument, config.agents, seed)


def _cluster_size(part: str, argument: str, agents: int) -> int:
    if not part.isdecimal() or int(part) < 1:
        raise MastError(f"scenario 'clusters-{argument}': '{part}' is not a cluster size, give a whole number from 1")
    if int(part) > agents:
        raise MastError(
            f"scenario 'clusters-{argument}' asks for clusters of {part} but there are {agents} robots: "
            "give a smaller size or more --agents"
        )
    return int(part)


def _uniform(rng: np.random.Generator, config: NavigationConfig) -> Points:
    half = config.side / 2
    return _box(rng, config, (-half, half), (-half, half))


def _box(rng: np.random.Generator, config: NavigationConfig, x: tuple[float, float], y: tuple[float, float]) -> Points:
    def draw(chosen: np.ndarray) -> Points:
        return np.stack([rng.uniform(*x, chosen.size), rng.uniform(*y, chosen.size)], axis=1)

    return _separated(draw, config.agents, config.separation, config)


def _clustered(rng: np.random.Generator, config: NavigationConfig, size: int) -> Points:
    """N/size disks of radius 5 * separation * sqrt(size), none overlapping; the last one may hold fewer."""
    if size == 1:
        return _uniform(rng, config)
    radius, half = 5 * config.separation * math.sqrt(size), config.side / 2

    def draw_centres(chosen: np.ndarray) -> Points:
        return rng.uniform(-half, half, (chosen.size, 2))

    centres = _separated(draw_centres, math.ceil(config.agents / size), 2 * radius, config)

    def draw_members(chosen: np.ndarray) -> Points:
        return centres[chosen // size] + _polar(rng, chosen.size, 0.0, radius)

    return _separated(draw_members, config.agents, config.separation, config)


def _polar(rng: np.random.Generator, count: int, inner: float, outer: float) -> Points:
    """Points uniform in area over a ring around the origin."""
    radius = np.sqrt(rng.uniform(inner**2, outer**2, count))
    angle = rng.uniform(0, 2 * math.pi, count)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def _separated(draw: Callable[[np.ndarray], Points], count: int, gap: float, config: NavigationConfig) -> Points:
    """Draw points until no two are nearer than `gap`: of each pair in conflict the later one is drawn anew."""
    points = draw(np.arange(count)).astype(np.float32)
    for _ in range(_ROUNDS):
        clashes = cKDTree(points).query_pairs(gap, output_type="ndarray") if gap > 0 else np.empty((0, 2), int)
        if not len(clashes):
            return points
        again = np.unique(clashes.max(axis=1))
        points[again] = draw(again).astype(np.float32)
    raise MastError(
        f"scenario '{config.scenario}' is too dense: {count} points at least {gap:g} m apart do not fit in a "
        f"{config.side:g} m square; give a larger --width, fewer --agents or a smaller separation"
    )
