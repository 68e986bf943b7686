"""`mast export`: what robots carry."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mast_swarm.cli.reading import UNSET, parse


@dataclass(frozen=True)
class ExportConfig:
    """Write what one robot computes as ONNX files that need no torch, with a manifest. Fails if they differ."""

    policy: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="POLICY")]]
    """A shipped policy as TASK/NAME, or a folder."""
    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="DIR")]]
    """A new or empty folder for the files."""
    precision: Literal["fp32", "fp16", "int8"] = "fp32"
    """fp16: weights in half the space; int8: products in 8 bits but in perceive. The loss is measured and stated."""
    task: Annotated[str | None, tyro.conf.DisallowNone, UNSET] = None
    """path/to/file.py:TASK, where the policy's task is not installed."""


def export_verb(args: list[str]) -> None:
    config = parse(ExportConfig, args, "mast export")
    from mast_swarm.interop.onnx import export

    manifest = export(config.policy, config.folder, precision=config.precision, task=config.task)
    for name, file in manifest["files"].items():
        print(f"{config.folder / name}: {file['bytes'] / 1e6:.2f} MB")
    print(f"{config.folder / 'manifest.json'}: of weights {manifest['weights']['sha256']}")
    told = {"parity": "fp32 in onnxruntime against torch", "loss": f"{config.precision} against torch"}
    for key, what in told.items():
        if key in manifest:
            largest, mean = (manifest[key][f"{which}_command_difference"] for which in ("largest", "mean"))
            print(
                f"{key}: {what}, {manifest[key]['states']} states: commands differ by {largest:.1e} at most and by "
                f"{mean:.1e} on average, in units of the longest one"
            )
