"""How a training ended, in sentences: why it stopped, which models were kept, that its step was halved."""

from __future__ import annotations

from typing import Any

from ifca.report.read_run import RunFolder
from ifca.report.words import number

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
    return found


def grew_worse(run: RunFolder) -> bool:
    """Whether training made the models worse: then its clusters mean nothing."""
    first, last = run.rounds[0]["train_loss"], run.summary["train_loss"]
    return first is not None and last is not None and last > first
