"""The state after a round in one file: safetensors with a JSON header, written atomically, no code in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from ifca.core.errors import InvalidInput
from ifca.core.types import ClusterState, Params, Watch
from ifca.data.files import write_atomically

FORMAT, CHECKSUM = "ifca-1", "sha256"
PER_CLIENT = ("identity", "asked", "bytes_down", "bytes_up")
WATCHED = ("sketch", "losses", "seen", "born", "before", "last", "held", "given", "waits")
WATCH_COUNTS = ("until", "due", "tried", "pace", "loss")
COUNTS = ("round", "unchanged", "checked", "changed")


def save_tensors(file: Path, tensors: Params, header: dict[str, Any]) -> None:
    """Tensors and a JSON header as one safetensors file, with a checksum of both."""
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    text = json.dumps({**header, CHECKSUM: _checksum(header, plain)})
    write_atomically(file, save(plain, {FORMAT: text}))  # one entry: several would have no fixed order


def load_tensors(file: Path) -> tuple[Params, dict[str, Any]]:
    """The inverse of save_tensors; a file of another kind, cut off or altered is named in the complaint."""
    if not file.is_file():
        raise InvalidInput(f"{file}: no such file")
    try:
        with safe_open(file, "pt") as content:
            metadata = content.metadata() or {}
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
    except SafetensorError as reason:
        raise InvalidInput(
            f"{file}: not a readable safetensors file ({reason}); it may be cut off"
        ) from reason
    if FORMAT not in metadata:
        raise InvalidInput(f"{file}: was not written by this version of ifca (no {FORMAT} header)")
    try:
        header: dict[str, Any] = json.loads(metadata[FORMAT])
    except json.JSONDecodeError as reason:
        raise InvalidInput(f"{file}: has a header that is not JSON; it was altered or damaged") from reason
    if header.pop(CHECKSUM, None) not in (None, _checksum(header, tensors)):  # None: an older file
        raise InvalidInput(f"{file}: does not fit its checksum; it was altered or damaged")
    return tensors, header


def _checksum(header: dict[str, Any], tensors: Params) -> str:
    """SHA-256 of the header and of every tensor: its name, type, shape and bytes."""
    digest = hashlib.sha256(json.dumps(header).encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"\n{name} {value.dtype} {list(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def save_state(file: Path, state: ClusterState, header: dict[str, Any]) -> None:
    """Write a checkpoint; header: what must be the same when the run goes on."""
    tensors = {f"theta.{name}": value for name, value in state.theta.items()}
    tensors |= {name: getattr(state, name) for name in PER_CLIENT}
    counts = {name: getattr(state, name) for name in COUNTS}
    if state.watch is not None:
        tensors |= {f"watch.{name}": getattr(state.watch, name) for name in WATCHED}
        counts |= {name: getattr(state.watch, name) for name in WATCH_COUNTS}
    save_tensors(file, tensors, {"state": counts, **header})


def load_state(file: Path, device: torch.device, check: Callable[[dict[str, Any]], None]) -> ClusterState:
    """Read a checkpoint; check sees the header first and may refuse it."""
    tensors, header = load_tensors(file)
    check(header)
    theta = {n.removeprefix("theta."): v.to(device) for n, v in tensors.items() if n.startswith("theta.")}
    fields: dict[str, Any] = {name: header["state"][name] for name in COUNTS}
    fields |= {name: tensors[name] for name in PER_CLIENT}
    watch = None
    if "tried" in header["state"]:
        watched: dict[str, Any] = {name: tensors[f"watch.{name}"] for name in WATCHED}
        watch = Watch(**watched, **{name: header["state"][name] for name in WATCH_COUNTS})
    return ClusterState(theta=theta, **fields, watch=watch)
