"""What a run that goes on from an earlier one found of its new data, and what going on brought."""

from __future__ import annotations

from markupsafe import Markup

from ifca.report.page.parts import Section, folded, paragraph
from ifca.report.read_run import RunFolder
from ifca.runs.drift_words import compared_lines, new_models, report_lines


def continued(run: RunFolder) -> Section | None:
    """None where the run began by itself, or is not finished."""
    found = run.summary.get("continued")
    if found is None:
        return None
    counts, *clients = report_lines(found)
    clusters = {row["id"]: int(row["cluster"]) for row in run.clients if row["cluster"]}
    brought = [*new_models(run.summary, clusters), *compared_lines(found)]
    body = _lines(brought) + folded("Who moved, who is new, and alarms", _lines(clients))
    return Section("continued", "What changed since the run before", body, f"Of the {counts}.")


def _lines(sentences: list[str]) -> Markup:
    return Markup("").join(paragraph(sentence.strip()) for sentence in sentences)
