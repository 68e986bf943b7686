"""Cards: what a shipped policy is said to reach, and the runs that check it.

A card is a Markdown file `card.md` beside the weights. It begins with its claims as TOML between two lines `+++`:
each a table [[claims]] with the settings of an evaluation (as on the command line), a metric, an instant t in seconds,
the mean that was measured with its ci95, and `short = true` where the run takes a minute and not an hour. Below
them and a title, its first sentence says what the policy is.
"""

from __future__ import annotations

import math
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mast_swarm import zoo
from mast_swarm.errors import MastError, unknown
from mast_swarm.evaluate.config import EvaluateConfig, settled
from mast_swarm.model.policy import config_of
from mast_swarm.tasks import registry as tasks

if TYPE_CHECKING:  # what runs an evaluation takes long to load, and a card is quick to read
    from mast_swarm.evaluate.run import Progress

CARD_FILE = "card.md"


@dataclass(frozen=True)
class Claim:
    """One number of a card, and how to measure it again."""

    metric: str
    t: float
    """Seconds into the episode."""
    mean: float
    ci95: float
    """Half the width of the interval that was measured."""
    within: float
    """How much worse than `mean` a new measurement may be."""
    settings: dict[str, Any]
    """Of the evaluation: scenario, agents, episodes, steps, delay, seed, ..."""
    short: bool = False

    def config(self, task: str, policy: str, out: Path, device: str) -> EvaluateConfig:
        """The evaluation that this claim asks for; what it does not set is as on the command line."""
        return settled(tasks.find(task), policy=(policy,), out=out, device=device, **self.settings)


@dataclass(frozen=True)
class Verdict:
    """What a claim says and what was measured."""

    policy: str
    claim: Claim
    measured: float
    lower_is_better: bool = False

    @property
    def limit(self) -> float:
        """The worst measurement that still holds."""
        return self.claim.mean + (self.claim.within if self.lower_is_better else -self.claim.within)

    @property
    def holds(self) -> bool:
        return self.measured <= self.limit if self.lower_is_better else self.measured >= self.limit

    def __str__(self) -> str:
        """One line: what was measured, what the card says, and where the limit is."""
        claim = self.claim
        return (
            f"{'holds' if self.holds else 'FAILS'}: {self.policy} {claim.metric} at t = {claim.t:g} s: "
            f"measured {self.measured:.3f}, the card says {claim.mean:.3f} "
            f"and allows {'no more' if self.lower_is_better else 'no less'} than {self.limit:.3f}"
        )


def read_card(card: Path) -> tuple[str, str]:
    """The claims of a card, as TOML, and its text."""
    try:
        text = card.read_text(encoding="utf-8")
    except OSError as error:
        raise MastError(f"cannot read the card {card}: {error.strerror}") from None
    parts = text.split("+++\n", 2)
    if len(parts) < 3 or parts[0].strip():
        raise MastError(f"{card} does not begin with its claims: expected TOML between two lines +++")
    return parts[1], parts[2]


def read_claims(card: Path) -> list[Claim]:
    """The claims at the head of a card."""
    try:
        return [Claim(**claim) for claim in tomllib.loads(read_card(card)[0])["claims"]]
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise MastError(f"{card}: its claims cannot be read: {error}") from None


def opening(name: str) -> str:
    """What the card of a shipped policy says first of it: the paragraph below the title; "" without a card."""
    if not (zoo.policies()[name] / CARD_FILE).exists():
        return ""
    paragraphs = read_card(zoo.policies()[name] / CARD_FILE)[1].split("\n\n")
    return next((text for text in paragraphs if not text.startswith("#")), "")


def verify(
    names: list[str],
    *,
    full: bool = False,
    device: str = "auto",
    progress: Callable[[str], Progress] = lambda title: lambda policy, done, total: None,
) -> Iterator[Verdict]:
    """Run the short claims of each policy's card again, or all of them; a verdict each. Names are those of shipped
    policies, or folders."""
    from mast_swarm.evaluate.run import evaluate

    shipped = tasks.policies()
    for name in names:
        if name not in shipped and not Path(name).is_dir():
            raise unknown("policy", name, shipped)
        claims = read_claims(shipped.get(name, Path(name)) / CARD_FILE)
        task = config_of(name).task
        for number, claim in enumerate(claims):
            if not (claim.short or full):
                continue
            with tempfile.TemporaryDirectory() as folder:
                config = claim.config(task, name, Path(folder) / "run", device)
                _, summary = evaluate(task, config, progress(f"{name} claim {number + 1}"))
            rows = [row for row in summary["rows"] if row["metric"] == claim.metric]
            means = [row["mean"] for row in rows if math.isclose(row["t"], claim.t, abs_tol=1e-6)]
            if not means:
                raise MastError(
                    f"card of {name}: no {claim.metric} at t = {claim.t} s in that run; a card can state "
                    "multiples of 50 s and the end"
                )
            yield Verdict(name, claim, means[0], tasks.find(task).metric_named(claim.metric).lower_is_better)
