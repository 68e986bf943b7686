"""Settings of the coverage world. No torch here: the command line reads these for its help."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import tyro

from mast_swarm.errors import MastError
from mast_swarm.tasks.base import Feature, WorldConfig


def _place(words: list[str]) -> tuple[float, float]:
    """Latitude and longitude from the command line, as one word with a comma or as two."""
    try:
        latitude, longitude = (float(number) for word in words for number in word.split(",") if number)
    except ValueError:
        raise ValueError(f"'{' '.join(words)}' is not LAT,LON: give two numbers, as 39.95,-75.16") from None
    return latitude, longitude


_PLACE = tyro.constructors.PrimitiveConstructorSpec(
    nargs="*",
    metavar="LAT,LON",
    instance_from_str=_place,
    is_instance=lambda value: value is None or isinstance(value, tuple),
    str_from_instance=lambda place: ["" if place is None else f"{place[0]},{place[1]}"],
)


@dataclass(frozen=True)
class CoverageConfig(WorldConfig):
    """Coverage control: N robots spread over an importance density that they must first discover."""

    trains: ClassVar[tuple[str, ...]] = ("weighted", "mirrored")
    scales: ClassVar[tuple[str, ...]] = ("max_speed", "communication_range", "local_map", "resolution")  # at any dt

    agents: int = 32
    """Number of robots."""
    features: int = 32
    """Number of Gaussian features that add up to the density."""
    density: str = "gaussians"
    """What is important where: gaussians, points:FILE (CSV, GeoJSON or Overpass JSON) or raster:FILE (PNG or NPY).
    Metres count from the lower left corner of the square."""
    window: Annotated[tuple[float, float] | None, _PLACE, tyro.conf.arg(help_behavior_hint="")] = None
    """Latitude and longitude of the middle of the world, for points on the globe; unset: the middle of the points."""
    tag: Annotated[str | None, tyro.conf.DisallowNone, tyro.conf.arg(help_behavior_hint="")] = None
    """Of the places in an Overpass or GeoJSON file those with this tag, as highway=traffic_signals; unset: all."""
    side: float = 1024.0
    """Side of the square world, m."""
    resolution: float = 1.0
    """Side of a map cell, m."""
    sigma: tuple[float, float] = (40.0, 60.0)
    """A feature's standard deviation is drawn from this range, m."""
    scale: tuple[float, float] = (0.6, 1.0)
    """A feature's mass is drawn from this range."""
    truncation: float = 2.0
    """A feature ends this many standard deviations from its centre."""
    dt: float = 0.2
    """Seconds between two control instants."""
    max_speed: float = 5.0
    """Longest velocity command, m/s."""
    communication_range: float = 256.0
    """Two robots hear each other while they are nearer than this, m."""
    sensor: float = 64.0
    """Side of the square that a robot senses around itself, m."""
    local_map: float = 256.0
    """Side of the square around itself of which a robot observes what it has seen, m."""
    pixels: int = 32
    """Side of an observed map in pixels."""
    seen_map: bool = False
    """Whether a robot observes a fifth map too: where in its local map it has looked."""

    def __post_init__(self) -> None:
        for name in ("agents", "features", "pixels"):
            if getattr(self, name) < 1:
                raise MastError(f"{name} is {getattr(self, name)}: give a whole number from 1")
        super().__post_init__()
        self.check_positive("resolution", "communication_range", "sensor", "local_map", "truncation")
        for name in ("sigma", "scale"):
            low, high = getattr(self, name)
            if not (math.isfinite(high) and 0 < low <= high):
                raise MastError(f"{name} is drawn from {low:g}..{high:g}: give two positive numbers, the smaller first")
        for name in ("side", "sensor", "local_map"):
            self._whole(name)
        if self.map_cells < self.pixels:
            raise MastError(
                f"local_map covers {self.map_cells} x {self.map_cells} cells but is observed in {self.pixels} x "
                f"{self.pixels} pixels: "
                "give a larger local_map, a smaller resolution or fewer pixels"
            )
        if self.window is not None and not (abs(self.window[0]) < 90 and abs(self.window[1]) <= 180):
            raise MastError(
                f"window is {self.window[0]:g},{self.window[1]:g}: give latitude (-90..90), longitude (-180..180)"
            )
        if self.window is not None and not self.density.startswith("points:"):
            raise MastError(f"window is for points on the globe: leave it out with the density {self.density}")
        if self.tag is not None and not self.density.startswith("points:"):
            raise MastError(f"tag is for points of a file: leave it out with the density {self.density}")
        if self.density != "gaussians" and self.features != CoverageConfig.features:
            raise MastError(
                f"features is {self.features}, but the density {self.density} has features of its own: "
                f"leave features at {CoverageConfig.features}"
            )

    def _whole(self, name: str) -> int:
        """A length in cells; it must be a whole number of them."""
        length, cells = getattr(self, name), round(getattr(self, name) / self.resolution)
        if cells < 1 or not math.isclose(cells * self.resolution, length, rel_tol=1e-9):
            raise MastError(f"{name} is {length:g} m: give a whole number of cells of {self.resolution:g} m")
        return cells

    @property
    def cells(self) -> int:
        """Cells along a side of the world."""
        return self._whole("side")

    @property
    def sensor_cells(self) -> int:
        """Cells along a side of what a robot senses."""
        return self._whole("sensor")

    @property
    def map_cells(self) -> int:
        """Cells along a side of a local map."""
        return self._whole("local_map")

    @property
    def stated(self) -> tuple[str, ...]:
        """Settings that results state beside every number: a time average means nothing without its dt."""
        return ("scenario", "agents", *["features"] * (self.density == "gaussians"), "side", "dt")

    @property
    def scenario(self) -> str:
        """The density by the name that every task uses for how its environments differ."""
        return self.density

    @property
    def observation_shape(self) -> tuple[int, int, int]:
        """Density, boundary, the neighbours' x and y, and what has been seen if that is shown."""
        return (5 if self.seen_map else 4, self.pixels, self.pixels)

    def sensed(self) -> tuple[Feature, ...]:
        """The observed maps."""
        shape, reach = (self.pixels, self.pixels), self.communication_range
        rows = "rows go along y and columns along x, both from small to large"
        square = (
            f"over a square of {self.local_map:g} m around the robot, cells of {self.resolution:g} m brought to "
            f"{self.pixels} x {self.pixels} pixels by an antialiased bilinear resize; {rows}"
        )
        near = (
            f"drawn over the square of {2 * reach:g} m around the robot: at the pixel of each robot nearer than "
            f"{reach:g} m its {{}} from this robot, adding up, 0 elsewhere; {rows}"
        )
        parts = (
            Feature(
                "density", shape, "", 1.0, f"importance, 1 at the world's maximum, 0 where not sensed yet, {square}"
            ),
            Feature("boundary", shape, "", 1.0, f"1 outside the world, 0 inside, {square}"),
            Feature("neighbours_x", shape, "m", reach, near.format("x")),
            Feature("neighbours_y", shape, "m", reach, near.format("y")),
            Feature("seen", shape, "", 1.0, f"1 where the robot has sensed the density, 0 elsewhere, {square}"),
        )
        return parts[: self.observation_shape[0]]

    @property
    def bytes(self) -> int:
        """Memory of one environment of the world alone, estimated: what it takes to draw its density or to run it,
        whichever is more; both seen in measurements on a CPU and rounded up."""
        drawn, run = 22 * self.cells**2, 10 * self.cells**2  # a map in the making; the density and its running sums
        bits = 8 * self.cells * -(-self.cells // 64)  # what a robot has seen
        pictures = 4 * math.prod(self.observation_shape)
        return max(drawn, run + 2 * self.agents * (bits + pictures))  # those of this instant and of the next

    def shows(self, shape: tuple[int, ...]) -> bool:
        """A policy may also take the first maps alone."""
        maps, *pixels = self.observation_shape
        return len(shape) == 3 and shape[0] <= maps and list(shape[1:]) == pixels

    def fitted(self, shapes: Iterable[tuple[int, ...]]) -> CoverageConfig:
        """The same world, which shows all maps that policies with observations of these shapes take."""
        return replace(self, seen_map=True) if any(len(s) == 3 and s[0] == 5 for s in shapes) else self
