"""Pickles of numpy arrays, opened without letting them run anything."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

_RECONSTRUCT: Any = np.zeros(0).__reduce__()[0]  # numpy's own, wherever this version keeps it


def _latin1(text: str, _encoding: str) -> bytes:
    return text.encode("latin1")


ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _latin1,  # how newer pickles of old protocols spell bytes
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """What a pickle may call: what makes arrays, nothing else."""
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return ALLOWED[module, name]


def load_arrays(content: bytes) -> Any:
    """Lists, dicts and arrays from a pickle; ValueError where it is cut off or asks for anything else."""
    try:
        return _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
    except Exception as reason:  # a damaged pickle fails in many ways
        raise ValueError(f"not a readable pickle of arrays: {reason}") from reason
