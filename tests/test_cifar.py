"""Rotated CIFAR from binary and python batches; pickles that would run something are refused."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from ifca.core.errors import InvalidInput
from ifca.data import read_cifar, rotated_cifar
from ifca.data.public.pickles import load_arrays
from ifca.runs.config import read_config
from ifca.runs.make import make_federation, make_job
from tests.files import real, write_cifar


def test_both_rotations_deal_all_images(tmp_path: Path) -> None:
    write_cifar(tmp_path / "cifar10")
    federation = rotated_cifar(tmp_path, samples=5, verify=False)
    train, test = read_cifar(tmp_path, verify=False)
    assert (train.x.shape, test.x.shape) == ((50, 3, 32, 32), (10, 3, 32, 32))
    assert federation.test is not None
    assert federation.train.true_cluster is not None
    assert federation.train.true_cluster.tolist() == [0] * 10 + [180] * 10
    assert len(federation.test) == 4
    assert federation.train.x.dtype == torch.uint8
    for half, x in enumerate(federation.train.x.reshape(2, 50, 3, 32, 32).numpy()):
        upright = x[..., ::-1, ::-1] if half else x
        np.testing.assert_array_equal(upright, train.x[upright[:, 0, 0, 0]])
    np.testing.assert_array_equal(federation.test.x[10:].numpy(), test.x[..., ::-1, ::-1])


def test_binary_and_python_batches_are_the_same(tmp_path: Path) -> None:
    write_cifar(tmp_path / "cifar10" / "cifar-10-batches-bin")
    write_cifar(tmp_path / "other" / "cifar-10-batches-py", binary=False)
    a, b = (rotated_cifar(tmp_path / name, samples=5, verify=False) for name in ("cifar10", "other"))
    assert a.fingerprint == b.fingerprint


@pytest.mark.parametrize("binary", [True, False])
def test_missing_cut_off_and_altered_files(tmp_path: Path, binary: bool) -> None:
    write_cifar(tmp_path, binary=binary)
    file = tmp_path / ("data_batch_3.bin" if binary else "data_batch_3")
    with pytest.raises(InvalidInput, match=r"data_batch_1(\.bin)?: .*altered.*data get cifar10"):
        rotated_cifar(tmp_path, samples=5)
    whole = file.read_bytes()
    for keep in (0, 100, len(whole) - 7):
        file.write_bytes(whole[:keep])
        with pytest.raises(InvalidInput, match=r"data_batch_3(\.bin)?: .*; delete it and"):
            rotated_cifar(tmp_path, samples=5, verify=False)
    file.unlink()
    with pytest.raises(InvalidInput, match=r"data_batch_3\.bin: no such file.*'ifca data get cifar10'"):
        rotated_cifar(tmp_path, samples=5, verify=False)


def test_pickles_run_nothing(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "harm"),)

    write_cifar(tmp_path, binary=False)
    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"data": Harmful()}))
    with pytest.raises(InvalidInput, match=r"test_batch: .*it asks for posix\.mkdir"):
        read_cifar(tmp_path, verify=False)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("protocol", range(5))
def test_arrays_are_read_from_every_protocol(protocol: int) -> None:
    content = {b"a": np.arange(3, dtype=np.uint8), b"b": [1, 2]}
    loaded = load_arrays(pickle.dumps(content, protocol=protocol))
    assert loaded[b"a"].tolist() == [0, 1, 2]
    assert loaded[b"b"] == [1, 2]


def test_a_config_names_it(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    data = f"data={{name='rotated-cifar', folder='{tmp_path}', samples=5, verify=false, clients=4}}"
    job = make_job(read_config(None, ["k=2", data, "model.name=cifar-cnn"]))
    assert len(job.federation.train) == 4
    assert job.model()(job.federation.train.x[:2].float()).shape == (2, 10)


@real("cifar10", "data_batch_1.bin", "test_batch.bin")
def test_the_papers_sizes() -> None:
    federation = make_federation(read_config(None, ["data={name='rotated-cifar'}"]))
    assert federation.test is not None
    assert (len(federation.train), len(federation.test), federation.classes) == (200, 40, 10)
    assert set(federation.train.sizes.tolist()) == {500}
