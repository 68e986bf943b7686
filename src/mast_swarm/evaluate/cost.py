"""What a step must cost: its arithmetic, its memory, and how measured times grow with the team."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mast_swarm.comms.decentral import ROWS, Work
from mast_swarm.errors import MastError
from mast_swarm.model.config import PolicyConfig
from mast_swarm.tasks.base import ROBOT_BYTES

LARGE = 10_000  # robots from which a growth counts: below, calls cost more than work
# What lies in memory at the worst moment of a step, each seen in measurements and rounded up.
_ROWS = 20  # rows of d floats of 4 bytes per robot
_WORDS = 6  # whole numbers of 8 bytes per listed neighbour
_DENSE = 24  # bytes per pair of robots: the mask, and the distances that it comes from
# Of robots that decide alone, on either kind of device:
_HELD = {"cpu": 128, "cuda": 40}  # bytes per pair of robots: who holds which stamp of whom, and what passes it on
_LATER = 48  # bytes per pair of robots and layer of the table beyond the first: stamps that wait for their hop
# Where they are lists: bytes per news that a robot holds, before and after a hop, and what passes it on (a GPU's lists
# are all as long as the longest, about twice the mean where robots come in clusters); and bytes of each robot's
# messages that somebody still holds, on a GPU with what the first layer makes of them.
_LISTED = {"cpu": 64, "cuda": 128}
_STORED = {"cpu": 1 << 16, "cuda": 3 << 16}
_VIEWED = {"cpu": 60, "cuda": 20}  # bytes of each of the d numbers of a row that is worked on


def forward_flops(config: PolicyConfig, neighbours: float) -> float:
    """Floating-point operations of one forward pass for one robot that attends to `neighbours`, itself among them.

    A product of a row with a matrix [m, n] is 2 m n. The perception is the one for numbers (mlp).
    """
    layers = [1.0] * config.layers
    return _flops(config, 1.0, layers, layers, layers, [neighbours] * config.layers)


def decided_flops(config: PolicyConfig, robots: int, work: Work) -> float:
    """Floating-point operations of a step in which so many robots each decide alone: what `decentral.count` counts, and
    every robot's perception."""
    return _flops(config, robots, work.queries, [work.messages, *work.rows[:-1]], work.rows, work.pairs)


def _flops(
    config: PolicyConfig,
    perceived: float,
    queries: Sequence[float],
    keys: Sequence[float],
    rows: Sequence[float],
    pairs: Sequence[float],
) -> float:
    """The operations on that many rows: perceived, made queries, and keys and values of, and computed in each layer."""
    d, message = config.width, config.message_width
    perception = math.prod(config.observation_shape) * 2 * d + 2 * d * message
    lift = message * d if message != d else 0
    block = d * d + 2 * d * 2 * d  # output; MLP of hidden width 2 d
    attention = 2 * d  # a score, and a share in the weighted sum of values
    head = d * 2 * d + 2 * d * config.outputs
    blocks = d * d * sum(queries) + 2 * d * d * sum(keys) + block * sum(rows) + attention * sum(pairs)
    return 2.0 * (perceived * perception + keys[0] * lift + blocks + rows[-1] * head)


def alone_rows(config: PolicyConfig, density: float) -> list[float]:
    """How many rows of each layer 1..L a robot computes for itself when it decides alone, at most, at `density` robots
    per square kilometre: those as many windows away as there are layers to come."""
    expected_neighbours(config, density)  # there is a window
    radius = (config.attention_radius or 0.0) / 1000
    return [1 + density * math.pi * (level * radius) ** 2 for level in reversed(range(config.layers))]


def alone_flops(config: PolicyConfig, density: float) -> float:
    """Floating-point operations of one robot's decision alone, at most. What all robots share (perception, and the
    first layer's queries, keys and values of each message) is left out: it is some twentieth."""
    d, rows = config.width, alone_rows(config, density)
    seen = 2 * d * expected_neighbours(config, density)  # scores, and the weighted sum of values
    block, project = d * d + 2 * d * 2 * d, 3 * d * d  # output and MLP; what the next layer takes
    return 2.0 * (sum(rows) * (seen + block) + sum(rows[:-1]) * project + d * 2 * d + 2 * d * config.outputs)


def expected_neighbours(config: PolicyConfig, density: float) -> float:
    """How many a robot attends to on average, itself among them, at `density` robots per square kilometre."""
    if config.attention_radius is None:
        raise MastError("a policy without attention window attends to everyone: set attention_radius")
    return 1 + density * math.pi * (config.attention_radius / 1000) ** 2


