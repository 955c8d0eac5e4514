"""Tensors as Flower records and back: raw bytes with a type and a shape, nothing that could be code.

A message to a client holds the shared layers once and the clustered layers k times, or once where the client
is sent its own model only. A reply holds one update.
"""

from __future__ import annotations

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import InflatableObject, get_all_nested_objects

from ifca.core.errors import InvalidInput
from ifca.core.types import Params

RAW = "raw"  # how the bytes are to be read: row by row, little-endian
KINDS = {"float16": torch.float16, "float32": torch.float32, "float64": torch.float64}
NAMES = {kind: name for name, kind in KINDS.items()}
CLUSTERED, SHARED, UPDATE, TURN, REPLY = "clustered", "shared", "update", "turn", "reply"


def to_record(params: Params) -> ArrayRecord:
    """Tensors -> bytes."""

    def array(value: torch.Tensor) -> Array:
        raw = value.detach().cpu().contiguous().numpy()
        little = raw.astype(raw.dtype.newbyteorder("<"), copy=False)
        return Array(NAMES[value.dtype], tuple(value.shape), RAW, little.tobytes())

    return ArrayRecord({name: array(value) for name, value in params.items()})


def from_record(record: ArrayRecord) -> Params:
    """Bytes -> tensors; what does not add up is refused by name."""

    def tensor(name: str, array: Array) -> torch.Tensor:
        if array.stype != RAW or array.dtype not in KINDS:
            raise InvalidInput(f"{name}: of type {array.stype} {array.dtype}, expected {RAW} floats")
        kind = np.dtype(array.dtype).newbyteorder("<")
        shape = tuple(int(size) for size in array.shape)
        if min(shape, default=0) < 0 or int(np.prod(shape, dtype=np.int64)) * kind.itemsize != len(
            array.data
        ):
            raise InvalidInput(f"{name}: {len(array.data)} bytes are no {array.dtype} of shape {shape}")
        native = np.frombuffer(array.data, kind).astype(kind.newbyteorder("="))  # astype copies: writable
        return torch.from_numpy(native).reshape(shape)

    return {name: tensor(name, array) for name, array in record.items()}


def pack(theta: Params, shared: frozenset[str]) -> dict[str, ArrayRecord]:
    """The k models as records; shared layers, which are equal in all of them, once."""
    once = {name: value[0] for name, value in theta.items() if name in shared}
    many = {name: value for name, value in theta.items() if name not in shared}
    return {CLUSTERED: to_record(many), **({SHARED: to_record(once)} if once else {})}


def unpack(content: RecordDict) -> Params:
    """The inverse of pack: the k models, stacked. No more than one copy of shared layers is made."""
    many = from_record(content.array_records[CLUSTERED])
    k = next(iter(many.values())).shape[0]
    once = from_record(content.array_records[SHARED]) if SHARED in content.array_records else {}
    return many | {name: value.expand(k, *value.shape) for name, value in once.items()}


class Scales:
    """Weighs what goes over the wire: all objects that Flower makes of a record. Shared records once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[InflatableObject, int]] = {}  # keeps the record, so ids stay unique

    def weigh(self, content: RecordDict) -> int:
        """Bytes of a message's content."""
        return sum(self._one(record) for record in content.values())

    def _one(self, record: InflatableObject) -> int:
        if id(record) not in self._known:
            self._known[id(record)] = (record, weigh(record))
        return self._known[id(record)][1]


def weigh(record: InflatableObject) -> int:
    """Bytes of one record and all its parts, headers included."""
    return sum(len(part.deflate()) for part in get_all_nested_objects(record).values())
