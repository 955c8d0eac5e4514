"""FEMNIST from LEAF's files and packed; MNIST by writer."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ifca.core.errors import InvalidInput
from ifca.data import Federation, femnist, mnist_writers, read_mnist
from ifca.runs.config import read_config
from ifca.runs.make import make_federation, make_job
from tests.files import real, write_leaf, write_mnist

PACKED = "femnist_leaf_395_writers.npz"
SIZES = {"b": (9, 1), "a": (18, 2), "small": (3, 1), "untested": (12, 0)}


def sizes_of(federation: Federation) -> tuple[dict[str, int], dict[str, int]]:
    assert federation.test is not None
    train, test = (
        dict(zip(part.ids, part.sizes.tolist(), strict=True)) for part in (federation.train, federation.test)
    )
    return train, test


class TestLeaf:
    def test_clients_are_writers(self, tmp_path: Path) -> None:
        write_leaf(tmp_path / "femnist", SIZES)
        federation = femnist(tmp_path, min_images=10)
        assert sizes_of(federation) == ({"a": 18, "b": 9, "untested": 12}, {"a": 2, "b": 1})
        assert federation.train.true_cluster is None
        assert (federation.classes, federation.input_shape) == (62, (28, 28))
        assert federation.train.x.dtype == torch.uint8
        content = json.loads(gzip.decompress(next((tmp_path / "femnist").glob("*_train_*")).read_bytes()))
        x, y = federation.train.arrays(0)
        np.testing.assert_allclose(x.reshape(18, 784) / 255, content["user_data"]["a"]["x"])
        assert y.tolist() == content["user_data"]["a"]["y"]

    def test_plain_files_in_leafs_own_folders(self, tmp_path: Path) -> None:
        write_leaf(tmp_path / "packed", SIZES)
        write_leaf(tmp_path / "data", SIZES, packed=False)
        for part in ("train", "test"):
            (tmp_path / "data" / part).mkdir()
            next((tmp_path / "data").glob(f"*_{part}_9.json")).rename(tmp_path / "data" / part / "any.json")
        a, b = (femnist(tmp_path / name, min_images=4) for name in ("packed", "data"))
        assert a.fingerprint == b.fingerprint
        assert len(a.train) == 4

    def test_the_smallest_writers_are_left_out(self, tmp_path: Path) -> None:
        write_leaf(tmp_path, SIZES)
        with pytest.raises(InvalidInput, match=r"no writer has 100 images; lower data\.min_images"):
            femnist(tmp_path)

    @pytest.mark.parametrize("packed", [True, False])
    def test_cut_off(self, tmp_path: Path, packed: bool) -> None:
        write_leaf(tmp_path, SIZES, packed=packed)
        file = next(tmp_path.glob("*_test_*"))
        whole = file.read_bytes()
        for keep in (0, 50, len(whole) - 9):
            file.write_bytes(whole[:keep])
            with pytest.raises(
                InvalidInput,
                match=r"_test_9\.json(\.gz)?: not (valid JSON|a whole .gz file).*cut off or altered",
            ):
                femnist(tmp_path)

    @pytest.mark.parametrize(
        ("change", "complaint"),
        [
            ({"num_samples": [1]}, r"train_9\.json: .*2 samples and 2 labels instead of 1"),
            ({"users": ["b"]}, r"train_9\.json: users does not list the user 'a'"),
            ({"user_data": {"a": {"x": [[0.5] * 783] * 2, "y": [0, 1]}}}, "writer a has no images"),
            ({"user_data": {"a": {"x": [[0.501] * 784] * 2, "y": [0, 1]}}}, "writer a has no images"),
            ({"user_data": {"a": {"x": [[1.0] * 784] * 2, "y": [0, 62]}}}, "client a: y has the label 62"),
        ],
    )
    def test_altered(self, tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
        write_leaf(tmp_path, {"a": (2, 1)}, packed=False)
        file = next(tmp_path.glob("*_train_*"))
        file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
        with pytest.raises(InvalidInput, match=complaint):
            femnist(tmp_path, min_images=1)

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput, match="femnist: no FEMNIST files there; 'ifca data get femnist'"):
            femnist(tmp_path)
        with pytest.raises(InvalidInput, match=r"no packed femnist\*\.npz there"):
            femnist(tmp_path, files="packed")
        write_leaf(tmp_path, SIZES)
        next(tmp_path.glob("*_test_*")).unlink()
        with pytest.raises(InvalidInput, match="LEAF's test files are not there"):
            femnist(tmp_path)

    def test_a_writer_in_two_files(self, tmp_path: Path) -> None:
        write_leaf(tmp_path, SIZES)
        file = next(tmp_path.glob("*_train_*"))
        file.with_name("all_data_1_train_9.json.gz").write_bytes(file.read_bytes())
        with pytest.raises(InvalidInput, match="user b stands in another file"):
            femnist(tmp_path)


class TestPacked:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        rng = np.random.default_rng(0)
        np.savez(
            tmp_path / "femnist_some.npz",
            x=rng.integers(0, 256, (7, 28, 28), dtype=np.uint8),
            y=np.arange(7, dtype=np.uint8),
            writer=np.array(["b", "a", "a", "b", "a", "b", "c"]),
            is_test=np.array([0, 0, 1, 1, 0, 0, 0], np.uint8),
        )
        return tmp_path / "femnist_some.npz"

    def test_clients_are_writers(self, file: Path) -> None:
        federation = femnist(file.parent, min_images=2)
        assert sizes_of(federation) == ({"a": 2, "b": 2}, {"a": 1, "b": 1})
        assert federation.train.y.tolist() == [1, 4, 0, 5]
        write_leaf(file.parent, SIZES)
        assert len(femnist(file.parent, min_images=2, files="leaf").train) == 4

    def test_damaged(self, file: Path) -> None:
        file.write_bytes(file.read_bytes()[:-40])
        with pytest.raises(InvalidInput, match=r"femnist_some\.npz: not a packed data set"):
            femnist(file.parent)
        np.savez(file, x=np.zeros((2, 28, 28)), y=[0, 0], writer=["a", "a"], is_test=[0, 0])
        with pytest.raises(InvalidInput, match=r"femnist_some\.npz: x of type float64"):
            femnist(file.parent)
        file.rename(file.with_name(PACKED))
        with pytest.raises(InvalidInput, match=r"femnist_leaf_395_writers\.npz: .*altered"):
            femnist(file.parent)


class TestWriters:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        write_mnist(tmp_path / "mnist")
        writer = np.array([7] * 30 + [3] * 20 + [9] * 10, np.int16)[np.random.default_rng(0).permutation(60)]
        np.savez(
            tmp_path / "mnist_writer_ids.npz", train_writer=writer, train_hsf=np.where(writer == 3, 4, 0)
        )
        return tmp_path

    def test_clients_are_writers(self, folder: Path) -> None:
        federation = mnist_writers(folder, verify=False)
        assert sizes_of(federation) == (
            {"w0003": 18, "w0007": 27, "w0009": 9},
            {"w0003": 2, "w0007": 3, "w0009": 1},
        )
        assert federation.test is not None
        assert federation.train.true_cluster is not None
        assert federation.train.true_cluster.tolist() == [4, 0, 0]
        images = read_mnist(folder, verify=False)[0]
        writer = np.load(folder / "mnist_writer_ids.npz")["train_writer"]
        counted = np.concatenate([federation.train.x[:18, 0, 0], federation.test.x[:2, 0, 0]])
        assert sorted(counted.tolist()) == np.flatnonzero(writer == 3).tolist()
        np.testing.assert_array_equal(federation.train.y[:18], images.y[counted[:18]])

    def test_options(self, folder: Path) -> None:
        federation = mnist_writers(folder, verify=False, min_images=15, populations=False, test_share=0.5)
        assert sizes_of(federation)[0] == {"w0003": 10, "w0007": 15}
        assert federation.train.true_cluster is None
        again = mnist_writers(folder, verify=False, min_images=15, populations=False, test_share=0.5, seed=1)
        assert again.fingerprint != federation.fingerprint
        with pytest.raises(InvalidInput, match=r"data\.min_images = 99"):
            mnist_writers(folder, verify=False, min_images=99)

    def test_files(self, folder: Path) -> None:
        file = folder / "mnist_writer_ids.npz"
        whole = file.read_bytes()
        file.write_bytes(whole[:-40])
        with pytest.raises(InvalidInput, match=r"mnist_writer_ids\.npz: not a readable .npz file"):
            mnist_writers(folder, verify=False)
        np.savez(file, train_writer=np.zeros(3), train_hsf=np.zeros(3))
        with pytest.raises(InvalidInput, match=r"mnist_writer_ids\.npz: 3 writers for 60 images"):
            mnist_writers(folder, verify=False)
        file.unlink()
        with pytest.raises(
            InvalidInput, match=r"mnist_writer_ids\.npz: no such file.*data get mnist-writers"
        ):
            mnist_writers(folder, verify=False)


def test_configs_name_them(tmp_path: Path) -> None:
    write_leaf(tmp_path, SIZES)
    data = f"data={{name='femnist', folder='{tmp_path}', min_images=10, files='leaf'}}"
    job = make_job(read_config(None, ["k=2", data, "model.name=femnist-cnn"]))
    assert job.model()(job.federation.train.x[:2].float()).shape == (2, 62)
    with pytest.raises(InvalidInput, match=r"data\.files must be one of auto, packed, leaf"):
        read_config(None, ["data={name='femnist', files='zip'}"])


@real("femnist", PACKED)
def test_the_395_writers() -> None:
    federation = make_federation(read_config(None, ["data={name='femnist'}"]))
    assert len(federation.train) == 359
    assert len(femnist(min_images=1).train) == 395


@real("femnist", PACKED, "all_data_0_niid_05_keep_0_train_9.json.gz")
def test_leafs_own_files_hold_what_is_packed() -> None:
    packed, leaf = femnist(min_images=1), femnist(min_images=1, files="leaf")
    assert packed.test is not None
    assert leaf.test is not None
    both = set(leaf.train.ids) & set(packed.train.ids)
    assert len(both) == 10
    for name in both:
        for parts in ((packed.train, leaf.train), (packed.test, leaf.test)):
            mine, theirs = (
                {(x.tobytes(), int(y)) for x, y in zip(*part.arrays(part.ids.index(name)), strict=True)}
                for part in parts
            )
            assert mine <= theirs
            assert len(theirs - mine) <= 1  # an image of each of them was not packed


@real("mnist-writers", "mnist_writer_ids.npz")
@real("mnist", "train-images-idx3-ubyte.gz")
def test_the_539_writers() -> None:
    federation = make_federation(read_config(None, ["data={name='mnist-writers'}"]))
    assert federation.test is not None
    assert (len(federation.train), len(federation.train.x) + len(federation.test.x)) == (539, 60000)
    assert federation.train.true_cluster is not None
    assert np.bincount(federation.train.true_cluster)[[0, 4]].tolist() == [289, 250]
