"""A body behind a thread of its own, so that one that hangs cannot keep its robot from stopping. Needs no torch."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from mast_swarm.errors import MastError
from mast_swarm.robot.body import Body, Sensed

_STOPPING = 0.5  # seconds that a body has to take the last command, and to close
_SLICE = 0.05  # seconds that a wait lasts before it is looked whether to go on waiting


class BodyError(MastError):
    """The body cannot be relied on."""


class Guard:
    """Asks a body, always from the same thread, and waits no longer than `patience` seconds for its answer."""

    def __init__(self, body: Body, patience: float) -> None:
        for method in ("sense", "command"):
            if not callable(getattr(body, method, None)):
                raise MastError(f"the body {type(body).__name__} has no method {method}: see docs/robots.md")
        self.body, self.patience = body, patience
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._hangs = False
        threading.Thread(target=self._work, name="body", daemon=True).start()

    def sense(self) -> Sensed | None:
        """What the body senses, checked: finite numbers."""
        sensed = self._ask("sense", self.body.sense)
        if sensed is None:
            return None
        try:
            parts: dict[str, np.ndarray] = {
                "position": np.asarray(sensed.position, np.float64),
                "features": np.asarray(sensed.features, np.float32),
                "landmark": np.asarray(sensed.landmark, np.float64),
            }
            if sensed.robots is not None:
                parts["robots"] = np.asarray(sensed.robots, np.float64).reshape(-1, 2)
            sights = None if sensed.sights is None else np.asarray(sensed.sights, np.float64)
            reach = float(sensed.reach)
        except (AttributeError, TypeError, ValueError) as error:
            raise BodyError(f"its body senses what is no Sensed: {error}") from None
        for name, value in parts.items():
            if name in ("position", "landmark") and value.shape != (2,):
                raise BodyError(f"its body gives a {name} of shape {list(value.shape)}: expected [2] metres")
            if not np.isfinite(value).all():
                raise BodyError(f"its body gives {name} with NaN or infinity")
        _check_sights(sights, reach)
        heard_by = None if sensed.neighbours is None else tuple(int(one) for one in sensed.neighbours)
        robots = parts.get("robots")
        return Sensed(parts["position"], parts["features"], parts["landmark"], heard_by, robots, sights, reach)

    def command(self, velocity: np.ndarray) -> None:
        """Go at this velocity, [2] m/s."""
        self._ask("command", lambda: self.body.command(velocity))

    def waits_for(self) -> str:
        """What the body says that it waits for while it senses nothing; empty if it does not say so."""
        return str(self._ask("waits_for", getattr(self.body, "waits_for", lambda: "")))

    def hurry(self) -> None:
        """Wait only shortly for answers from now on: the robot is to stop."""
        self.patience = min(self.patience, _STOPPING)

    def stop(self) -> bool:
        """Zero velocity, and close the body if it can be closed; whether it took the zero velocity. Never raises."""

        def last() -> None:
            self.body.command(np.zeros(2))
            taken.set()
            getattr(self.body, "close", lambda: None)()

        taken = threading.Event()
        job = _Job(last)
        if self._hangs:  # its thread is busy for good: another one may get through
            threading.Thread(target=job.run, daemon=True).start()
        else:
            self._jobs.put(job)
            self._jobs.put(None)
        job.done.wait(_STOPPING)
        return taken.is_set()

    def _ask(self, name: str, call: Callable[[], Any]) -> Any:
        job = _Job(call)
        self._jobs.put(job)
        asked = time.monotonic()
        while not job.done.wait(_SLICE):
            if time.monotonic() - asked > self.patience:
                self._hangs = True
                raise BodyError(f"its body has not answered `{name}` for {self.patience:g} s")
        if job.error is not None:
            kind = "" if isinstance(job.error, MastError) else f"{type(job.error).__name__}: "
            raise BodyError(f"its body fails in `{name}`: {kind}{job.error}")
        return job.found

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()


def _check_sights(sights: np.ndarray | None, reach: float) -> None:
    """Raise an error unless things of interest are [K, 2] metres, K of 1 or more; they may be infinitely far."""
    if sights is not None and (sights.ndim != 2 or sights.shape[1] != 2 or not len(sights)):
        raise BodyError(f"its body gives sights of shape {list(sights.shape)}: expected [1 or more, 2] metres")
    if sights is not None and np.isnan(sights).any():
        raise BodyError("its body gives sights with NaN")
    if not reach > 0:
        raise BodyError(f"its body gives a reach of {reach} m: expected a positive number")


class _Job:
    def __init__(self, call: Callable[[], Any]) -> None:
        self.call, self.done = call, threading.Event()
        self.found: Any = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.found = self.call()
        except Exception as error:  # whatever a user's body raises
            self.error = error
        self.done.set()
