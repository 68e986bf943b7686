"""What the studies share: what is varied, and policies by one shorter schedule."""

from __future__ import annotations

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.experiment import Size

ENCODINGS = ("rope-g", "rope-l", "ape-g", "ape-l", "mlp")
NAMES = dict(zip(ENCODINGS, ("RoPE-G", "RoPE-L", "APE-G", "APE-L", "MLP-PE"), strict=True))  # as the paper has them
WINDOWS = (250.0, 500.0, 1000.0, None)
SIZES = (100, 200, 300, 500, 700, 1000)
WAVELENGTHS = (250.0, 500.0, 1000.0, 2000.0, 4000.0)
WIDTH = 1000.0  # m, of the training world
SHORT = 40  # epochs of every policy of a study, of the paper's 500

LITTLE = 0.2  # success rate at N = 100: a model that reaches no more has learned almost nothing in these epochs


def short(size: Size, label: str, **policy: object) -> Cell:
    """A policy of a study: the paper's recipe for fewer epochs."""
    every = {"epochs": SHORT, "validate_every": 20}
    return size.trained("navigation", "paper", label, **every, policy=policy)


def window(radius: float | None) -> str:
    return "inf" if radius is None else f"{radius:g}"


def at_size(size: Size, policy: str | Cell, agents: int, label: str = "") -> Cell:
    """Centralized, t = 200 s; fewer start states of larger teams."""
    return size.navigation(policy, agents=agents, steps=200, episodes=54 if agents <= 300 else 18, label=label)


def studied(size: Size, variant: str, encoding: str, radius: float | None) -> Cell:
    """A model of the study of encodings and windows."""
    label = f"{variant}-{encoding}-{window(radius)}"
    return short(size, label, variant=variant, encoding=encoding, attention_radius=radius)
