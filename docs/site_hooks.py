"""What `make docs` adds to mkdocs: the notebook, files of the repository that pages link to, and formulas."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "examples/first_steps.ipynb"
_LINK = re.compile(r"(\]\()(\.\./[^)#\s]+)")  # to a file outside docs/
_LINK_TO_FOLDER = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)#\s.]+\)")
_FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\w\\$`])\$([^$\n`]+?)\$(?![\w$])", re.S)
_CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.S)


def on_files(files: Any, *, config: Any) -> Any:
    """The notebook as a page, with its outputs as they are in the file."""
    text, pictures = [], 0
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        text.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                pictures += 1
                name = f"notebook-{pictures}.png"
                files.append(File.generated(config, name, content=base64.b64decode(data["image/png"])))
                text.append(f"![What the cell above draws]({name})")
            else:
                shown = "".join(output.get("text", data.get("text/plain", "")))
                text.append(f"```text\n{shown.rstrip()}\n```")
    files.append(File.generated(config, "notebook.md", content="\n\n".join(text)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Links to files outside docs/ lead to copies of them in the site; formulas become MathML, which browsers draw."""

    def copied(match: re.Match[str]) -> str:
        path = (ROOT / "docs" / page.file.src_uri).parent / match[2]
        name = "files/" + path.resolve().relative_to(ROOT).as_posix() + ".txt" * (path.suffix == ".md")
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, content=path.read_bytes()))
        return match[1] + "../" * page.file.src_uri.count("/") + name

    markdown = _LINK_TO_FOLDER.sub(r"\1", markdown)  # a site has no page of a folder
    parts = _CODE.split(markdown)  # what stands between code, and code
    return "".join(part if i % 2 else _FORMULA.sub(_drawn, _LINK.sub(copied, part)) for i, part in enumerate(parts))


def _drawn(match: re.Match[str]) -> str:
    whole = match[1] is not None
    formula = convert(match[1] or match[2], display="block" if whole else "inline")
    return f"\n\n<div class='formula'>{formula}</div>\n\n" if whole else formula
