"""What personalisation leaves in a run's folder: columns of clients.csv, and a block of summary.json."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # clients_table.py is read without torch
    from torch import Tensor

    from ifca.core.safe_choice import Prior
    from ifca.training.candidates import Candidate
    from ifca.training.personalise import Personalised

    Experience = tuple[tuple[Candidate, ...], Prior]
    """Candidates, and what they saved a run's clients."""

PERSONAL_COLUMNS = (
    *("personal_model", "personal_steps", "held_out_loss", "held_out_loss_personal", "held_out_gain"),
    *("test_loss_personal", "test_accuracy_personal"),
)


def personal_cells(found: Personalised) -> list[list[Any]]:
    """The cells of each training client; nothing where a number is unknown."""
    test, m = found.test, len(found.chosen)
    loss, accuracy = [math.nan] * m, [math.nan] * m
    if test is not None:
        right = test.correct(test.train_rule) / test.sizes
        for place, owner in enumerate(found.fitted.job.federation.test_owner.tolist()):
            if owner >= 0:
                loss[owner] = float(test.loss(test.train_rule)[place])
                accuracy[owner] = float(right[place])
    rows = []
    for i, chosen in enumerate(found.chosen):
        before, after = float(found.before[i]), float(found.after[i])
        values = [before, after, before - after, loss[i], accuracy[i]]
        rows.append([chosen.kind, chosen.steps, *["" if math.isnan(v) else v for v in values]])
    return rows


def personal_summary(found: Personalised) -> dict[str, Any]:
    """The clients' choices in numbers; what candidates save is kept for clients that come later."""
    chosen, m = Counter(candidate.kind for candidate in found.chosen), len(found.chosen)
    kinds = dict.fromkeys(candidate.kind for candidate in found.candidates)
    before, after = found.fitted.test, found.test
    block: dict[str, Any] = {
        "chose": {kind: chosen[kind] / m for kind in kinds},
        "held_out_loss_before": _mean(found.before),
        "held_out_loss_after": _mean(found.after),
        "held_out_gain": _mean(found.before - found.after),
    }
    for name, test in (("before", before), ("after", after)):
        block[f"test_accuracy_{name}"] = None if test is None else test.accuracy(test.train_rule)
        block[f"test_loss_{name}"] = None if test is None else test.mean_loss(test.train_rule)
    block["worse_on_test"] = None if before is None or after is None else _worse(found)
    block["candidates"] = [[candidate.kind, candidate.steps] for candidate in found.candidates]
    block["prior"] = None if found.prior is None else found.prior.to_json()
    return block


def experience_of(summary: dict[str, Any]) -> Experience | None:
    """Back from a summary; None: its clients were not personalised, or were too few."""
    from ifca.core.safe_choice import Prior
    from ifca.training.candidates import Candidate

    block = summary.get("personalised")
    if not block or not block["prior"]:
        return None
    return tuple(Candidate(*one) for one in block["candidates"]), Prior.from_json(block["prior"])


def _worse(found: Personalised) -> float | None:
    """Share of the tested clients that have more wrong predictions (in regression: more loss) than before."""
    before, after = found.fitted.test, found.test
    assert before is not None
    assert after is not None
    served = before.train_rule >= 0
    if not bool(served.any()):
        return None

    def wrong(test: Any) -> Tensor:
        known: Tensor = -test.correct(test.train_rule) if test.classification else test.loss(test.train_rule)
        return known[served]

    return float((wrong(after) > wrong(before)).double().mean())


def _mean(values: Any) -> float | None:
    """Of the clients that held something out."""
    known = [value for value in values.tolist() if math.isfinite(value)]
    return math.fsum(known) / len(known) if known else None
