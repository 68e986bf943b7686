"""Files that are either there in full or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mast_swarm.errors import MastError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Gives a temporary path beside `path` (same ending), which takes its place when the block ends well."""
    path = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    except OSError as error:
        raise MastError(f"cannot write {path}: {error.strerror}; choose a folder that exists and is yours") from None
    os.close(handle)
    part = Path(name)
    try:
        yield part
        # mkstemp keeps the file to its owner; give it the rights that any new file would have had.
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)
        part.replace(path)
    except OSError as error:
        raise MastError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file whole or not at all."""
    with whole_file(path) as part:
        part.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")
