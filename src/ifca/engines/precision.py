"""How exact are products? Never less than asked for: TF32 and bfloat16 are explicit options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from ifca.core.errors import InvalidInput

if TYPE_CHECKING:  # a config names a precision; torch is imported by what uses it
    import torch

Precision = Literal["float32", "float64", "tf32", "bfloat16"]
"""float32 and float64: exact (convolutions by hand multiply float32 as three TF32 products, to about 1e-6).
tf32: float32 with products of 10-bit mantissas. bfloat16: layers in bfloat16, parameters and sums in
float32. The last two are for CUDA; bfloat16 also for a CPU that has such arithmetic."""


def storage(precision: Precision) -> torch.dtype:
    """The type of parameters."""
    import torch

    return torch.float64 if precision == "float64" else torch.float32


def check_precision(precision: Precision, device: torch.device) -> None:
    """Refuse what a device cannot do, or only slowly."""
    if device.type == "cpu" and precision == "tf32":
        raise InvalidInput("precision tf32 is for CUDA; on a CPU use float32 or float64")
    if device.type == "cpu" and precision == "bfloat16" and not _has_bfloat16():
        raise InvalidInput("precision bfloat16: this CPU has no such arithmetic; use float32 or float64")


def _has_bfloat16() -> bool:
    """Whether the CPU multiplies bfloat16 itself; a torch that cannot say so counts as no."""
    import torch

    known: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(known.get("avx512_bf16") or known.get("amx_bf16"))


def allows_tf32() -> bool:
    """Whether the user asked for it: what products() has set."""
    import torch

    return bool(torch.backends.cuda.matmul.allow_tf32)


@contextmanager
def products(precision: Precision) -> Iterator[None]:
    """Set torch's switches for products, and set them back; torch by itself lets convolutions use TF32."""
    import torch

    allowed = precision in ("tf32", "bfloat16")
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
