"""What was spent of epsilon, how, and what that does not cover."""

from __future__ import annotations

from markupsafe import Markup

from ifca.report.page.parts import Section, paragraph
from ifca.report.read_run import RunFolder
from ifca.runs.privacy_words import advice, privacy_sentences


def private(run: RunFolder) -> Section | None:
    """None where there is no differential privacy."""
    block = run.summary.get("privacy")
    if block is None:
        return None
    spent, *others = privacy_sentences(block)
    body = Markup("").join(map(paragraph, [*others, *advice(block, run.rounds)]))
    return Section("privacy", "What others can learn from the models", body, spent)
