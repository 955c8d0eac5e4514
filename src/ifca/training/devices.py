"""Which device a training is on."""

from __future__ import annotations

import torch

from ifca.core.errors import InvalidInput


def choose_device(name: str) -> torch.device:
    """auto: CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise InvalidInput("device is cuda, but torch finds no CUDA device here")
    if name not in ("cpu", "cuda"):
        raise InvalidInput(f"device must be auto, cpu or cuda, got {name}")
    return torch.device(name)
