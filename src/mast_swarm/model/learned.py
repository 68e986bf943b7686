"""What all learned policies share: how they are asked, and the folder that each is saved to."""

from __future__ import annotations

import contextlib
import json
import os
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from mast_swarm.errors import MastError
from mast_swarm.explore import Trail
from mast_swarm.files import readable_as_new
from mast_swarm.kernels import on_gpu
from mast_swarm.model.config import ModelConfig
from mast_swarm.observation import Observed
from mast_swarm.survey import Survey
from mast_swarm.zoo import CONFIG_FILE, WEIGHTS_FILE


class Learned(nn.Module):
    """A learned policy: observations in, velocity commands out, for all robots of all environments at once.

    `policy(**policy.inputs(observation), **policy.surroundings(side))` predicts; `policy.command` makes commands of the
    prediction. Commands are in units of u_max; the world scales one longer than 1 back to length 1. A policy keeps
    nothing between calls: actors in different worlds may share one.

    A policy is in evaluation mode from the start, and whoever trains it switches to training mode for an update's
    forward pass alone. Batch norm in a perception takes its statistics over robots while it trains, which would leak
    information between components; in evaluation mode they are constants, and every robot is treated by itself.
    """

    Config: ClassVar[type[ModelConfig]]
    config: ModelConfig
    perception: nn.Module
    head: nn.Sequential

    @abstractmethod
    def inputs(self, observation: Observed) -> dict[str, Tensor]:
        """What `forward` takes of an observation, by name, each [B, N, ...] or [B, G, ...]."""

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights, and of messages and commands even under autocast."""
        return self.head[0].weight.dtype  # type: ignore[return-value]

    @property
    def outputs(self) -> int:
        """Numbers in a prediction, 2 or 3."""
        return self.config.outputs

    def perceive(self, features: Tensor) -> Tensor:
        """The message of every robot: features [B, N, ...] of any precision -> [B, N, d_msg]."""
        return self.perception(features.to(self.dtype)).to(self.dtype)

    def surroundings(self, side: float) -> dict[str, float]:
        """What `forward` takes of a world `side` metres wide, by name; most policies need not know."""
        return {}

    def trail(self, dt: float) -> Trail | None:
        """A memory of where robots have been, at control instants `dt` seconds apart; None: it needs none."""
        return None

    def survey(self, side: float) -> Survey | None:
        """The maps that robots in a world `side` metres wide share of where they have looked; None: it needs none."""
        return None

    def command(
        self, prediction: Tensor, landmark: Tensor, seeds: Tensor, time: Tensor, away: Tensor | None = None
    ) -> Tensor:
        """Commands [B, N, 2] in units of u_max from predictions [B, N, 2 or 3].

        The rest is for exploration and not read without it: landmark [B, N, 2], the nearest thing of interest that
        each robot senses (relative, metres); seeds [B] int64 and time [B] seconds, which give each robot its heading;
        away [B, N, 2] what pushes it away from where it has been (`Trail.away`), None: it does not remember.
        """
        return prediction

    def save(self, folder: str | Path, *, overwrite: bool = False, half: bool = False) -> None:
        """Write config.json and model.safetensors to `folder`, each whole or not at all.

        half: the parameters in bf16, in half the space; loading gives fp32 again. Statistics stay as they are.

        A folder that holds anything already is refused unless `overwrite`, which replaces these two files in place:
        whoever stops it midway leaves the old policy or the new one.
        """
        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise MastError(f"cannot save a policy to '{folder}': it is a file, expected a folder")
        if folder.exists() and any(folder.iterdir()) and not overwrite:
            raise MastError(f"cannot save a policy to '{folder}': it is not empty; choose another")
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        parts = {name: folder / f"{name}.writing" for name in (CONFIG_FILE, WEIGHTS_FILE)}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            parts[CONFIG_FILE].write_text(json.dumps(self.config.to_dict(), indent=2) + "\n")
            weights = {name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()}
            if half:
                weights |= {name: weights[name].bfloat16() for name, _ in self.named_parameters()}
            save_file(weights, parts[WEIGHTS_FILE])
            readable_as_new(parts[WEIGHTS_FILE])
            for name, part in parts.items():
                os.replace(part, folder / name)
        except (OSError, SafetensorError) as error:
            for part in parts.values():
                with contextlib.suppress(OSError):
                    part.unlink(missing_ok=True)
            for path in made:  # empty ones only
                with contextlib.suppress(OSError):
                    path.rmdir()
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise MastError(f"cannot save a policy to '{folder}': {reason}") from None


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Random numbers on the CPU come from `seed`; the CPU's random state is put back after, and no other is touched."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would reseed every GPU too
        yield


def check_positions(positions: Tensor) -> None:
    """Raise an error unless positions have shape [B, N, 2]."""
    if positions.ndim != 3 or positions.shape[-1] != 2:
        raise MastError(f"positions have shape {tuple(positions.shape)}: expected [B, N, 2] metres")


def check_message(message: Tensor, positions: Tensor, width: int) -> None:
    """Raise an error unless every robot has a message of `width` floats."""
    expected = (*positions.shape[:2], width)
    if message.shape != expected:
        raise MastError(f"messages have shape {tuple(message.shape)}: expected {expected}")


def check_finite(**given: Tensor | None) -> None:
    """Raise an error that names the first of the given tensors that holds NaN or infinity.

    Values are read on the CPU only: on a GPU the question alone would stall the queue.
    """
    for name, value in given.items():
        if value is None or value.device.type != "cpu" or on_gpu(value) or torch.compiler.is_compiling():
            continue
        if not torch.isfinite(value).all():
            raise MastError(f"{name} hold NaN or infinity: expected finite numbers")
