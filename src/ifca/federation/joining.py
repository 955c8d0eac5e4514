"""A client that joins a run: checkpoints get a row for it, and the rounds go on from there."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from ifca.core.types import Watch
from ifca.data import Federation
from ifca.engines.flower import Roster
from ifca.methods.watch import begin
from ifca.runs.results import SUMMARY
from ifca.runs.run_folder import CHECKPOINT
from ifca.training.checkpoint import load_state, save_state

PER_MODEL = ("born", "before")  # the other tensors of Watch have a row per client


def add_clients_to_checkpoints(out: Path, before: Roster, after: Federation) -> None:
    """Add rows for new clients, at the end, to every checkpoint of a run that is not finished."""
    new = len(after.train) - len(before.members)
    if not before.members or not new:
        return
    for file in out.rglob(CHECKPOINT):
        header: dict[str, Any] = {}
        state = load_state(file, torch.device("cpu"), header.update)
        algorithm = header["config"]["algorithm"]
        if algorithm == "local":  # a model per client, none of which the new one has: from the start
            if not (file.parent / SUMMARY).exists():
                file.unlink()
            continue
        none = torch.zeros(new, dtype=torch.long)
        grown = replace(
            state,
            identity=torch.cat([state.identity, none if algorithm == "global" else none - 1]),
            asked=torch.cat([state.asked, none - 1]),
            bytes_down=torch.cat([state.bytes_down, none]),
            bytes_up=torch.cat([state.bytes_up, none]),
            watch=None if state.watch is None else _wider(state.watch, new),
        )
        save_state(file, grown, {**header, "data": after.fingerprint})


def _wider(watch: Watch, new: int) -> Watch:
    """Nothing is remembered of new clients."""
    empty, rows = begin(new, len(watch.born)), {}
    for field in fields(Watch):
        old = getattr(watch, field.name)
        if isinstance(old, torch.Tensor) and field.name not in PER_MODEL:
            rows[field.name] = torch.cat([old, getattr(empty, field.name).to(old)])
    return replace(watch, **rows)  # type: ignore[arg-type]
