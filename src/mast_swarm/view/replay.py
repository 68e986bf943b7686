"""The HTML replay: one self-contained file that plays recordings side by side in a browser, with no network.

The page (page/*) is put together here with the data, which is JSON: facts as plain values, and every array packed
(packing.py). What a recording becomes there is up to the view of its task, whose `script` paints it.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from mast_swarm.errors import MastError
from mast_swarm.evaluate.recording import Recording
from mast_swarm.files import whole_file
from mast_swarm.view.choose import view_of
from mast_swarm.view.style import DENSITY, SCENE, policy_colour


def write_replay(path: Path | str, recordings: Recording | Sequence[Recording], title: str = "MAST replay") -> Path:
    """Write the replay of one or more recordings of one task to `path` (what was there is replaced); the path again."""
    if not isinstance(path, str | Path):
        raise MastError(
            "write_replay takes the file first, then the recordings: write_replay('replay.html', recordings)"
        )
    recordings = [recordings] if isinstance(recordings, Recording) else recordings
    if not recordings:
        raise MastError("a replay needs at least one recording, none was given")
    view = view_of(recordings)
    data = {
        "palette": [policy_colour(number) for number in range(len(recordings))],
        "recordings": [view.embedded(recording) for recording in recordings],
    }
    text = _page(title, view.script, data)
    with whole_file(Path(path)) as part:
        part.write_text(text, encoding="utf-8")
    return Path(path)


def _page(title: str, painter: str | Path, data: dict[str, Any]) -> str:
    scripts = (
        "data.js",
        "curve.js",
        "team.js",
        painter,
        "swarm.js",
        "knowledge.js",
        "replay.js",
    )  # as they build on each other

    def part(name: str | Path) -> str:
        """A file of the page, one of another package as "package:file", or one at a path."""
        if isinstance(name, Path):
            return name.read_text(encoding="utf-8")
        package, found, file = name.rpartition(":")
        return resources.files(package if found else "mast_swarm.view.page").joinpath(file).read_text(encoding="utf-8")

    # "<" written as an escape keeps any text in the data from closing the script element.
    values = {
        "title": html.escape(title),
        "style": _filled(part("replay.css"), SCENE | DENSITY),
        "script": "\n".join(part(name) for name in scripts),
        "data": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    return _filled(part("replay.html"), values)


def _filled(template: str, values: dict[str, str]) -> str:
    """Every {{name}} replaced in one pass, so that no value is itself searched for names."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], template)
