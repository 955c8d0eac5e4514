"""What the headers of checkpoints and models must say, and which tensors must stand beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from typing_extensions import NotRequired, TypedDict

from ifca.core.errors import Unreadable
from ifca.core.types import Params
from ifca.data.formats.json_file import parse_json

PER_CLIENT = ("identity", "asked", "bytes_down", "bytes_up")
COUNTS = ("round", "unchanged", "checked", "changed")


class Counts(TypedDict):
    """The whole numbers of a state; older versions wrote some of a method's memory among them."""

    round: int
    unchanged: int
    checked: int
    changed: int


class Halved(TypedDict):
    """A time that the step was halved."""

    round: int
    step_size: float
    back_to: int
    because: str
    asked_again: NotRequired[list[str]]


class KeptState(TypedDict):
    """A state without its tensors."""

    state: Counts
    live: list[bool]
    memory_beside_models: NotRequired[list[str]]


class ProgressHeader(TypedDict, total=False):
    """As core's Progress."""

    kept: KeptState | None
    kept_loss: float
    halved: list[Halved]
    unrecorded: tuple[int, int]
    stopped: str | None
    unfinished: bool


class LogMark(TypedDict):
    """The length of the log when a checkpoint was written, and its SHA-256."""

    bytes: int
    sha256: str


class StateHeader(TypedDict):
    """A checkpoint's: its state, its run, and under what it may be gone on with. Older ones lack some."""

    state: Counts
    live: NotRequired[list[bool]]
    memory_beside_models: NotRequired[list[str]]
    progress: NotRequired[ProgressHeader]
    run: NotRequired[str | None]
    restart: NotRequired[int]
    data: NotRequired[str]
    config: NotRequired[dict[str, Any]]
    log: NotRequired[LogMark]


class ScalingHeader(TypedDict):
    """Of features or targets; nested as a sample is."""

    mean: Any
    scale: Any


class ColumnHeader(TypedDict):
    """As of data.preparation.Column."""

    name: str
    kind: Literal["number", "category", "yes-no", "set aside"]
    fill: float | str | None
    indicator: bool
    values: list[str]
    why: str


class PreparationHeader(TypedDict):
    """As of data.preparation.Preparation."""

    columns: list[ColumnHeader]
    label: list[str]
    class_names: list[str] | None
    regression: bool
    refuse_holes: bool


class BuiltInHeader(TypedDict):
    """As of models.BuiltIn."""

    name: str
    hidden: list[int]
    intercept: bool


class ModelsHeader(TypedDict):
    """Of models.safetensors; what may be missing is so in older files."""

    algorithm: str
    input_shape: NotRequired[list[int]]
    outputs: NotRequired[int]
    classes: NotRequired[int | None]
    run: NotRequired[str | None]
    personal: NotRequired[bool]
    clusters: NotRequired[list[int]]
    features: NotRequired[list[str] | None]
    pixels: NotRequired[bool]
    scaling: NotRequired[ScalingHeader | None]
    preparation: NotRequired[PreparationHeader | None]
    target_scaling: NotRequired[ScalingHeader | None]
    class_weights: NotRequired[list[float] | None]
    model: NotRequired[BuiltInHeader | None]


def check_header(file: Path, header: dict[str, Any], kind: type) -> None:
    """Refuse a header that is not of a kind."""
    parse_json(json.dumps(header), f"{file}, its header", kind, finite=False)


def check_state(file: Path, tensors: Params, live: list[bool]) -> None:
    """The tensors of a state: rows for clients, and a model for each place that is live."""
    for name in PER_CLIENT:
        value = tensors.get(name)
        if value is None or value.dim() != 1 or value.dtype != torch.long:
            raise Unreadable(f"{file}: has no list of whole numbers {name}; it was altered")
    if len({len(tensors[name]) for name in PER_CLIENT}) > 1:
        raise Unreadable(f"{file}: {', '.join(PER_CLIENT)} are of different length; it was altered")
    check_models(file, {n: v for n, v in tensors.items() if n.startswith("theta.")}, sum(live))
    identity = tensors["identity"]
    if len(identity) and not -1 <= int(identity.min()) <= int(identity.max()) < len(live):
        raise Unreadable(f"{file}: identity names clusters that are not there; it was altered")


def check_models(file: Path, theta: Params, count: int) -> None:
    """Parameters of so many models, one after the other: floats [count, ...]."""
    if not theta:
        raise Unreadable(f"{file}: holds no parameters; it was altered")
    for name, value in theta.items():
        if not value.is_floating_point():
            raise Unreadable(f"{file}: {name} is of type {value.dtype}, parameters are floats")
        if value.dim() == 0 or len(value) != count:
            shape = list(value.shape)
            raise Unreadable(f"{file}: {name} has the shape {shape}, but there are {count} models")


def check_scaling(file: Path, header: dict[str, Any]) -> None:
    """A mean and a scale for every feature, and for every target."""
    shape: tuple[int, ...] | None
    for name, shape in (("scaling", tuple(header.get("input_shape", ()))), ("target_scaling", None)):
        for part, values in (header.get(name) or {}).items():
            try:
                found = np.asarray(values)
            except ValueError:  # lists of unlike length
                found = np.array("")
            if (
                found.dtype.kind not in "fiu"
                or not np.isfinite(found).all()
                or (shape is not None and found.shape != shape)
            ):
                raise Unreadable(f"{file}: {name} has no {part} for every number; it was altered")
            if part == "scale" and not (found > 0).all():
                raise Unreadable(f"{file}: {name} divides by zero; it was altered")
