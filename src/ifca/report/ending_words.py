"""How a training ended, in sentences: why it stopped, which models were kept, that its step was halved."""

from __future__ import annotations

from typing import Any

from ifca.report.read_run import RunFolder
from ifca.report.words import count, listed, number

NAMED = 5  # clients that are named
WHY = {
    "too-large": "the change was far longer than the others'",
    "contradicts-losses": "the losses contradict the cluster that was claimed",
    "not-finite": "a value was no number",
    "wrong-count": "the number of samples was another than when the client joined",
    "wrong-shape": "the update did not fit the model",
    "malformed": "the reply could not be read",
    "stale": "the reply belonged to another round",
    "cluster-out-of-range": "the cluster does not exist",
}
STEP = {"too-large", "not-finite"}  # what a step that is too long makes of honest replies, too
DIVERGED = "The training loss is higher than in the first round: try a smaller step_size."


def ending_sentences(summary: dict[str, Any]) -> list[str]:
    """What a reader should know; nothing of a training that did its rounds with its step."""
    found = []
    if stopped := summary.get("stopped"):
        found.append(f"Stopped after {stopped['rounds']} rounds: {stopped['why']}.")
        if "kept_round" in stopped:
            loss = f"lowest held-out loss, {number(stopped['held_out_loss'])}"
            found[-1] += f" The models are those of round {stopped['kept_round']} ({loss})."
    if halved := summary.get("halved"):
        first = halved[0]
        times = f" {len(halved)} times," if len(halved) > 1 else ""
        found.append(
            f"Training diverged in round {first['round'] + 1}, so the step was halved{times} from "
            f"{2 * first['step_size']:g} to {summary['step_size']:g}, and it went on from its best models."
        )
    return found + rejected_sentences(summary)


def rejected_sentences(summary: dict[str, Any]) -> list[str]:
    """Whose replies were rejected, and who was left out."""
    rejected: dict[str, Any] = summary.get("rejected") or {}
    if not rejected.get("replies"):
        return []
    whose = sorted(rejected["clients"].items(), key=lambda one: -one[1])
    names = [f"{name} ({times})" for name, times in whose[:NAMED]]
    more = [f"{len(whose) - NAMED} more"] if len(whose) > NAMED else []
    why = listed([WHY.get(kind, kind) for kind in rejected["why"]])
    found = [f"Rejected: {count(rejected['replies'], 'reply', 'replies')}, because {why}."]
    found[0] += f" Of the clients {listed([*names, *more])}; rounds went on with the others."
    found += _left_out_sentences(rejected["left_out"])
    if rejected["left_out"] and STEP & set(rejected["why"]):
        found.append("Where they are honest, the step was too long for them: try a smaller step_size.")
    return found


def _left_out_sentences(left_out: dict[str, int]) -> list[str]:
    """One sentence for all clients that were left out after the same round."""
    by_round: dict[int, list[str]] = {}
    for name, after in left_out.items():
        by_round.setdefault(after, []).append(name)
    found = []
    for after, names in by_round.items():
        more = [f"{len(names) - NAMED} more (summary.json names all)"] if len(names) > NAMED else []
        who = listed([*names[:NAMED], *more])
        head = f"Client {who} was" if len(names) == 1 else f"Clients {who} were"
        found.append(f"{head} rejected three times in a row and left out after round {after}.")
    return found


def grew_worse(run: RunFolder) -> bool:
    """Whether training made the models worse: then its clusters mean nothing."""
    first, last = run.rounds[0]["train_loss"], run.summary["train_loss"]
    return first is not None and last is not None and last > first
