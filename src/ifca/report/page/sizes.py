"""How large the clusters are, and whether they are the true ones."""

from __future__ import annotations

from markupsafe import Markup

from ifca.report.page.axes import legend
from ifca.report.page.charts import areas
from ifca.report.page.history import History
from ifca.report.page.parts import Section, figure, table
from ifca.report.palette import colour
from ifca.report.read_run import RunFolder
from ifca.report.words import clusters_asked, count, listed, number, percent


def sizes(run: RunFolder, past: History) -> Section:
    """Cluster sizes over the rounds and at the end."""
    k = run.summary["k"]
    counts = [(past.table[:, : past.rounds] == j).sum(0).tolist() for j in range(k)]
    layers = [(colour(j), counts[j]) for j in range(k)]
    last = [int((past.table[:, -1] == j).sum()) for j in range(k)]
    told = listed([f"cluster {j} has {count(n, 'client')}" for j, n in enumerate(last) if n])
    chart = areas(
        list(range(1, past.rounds + 1)),
        layers,
        label=f"Cluster sizes by round. Last: {told}.",
        y_title="clients",
    )
    keys = legend([(colour(j), f"cluster {j}") for j in range(k) if any(counts[j]) or last[j]])
    body = figure(keys + chart, _sizes_sentence(run, last), "") if k > 1 else Markup("")
    if run.summary.get("clusters"):
        body += _cluster_table(run)
    return Section("sizes", "How large the clusters are", body, _sizes_sentence(run, last))


def truth(run: RunFolder) -> Section | None:
    """Recovered against true clusters, where these are known."""
    true: dict[str, list[int]] | None = run.summary.get("true_clusters")
    if not true or run.summary["k"] == 1:
        return None
    models = len(next(iter(true.values())))
    used = [j for j in range(models) if any(row[j] for row in true.values())]
    rows = [[f"true {name}", *[row[j] for j in used]] for name, row in true.items()]
    shades = [[row[j] / max(1, sum(row)) for j in used] for row in true.values()]
    right = run.summary.get("cluster_accuracy")
    text = "True clusters were known to whoever made the data, never to the algorithm. "
    if right == 1.0:
        text += "Every client was put with its own kind, and every kind has a cluster of its own."
    elif right is not None:
        text += f"{percent(right, 1)} of the clients are in the cluster that belongs to their kind"
        mixed = [j for j in used if sum(row[j] > 0 for row in true.values()) > 1]
        text += f"; more than one kind is in {listed([f'cluster {j}' for j in mixed])}." if mixed else "."
    matrix = table(
        ["", *[f"cluster {j}" for j in used]],
        rows,
        caption="Clients by true and found cluster",
        shades=shades,
    )
    return Section("truth", "Found and true clusters", figure(matrix, ""), text)


def _sizes_sentence(run: RunFolder, last: list[int]) -> str:
    live = {j: n for j, n in enumerate(last) if n}
    if not live:
        return "No client has chosen a cluster yet."
    big, small, m = max(live, key=lambda j: live[j]), min(live, key=lambda j: live[j]), sum(last)
    text = "Clients in each cluster, one layer per cluster. "
    if len(live) == 1:
        text += f"All {m:,} clients are in cluster {big}."
    elif live[big] == live[small]:
        every = "Both" if len(live) == 2 else f"All {len(live)}"
        text += f"{every} clusters have {count(live[big], 'client')}."
    else:
        text += (
            f"The largest is cluster {big} with {count(live[big], 'client')} ({percent(live[big] / m, 0)}), "
        )
        text += f"the smallest cluster {small} with {live[small]:,} ({percent(live[small] / m, 0)})."
    asked = clusters_asked(run.summary)
    empty = asked - len(live)
    if empty > 0 and run.finished:
        text += f" {empty} of the {asked} models asked for {'has' if empty == 1 else 'have'} no clients"
        proved = run.summary["method"]["referee"]
        text += ": those that are left serve the clients as well." if proved else "."
    return text


def _cluster_table(run: RunFolder) -> Markup:
    heads, rows = (
        ["cluster", "clients", "training samples", "training loss", "test accuracy", "test loss"],
        [],
    )
    for one in run.summary["clusters"]:
        scores = [percent(one.get("test_accuracy")), number(one.get("test_loss"))]
        rows.append(
            [
                one["cluster"],
                f"{one['clients']:,}",
                f"{one['train_samples']:,}",
                number(one["train_loss"]),
                *scores,
            ]
        )
    kept = [c for c in range(len(heads)) if any(row[c] != "–" for row in rows)]
    return table(
        [heads[c] for c in kept], [[row[c] for c in kept] for row in rows], caption="Clusters at the end"
    )
