"""Personalisation in a few sentences, for the page and the terminal."""

from __future__ import annotations

from typing import Any

from ifca.report.words import number, percent


def personal_sentence(block: dict[str, Any]) -> str:
    """What clients chose and gained, in a few sentences."""
    if len(block["candidates"]) == 1:
        return "Every client has a model of its own already, which learned all of its data, and keeps it."
    moved = 1 - block["chose"]["served"]
    if moved == 0:
        return "Every client stays with the model of its cluster: nothing else was surely better."
    before, after = (number(block[f"held_out_loss_{when}"]) for when in ("before", "after"))
    text = f"{percent(moved, 1)} of the clients chose another model than their cluster's, by parts of their "
    text += (
        f"own data that it had not learned from: held-out loss of all clients {before} before, {after} after."
    )
    if block["test_accuracy_after"] is not None:
        before, after = (percent(block[f"test_accuracy_{when}"]) for when in ("before", "after"))
        text += f" Test accuracy (train rule) goes from {before} to {after}"
    elif block["test_loss_after"] is not None:
        before, after = (number(block[f"test_loss_{when}"]) for when in ("before", "after"))
        text += f" The test loss (train rule) goes from {before} to {after}"
    else:
        return text
    return f"{text}; {percent(block['worse_on_test'], 1)} of the clients are served worse on test data."
