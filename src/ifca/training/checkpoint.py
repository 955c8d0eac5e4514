"""The state after a round in one file: safetensors with a JSON header, written atomically, no code in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from ifca.core.errors import InvalidInput, Unreadable
from ifca.core.types import ClusterState, Params, Progress, places_of
from ifca.data.files import write_atomically
from ifca.data.formats.json_file import parse_json
from ifca.data.formats.tensor_file import read_tensors
from ifca.training.checkpoint_header import (
    COUNTS,
    PER_CLIENT,
    ModelsHeader,
    StateHeader,
    check_header,
    check_models,
    check_scaling,
    check_state,
)

FORMAT, OLDER = "ifca-2", "ifca-1"  # of older files some have no checksum
CHECKSUM = "sha256"
PROGRESS = ("kept_loss", "halved", "unrecorded", "stopped", "unfinished")
FIRST = "first"  # the losses of the first round
KEPT = "kept."  # before the names of the tensors of the state that a training can go back to


def save_tensors(file: Path, tensors: Params, header: dict[str, Any]) -> None:
    """Tensors and a JSON header as one safetensors file, with a checksum of both."""
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    seen: set[int] = set()
    for name, value in plain.items():  # safetensors refuses tensors that share memory
        place = value.untyped_storage().data_ptr()
        plain[name] = value.clone() if place in seen else value
        seen.add(place)
    text = json.dumps({**header, CHECKSUM: _checksum(header, plain)})
    write_atomically(file, save(plain, {FORMAT: text}))  # one entry: several would have no fixed order


def load_tensors(file: Path) -> tuple[Params, dict[str, Any]]:
    """The inverse of save_tensors; a file of another kind, cut off or altered is named in the complaint."""
    tensors, metadata = read_tensors(file)
    if FORMAT not in metadata and OLDER not in metadata:
        raise Unreadable(f"{file}: was not written by this version of ifca (no {FORMAT} header)")
    text = metadata.get(FORMAT) or metadata[OLDER]
    header: dict[str, Any] = parse_json(text, f"{file}, its header", dict, finite=False)
    told = header.pop(CHECKSUM, None)
    if told != _checksum(header, tensors) and (told is not None or FORMAT in metadata):
        raise Unreadable(f"{file}: does not fit its checksum; it was altered or damaged")
    return tensors, header


def _checksum(header: dict[str, Any], tensors: Params) -> str:
    """SHA-256 of the header and of every tensor: its name, type, shape and bytes."""
    digest = hashlib.sha256(json.dumps(header).encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"\n{name} {value.dtype} {list(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def save_state(file: Path, state: ClusterState, header: dict[str, Any]) -> None:
    """Write a checkpoint, live models only; header: what must be the same when the run goes on."""
    tensors, known = _parts_of(state)
    known["progress"], kept = {name: getattr(state.progress, name) for name in PROGRESS}, state.progress.kept
    if state.progress.first is not None:
        tensors[FIRST] = state.progress.first
    if kept is not None:
        more, known["progress"]["kept"] = _parts_of(kept)
        tensors |= {f"{KEPT}{name}": value for name, value in more.items()}
    save_tensors(file, tensors, {**known, **header})


def _parts_of(state: ClusterState) -> tuple[Params, dict[str, Any]]:
    """The tensors of a state without its progress, and the other things."""
    live = places_of(state.live)
    tensors = {f"theta.{name}": value[live] for name, value in state.theta.items()}
    tensors |= {name: getattr(state, name) for name in PER_CLIENT}
    tensors |= {f"memory.{name}": value for name, value in state.memory.items()}
    tensors |= {f"moments.{name}": value for name, value in state.moments.items()}
    tensors |= {f"checks.{name}": value for name, value in state.checks.items()}
    counts = {name: getattr(state, name) for name in COUNTS}
    beside = [n for n, v in (state.memory | state.moments).items() if v.device.type != "cpu"]
    return tensors, {"state": counts, "live": state.live.tolist(), "memory_beside_models": beside}


def load_state(file: Path, device: torch.device, check: Callable[[dict[str, Any]], None]) -> ClusterState:
    """Read a checkpoint; check sees the header first and may refuse it."""
    tensors, header = load_tensors(file)
    check_header(file, header, StateHeader)
    check(header)
    if "live" not in header:
        tensors, header = _as_now(file, tensors, header)
    check_state(file, tensors, header["live"])
    if (kept := (header.get("progress") or {}).get("kept")) is not None:
        check_state(file, _below("kept", tensors), kept["live"])
    return replace(
        _state_of({n: v for n, v in tensors.items() if not n.startswith(KEPT)}, header, device),
        progress=_progress_of(tensors, header, device),
    )


def _progress_of(tensors: Params, header: dict[str, Any], device: torch.device) -> Progress:
    """The progress that a checkpoint holds; of an older version there is none."""
    found: dict[str, Any] = header.get("progress") or {}
    fields = {name: found[name] for name in PROGRESS if name in found}
    fields |= {name: tuple(fields[name]) for name in ("halved", "unrecorded") if name in fields}
    kept = found.get("kept")
    state = None if kept is None else _state_of(_below("kept", tensors), kept, device)
    return Progress(kept=state, first=tensors.get(FIRST), **fields)


def _state_of(tensors: Params, header: dict[str, Any], device: torch.device) -> ClusterState:
    live = torch.tensor(header["live"])
    fields: dict[str, Any] = {name: header["state"][name] for name in COUNTS}
    fields |= {name: tensors[name] for name in PER_CLIENT}
    beside = header.get("memory_beside_models", ())  # what a method keeps on the models' device
    memory, moments = (
        {n: v.to(device) if n in beside else v for n, v in _below(part, tensors).items()}
        for part in ("memory", "moments")
    )
    return ClusterState(
        theta={n: _spread(v, live).to(device) for n, v in _below("theta", tensors).items()},
        live=live,
        memory=memory,
        moments=moments,
        checks=_below("checks", tensors),
        **fields,
    )


def models_of(file: Path) -> tuple[Params, dict[str, Any]]:
    """The models of models.safetensors, and its header with the number of each: "clusters"."""
    theta, header = load_tensors(file)
    if "algorithm" not in header:
        raise InvalidInput(f"{file}: does not hold the models of this run")
    check_header(file, header, ModelsHeader)
    if "clusters" not in header:  # an older version, which wrote a place without a model as NaN
        check_models(file, theta, len(next(iter(theta.values()), ())))
        live = _not_nan(theta)
        header["clusters"] = places_of(live).tolist()
        theta = {name: value[live] for name, value in theta.items()}
    check_models(file, theta, len(header["clusters"]))
    check_scaling(file, header)
    return theta, header


def _below(prefix: str, tensors: Params) -> Params:
    return {n.removeprefix(f"{prefix}."): v for n, v in tensors.items() if n.startswith(f"{prefix}.")}


def _spread(value: Tensor, live: Tensor) -> Tensor:
    wide = value.new_zeros(len(live), *value.shape[1:])
    wide[live] = value
    return wide


def _not_nan(theta: Params) -> Tensor:
    """Which places hold a model, as older versions wrote it: a place without one was NaN."""
    first = torch.stack([value.reshape(len(value), -1)[:, 0].double() for value in theta.values()])
    return ~first.isnan().any(0)


def _as_now(file: Path, tensors: Params, header: dict[str, Any]) -> tuple[Params, dict[str, Any]]:
    """A checkpoint of an older version, in the names of this one."""
    theta = _below("theta", tensors)
    check_models(file, theta, len(next(iter(theta.values()), ())))
    live = _not_nan(theta)
    named = {f"theta.{name}": value[live] for name, value in _below("theta", tensors).items()}
    named |= {f"memory.{name}": value for name, value in _below("watch", tensors).items()}
    single = {name: value for name, value in header["state"].items() if name not in COUNTS}
    for name, value in single.items():
        kind = torch.float64 if isinstance(value, float) else torch.long
        named[f"memory.{name}"] = torch.tensor(value, dtype=kind)
    return named | {name: tensors[name] for name in PER_CLIENT if name in tensors}, {
        **header,
        "live": live.tolist(),
    }
