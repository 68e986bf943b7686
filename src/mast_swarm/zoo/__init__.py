"""The trained policies that come with the package and with tasks of other packages, a folder each."""

from __future__ import annotations

from pathlib import Path

CONFIG_FILE = "config.json"  # what makes a folder one of a policy
_FOLDERS: dict[str, Path] = {path.name: path for path in Path(__file__).parent.iterdir() if path.is_dir()}


def add(task: str, folder: Path) -> None:
    """Make the policies in the subfolders of `folder` known as TASK/NAME."""
    _FOLDERS[task] = Path(folder)


def policies() -> dict[str, Path]:
    """Folder of every policy by its name, such as navigation/mast-m; sorted."""
    found = {
        f"{task}/{file.parent.name}": file.parent
        for task, folder in _FOLDERS.items()
        for file in folder.glob(f"*/{CONFIG_FILE}")
    }
    return dict(sorted(found.items()))
