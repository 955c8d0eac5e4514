"""Federations from every source; what cannot be trained on is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from ifca.core.errors import InvalidInput
from ifca.data import (
    Client,
    Federation,
    mixture_of_regressions,
    read_client,
    read_folder,
    rotated_digits,
    write_client,
)

X, Y = np.arange(12.0).reshape(6, 2), np.array([0, 1, 2, 0, 1, 2])


def test_arrays_datasets_and_folder_give_the_same_federation(tmp_path: Path) -> None:
    parts = [(X[:2], Y[:2]), (X[2:], Y[2:])]
    arrays = Federation.from_arrays([x for x, _ in parts], [y for _, y in parts], ids=["a", "b"])
    sets = [TensorDataset(torch.from_numpy(x), torch.from_numpy(y)) for x, y in parts]
    datasets = Federation.from_datasets(sets, ids=["a", "b"])
    for name, (x, y) in zip("ab", parts, strict=True):
        write_client(tmp_path / f"{name}.npz", Client(x, y))
    for other in (datasets, read_folder(tmp_path)):
        assert torch.equal(other.train.x, arrays.train.x)
        assert torch.equal(other.train.y, arrays.train.y)
        assert other.train.ids == ("a", "b")
        assert other.train.sizes.tolist() == [2, 4]
        assert other.classes == 3


def test_padding_keeps_sizes_and_repeats_a_real_row() -> None:
    federation = Federation.from_arrays([X[:1], X[1:4]], [Y[:1], Y[1:4]])
    data = federation.train.padded(np.array([0, 1]), torch.device("cpu"), torch.float32)
    assert data.weight.tolist() == [[1, 0, 0], [1, 1, 1]]
    assert data.x[0].tolist() == [[0, 1]] * 3


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"x": np.where(X == 5, np.nan, X)}, "client bad: x has a NaN or infinite value in row 2"),
        ({"x": np.where(X == 5, np.inf, X)}, "client bad: x has a NaN or infinite value in row 2"),
        ({"y": np.array([0, 1, -3, 0, 1, 2])}, "client bad: y has the label -3 in row 2"),
        ({"y": np.array([0, 1, 9, 0, 1, 2])}, "client bad: y has the label 9 in row 2, but classes is 3"),
        ({"x": X[:0], "y": Y[:0]}, "client bad: the client is empty"),
        ({"x": X[:3]}, "client bad: x has 3 samples but y has 6"),
        ({"x": X.reshape(6, 1, 2)}, "client bad: samples have x of shape"),
        ({"x": X.astype(np.uint8)}, "client bad: x, y are of type uint8"),
        ({"x": X[:, 0]}, "client bad: x must have a row per sample"),
        ({"x": np.array([["a", "b"]] * 6)}, "client bad: x must be numbers"),
        ({"y": Y / 2}, "client bad: x, y are of type float64, float64"),
        ({"x_test": X}, "client bad, test part: x and y must both be given"),
        ({"cluster": None}, "not for client bad"),
        ({"id": "good"}, "client ids must differ, but good stands twice"),
        ({"id": "a\nb"}, "line breaks or control characters"),
        ({"cluster": 1.5}, "client bad: cluster must be a whole number"),
        ({"x": [[1.0], [2.0, 3.0]]}, "client bad: x must be an array of numbers"),
        ({"x": X[:, :0]}, "client bad: x must have a row per sample"),
    ],
)
def test_bad_clients_are_named(change: dict[str, Any], complaint: str) -> None:
    good = Client(X, Y, id="good", cluster=0)
    bad = Client(**{"x": X, "y": Y, "id": "bad", "cluster": 0, **change})
    with pytest.raises(InvalidInput, match=complaint):
        Federation.from_clients([good, bad], classes=3)


def test_nobody_is_not_a_federation() -> None:
    with pytest.raises(InvalidInput, match="at least one client"):
        Federation.from_clients([])
    with pytest.raises(InvalidInput, match="y has 1 entries but x has 2 clients"):
        Federation.from_arrays([X, X], [Y])


def test_absurd_labels_must_be_meant() -> None:
    with pytest.raises(InvalidInput, match="label 1000000000000 in row 1; if that is right, give classes"):
        Federation.from_arrays([X[:2]], [np.array([0, 10**12])])


def test_tensors_and_odd_types_are_read() -> None:
    x = torch.ones(3, 2, requires_grad=True)
    odd = Federation.from_arrays([x, x.bfloat16(), np.ones((3, 2), np.longdouble)], [Y[:3]] * 3)
    assert set(odd.train.x.flatten().tolist()) == {1.0}


class TestFiles:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "phone.npz"
        write_client(path, Client(X, Y, X, Y, cluster=3))
        return path

    def test_a_file_reads_back(self, file: Path) -> None:
        client = read_client(file)
        assert (client.id, client.cluster) == ("phone", 3)
        np.testing.assert_array_equal(np.asarray(client.x_test), X)

    def test_cut_off(self, file: Path) -> None:
        for keep in (0, 10, 200, file.stat().st_size - 30):
            whole = file.read_bytes()
            file.write_bytes(whole[:keep])
            with pytest.raises(InvalidInput, match=r"phone\.npz: .*(cut off|empty)"):
                read_client(file)
            file.write_bytes(whole)

    def test_altered(self, file: Path) -> None:
        content = bytearray(file.read_bytes())
        content[150] ^= 0xFF  # inside the first array
        file.write_bytes(bytes(content))
        with pytest.raises(InvalidInput, match=r"phone\.npz"):
            read_client(file)

    def test_pickles_are_never_opened(self, file: Path) -> None:
        np.savez(file, x=np.array([{"a": 1}], dtype=object), y=Y)
        with pytest.raises(InvalidInput, match=r"phone\.npz: not a readable"):
            read_client(file)

    def test_a_bare_array_is_not_a_client(self, file: Path) -> None:
        with file.open("wb") as raw:
            np.save(raw, X)
        with pytest.raises(InvalidInput, match=r"phone\.npz: not a readable"):
            read_client(file)

    def test_wrong_arrays(self, file: Path) -> None:
        np.savez(file, x=X)
        with pytest.raises(InvalidInput, match=r"phone\.npz: has no array y \(found: x\)"):
            read_client(file)
        np.savez(file, x=X, y=Y, labels=Y)
        with pytest.raises(InvalidInput, match=r"phone\.npz: unknown array labels"):
            read_client(file)

    def test_folders(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput, match="no such folder"):
            read_folder(tmp_path / "nowhere")
        with pytest.raises(InvalidInput, match=r"no \.npz, \.csv or \.parquet file"):
            read_folder(tmp_path)


def test_rotated_digits_deals_every_rotation_its_own_order() -> None:
    federation = rotated_digits(samples=50, seed=1)
    assert federation.train.true_cluster is not None
    assert federation.test is not None
    assert (len(federation.train), federation.classes) == (112, 10)
    assert np.bincount(federation.train.true_cluster)[[0, 90, 180, 270]].tolist() == [28] * 4
    upright = np.rot90(federation.train.x[28 * 50 : 56 * 50].numpy(), -1, axes=(1, 2))
    zero = federation.train.x[: 28 * 50].numpy()
    assert not np.array_equal(upright, zero)  # another order
    together = {image.tobytes() for image in upright} & {image.tobytes() for image in zero}
    assert len(together) > 1300  # of nearly the same images
    seen = {image.tobytes() for image in zero}
    tested = [image.tobytes() for image in federation.test.x[:359].numpy()]
    assert sum(image in seen for image in tested) < 5  # training images are not tested on
    assert torch.equal(rotated_digits(seed=1).train.x, federation.train.x)


def test_synthetic_follows_its_law() -> None:
    federation, star = mixture_of_regressions(
        clients=6, samples=50, dimension=8, clusters=3, noise=0.0, seed=2
    )
    assert federation.train.true_cluster is not None
    x, y = federation.train.x.reshape(6, 50, 8), federation.train.y.reshape(6, 50)
    for i, j in enumerate(federation.train.true_cluster):
        torch.testing.assert_close(x[i] @ star[j], y[i], rtol=1e-5, atol=1e-5)
    assert federation.train.true_cluster.tolist() == [0, 0, 1, 1, 2, 2]
    unit = mixture_of_regressions(dimension=50, separation=0.7, norm="unit")[1]
    torch.testing.assert_close(unit.norm(dim=1), torch.full((2,), 0.7))
