"""The bench of methods as Markdown: accuracy by regime and method, then what IFCA costs and whom it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ifca.core.recipe import Recipe
from ifca.data.files import write_atomically

TABLE = "table.md"
OURS = Recipe.algorithm
SEEDS = (
    "Accuracy in % (in regression: share of the variance explained) by the train rule: each client is "
    "served by the model that it has in the end and tested on its own test data; means over clients, then "
    "over seeds. In brackets the adjusted Rand index of the clusters against the true ones. Seeds are the "
    "first of 0 to 9 that all methods have run; constants were set on seeds from 1000 on, which are in no "
    "table. *Behind*: points by which `ifca` is behind the best of plain IFCA, the best of 5 plain starts, "
    "one-shot, one-shot start then plain, CLoVE's rule and global."
)
COSTS = {
    "live": ("models", "{:.1f}"),
    "bytes_ratio": ("bytes, of plain's", "{:.2f}"),
    "turns_ratio": ("turns, of plain's", "{:.2f}"),
    "worse_than_global": ("worse than global", "{:.0%}"),
    "worse_than_local": ("worse than local", "{:.0%}"),
    "worst_tenth": ("worst tenth %", "{:.1f}"),
}
Row = dict[str, Any]


def write_methods_table(folder: Path, summary: dict[str, Any]) -> Path:
    """table.md in the folder."""
    write_atomically(folder / TABLE, f"# Methods by regime\n\n{methods_table(summary)}".encode())
    return folder / TABLE


def methods_table(summary: dict[str, Any]) -> str:
    """Both tables, of the served models and (where measured) of the personalised ones."""
    parts = [SEEDS]
    for personalised in (False, True):
        rows = [row for row in summary["rows"] if row["personalised"] == personalised]
        if rows:
            parts += ["## After personalisation"] if personalised else []
            parts += [_accuracies(rows, summary, personalised), _costs(rows)]
    parts += [_personal(summary["personal"])] if summary.get("personal") else []
    if summary["diverged"]:
        lost = "; ".join(f"{regime}, {method}, seed {seed}" for regime, method, seed in summary["diverged"])
        parts.append(f"Diverged, and not in the means: {lost}.")
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _accuracies(rows: list[Row], summary: dict[str, Any], personalised: bool) -> str:
    methods = [name for name in summary["titles"] if any(row["method"] == name for row in rows)]
    table = {(row["regime"], row["method"]): row for row in rows}
    behind = {} if personalised else {one["regime"]: one for one in summary["behind"]}
    heads = [
        "regime",
        *(summary["titles"][name] for name in methods),
        *(["behind"] if behind else []),
        "seeds",
    ]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for regime in dict.fromkeys(row["regime"] for row in rows):
        mine = [table.get((regime, method)) for method in methods]
        cells = [f"{regime}: {summary['why'].get(regime, '')}", *map(_accuracy, mine)]
        if behind:
            cells.append(f"{behind[regime]['behind']:+.2f}" if regime in behind else "–")
        lines.append(_line([*cells, _seeds([row for row in mine if row])]))
    return "\n".join(lines)


def _personal(rows: list[Row]) -> str:
    """What personalisation is to reach: the best of three, whichever that is."""
    heads = [
        "regime, IFCA (default)",
        "as served",
        "all tuned (40 steps)",
        "local",
        "as clients chose",
        "behind",
    ]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for row in rows:
        three = [f"{row[name]:.1f}" for name in ("served", "tuned", "local", "personalised")]
        lines.append(_line([row["regime"], *three, f"{row['behind']:+.2f}"]))
    text = "Personalisation, accuracy in %. *Behind*: of the best of the first three."
    return f"{text}\n\n" + "\n".join(lines)


def _accuracy(row: Row | None) -> str:
    if row is None:
        return "–"
    clusters = "" if row["ari"] is None else f" ({row['ari']:.2f})"
    spread = f" ± {row['accuracy_std']:.1f}" if len(row["seeds"]) > 1 else ""
    return f"{row['accuracy']:.1f}{spread}{clusters}"


def _costs(rows: list[Row]) -> str:
    heads = ["regime, IFCA (default)", *(head for head, _ in COSTS.values())]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for row in rows:
        if row["method"] == OURS:
            cells = [
                "–" if row[name] is None else form.format(row[name]) for name, (_, form) in COSTS.items()
            ]
            lines.append(_line([row["regime"], *cells]))
    return "\n".join(lines) if len(lines) > 2 else ""


def _seeds(rows: list[Row]) -> str:
    """How many; from fewest to most where methods differ."""
    counts = sorted({len(row["seeds"]) for row in rows})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
