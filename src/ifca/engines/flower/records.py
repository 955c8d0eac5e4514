"""Tensors as Flower records and back: raw bytes with a type and a shape, nothing that could be code.

A message to a client holds the shared layers once and the clustered layers k times, or once where the client
is sent its own model only. A reply holds one update.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from ifca.core.errors import InvalidInput
from ifca.core.types import Params
from ifca.engines.flower.private_api import RECORDS, get

RAW = "raw"  # how the bytes are to be read: row by row, little-endian
KINDS = {"float16": torch.float16, "float32": torch.float32, "float64": torch.float64}
NAMES = {kind: name for name, kind in KINDS.items()}
Record = ArrayRecord | ConfigRecord | MetricRecord
REFUSED = "refused"  # what a client is told that is not taken, and why
CLUSTERED, SHARED, UPDATE, TURN, REPLY = "clustered", "shared", "update", "turn", "reply"


def to_record(params: Params) -> ArrayRecord:
    """Tensors -> bytes, in one array whose name is the layout: every object of a message is a request."""
    values = list(params.values())
    flat = torch.cat([value.detach().reshape(-1) for value in values]).cpu().numpy()
    little = flat.astype(flat.dtype.newbyteorder("<"), copy=False)
    layout = json.dumps({name: list(value.shape) for name, value in params.items()}, separators=(",", ":"))
    return ArrayRecord({layout: Array(NAMES[values[0].dtype], flat.shape, RAW, little.tobytes())})


def from_record(record: ArrayRecord) -> Params:
    """Bytes -> tensors; what does not add up is refused."""
    if len(record) != 1:
        raise InvalidInput(f"expected one array, got {len(record)}")
    ((layout, array),) = record.items()
    shapes = _shapes(layout)
    if array.stype != RAW or array.dtype not in KINDS:
        raise InvalidInput(f"an array of type {array.stype} {array.dtype}, expected {RAW} floats")
    kind = np.dtype(array.dtype).newbyteorder("<")
    sizes = [math.prod(shape) for shape in shapes.values()]
    if sum(sizes) * kind.itemsize != len(array.data):
        raise InvalidInput(f"{len(array.data)} bytes of {array.dtype} are no {layout[:80]!r}")
    native = np.frombuffer(array.data, kind).astype(kind.newbyteorder("="))  # astype copies: writable
    parts = torch.split(torch.from_numpy(native), sizes)  # type: ignore[no-untyped-call]
    return {name: part.reshape(shapes[name]) for name, part in zip(shapes, parts, strict=True)}


def _shapes(layout: str) -> dict[str, list[int]]:
    try:
        shapes: dict[str, list[int]] = json.loads(layout)
        usable = all(_is_shape(shape) for shape in shapes.values())
    except (ValueError, AttributeError, RecursionError) as reason:
        raise InvalidInput(f"an array named {layout[:80]!r} has no layout") from reason
    if not shapes or not usable:
        raise InvalidInput(f"{layout[:80]!r} is no layout of parameters")
    return shapes


def _is_shape(shape: Any) -> bool:
    """A list of whole numbers that torch can count with, also beside a zero."""
    whole = isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
    return whole and math.prod(filter(None, shape)) < 2**62


def pack(theta: Params, shared: frozenset[str]) -> dict[str, ArrayRecord]:
    """The k models as records; shared layers, which are equal in all of them, once."""
    once = {name: value[0] for name, value in theta.items() if name in shared}
    many = {name: value for name, value in theta.items() if name not in shared}
    return {CLUSTERED: to_record(many), **({SHARED: to_record(once)} if once else {})}


def unpack(content: RecordDict) -> Params:
    """The inverse of pack: the k models, stacked. No more than one copy of shared layers is made."""
    many = from_record(content.array_records[CLUSTERED])
    counts = {tuple(value.shape[:1]) for value in many.values()}
    if len(counts) > 1 or () in counts:
        raise InvalidInput("a message's models are not equally many of every parameter")
    (k,) = counts.pop()
    once = from_record(content.array_records[SHARED]) if SHARED in content.array_records else {}
    return many | {name: value.expand(k, *value.shape) for name, value in once.items()}


class ByteCounter:
    """Counts the bytes that go over the wire: all objects that Flower makes of a record, each record once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Record, int]] = {}  # keeps the record, so ids stay unique

    def count(self, content: RecordDict) -> int:
        """Bytes of a message's content."""
        return sum(self._one(record) for record in content.values())

    def _one(self, record: Record) -> int:
        if id(record) not in self._known:
            self._known[id(record)] = (record, byte_count(record))
        return self._known[id(record)][1]


def byte_count(record: Record) -> int:
    """Bytes of one record and all its parts, headers included."""
    with get(RECORDS, "no_object_id_recompute")():  # each part is hashed once
        return sum(len(part.deflate()) for part in get(RECORDS, "get_all_nested_objects")(record).values())
