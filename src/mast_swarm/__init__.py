"""MAST: a team of robots that act together with nobody in charge."""

from __future__ import annotations

__version__ = "0.1.0"
