"""A client that joins a run: checkpoints get a row for it, and the rounds go on from there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ifca.core.recipe import Recipe
from ifca.core.types import Progress
from ifca.data import Federation
from ifca.engines.flower import Roster
from ifca.methods import Method, method_of
from ifca.runs.run_folder import CHECKPOINT, ROUNDS, SERVED
from ifca.runs.summary_file import SUMMARY
from ifca.training.checkpoint import load_state, save_state


def add_clients_to_checkpoints(out: Path, before: Roster, after: Federation, recipe: Recipe) -> None:
    """Add rows for new clients, at the end, to every checkpoint of a run that is not finished."""
    new = len(after.train) - len(before.members)
    if not before.members or not new:
        return
    for file in [*out.rglob(CHECKPOINT), *out.rglob(SERVED)]:
        header: dict[str, Any] = {}
        state = load_state(file, torch.device("cpu"), header.update)
        method = method_of(header["config"]["algorithm"])
        grown = method.joined(recipe, state, new)
        if grown is not None:
            grown = replace(grown, progress=_joined(method, recipe, state.progress, new))
            save_state(file, grown, {**header, "data": after.fingerprint})
        elif not (file.parent / SUMMARY).exists():  # it begins anew
            file.unlink()
            (file.parent / ROUNDS).unlink(missing_ok=True)


def _joined(method: Method, recipe: Recipe, progress: Progress, new: int) -> Progress:
    """The progress with rows for new clients."""
    kept, first = progress.kept, progress.first
    kept = None if kept is None else method.joined(recipe, kept, new)
    first = None if first is None else torch.cat([first, first.new_full((new,), torch.nan)])
    return replace(progress, kept=kept, first=first)
