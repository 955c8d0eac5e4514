"""safetensors files: names, types and shapes are known before a tensor is read."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from ifca.core.errors import Unreadable
from ifca.data.formats.whole_file import check_regular


def read_tensors(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors, and what is noted beside them."""
    check_regular(file)
    try:
        with safe_open(file, "pt") as content:  # copies: its tensors are pages of the file, which may change
            tensors = {name: content.get_tensor(name).clone() for name in content.keys()}  # noqa: SIM118
            return tensors, content.metadata() or {}
    except (
        SafetensorError,
        OSError,
        ValueError,
        KeyError,
        RuntimeError,
        AttributeError,
        TypeError,
    ) as reason:
        why = " ".join(str(reason).split())[:200]
        raise Unreadable(f"{file}: not a readable safetensors file ({why}); it may be cut off") from None


def tensor_shape(file: Path, name: str) -> tuple[int, ...] | None:
    """The shape of one tensor; None: there is no such file yet, or no such tensor in it."""
    try:
        with safe_open(file, "np") as content:
            return tuple(content.get_slice(name).get_shape())
    except (SafetensorError, OSError):
        return None
