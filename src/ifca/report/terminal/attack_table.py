"""What honest clients lose to an attack, by rule."""

from __future__ import annotations

from typing import Any

from rich.table import Table


def attack_table(found: dict[str, Any]) -> Table:
    """A row for each rule, without and with the attack."""
    opens = any(row["backdoor_success"] is not None for row in found["rows"])
    elsewhere = _knows_elsewhere(found)
    heads = ["rule", "attack", "loss" if found["regression"] else "accuracy", "lost"]
    heads += (["lost elsewhere"] if elsewhere else []) + (["backdoor opens"] if opens else [])
    table = Table(*heads, box=None)
    for row in found["rows"]:
        cells = [row["rule"], row["attack"] or "none"]
        if row.get("diverged"):
            table.add_row(*cells, "diverged")
            continue
        score = f"{row['accuracy']:.4g}" if found["regression"] else f"{row['accuracy']:.1%}"
        cells += [score, _lost(row["lost"]), *([_lost(row["lost_elsewhere"])] if elsewhere else [])]
        table.add_row(*cells, *([_share(row["backdoor_success"])] if opens else []))
    return table


def attack_sentence(found: dict[str, Any]) -> str:
    """Who attacked, and what the numbers are of."""
    attackers, m = len(found["attackers"]), found["clients"]
    where = "" if found["cluster"] is None else f", each in true cluster {found['cluster']}"
    others = "all true clusters but the one that lost most" if not where else "the other true clusters"
    unit = "percent of the loss" if found["regression"] else "points"
    return (
        f"{found['attack']} by {attackers} of {m} clients{where}; all numbers are over the {m - attackers} "
        f"honest clients; lost: {unit} against no attack with the plain mean"
        + (f"; elsewhere: in {others}" if _knows_elsewhere(found) else "")
    )


def _knows_elsewhere(found: dict[str, Any]) -> bool:
    """Whether there is a number of the other true clusters: only where true clusters are known."""
    return any(row["lost_elsewhere"] is not None for row in found["rows"])


def _lost(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"
