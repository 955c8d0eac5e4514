"""The rows of an experiment as a Markdown table: ours ± over seeds, the paper's beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ifca.data.files import write_atomically

TABLE = "table.md"
Row = dict[str, Any]
HEADS = {
    "test_accuracy": "test accuracy %",
    "test_accuracy_train_rule": "test accuracy %, train rule",
    "best_test_accuracy": "best round %",
    "best_test_accuracy_train_rule": "best round %, train rule",
    "test_accuracy_authors_rule": "by the authors' rule (D10) %",
    "cluster_accuracy": "clusters right %",
    "all_right": "runs with all clusters right %",
    "live_clusters": "live clusters",
    "bytes": "bytes",
    "success": "success %",
    "floor": "floor",
    "contraction": "contraction",
    "identity_error": "wrong identities %",
    "exponent": "exponent",
    "rounds_until_right": "right from round",
    "bytes_ratio": "bytes, of plain IFCA's",
    "turns_ratio": "turns, of plain IFCA's",
    "bytes_to_80": "MB to 80%",
    "bytes_to_90": "MB to 90%",
}
NAMES = {
    "ifca": "IFCA (default)",
    "ifca-plain": "plain IFCA",
    "global": "global",
    "local": "local",
    "local-100": "local, 100 steps",
    "oneshot": "one-shot",
}
MEGABYTES = ("bytes_to_80", "bytes_to_90")


def write_table(folder: Path, summary: dict[str, Any], about: str) -> Path:
    """table.md in the folder; about: what was done."""
    write_atomically(folder / TABLE, f"# {summary['title']}\n\n{about}\n\n{table_of(summary)}".encode())
    return folder / TABLE


def table_of(summary: dict[str, Any]) -> str:
    """The rows of a summary, how many units are not in them, and how many are of an older code."""
    lost = f"\nUnits that diverged and are not in the means: {summary['diverged']}."
    if any("interval" in row and row["metric"] != "exponent" for row in summary["rows"]):
        lost += " They count as failures in the shares of runs."
    old = f"\nUnits of an older code, whose commit and versions are not known: {summary.get('older')}.\n"
    said = (f"{lost}\n" if summary["diverged"] else "") + (old if summary.get("older") else "")
    return markdown(summary["rows"]) + said


def markdown(rows: list[Row]) -> str:
    """Settings x algorithms down, metrics across; derived rows (exponents) in a table of their own."""
    plain = [row for row in rows if row["metric"] != "exponent"]
    fitted = [row for row in rows if row["metric"] == "exponent"]
    parts = [_pivot(plain)] if plain else []
    return "\n".join(parts + ([_exponents(fitted)] if fitted else []))


def cell(row: Row) -> str:
    """Mean ± std, or a share with its interval; the paper's number in brackets."""
    mean, std, metric = row["mean"], row["std"], row["metric"]
    if metric == "bytes":
        text = _bytes(mean)
    elif metric in MEGABYTES:
        text = f"{mean / 1e6:.1f} ± {std / 1e6:.1f}"
    elif "interval" in row:
        successes, trials = round(mean / 100 * len(row["values"])), len(row["values"])
        text = f"{successes} of {trials} ({row['interval'][0]:.0f} to {row['interval'][1]:.0f}%)"
    elif metric == "live_clusters":
        text = ", ".join(f"{value:.0f}" for value in row["values"])
    elif metric in ("floor", "contraction", "contraction_bound", "identity_error"):
        text = f"{mean:.4g}" + (f" ± {std:.2g}" if std > 1e-9 * abs(mean) else "")
    else:
        text = f"{mean:.2f}{spread(row)}"
    return text + (f" [{paper(row)}]" if row["paper_mean"] is not None else "")


def spread(row: Row) -> str:
    """± over the seeds; one seed has none."""
    return f" ± {row['std']:.2f}" if len(row["values"]) > 1 else ""


def paper(row: Row) -> str:
    """The paper's number."""
    if row["paper_std"] is None:
        return f"{row['paper_mean']:g}"
    return f"{row['paper_mean']:.2f} ± {row['paper_std']:.2f}"


def name_of(algorithm: str) -> str:
    """As the tables write it."""
    base, comma, more = algorithm.partition(",")
    return NAMES.get(base, base) + comma + more


def _pivot(rows: list[Row]) -> str:
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    table = {(row["setting"], row["algorithm"], row["metric"]): row for row in rows}
    places = list(dict.fromkeys((row["setting"], row["algorithm"]) for row in rows))
    heads = ["setting", "algorithm", *[HEADS.get(m, m.replace("_", " ")) for m in metrics], "seeds"]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for setting, algorithm in places:
        mine = [table.get((setting, algorithm, metric)) for metric in metrics]
        seeds = max(len(row["seeds"]) for row in mine if row)
        cells = ["–" if row is None else cell(row) + _of(len(row["seeds"]), seeds) for row in mine]
        lines.append(_line([setting, name_of(algorithm), *cells, str(seeds)]))
    return "\n".join(lines) + "\n"


def _of(some: int, seeds: int) -> str:
    """Said where a number is not of all seeds: the others never came so far."""
    return "" if some == seeds else f" ({some} of {seeds} seeds)"


def _exponents(rows: list[Row]) -> str:
    lines = [_line(["what", "measured exponent (95% interval)", "theorem's"]), _line(["---"] * 3)]
    for row in rows:
        low, high = row["interval"]
        theorem = "–" if row["paper_mean"] is None else f"{row['paper_mean']:g}"
        note = f" ({row['note']})" if row.get("note") else ""
        measured = f"{row['mean']:.3f} ({low:.3f} to {high:.3f})"
        lines.append(_line([row["setting"], measured, theorem + note]))
    return "\n".join(lines) + "\n"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
