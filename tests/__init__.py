"""Tests. Without a GPU, kernels run in Triton's interpreter, asked for before anything imports them."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
