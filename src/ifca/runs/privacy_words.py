"""What a run says of its differential privacy, in sentences: on the terminal, on its page, in model cards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ifca.core.privacy_settings import Spent


def privacy_sentences(privacy: dict[str, Any]) -> list[str]:
    """What was spent, how, and what is not covered. privacy: of a summary."""
    delta, rounds = f"{privacy['delta']:.1g}", privacy["rounds"]
    budget = "" if privacy["budget"] is None else f" (budget {privacy['budget']:g})"
    before, both = privacy.get("before"), privacy.get("in_all")
    added = (
        []
        if before is None or both is None
        else [
            f"The run that it began with spent epsilon = {before['epsilon']:.4g}, delta = "
            f"{before['delta']:.1g}; of a client that was in both, all models together tell epsilon = "
            f"{both['epsilon']:.4g}, delta = {both['delta']:.1g}."
        ]
    )
    return [
        f"Client-level differential privacy: epsilon = {privacy['epsilon']:.4g}{budget}, delta = {delta}, "
        f"for {privacy['adjacency']}. Covered: {privacy['covered']}.",
        *added,
        how(privacy, rounds),
        "Not covered: " + "; ".join(privacy["not_covered"]) + ".",
    ]


def how(privacy: dict[str, Any], rounds: int) -> str:
    """Clip, noise, sampling and who counted."""
    q = privacy["participation"]
    drawn = privacy["sampling"] + ("" if q == 1 else f" with probability {q:g}")
    return (
        f"Changes clipped to length {privacy['clip']:g}, noise multiplier {privacy['noise']:.4g} on all "
        f"clusters' sums and counts together, {rounds} rounds, {drawn}; a cluster with a noisy count below "
        f"{privacy['least_count']:.0f} keeps its model. Accountant: {privacy['accountant']}. The noise comes "
        f"from {privacy['noise_from']}."
    )


def together(trainings: Sequence[dict[str, Any] | None]) -> str:
    """What several trainings with the same clients have told of each; nothing where one at most is private.

    trainings: the part privacy of each summary. Basic composition: epsilons add up, and so do deltas.
    """
    spent = [one for one in map(Spent.of, trainings) if one is not None]
    if len(spent) < 2:
        return ""
    epsilon, delta = sum(one.epsilon for one in spent), sum(one.delta for one in spent)
    return (
        f"These {len(spent)} private trainings have the same clients, so what they spent adds up: of each, "
        f"all models together tell epsilon = {epsilon:.4g}, delta = {delta:.1g}; and which method is best "
        "was asked of the clients' own results, which no epsilon covers."
    )


def advice(privacy: dict[str, Any], rounds: list[dict[str, Any]]) -> list[str]:
    """What may have gone wrong: models that never moved, a clip that is far too short or too long.

    rounds: the records, with which clusters' models moved and which share of changes was clipped.
    """
    moved = [record["moved"] for record in rounds if "moved" in record]
    if not moved:
        return []
    found = []
    still = sum(not one for record in moved for one in record) / sum(len(record) for record in moved)
    if still > 1 / 2:
        found.append(
            f"In {still:.0%} of all turns a cluster's noisy count was below {privacy['least_count']:.0f} and "
            "its model stayed as it was: the clusters are too small for this noise."
        )
    share = sum(record["clipped"] for record in rounds) / len(rounds)
    if share < 1 / 100:
        found.append("Hardly any change was as long as dp_clip: a smaller one brings less noise.")
    return found
