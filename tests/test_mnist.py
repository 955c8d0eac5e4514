"""Rotated MNIST: the deal by the paper, files that are missing, cut off or altered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ifca.core.errors import InvalidInput
from ifca.data import Federation, read_idx, read_mnist, rotated_mnist
from ifca.runs.config import read_config, with_absolute_paths
from ifca.runs.make import make_federation, make_job
from tests.files import idx, real, write_mnist

MNIST = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz")


def small(folder: Path, **options: Any) -> Federation:
    return rotated_mnist(folder, **{"samples": 5, "verify": False, **options})


def angles_of(federation: Federation) -> tuple[dict[int, int], dict[int, int]]:
    assert federation.test is not None
    counted = []
    for part in (federation.train, federation.test):
        assert part.true_cluster is not None
        counted.append({int(angle): int((part.true_cluster == angle).sum()) for angle in part.true_cluster})
    return counted[0], counted[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_mnist(tmp_path / "mnist")
    return tmp_path


def test_each_rotation_deals_all_training_images_in_an_order_of_its_own(folder: Path) -> None:
    federation = small(folder)
    train, test = read_mnist(folder, verify=False)
    assert federation.test is not None
    assert angles_of(federation) == (
        dict.fromkeys((0, 90, 180, 270), 12),
        dict.fromkeys((0, 90, 180, 270), 4),
    )
    assert federation.train.x.dtype == torch.uint8
    orders = []
    for turn, x in enumerate(federation.train.x.reshape(4, 60, 28, 28).numpy()):
        upright = np.rot90(x, -turn, axes=(1, 2))
        order = upright[:, 0, 0]  # the pixel that counts
        np.testing.assert_array_equal(upright, train.x[order])
        np.testing.assert_array_equal(federation.train.y[turn * 60 : turn * 60 + 60], train.y[order])
        assert sorted(order.tolist()) == list(range(60))
        orders.append(order.tolist())
    assert len({tuple(order) for order in orders}) == 4
    for turn, x in enumerate(federation.test.x.reshape(4, 20, 28, 28).numpy()):
        np.testing.assert_array_equal(np.rot90(x, -turn, axes=(1, 2)), test.x)  # in order
    assert not set(federation.train.ids) & set(federation.test.ids)


def test_the_deal_follows_from_the_seed(folder: Path) -> None:
    assert small(folder, seed=1).fingerprint == small(folder, seed=1).fingerprint
    assert small(folder, seed=1).fingerprint != small(folder, seed=2).fingerprint


def test_fewer_clients_are_the_first_of_all(folder: Path) -> None:
    few, whole = small(folder, clients=8, test_clients=4), small(folder)
    assert angles_of(few) == (dict.fromkeys((0, 90, 180, 270), 2), dict.fromkeys((0, 90, 180, 270), 1))
    for i, name in enumerate(few.train.ids):
        np.testing.assert_array_equal(
            few.train.arrays(i)[0], whole.train.arrays(whole.train.ids.index(name))[0]
        )


def test_unequal_populations(folder: Path) -> None:
    federation = small(folder, samples=1, shares=(0.7, 0.2, 0.05, 0.05))
    assert angles_of(federation) == ({0: 60, 90: 17, 180: 4, 270: 4}, {0: 20, 90: 6, 180: 1, 270: 1})


def test_no_structure(folder: Path) -> None:
    federation = small(folder, angles=(0, 0))
    assert angles_of(federation) == ({0: 24}, {0: 8})
    assert len(set(federation.train.ids)) == 24
    assert not torch.equal(federation.train.x[:60], federation.train.x[60:])
    assert angles_of(small(folder, angles=(0,))) == ({0: 12}, {0: 4})


def test_raw_files_and_a_folder_that_holds_them_itself(folder: Path, tmp_path: Path) -> None:
    write_mnist(tmp_path / "raw", packed=False)
    assert small(tmp_path / "raw").fingerprint == small(folder).fingerprint


def test_the_environment_names_the_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IFCA_DATA", str(folder))
    assert len(rotated_mnist(samples=5, verify=False).train) == 48
    monkeypatch.setenv("IFCA_DATA", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (folder / "mnist").rename(tmp_path / "ifca")
    assert len(rotated_mnist(samples=5, verify=False).train) == 48


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"angles": (0, 45)}, r"data\.angles must be multiples of 90"),
        ({"angles": ()}, r"data\.angles must be multiples of 90"),
        ({"samples": 21}, r"data\.samples is larger than the set of images"),
        ({"shares": (0.5, 0.5)}, r"data\.shares has 2 entries but data\.angles has 4"),
        ({"shares": (0.5, 0.5, 0.5, 0.5)}, r"data\.shares must be positive and add up to 1"),
        ({"clients": 400}, r"data\.clients = 400 needs 100 clients of one angle; there are images for 12"),
        ({"test_clients": 3}, r"data\.test_clients = 3 leaves an angle without a client"),
    ],
)
def test_impossible_deals(folder: Path, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        small(folder, **options)


class TestFiles:
    FILE = "train-images-idx3-ubyte.gz"

    def test_missing(self, folder: Path) -> None:
        (folder / "mnist" / self.FILE).unlink()
        with pytest.raises(
            InvalidInput, match=r"mnist/train-images-idx3-ubyte\.gz: no such file.*data get mnist"
        ):
            small(folder)

    @pytest.mark.parametrize("packed", [True, False])
    @pytest.mark.parametrize("keep", [1, 3, 10, 300, -1])
    def test_cut_off(self, tmp_path: Path, packed: bool, keep: int) -> None:
        write_mnist(tmp_path, packed=packed)
        file = tmp_path / (self.FILE if packed else self.FILE.removesuffix(".gz"))
        file.write_bytes(file.read_bytes()[:keep])
        with pytest.raises(InvalidInput, match=r"train-images-idx3-ubyte(\.gz)?: .*; delete it and"):
            small(tmp_path)

    def test_altered(self, folder: Path) -> None:
        with pytest.raises(InvalidInput, match=r"train-images-idx3-ubyte\.gz: .*altered.*data get mnist"):
            small(folder, verify=True)
        file = folder / "mnist" / "train-labels-idx1-ubyte.gz"
        file.write_bytes(idx(np.zeros(3, np.uint8)))
        with pytest.raises(InvalidInput, match=r"train-labels-idx1-ubyte\.gz: labels of shape \(3,\)"):
            small(folder)

    def test_other_types(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(idx(np.array([[1, -2], [70000, 4]], np.int32)))
        assert read_idx(tmp_path / "a").tolist() == [[1, -2], [70000, 4]]


def test_a_config_names_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [f"data={{name='rotated-mnist', folder='{folder}', samples=10, verify=false, seed=3}}"]
    job = make_job(read_config(None, settings))
    assert job.federation.fingerprint == small(folder, samples=10, seed=3).fingerprint
    assert job.recipe.k == 4
    monkeypatch.chdir(folder)
    near = with_absolute_paths(read_config(None, ["data={name='rotated-mnist', folder='.'}"]))
    assert near.data.folder == str(folder)  # type: ignore[union-attr]
    with pytest.raises(InvalidInput, match=r"data\.folder must be a text in quotes"):
        read_config(None, ["data={name='rotated-mnist', folder=3}"])
    with pytest.raises(InvalidInput, match=r"unknown key data\.angle; did you mean data\.angles"):
        read_config(None, ["data={name='rotated-mnist', angle=3}"])


@real("mnist", *MNIST)
@pytest.mark.parametrize(("n", "m", "tested"), [(50, 4800, 800), (200, 1200, 200)])
def test_the_papers_sizes(n: int, m: int, tested: int) -> None:
    federation = make_federation(read_config(None, [f"data={{name='rotated-mnist', samples={n}}}"]))
    assert federation.test is not None
    assert (len(federation.train), len(federation.test), federation.classes) == (m, tested, 10)
