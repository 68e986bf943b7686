"""Recordings as moving pictures: GIF by Pillow, MP4 by PyAV. The policies play side by side, from the same start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mast_swarm.errors import MastError
from mast_swarm.evaluate.recording import Recording
from mast_swarm.files import new_file, whole_file
from mast_swarm.view import scene
from mast_swarm.view.choose import view_of
from mast_swarm.view.plots import frames
from mast_swarm.view.style import INK, style, wrapped

ENDINGS = (".gif", ".mp4", ".png")
_MOST = 120  # pictures of a film: longer episodes are shown in larger steps
_RATE = 12  # pictures per second
_SIDE = 3.2  # inches of one recording
_DOTS = 100  # per inch
_COLOURS = 32  # of a GIF


def film(recordings: Sequence[Recording], path: str | Path) -> Path:
    """Write a film of one episode under one or more policies to a new file, or the row of pictures that is frames.png;
    the ending says which of `ENDINGS`. The path again."""
    path = new_file(path, "film", ENDINGS)
    if not recordings:
        raise MastError("a film needs at least one recording, none was given")
    if path.suffix == ".png":
        return frames(recordings, path)
    write = _gif if path.suffix == ".gif" else _mp4
    with whole_file(path) as part:
        write(_pictures(recordings), part)
    return path


def _pictures(recordings: Sequence[Recording]) -> Iterator[np.ndarray]:
    """The pictures [H, W, 3] uint8 of a film, one after the other; where an episode ends early its last one stays."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    view = view_of(recordings)
    longest = max(scene.duration(recording) for recording in recordings)
    steps = max(len(recording.positions) for recording in recordings)
    times = np.linspace(0, longest, min(_MOST, steps))
    chosen = [[scene.frame_at(one, min(t, scene.duration(one))) for t in times] for one in recordings]
    boxes = np.array([view.box(recording, row) for recording, row in zip(recordings, chosen, strict=True)])
    low, high = boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)  # m
    names = [wrapped(recording.policy) for recording in recordings]
    more = 0.17 * max(name.count("\n") for name in names)  # inches
    height = _SIDE + 0.5 + more
    with style():
        figure = Figure(figsize=(_SIDE * len(recordings), height), dpi=_DOTS)
        canvas = FigureCanvasAgg(figure)
        bottom, top = (0.333 + more) / height, 1 - 0.37 / height
        for number in range(len(times)):
            figure.clear()
            grid = figure.subplots(1, len(recordings), squeeze=False)[0]
            figure.subplots_adjust(left=0.01, right=0.99, bottom=bottom, top=top, wspace=0.04)
            for axes, recording, name, row in zip(grid, recordings, names, chosen, strict=True):
                view.draw(axes, recording, row[number], _SIDE * 72 / float((high - low).max()))
                axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
                axes.text(0.5, -0.03, name, transform=axes.transAxes, ha="center", va="top", color=INK)
            canvas.draw()
            yield np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _gif(pictures: Iterator[np.ndarray], path: Path) -> None:
    from PIL import Image

    shown = list(pictures)
    some = np.concatenate([shown[place] for place in (0, len(shown) // 2, -1)])
    palette = Image.fromarray(some).quantize(_COLOURS)  # one for all, so that what does not move does not flicker
    made = [Image.fromarray(picture).quantize(palette=palette, dither=Image.Dither.NONE) for picture in shown]
    made += [made[-1]] * _RATE  # the end stays for a second
    made[0].save(path, "GIF", save_all=True, append_images=made[1:], duration=1000 // _RATE, loop=0, optimize=True)


def _mp4(pictures: Iterator[np.ndarray], path: Path) -> None:
    try:
        import av
    except ImportError:
        raise MastError("PyAV is not installed: pip install 'mast-swarm[video]', or write a .gif") from None
    with av.open(str(path), "w", format="mp4") as file:
        stream: Any = None
        for picture in pictures:
            height, width = (size - size % 2 for size in picture.shape[:2])  # the format wants even sizes
            if stream is None:
                stream = file.add_stream("libx264", rate=_RATE)
                stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture[:height, :width], format="rgb24")))
        file.mux(stream.encode())
