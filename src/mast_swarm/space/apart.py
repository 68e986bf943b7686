"""Nobody is hit: the safety layer. Every robot changes its own step as little as it must, and no two come too near.

The rule for one robot, from the places of the others within `sensing_radius`. Midway between two robots that are d
apart runs a line, and each keeps its centre `distance` / 2 on its own side of it: towards the other it goes
(d - distance) / 2 at most. What the lines of all others leave to a robot is a convex polygon around where it stands.
The step taken is the point of it that is nearest to the step wanted. docs/safety.md proves that robots which are apart
stay apart, between control instants too.

`mast_swarm.robot.apart` is the same for one robot in plain numpy; tests hold the two equal.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.space._checks import check_positions
from mast_swarm.space.neighbours import pairs_within

_TRIED = 1 << 22  # numbers that are worked on at a time


def sensing_radius(distance: float, longest: float) -> float:
    """Metres beyond which another robot does not matter: both go `longest` metres towards each other and are still
    `distance` metres apart."""
    return distance + 2 * longest


def keep_apart(positions: Tensor, steps: Tensor, distance: float, longest: float) -> Tensor:
    """The steps [B, N, 2] metres that robots take in place of those that they want, [B, N, 2] and none longer than
    `longest` metres, so that centres [B, N, 2] metres that are at least `distance` metres apart remain so."""
    check_positions("positions", positions)
    if not (distance > 0 and longest > 0):
        raise MastError(f"a distance of {distance} m and steps of {longest} m: expected positive numbers")
    points, wanted = positions.detach().reshape(-1, 2), steps.reshape(-1, 2)
    reach, epsilon = sensing_radius(distance, longest), torch.finfo(points.dtype).eps
    if not len(points):
        return steps
    source, target = pairs_within(positions.detach(), reach, "auto")  # sorted by target
    way = points[source] - points[target]
    apart = torch.linalg.vector_norm(way, dim=-1)  # [E]
    normal = way / apart.clamp_min(1e-9)[:, None]
    # What is left free for all rounding: that of the sums here, and of the place where the step ends.
    slack = 8 * epsilon * (points.abs().amax(-1) + reach)  # [n]
    limit = (apart - distance) / 2 - slack[target]
    over = ((normal * wanted[target]).sum(-1) > limit) & (wanted != 0).any(-1)[target]  # whoever stands may stand
    rows = target[over].unique()  # the robots that may not do as they want
    if not len(rows):
        return steps
    count = torch.bincount(target, minlength=len(points))
    first, most = count.cumsum(0) - count, int(count[rows].max())
    column = torch.arange(most, device=points.device)
    there = column < count[rows][:, None]  # [m, K]
    place = (first[rows][:, None] + column).where(there, 0)
    normals = torch.where(there[..., None], normal[place], 0.0)
    limits = torch.where(there, limit[place], 1.0)  # where there is no other: a line that every point obeys
    taken = wanted.clone()
    for part in torch.arange(len(rows), device=rows.device).split(max(1, _TRIED // max(1, most**2))):
        chosen = rows[part]
        taken[chosen] = _nearest_allowed(wanted[chosen], normals[part], limits[part], longest, epsilon * reach)
    return taken.view_as(steps)


def _nearest_allowed(wanted: Tensor, normals: Tensor, limits: Tensor, longest: float, rounding: float) -> Tensor:
    """The point nearest to `wanted` [m, 2] of all x with normals . x <= limits, if it is not longer than `longest`;
    else 0.

    normals [m, K, 2], limits [m, K] metres. The point of a polygon that is nearest to one outside lies on one of its
    sides: on each line the nearest point of what the others leave of it is tried. rounding: by how much a point on a
    line may seem to lie beyond it, metres.
    """
    along = torch.stack((-normals[..., 1], normals[..., 0]), dim=-1)  # the lines' directions
    cosine = normals @ normals.transpose(1, 2)  # [m, K, K]: of lines i and j
    sine = along @ normals.transpose(1, 2)
    # On line i the point t metres along is allowed by line j where t * sine <= bound.
    bound = limits[:, None] - limits[..., None] * cosine
    cross = sine.abs() > 1e-6  # the others are parallel
    t = bound / sine.where(cross, 1.0)
    lowest = t.where(cross & (sine < 0), -torch.inf).amax(-1)  # [m, K]
    highest = t.where(cross & (sine > 0), torch.inf).amin(-1)
    t = (along * wanted[:, None]).sum(-1).maximum(lowest).minimum(highest)
    tried = limits[..., None] * normals + t[..., None] * along  # [m, K, 2]
    beyond = tried @ normals.transpose(1, 2) - limits[:, None]  # [m, K, K]
    allowed = (beyond <= rounding).all(-1) & (torch.linalg.vector_norm(tried, dim=-1) <= longest + rounding)
    cost = (tried - wanted[:, None]).square().sum(-1).where(allowed, torch.inf)
    least, best = cost.min(-1)
    found = tried.gather(1, best[:, None, None].expand(-1, 1, 2))[:, 0]
    return torch.where(least.isfinite()[:, None], found, 0.0)
