"""Importance densities: Gaussian features, features at given points, rasters (SPEC 5). All are [S, S] float32 indexed
[y, x], y up, with maximum 1; cell (y, x) has its centre at ((x + 0.5), (y + 0.5)) * resolution.

A density is one function: (seed, config, argument) -> [S, S]. It comes from its seed alone.
"""

from __future__ import annotations

from functools import lru_cache
from tokenize import TokenError
from typing import BinaryIO

import numpy as np

from mast_swarm.errors import MastError, unknown
from mast_swarm.files import readable
from mast_swarm.tasks.base import Starts
from mast_swarm.tasks.coverage.config import CoverageConfig
from mast_swarm.tasks.coverage.points import read_points

_NPY, _PNG = b"\x93NUMPY", b"\x89PNG\r\n"  # what files begin with, whatever they are called
_OTHERS = {
    b"PK": "an archive (NPZ or another ZIP)",
    b"II*\0": "a TIFF picture",
    b"MM\0*": "a TIFF picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"BM": "a BMP picture",
    b"RIFF": "a WebP picture",
}


density = Starts("density", "densities")


def sample(name: str, config: CoverageConfig, seed: int) -> np.ndarray:
    """The density [S, S] of one environment, from the seed alone: 'gaussians', 'points:city.geojson', ..."""
    found, argument = density.find(name)
    if not argument and found.usage != found.name:
        raise unknown("density", name, [start.usage for start in density])
    return found.sampler(seed, config, argument)


@density("gaussians")
def gaussians(seed: int, config: CoverageConfig, argument: str) -> np.ndarray:
    """Gaussian features, uniform in the world."""
    rng = _chance(seed)
    means = rng.uniform(0, config.side, (config.features, 2))
    return _features(rng, means, config)


@density("points", usage="points:FILE")
def points(seed: int, config: CoverageConfig, argument: str) -> np.ndarray:
    """A Gaussian feature at every point of a file: CSV, GeoJSON or Overpass JSON."""
    return _features(_chance(seed), read_points(argument, config.side, config.window, config.tag), config)


@density("raster", usage="raster:FILE")
def raster(seed: int, config: CoverageConfig, argument: str) -> np.ndarray:
    """A picture (PNG, north up) or an array (NPY, [y, x]) with one pixel per cell.

    Colours count by how bright they are; transparency does not count.
    """
    path = readable(argument)
    return _read_raster(argument, path.stat().st_mtime_ns if path.exists() else 0, config.cells)


def _chance(seed: int) -> np.random.Generator:
    """Numbers for the density, apart from those that place the robots: both keep still when the other changes."""
    return np.random.default_rng([seed, 1])


def _features(rng: np.random.Generator, means: np.ndarray, config: CoverageConfig) -> np.ndarray:
    sigma = rng.uniform(*config.sigma, len(means))
    scale = rng.uniform(*config.scale, len(means))
    return normalised(gaussian_sum(means, sigma, scale, config), "the sum of the features")


def gaussian_sum(means: np.ndarray, sigma: np.ndarray, scale: np.ndarray, config: CoverageConfig) -> np.ndarray:
    """Features add up: [S, S] float64, not normalised. means [F, 2] metres, sigma [F] metres, scale [F]: their mass.

    Each is a circular normal density integrated over every cell whose centre is nearer than truncation * sigma.
    """
    from mast_swarm.tasks.coverage import _cpu as cpu

    total = np.zeros((config.cells, config.cells))
    cpu.add_features(means, sigma, scale, config.truncation, config.resolution, total)
    return total


def normalised(values: np.ndarray, origin: str) -> np.ndarray:
    """A density divided by its maximum, float32. `origin` is what an error calls it."""
    if not np.isfinite(values).all():
        number = int((~np.isfinite(values)).sum())
        raise MastError(f"{origin} is not finite in {number} of {values.size} cells: a density is a number, 0 or more")
    if (values < 0).any():
        raise MastError(f"{origin} has negative cells (least {values.min():g}): a density is 0 or more")
    if not values.max() > 0:
        raise MastError(f"{origin} is zero everywhere: nothing would be worth covering")
    return (values / values.max()).astype(np.float32)


@lru_cache(maxsize=4)
def _read_raster(path: str, modified: int, cells: int) -> np.ndarray:
    try:
        with open(path, "rb") as file:
            begin = file.read(16)
            file.seek(0)
            if begin.startswith(_NPY):
                values = np.lib.format.read_array(file, allow_pickle=False)
            elif begin.startswith(_PNG):
                values = _read_picture(file)
            else:
                raise ValueError(
                    f"it is {_kind(begin)}, expected a PNG picture or an NPY array; save it as PNG, or save its "
                    "numbers with numpy.save"
                )
    except (OSError, ValueError, SyntaxError, TokenError) as error:  # numpy and Pillow meet damage with all of these
        raise MastError(f"cannot read a density from {path}: {error}") from None
    if values.shape != (cells, cells):
        raise MastError(
            f"{path} has shape {list(values.shape)}, expected {[cells, cells]}: one number per cell; set --side and "
            "--resolution to fit it"
        )
    if not (np.issubdtype(values.dtype, np.number) or values.dtype == bool) or np.iscomplexobj(values):
        raise MastError(f"{path} holds {values.dtype}, expected real numbers")
    found = normalised(values.astype(np.float64), path)
    found.flags.writeable = False  # it is shared by every environment that asks for this file
    return found


def _read_picture(file: BinaryIO) -> np.ndarray:
    """Brightness [y, x] of a PNG; grey in 16 bits stays so."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file, formats=["PNG"]) as picture:
            # Row 0 of a picture is its top; row 0 of a density is at y = 0.
            return np.asarray(picture if picture.mode.startswith("I") else picture.convert("L"))[::-1]
    except UnidentifiedImageError:
        raise ValueError("it begins as a PNG picture but is damaged") from None
    except Image.DecompressionBombError as error:
        raise ValueError(error) from None


def _kind(begin: bytes) -> str:
    """What a file is that begins so."""
    if not begin:
        return "an empty file"
    return next((kind for start, kind in _OTHERS.items() if begin.startswith(start)), "a file of another kind")
