"""What clients chose to be served by, and what that did for them."""

from __future__ import annotations

from ifca.report.page.parts import Section, table
from ifca.report.personal_words import personal_sentence
from ifca.report.read_run import RunFolder
from ifca.report.words import percent

MEANING = {
    "served": "the model of its cluster, as it is",
    "tuned": "that model after 5 to 160 steps on the client's own data",
    "half tuned": "the mean of what the cluster's model and the tuned one say",
    "local": "a model of the client's data alone",
    "half local": "the mean of what the cluster's model and a local one say",
}


def personal(run: RunFolder) -> Section | None:
    """None where clients were not personalised."""
    block = run.summary.get("personalised")
    if block is None:
        return None
    chose = [(kind, share) for kind, share in block["chose"].items() if share > 0]
    chose.sort(key=lambda pair: -pair[1])
    rows = [[kind, MEANING[kind], percent(share, 1)] for kind, share in chose]
    body = table(["model", "which is", "clients"], rows, caption="What clients chose", words=(0, 1))
    return Section("personal", "What personalising did", body, personal_sentence(block))
