"""Which method is best, in a few sentences that claim no more than the intervals do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]
LARGE = 1e4  # a loss from here on is shown without digits behind the point
FEW = 5  # seeds; fewer leave wide intervals
NO_TEST = (
    "Which method is best cannot be said: there are no test data, and training loss flatters small groups, "
    "clients on their own most of all."
)


def verdict(found: dict[str, Any]) -> str:
    """Of a comparison (runs/comparison.py): which method is best, or that this cannot be said."""
    rows: list[Row] = found["table"]
    failed = [f"No result has {name}: {why.rstrip('.')}." for name, why in found["failed"].items()]
    if len(rows) < 2:
        return " ".join([f"Only {rows[0]['title']} has a result.", *failed])
    if found["best"] is None:
        return " ".join([NO_TEST, *failed])
    best, tied = rows[0], [row for row in rows[1:] if row["standing"] == "tie"]
    worse = [row["title"] for row in rows if row["standing"] == "worse"]
    if tied:
        told = _tie(found, best, tied)
        told += f" Clearly worse than {best['title']}: {_listed(worse)}." if worse else ""
    else:
        here = "With this seed, best is" if found["paired_over"] == "clients" else "Best is"
        others = "of all others; the next is" if len(rows) > 2 else "of"
        told = f"{here} {best['title']}, {_with(found, best)}, clearly ahead {others} {rows[1]['title']}, "
        told += f"behind by {gap(found, rows[1]['behind'], best['value'])}."
    return " ".join([told, *failed])


def _tie(found: dict[str, Any], best: Row, tied: list[Row]) -> str:
    """Where the simplest of the best methods is not the first, that it may do as well is the news."""
    beaten = {pair["second"] for pair in found["pairs"] if pair["clear"]}
    unbeaten = [row for row in (best, *tied) if row["method"] not in beaten]
    plain = min(unbeaten, key=lambda row: row["simple"])
    told = f"No clear winner: no method is clearly better than {plain['title']}, {_with(found, plain)}."
    if plain is best:
        leads = [
            f"{row['title']} ({gap(found, row['behind'], best['value'], wrapped=False)})" for row in tied
        ]
        return f"{told} Its lead over {_listed(leads)} may be chance."
    most = "Highest" if found["higher_is_better"] else "Lowest"
    lead = gap(found, plain["behind"], best["value"])
    told += (
        f" {most} is {best['title']} with {shown(found, best['value'])}, but its lead of {lead} may be chance"
    )
    others = [row["title"] for row in tied if row is not plain]
    return f"{told}, like that over {_listed(others)}." if others else f"{told}."


def basis(found: dict[str, Any]) -> str:
    """What the intervals are over."""
    told = _basis(found)
    return told if found["higher_is_better"] else f"{told} Differences are in % of the first one's loss."


def _basis(found: dict[str, Any]) -> str:
    seeds, clients = len(found["seeds"]), f"{found['clients']:,} clients"
    if found["paired_over"] == "clients":
        return (
            f"One seed: 95 % intervals are over the {clients} that were tested, each compared with itself. "
            f"With another seed it may be otherwise; more seeds tell (--seeds {FEW})."
        )
    more = " More seeds make them narrower." if seeds < FEW and _any_tie(found) else ""
    if found["paired_over"] == "both":
        return (
            f"{seeds} seeds with the same data: a 95 % interval is the wider of that over seeds and that "
            f"over the {clients} that were tested, each compared with itself.{more}"
        )
    return (
        f"{seeds} seeds, each with data dealt anew: 95 % intervals are over seeds, methods compared seed by "
        f"seed (Student's t).{more}"
    )


def shown(found: dict[str, Any], value: float) -> str:
    """A method's number: 88.1 %, or a loss."""
    if found["higher_is_better"]:
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if abs(value) >= LARGE else f"{value:.4g}"


def gap(found: dict[str, Any], pair: Row, best: float, *, wrapped: bool = True) -> str:
    """0.3 points (−0.2 to 0.9), of losses in % of the better one's; best: the better method's number.

    wrapped: the interval in brackets, else behind a comma.
    """
    unit = "points" if found["higher_is_better"] else "%"
    by, low, high = parts(found, pair, best)
    if low is None or high is None:
        ends = "" if not any(pair["by_seed"]) else "no interval"
    else:
        ends = f"{_signed(low)} to {_signed(high)}"
    told = f"{_signed(by)} {unit}"
    return told if not ends else f"{told} ({ends})" if wrapped else f"{told}, {ends}"


def parts(found: dict[str, Any], pair: Row, best: float) -> tuple[float, float | None, float | None]:
    """A difference and its ends, in points or in % of the better method's loss."""
    by = 100 if found["higher_is_better"] or not best else 100 / best
    low, high = (None if end is None else by * end for end in (pair["low"], pair["high"]))
    return by * pair["by"], low, high


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def _with(found: dict[str, Any], row: Row) -> str:
    name = found["metric"].split("_")
    what = f"{'training' if name[0] == 'train' else name[0]} {name[1]}"
    return f"{what} {shown(found, row['value'])}"


def _any_tie(found: dict[str, Any]) -> bool:
    return any(row["standing"] == "tie" for row in found["table"])


def _signed(value: float) -> str:
    return f"{round(value, 1) + 0.0:.1f}".replace("-", "−")
