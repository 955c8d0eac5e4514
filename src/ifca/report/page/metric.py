"""What a run is judged by, in words: the number, its interval, and how much better it is than another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ifca.core.estimates import Estimate, Score, difference, estimate
from ifca.report.intervals import client_scores
from ifca.report.read_run import RunFolder
from ifca.report.words import number, percent, signed

CHOSE = "each client is served by the model it chose on its own training data"
PAPER = (
    "each test client is served by the model that fits its test data best "
    "(the paper's rule, which looks at the answers)"
)
UNSEEN = (
    "each client was never in training: one half of its data chose its model, the other half is what counts"
)


@dataclass(frozen=True)
class Metric:
    """What a run is judged by."""

    key: str
    name: str
    accuracy: bool
    rule: str

    def of(self, summary: dict[str, Any]) -> float | None:
        """Its value in a run."""
        value: float | None = summary.get(self.key)
        return value

    def show(self, value: float | None) -> str:
        """In words."""
        return percent(value) if self.accuracy else number(value)

    def scores(self, run: RunFolder) -> dict[str, Score]:
        """Of each client."""
        return client_scores(run, self.key)

    def estimate(self, scores: dict[str, Score]) -> Estimate | None:
        """Over some clients."""
        return estimate(scores, 0.0, 1.0) if self.accuracy else estimate(scores, 0.0)

    def range(self, found: Estimate | None) -> str:
        """95.0 to 97.1 %; nothing where clients cannot tell."""
        if found is None or found.low is None or found.high is None:
            return ""
        if self.accuracy:
            return f"{100 * found.low:.1f} to {100 * found.high:.1f} %"
        low, high = number(found.low), number(found.high)
        unit = f" {high.partition(' ')[2]}"
        return f"{low.removesuffix(unit)} to {high}" if unit.strip() else f"{low} to {high}"

    def gain(self, mine: RunFolder, other: RunFolder, only: set[str] | None = None) -> Estimate | None:
        """How much better the first run serves clients, over all of them or some: more is better.

        In shares of right predictions; of losses, as a share of the other's loss.
        """
        ours, theirs = self.scores(mine), self.scores(other)
        if only is not None:
            ours = {name: score for name, score in ours.items() if name in only}
        if self.accuracy:
            return difference(ours, theirs)
        found, whole = difference(theirs, ours), estimate({n: s for n, s in theirs.items() if n in ours})
        if found is None or whole is None or not whole.value:
            return None
        share = found.scaled(1 / whole.value)  # no loss is below 0, so none falls by more than all of it
        return share if share.high is None else replace(share, high=min(1.0, share.high))

    def words(self, gain: Estimate, than: str) -> str:
        """+1.5 points (0.2 to 2.8) over one model for all; 12 % lower (3 to 21 %) than with it."""
        low, high = (None if end is None else 100 * end for end in (gain.low, gain.high))
        value = 100 * gain.value
        if self.accuracy:
            sure = "" if low is None or high is None else f" ({_one(low)} to {_one(high)})"
            if value < 0:
                return f"{_one(-value)} points less{sure} than {than}"
            return f"+{_one(value)} points{sure} over {than}"
        if value < 0:
            low, high = (None, None) if low is None or high is None else (-high, -low)
        sure = "" if low is None or high is None else f" ({_one(low)} to {_one(high)} %)"
        return f"{_one(abs(value))} % {'lower' if value >= 0 else 'higher'}{sure} than with {than}"


def _one(value: float) -> str:
    return signed(f"{round(value, 1) + 0.0:.1f}")  # no minus before zero


METRICS = (
    Metric("test_accuracy_train_rule", "test accuracy", True, CHOSE),
    Metric("test_accuracy_unseen", "test accuracy", True, UNSEEN),
    Metric("test_accuracy", "test accuracy", True, PAPER),
    Metric("test_loss_train_rule", "test loss", False, CHOSE),
    Metric("test_loss_unseen", "test loss", False, UNSEEN),
    Metric("test_loss", "test loss", False, PAPER),
    Metric("train_loss", "training loss", False, "each client under its own model; there are no test data"),
)


def metric_of(*runs: RunFolder) -> Metric:
    """The best-founded number that all runs have."""
    found = [m for m in METRICS if all(m.of(run.summary) is not None for run in runs)]
    return found[0] if found else METRICS[-1]