def step_bytes(config: PolicyConfig, agents: int, density: float) -> float:
    """Memory of a closed-loop step of one environment, estimated, with attention over neighbour lists."""
    return agents * (ROBOT_BYTES + 4 * _ROWS * config.width + 8 * _WORDS * expected_neighbours(config, density))


def dense_bytes(agents: int) -> float:
    """Memory of a forward pass with a mask of all pairs, estimated."""
    return float(_DENSE * agents**2)


def decentral_bytes(
    config: PolicyConfig, environments: int, agents: int, density: float, device: str, held: float | None = None
) -> float:
    """Memory of a decentralized step, estimated; `device` is cpu or cuda, `held` what the relay takes of it, None for a
    table of one layer.

    What robots compute of those around them is worked on some rows at a time.
    """
    seen = min(agents, density * math.pi * (config.layers * (config.attention_radius or math.inf) / 1000) ** 2)
    rows = min(environments * agents * seen, ROWS[device])
    held = table_bytes(environments, agents, device) if held is None else held
    return environments * step_bytes(config, agents, density) + _VIEWED[device] * config.width * rows + held


def table_bytes(environments: int, agents: int, device: str, layers: int = 1) -> float:
    """Memory of what a relay keeps for every pair of robots, and of what passes it on, estimated."""
    return float((_HELD[device] + _LATER * (layers - 1)) * environments * agents**2)


def list_bytes(environments: int, agents: int, density: float, radius: float, device: str) -> float:
    """Memory of what a relay keeps where robots hold lists of those within a relay radius, metres, estimated."""
    near = min(agents, 1 + density * math.pi * (radius / 1000) ** 2)
    return environments * agents * (_LISTED[device] * near + _STORED[device])


def check_fits(what: str, needed: float, free: float | None, advice: str) -> None:
    """Raise an error if about `needed` bytes are more than the `free` ones (None: not known here)."""
    if free is not None and needed > free:
        raise MastError(f"{what} would take about {gigabytes(needed)}, but {gigabytes(free)} are free here: {advice}")


def gigabytes(size: float) -> str:
    """Bytes as text, in GB of 10^9."""
    return f"{size / 1e9:,.0f} GB" if size >= 1e10 else f"{size / 1e9:.1f} GB"


def growth(sizes: Sequence[int], times: Sequence[float]) -> dict[str, Any] | None:
    """How times [n] grow with ascending sizes [n]: over those of at least 10,000 where there are two, else over the
    upper half; None for one size.

    from and to: the sizes of the first and the last of the `points` times that count. first: the time of that size.
    overhead and each: time = overhead + each * size, by least squares of the relative errors, neither below 0.
    off: by how much this differs from the time that it is farthest from, as a share of that time.
    times_faster_than_n: growth of the time over growth of the size, from the first to the last; 1: proportional.
    """
    large = [n for n, size in enumerate(sizes) if size >= LARGE]
    half = max(0, min(len(sizes) // 2, len(sizes) - 2))
    kept = large if len(large) > 1 else list(range(half, len(sizes)))
    if len(kept) < 2:
        return None
    first, last = kept[0], kept[-1]
    times_size, times_time = sizes[last] / sizes[first], times[last] / times[first]
    overhead, each = _line([sizes[n] for n in kept], [times[n] for n in kept])
    off = max(abs((overhead + each * sizes[n]) / times[n] - 1) for n in kept)
    return {
        "from": sizes[first],
        "to": sizes[last],
        "points": len(kept),
        "first": times[first],
        "overhead": overhead,
        "each": each,
        "off": off,
        "times_time": times_time,
        "times_faster_than_n": times_time / times_size,
    }


def _line(sizes: Sequence[int], times: Sequence[float]) -> tuple[float, float]:
    """overhead and each of `growth`: what makes overhead / time + each * size / time nearest to 1."""
    p, q = [1 / time for time in times], [size / time for size, time in zip(sizes, times, strict=True)]
    pp, qq, pq = (sum(a * b for a, b in zip(*pair, strict=True)) for pair in ((p, p), (q, q), (p, q)))
    overhead = (sum(p) * qq - sum(q) * pq) / (pp * qq - pq * pq)
    each = (sum(q) * pp - sum(p) * pq) / (pp * qq - pq * pq)
    if overhead < 1e-6 * min(times):  # also one of rounding alone
        return 0.0, sum(q) / qq
    return (sum(p) / pp, 0.0) if each < 0 else (overhead, each)
