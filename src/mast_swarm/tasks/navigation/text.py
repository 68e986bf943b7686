"""Goals that spell a word: an even lattice of points inside the letters' outlines, for any word and any N."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

import numpy as np
from scipy import ndimage
from scipy.spatial import cKDTree

from mast_swarm.errors import MastError

_SPREAD = 0.8  # of the square's side that the word may fill
_PIXELS = 256  # height of the rendered letters


def letters(word: str, count: int, side: float, separation: float, rng: np.random.Generator) -> np.ndarray:
    """Goals [count, 2] metres that spell `word`, centred in a square of this side, at least `separation` apart."""
    ink = _render(word)
    rows, columns = ink.shape
    scale = _SPREAD * side / max(rows, columns)  # metres a pixel
    offset = rng.uniform(0, 1, 2)  # where the lattice starts: this is what the seed decides
    coarse, fine = math.sqrt(ink.sum() / count) * 3, 1e-3
    for _ in range(40):  # the widest lattice that still has `count` points inside the letters
        pitch = (coarse + fine) / 2
        coarse, fine = (coarse, pitch) if len(_lattice(ink, pitch, offset)) >= count else (pitch, fine)
    points = _lattice(ink, fine, offset)
    points = points[np.sort(rng.choice(len(points), count, replace=False))]
    metres = (points - [columns / 2, rows / 2]) * [scale, -scale]
    if count > 1:
        gap = float(cKDTree(metres).query(metres, k=2)[0][:, 1].min())
        if gap < separation:
            raise MastError(
                f"text '{word}' with {count} goals is too dense: neighbours {gap:.1f} m apart, at least "
                f"{separation:g} m needed; give a longer word, fewer --agents or a larger --width"
            )
    return metres.astype(np.float32)


def _lattice(ink: np.ndarray, pitch: float, offset: np.ndarray) -> np.ndarray:
    """Points (x, y) in pixels of a hexagonal lattice that fall on ink. [n, 2]"""
    rise = pitch * math.sqrt(3) / 2
    y = np.arange(offset[1] * rise, ink.shape[0], rise)
    x = np.arange(-pitch, ink.shape[1], pitch)
    grid_x = x[None, :] + (offset[0] + (np.arange(len(y)) % 2) / 2)[:, None] * pitch
    grid_y = np.broadcast_to(y[:, None], grid_x.shape)
    inside = (grid_x >= 0) & (grid_x < ink.shape[1])
    points = np.stack([grid_x[inside], grid_y[inside]], axis=1)
    return points[ink[points[:, 1].astype(int), points[:, 0].astype(int)]]


@lru_cache(maxsize=16)
def _render(word: str) -> np.ndarray:
    """The word as a boolean picture, cropped to its ink, in the bold font that matplotlib ships."""
    import matplotlib
    from matplotlib.ft2font import FT2Font
    from PIL import Image, ImageDraw, ImageFont

    path = str(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans-Bold.ttf")
    missing = [letter for letter in word if not FT2Font(path).get_char_index(ord(letter))]
    if missing:
        raise MastError(f"text '{word}': no outline for {' '.join(missing)}; use letters of another script")
    font = ImageFont.truetype(path, _PIXELS)
    left, top, right, bottom = (int(v) for v in font.getbbox(word))
    if not word.strip() or right <= left or bottom <= top:
        raise MastError(f"text '{word}' has nothing to spell: give a word with visible letters, as in text:ICRA")
    picture = Image.new("1", (right - left + 2, bottom - top + 2))
    ImageDraw.Draw(picture).text((1 - left, 1 - top), word, fill=1, font=font)
    ink = np.asarray(picture)
    found = ndimage.find_objects(ink.astype(np.uint8))
    if not found:
        raise MastError(f"text '{word}' has nothing to spell: give a word with visible letters, as in text:ICRA")
    return ink[found[0]]
