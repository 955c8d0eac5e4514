"""Small files in the formats of the public data sets, and where the real ones are."""

from __future__ import annotations

import gzip
import json
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ifca.data.public.places import VARIABLE, find
from ifca.runs.summary_file import write_summary


def real(dataset: str, *names: str) -> pytest.MarkDecorator:
    """Skip a test where the real files are not at hand."""
    absent = [name for name in names if find(dataset, (name,)) is None]
    reason = f"{dataset}: {', '.join(absent)} not in {VARIABLE} or the cache; 'ifca data get {dataset}'"
    return pytest.mark.skipif(bool(absent), reason=reason)


def reseal(folder: Path) -> None:
    """Let a run's summary vouch for its files as they are now, as if the run had written them so."""
    content = json.loads((folder / "summary.json").read_text())
    write_summary(folder, {name: value for name, value in content.items() if name != "checksums"})


def idx(array: NDArray[Any]) -> bytes:
    """An array as the bytes of an idx file."""
    code = {"uint8": 8, "int32": 12}[array.dtype.name]
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, code, array.ndim]) + sizes + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write_mnist(folder: Path, train: int = 60, test: int = 20, *, packed: bool = True) -> None:
    """Random images in MNIST's four files; the first pixels of an image count it."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for part, n in (("train", train), ("t10k", test)):
        images = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        images[:, 0, 0] = np.arange(n)
        labels = np.concatenate([np.arange(10), rng.integers(0, 10, n - 10)]).astype(np.uint8)
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            content = idx(array)
            file = folder / f"{part}-{name}-ubyte{'.gz' if packed else ''}"
            file.write_bytes(gzip.compress(content, mtime=0) if packed else content)


def write_cifar(folder: Path, n: int = 10, *, binary: bool = True) -> None:
    """Random images in CIFAR-10's six batches of n; the first pixels of an image count it."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for batch, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        pixels = rng.integers(0, 256, (n, 3072), dtype=np.uint8)
        pixels[:, 0] = batch * n + np.arange(n)
        labels = (np.arange(n) % 10).astype(np.uint8)
        if binary:
            (folder / f"{name}.bin").write_bytes(np.concatenate([labels[:, None], pixels], 1).tobytes())
        else:
            content = {b"batch_label": name.encode(), b"labels": labels.tolist(), b"data": pixels}
            (folder / name).write_bytes(pickle.dumps(content, protocol=2))


def write_leaf(folder: Path, sizes: dict[str, tuple[int, int]], *, packed: bool = True) -> None:
    """LEAF's JSON files, one per part, for writers with so many training and test images."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for place, part in enumerate(("train", "test")):
        data = {
            writer: {
                "x": (rng.integers(0, 256, (counts[place], 784)) / 255).tolist(),
                "y": rng.integers(0, 62, counts[place]).tolist(),
            }
            for writer, counts in sizes.items()
            if counts[place]
        }
        content = {"users": list(data), "num_samples": [len(own["y"]) for own in data.values()]}
        text = json.dumps({**content, "user_data": data}).encode()
        file = folder / f"all_data_0_niid_05_keep_0_{part}_9.json{'.gz' if packed else ''}"
        file.write_bytes(gzip.compress(text) if packed else text)
