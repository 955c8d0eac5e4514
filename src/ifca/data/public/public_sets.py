"""The public data sets of the experiments: their mirrors and their hashes."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ifca.core.errors import InvalidInput
from ifca.data.files import write_atomically
from ifca.data.public import cifar, mnist, writers
from ifca.data.public.download import Remote
from ifca.data.public.femnist import femnist, femnist_place
from ifca.data.public.fetch import Folder, Source, checked
from ifca.data.public.places import VARIABLE, data_folders, find
from ifca.data.public.rotated import Images

MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
)
MNIST = tuple(
    Remote(f"{name}.gz", md5, tuple(f"{mirror}/{name}.gz" for mirror in MNIST_MIRRORS))
    for name, md5 in (
        ("train-images-idx3-ubyte", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        ("train-labels-idx1-ubyte", "d53e105ee54ea40749a09fcbcd1e9432"),
        ("t10k-images-idx3-ubyte", "9fb629c4189551a2d022fa330f9573f3"),
        ("t10k-labels-idx1-ubyte", "ec29112dd5afa0611ce80d1b7f02629c"),
    )
)
CIFAR = Remote(
    "cifar-10-binary.tar.gz",
    "c32a1d4ab5d03f1284b67883e8d87530",
    (
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/cifar-10-binary.tar.gz",
    ),
)
QMNIST = tuple(
    Remote(name, md5, (f"https://raw.githubusercontent.com/facebookresearch/qmnist/master/{name}",))
    for name, md5 in (
        ("qmnist-train-labels-idx2-int.gz", "0058f8dd561b90ffdd0f734c6a30e5e4"),
        ("qmnist-test-labels-idx2-int.gz", "5b5b05890a5e13444e108efe57b788aa"),
    )
)
LEAF = (
    "LEAF makes it from NIST's files: in a clone of https://github.com/TalwalkarLab/leaf run "
    "'./preprocess.sh -s niid --sf 0.05 -k 100 -t sample' in data/femnist, then copy its data/train and "
    "data/test there"
)


def _unpack_cifar(place: Path) -> None:
    archive = place / CIFAR.name
    with tarfile.open(archive) as content:
        for name in cifar.MD5:
            file = content.extractfile(f"cifar-10-batches-bin/{name}.bin")
            assert file is not None
            write_atomically(place / f"{name}.bin", checked(name, file.read(), cifar.MD5[name]))
    archive.unlink()


def _unpack_writers(place: Path) -> None:
    """QMNIST's labels [n, 8]: class, part of NIST (hsf), writer, ...; its first rows are MNIST's images."""
    arrays = {}
    for part, n, remote in (("train", 60000, QMNIST[0]), ("test", 10000, QMNIST[1])):
        labels = mnist.read_idx(place / remote.name)[:n]
        arrays[f"{part}_writer"] = labels[:, 2].astype(np.int16)
        arrays[f"{part}_hsf"] = labels[:, 1].astype(np.int8)
    for name, array in arrays.items():
        checked(name, array.astype(array.dtype.newbyteorder("<")).tobytes(), writers.MD5[name])
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    write_atomically(place / writers.FILE, content.getvalue())
    for remote in QMNIST:
        (place / remote.name).unlink()


def _holder(dataset: str, names: list[str]) -> Callable[[Folder], Path | None]:
    def where(folder: Folder) -> Path | None:
        file = find(dataset, names, folder)
        return None if file is None else file.parent

    return where


def _images(read: Callable[..., tuple[Images, Images]]) -> Callable[[Folder], str]:
    def check(folder: Folder) -> str:
        train, test = read(folder)
        return f"{len(train.x):,} training and {len(test.x):,} test images"

    return check


def _femnist(folder: Folder) -> str:
    return f"{len(femnist(folder, min_images=1).train)} writers"


def _writers(folder: Folder) -> str:
    return f"{len(np.unique(writers.read_writers(folder)[0]))} writers of training images"


SOURCES = (
    Source(
        "mnist",
        "MNIST, handwritten digits, 12 MB",
        _holder("mnist", [name for file in mnist.MD5 for name in (f"{file}.gz", file)]),
        _images(mnist.read_mnist),
        MNIST,
    ),
    Source(
        "cifar10",
        "CIFAR-10, small photographs, 170 MB to fetch, 184 MB",
        _holder("cifar10", [place.format(file) for place in cifar.PLACES for file in cifar.MD5]),
        _images(cifar.read_cifar),
        (CIFAR,),
        _unpack_cifar,
    ),
    Source(
        "mnist-writers",
        "who wrote MNIST's digits, from QMNIST's labels",
        _holder("mnist-writers", [writers.FILE]),
        _writers,
        QMNIST,
        _unpack_writers,
    ),
    Source(
        "femnist",
        "LEAF's FEMNIST, handwritten characters by writer",
        femnist_place,
        _femnist,
        by_hand=LEAF,
    ),
)


def source_of(name: str) -> Source:
    """The data set of a name."""
    for source in SOURCES:
        if source.name == name:
            return source
    raise InvalidInput(f"unknown data set {name} (known: {', '.join(source.name for source in SOURCES)})")


def not_here(name: str) -> str:
    """What to say of a data set that is nowhere."""
    places = " nor in ".join(str(folder / name) for folder in data_folders())
    how = source_of(name).by_hand or f"'ifca data get {name}' fetches it"
    return f"{name}, which is not in {places}; {how}, or say where it is (--data-dir or {VARIABLE})"
