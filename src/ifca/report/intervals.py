"""How sure a run's numbers are, clients being the units: who was tested is drawn, not which samples."""

from __future__ import annotations

from ifca.core.estimates import Score
from ifca.report.read_run import RunFolder
from ifca.runs.clients_table import scores_of

WHICH = (
    "95 % intervals are over clients: how much the number would vary if other clients of the same kind "
    "had been tested (Student's t, each client with the weight of its samples)."
)


def client_scores(run: RunFolder, key: str) -> dict[str, Score]:
    """Client -> its number in a column of clients.csv, and its weight; of those that have it."""
    return scores_of(run.clients, key)
