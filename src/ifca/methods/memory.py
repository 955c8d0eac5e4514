"""A method's own memory as a state carries it: a frozen record of tensors and numbers, as tensors by name."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, TypeVar

import torch
from torch import Tensor

from ifca.core.errors import InvalidInput
from ifca.core.types import Params

Record = TypeVar("Record")


def tensors_of(record: Any) -> Params:
    """The fields of a record, as a checkpoint writes them."""
    return {field.name: _tensor(getattr(record, field.name)) for field in fields(record)}


def record_of(kind: type[Record], memory: Params) -> Record:
    """Back from tensors; fields of type int and float are numbers, one with a default may be missing."""
    names = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
    needed = {field.name for field in fields(kind) if field.default is MISSING}  # type: ignore[arg-type]
    if not needed <= memory.keys() <= names.keys():
        raise InvalidInput(
            "this run was begun by another version, which found clusters otherwise: run it anew"
        )
    plain: dict[str, Any] = {
        name: value.item() if names[name] in ("int", "float") else value for name, value in memory.items()
    }
    return kind(**plain)


def _tensor(value: Tensor | float) -> Tensor:
    if isinstance(value, Tensor):
        return value
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else torch.long)
