"""Accuracy and loss, round by round and cluster by cluster."""

from __future__ import annotations

from markupsafe import Markup

from ifca.report.page.axes import legend
from ifca.report.page.charts import Line, line_chart
from ifca.report.page.parts import Section, figure, folded, numbers
from ifca.report.palette import COLOURS, colour
from ifca.report.read_run import RunFolder
from ifca.report.words import listed, number, percent, title_of

MOST = 12  # clusters in one chart
STEEP = 30  # a loss that falls by more than this factor is drawn in powers of ten


def learning(run: RunFolder) -> Section:
    """How training went."""
    body = over_rounds([(title_of(one.summary), one) for one in (run, *run.baselines.values())])
    more = Markup("")
    for key, title in (
        ("cluster_test_accuracy", "Test accuracy of each cluster"),
        ("cluster_test_loss", "Test loss of each cluster"),
        ("cluster_train_loss", "Training loss of each cluster"),
    ):
        if key == "cluster_test_loss" and run.summary.get("test_accuracy") is not None:
            continue  # accuracy says it better
        more += _by_cluster(run, key, title)
    body += folded("Each cluster, round by round", more) if more else ""
    return Section("learning", "Learning, round by round", body)


def over_rounds(runs: list[tuple[str, RunFolder]], *, equals: bool = False) -> Markup:
    """One line per run: the test accuracy, or the loss where that is what is known.

    equals: the first is one among others, not the run that these are baselines of.
    """
    wanted = ("test_accuracy_train_rule", "test_accuracy", "test_loss", "train_loss")
    everywhere = [key for key in wanted if all(_known(run, key) for _, run in runs if run.rounds)]
    if not everywhere or not any(run.rounds for _, run in runs):
        return Markup("")
    key = everywhere[0]
    last = max(len(run.rounds) for _, run in runs)
    lines = []
    for i, (name, run) in enumerate(runs):
        y = [record.get(key) for record in run.rounds]
        lines.append(Line(name, y + [None] * (last - len(y)), COLOURS[i % len(COLOURS)], equals or i == 0))
    accuracy = "accuracy" in key
    title = {"train_loss": "Training loss", "test_loss": "Test loss"}.get(key, "Test accuracy")
    sentence = _course(title, lines, accuracy) if not equals else f"{title} after each round of each run."
    if key == "train_loss":
        sentence += " It is taken before each round's update."
    final, seen = runs[0][1].summary.get(key), lines[0].y[-1]
    if runs[0][1].finished and accuracy and not equals and seen and percent(final) != percent(seen):
        sentence += f" After the last round every client chooses once more, which gives {percent(final)}."
    return _chart(lines, last, title, accuracy, f"{title} after each round", sentence)


def _by_cluster(run: RunFolder, key: str, title: str) -> Markup:
    found = [(record["round"], record.get(key)) for record in run.rounds]
    known = [value for _, values in found for value in values or [] if value is not None]
    if run.summary["k"] == 1 or not known:
        return Markup("")
    k, accuracy = run.summary["k"], "accuracy" in key
    lines = [
        Line(f"cluster {j}", [values[j] if values else None for _, values in found], colour(j))
        for j in range(k)
    ]
    lines = [line for line in lines if any(value is not None for value in line.y)]
    sizes = run.rounds[-1]["cluster_sizes"]
    largest = sorted(lines, key=lambda line: -sizes[int(line.name.split()[1])])[:MOST]
    left_out = len(lines) - len(largest)
    lines = [line for line in lines if line in largest]
    ends = {line.name: line.y[-1] for line in lines if line.y[-1] is not None}
    sentence = f"{title} after each round; a line begins and ends with its cluster."
    sentence += f" Drawn are the {MOST} largest clusters." if left_out else ""
    if len(ends) > 1:
        show = percent if accuracy else number
        best, worst = (max, min) if accuracy else (min, max)
        top, low = best(ends, key=lambda n: ends[n] or 0.0), worst(ends, key=lambda n: ends[n] or 0.0)
        sentence += (
            f" At the last round {top} does best ({show(ends[top])}) and {low} worst ({show(ends[low])})."
        )
    return _chart(lines, len(found), title, accuracy, title, sentence)


def _chart(lines: list[Line], rounds: int, title: str, accuracy: bool, caption: str, sentence: str) -> Markup:
    x = list(range(1, rounds + 1))
    show = percent if accuracy else number
    values = [v for line in lines for v in line.y if v is not None]
    steep = not accuracy and min(values) > 0 and max(values) / min(values) > STEEP
    told = "; ".join(f"{line.name} from {show(_first(line))} to {show(_last(line))}" for line in lines)
    chart = line_chart(
        x,
        lines,
        show=show,
        label=f"Line chart. {title} from round 1 to {rounds}: {told}.",
        tick=(lambda v: f"{100 * v:g} %") if accuracy else number,
        y_title="powers of ten" if steep else "",
        log=steep,
        ceiling=1 if accuracy else None,
    )
    keys = legend([(one.colour, one.name) for one in lines], dashed=[not one.front for one in lines])
    return figure(keys + chart, sentence, title, numbers(x, lines, show, caption))


def _course(title: str, lines: list[Line], accuracy: bool) -> str:
    """What a reader sees in the first line."""
    first = lines[0]
    values = [v for v in first.y if v is not None]
    reached, start = values[-1], values[0]
    show = percent if accuracy else number
    text = f"{title} after each round. {first.name} goes from {show(start)} to {show(reached)}"
    near = reached - 0.01 if accuracy else reached + 0.05 * abs(reached)
    far = [i for i, v in enumerate(first.y) if v is not None and ((v < near) if accuracy else (v > near))]
    if len(values) > 3 and far and far[-1] + 2 < len(first.y):
        within = "one point" if accuracy else "5 %"
        text += f" and stays within {within} of that from round {far[-1] + 2} on"
    worse = [line.name for line in lines[1:] if _behind(_last(line), reached, accuracy)]
    if worse and len(lines) > 2:
        text += (
            f"; below it at the end: {listed(worse)}" if accuracy else f"; higher at the end: {listed(worse)}"
        )
    return text + "."


def _behind(value: float, reached: float, accuracy: bool) -> bool:
    return value < reached if accuracy else value > reached


def _known(run: RunFolder, key: str) -> bool:
    return any(record.get(key) is not None for record in run.rounds)


def _first(line: Line) -> float:
    return next(v for v in line.y if v is not None)


def _last(line: Line) -> float:
    return next(v for v in reversed(line.y) if v is not None)
