"""What the modules that fill the docs share: where things are, and tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent


def load(path: str) -> dict[str, Any]:
    return json.loads((ROOT / path).read_text())


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
