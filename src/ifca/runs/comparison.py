"""Which method is best, by how much, and how sure that is: paired over seeds, or over clients.

Two methods are compared on the same data: over seeds, if each seed dealt the data anew; over clients, if
there is one seed. Where several seeds had the same data, an interval is the wider of the two: seeds alone
would not tell how little the test data say, clients alone not how much training varies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ifca.core.estimates import Estimate, Score, difference, estimate
from ifca.runs.clients_table import read_clients, scores_of
from ifca.runs.privacy_words import together
from ifca.runs.verdict import basis, verdict

Summary = dict[str, Any]
JUDGED = (
    *("test_accuracy_train_rule", "test_accuracy_unseen", "test_accuracy"),
    *("test_loss_train_rule", "test_loss_unseen", "test_loss", "train_loss"),
)
"""What methods are judged by, the best founded number first."""


@dataclass(frozen=True)
class Trained:
    """What a method came to, seed by seed."""

    name: str
    title: str
    simple: int  # 0: one model for all, 1: a model per client, 2: clusters
    values: list[float]
    clients: dict[str, Score]  # means over seeds; over other data they would mean nothing


def comparison(seeds: Mapping[int, tuple[Path, Summary]], *, same_data: bool = True) -> Summary | None:
    """What a summary says of methods that were trained side by side; seeds: the run folder of each.

    None where there is only one method.
    """
    runs = [_methods(*one) for one in seeds.values()]
    if len(runs[0]) < 2:
        return None
    failed = {name: one[name][1]["error"] for one in runs for name in one if "error" in one[name][1]}
    able = [name for name in runs[0] if name not in failed]
    key = next((k for k in JUDGED if all(one[n][1].get(k) is not None for one in runs for n in able)), None)
    if key is None or not able:
        return None
    better = 1.0 if "accuracy" in key else -1.0
    trained = [_trained(name, [one[name] for one in runs], key) for name in able]
    trained.sort(key=lambda one: -better * fmean(one.values))
    pairs = {
        (a.name, b.name): _gain(a, b, better, same_data)
        for i, a in enumerate(trained)
        for b in trained[i + 1 :]
    }
    found: Summary = {
        "metric": key,
        "higher_is_better": better > 0,
        "seeds": list(seeds),
        "clients": len(trained[0].clients),
        "paired_over": "clients" if len(seeds) == 1 else "both" if same_data else "seeds",
        "best": trained[0].name if key != JUDGED[-1] and len(trained) > 1 else None,
        "table": _table(trained, pairs, same_data, 1.0 if better > 0 else math.inf),
        "pairs": [{"first": a, "second": b, **gain} for (a, b), gain in pairs.items()],
        "failed": failed,
    }
    spent = together([summary.get("privacy") for one in runs for _, summary in one.values()])
    return found | {"verdict": verdict(found), "basis": f"{basis(found)} {spent}".strip()}


def _methods(folder: Path, summary: Summary) -> dict[str, tuple[Path, Summary]]:
    """Algorithm -> its folder and its summary, or what it ended with."""
    others = summary.get("baselines", {}).items()
    found = {one["algorithm"]: (folder / "baselines" / name, one) for name, one in others}
    return {summary["algorithm"]: (folder, summary), **found}


def _trained(name: str, runs: Sequence[tuple[Path, Summary]], key: str) -> Trained:
    scores = [scores_of(read_clients(folder), key) for folder, _ in runs]
    everywhere = [who for who in scores[0] if all(who in one for one in scores)]
    clients = {who: (fmean(one[who][0] for one in scores), scores[0][who][1]) for who in everywhere}
    facts = runs[0][1]["method"]
    simple = 2 if facts["clustered"] else 1 if facts["personal"] else 0
    return Trained(name, facts["title"], simple, [summary[key] for _, summary in runs], clients)


def _gain(a: Trained, b: Trained, better: float, same_data: bool) -> Summary:
    """How much better the first is, each seed or client compared with itself."""
    gains = [better * (mine - other) for mine, other in zip(a.values, b.values, strict=True)]
    by_client = difference(a.clients, b.clients)
    found = _sure(gains, None if by_client is None else by_client.scaled(better), same_data)
    return {
        "by": found.value,
        "low": found.low,
        "high": found.high,
        "clear": found.beyond_noise,
        "by_seed": gains,
    }


def _sure(by_seed: Sequence[float], by_client: Estimate | None, same_data: bool) -> Estimate:
    """A mean over seeds with the interval that the module's first lines describe."""
    found = estimate({str(i): (value, 1.0) for i, value in enumerate(by_seed)})
    assert found is not None
    if not same_data or by_client is None or _width(by_client) <= _width(found):
        return found
    return Estimate(found.value, by_client.low, by_client.high, by_client.clients)


def _width(found: Estimate) -> float:
    return -1.0 if found.low is None or found.high is None else found.high - found.low


def _table(
    trained: list[Trained], pairs: dict[tuple[str, str], Summary], same_data: bool, most: float
) -> list[Summary]:
    """A row per method, the best first; behind: how much the best is better; most: what a number can be."""
    titles, best, rows = [one.title for one in trained], trained[0].name, []
    ties = any(first == best and not pair["clear"] for (first, _), pair in pairs.items())
    for one in trained:
        alone = _sure(one.values, estimate(one.clients), same_data)
        low, high = (None if end is None else min(most, max(0.0, end)) for end in (alone.low, alone.high))
        behind = pairs.get((best, one.name))
        rows.append(
            {
                "method": one.name,
                "title": one.title if titles.count(one.title) == 1 else f"{one.title} ({one.name})",
                "simple": one.simple,
                "value": alone.value,
                "low": low,
                "high": high,
                "by_seed": one.values,
                "standing": _standing(behind, ties),
                "behind": behind,
            }
        )
    return rows


def _standing(behind: Summary | None, ties: bool) -> str:
    """best: clearly ahead of all others; tie: the first, or not clearly behind it; worse: clearly behind."""
    if behind is None:
        return "tie" if ties else "best"
    return "worse" if behind["clear"] else "tie"
