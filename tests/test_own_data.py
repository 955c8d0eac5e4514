"""A user's own data in every form: the same federation, and every problem named by file and row."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from ifca.core.errors import InvalidInput
from ifca.data import Client, Federation, read_folder, write_client
from ifca.data.fit_preparation import Override
from ifca.data.sources.columns import Columns
from ifca.data.sources.folder import read_clients_table
from ifca.runs.config import read_config
from ifca.runs.inspect_data import inspect_path
from ifca.runs.make import make_federation

RNG = np.random.default_rng(0)
CLIENTS = {
    name: (RNG.normal(size=(n, 2)).round(3), RNG.integers(0, 3, n)) for name, n in (("a", 5), ("b", 7))
}
BOTH = Columns(label=("kind",), client="site")


def write_csv(file: Path, rows: list[list[Any]]) -> None:
    with file.open("w", newline="") as out:
        csv.writer(out).writerows(rows)


def rows_of(name: str) -> list[list[Any]]:
    x, y = CLIENTS[name]
    return [[*features, label] for features, label in zip(x.tolist(), y.tolist(), strict=True)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A .csv file per client."""
    (tmp_path / "clients").mkdir()
    for name in CLIENTS:
        write_csv(tmp_path / "clients" / f"{name}.csv", [["u", "v", "kind"], *rows_of(name)])
    return tmp_path / "clients"


def as_parquet(folder: Path) -> Path:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (other := folder.parent / "parquet").mkdir()
    for name, (x, y) in CLIENTS.items():
        pq.write_table(pa.table({"u": x[:, 0], "v": x[:, 1], "kind": y}), other / f"{name}.parquet")
    return other


def as_npz(folder: Path) -> Path:
    (other := folder.parent / "npz").mkdir()
    for name, (x, y) in CLIENTS.items():
        write_client(other / f"{name}.npz", Client(x, y))
    return other


def one_table(folder: Path) -> Path:
    """The rows of both clients, in turns, the client's column first."""
    rows = [[name, *row] for name in CLIENTS for row in rows_of(name)]
    mixed = [rows[i] for i in sorted(range(len(rows)), key=lambda i: (i % 5, i))]
    write_csv(folder.parent / "all.csv", [["site", "u", "v", "kind"], *mixed])
    return folder.parent / "all.csv"


def same(left: Federation, right: Federation) -> None:
    assert left.train.ids == right.train.ids
    assert left.classes == right.classes
    for i in range(len(left.train)):
        for a, b in zip(left.train.arrays(i), right.train.arrays(i), strict=True):
            np.testing.assert_array_equal(np.sort(a, axis=0), np.sort(b, axis=0))


def test_files_tables_and_datasets_give_the_same_federation(folder: Path) -> None:
    federation = read_folder(folder, columns=BOTH)
    assert federation.features == ("u", "v")
    assert federation.train.sizes.tolist() == [5, 7]
    np.testing.assert_array_equal(federation.train.arrays(0)[0], CLIENTS["a"][0])
    same(read_folder(as_parquet(folder), columns=BOTH), federation)
    same(read_folder(as_npz(folder)), federation)
    same(read_clients_table(one_table(folder), BOTH), federation)
    sets = {n: TensorDataset(torch.from_numpy(x), torch.from_numpy(y)) for n, (x, y) in CLIENTS.items()}
    same(Federation.from_datasets(sets), federation)
    tested = Federation.from_datasets({n: (s, sets["a"] if n == "b" else None) for n, s in sets.items()})
    assert tested.test is not None
    assert tested.test.ids == ("b",)


def test_columns_are_known_by_their_names(folder: Path) -> None:
    x, y = CLIENTS["b"]
    turned = [["kind", "v", "u"], *[[c, v, u] for (u, v), c in zip(x.tolist(), y.tolist(), strict=True)]]
    before = read_folder(folder, columns=BOTH)
    write_csv(folder / "b.csv", turned)
    same(read_folder(folder, columns=BOTH), before)
    write_csv(folder / "b.csv", [["note", *turned[0]], *[["hello", *row] for row in turned[1:]]])
    named = Columns(label=("kind",), features=("u", "v"))  # what is not named does not matter
    same(read_folder(folder, columns=named), before)


def test_whole_numbers_in_one_file_do_not_make_a_regression_a_classification(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", [["u", "target"], [1, 20], [2, 21]])
    write_csv(tmp_path / "b.csv", [["u", "target"], [1, 20.5], [2, 21]])
    assert read_folder(tmp_path).classes is None
    write_csv(tmp_path / "b.csv", [["u", "target"], [1, 20], [2, 21]])
    assert read_folder(tmp_path).class_names == ("20", "21")
    assert read_folder(tmp_path, columns=Columns(kind="regression")).classes is None


def test_test_parts_by_column_and_by_share(folder: Path) -> None:
    marked = [[*row, "test" if i < 2 else "train"] for i, row in enumerate(rows_of("a"))]
    write_csv(folder / "a.csv", [["u", "v", "kind", "split"], *marked])
    (folder / "b.csv").unlink()
    by_column = read_folder(folder, columns=Columns(label=("kind",), test="split"))
    assert by_column.test is not None
    np.testing.assert_array_equal(by_column.test.arrays(0)[0], CLIENTS["a"][0][:2])
    share = Columns(test_share=0.4, seed=3)
    federation = read_folder(as_npz(folder), columns=share)
    assert federation.test is not None
    assert (federation.train.sizes.tolist(), federation.test.sizes.tolist()) == ([3, 4], [2, 3])
    again = read_folder(folder.parent / "npz", columns=share)
    assert torch.equal(again.train.x, federation.train.x)
    both = np.concatenate([federation.train.arrays(0)[0], federation.test.arrays(0)[0]])
    np.testing.assert_array_equal(np.sort(both, axis=0), np.sort(CLIENTS["a"][0], axis=0))


def test_standardised_features_have_mean_0_and_variance_1_over_all_training_samples() -> None:
    x = [np.array([[1.0, 5.0], [3.0, 5.0]]), np.array([[8.0, 5.0]])]
    federation = Federation.from_arrays(
        x, [np.zeros(2), np.zeros(1)], x_test=[x[1], x[1]], y_test=[[0.0]] * 2
    )
    scaled = federation.standardised()
    assert scaled.scaling is not None
    assert scaled.scaling.mean.tolist() == [4.0, 5.0]  # not the mean of the clients' means, 5
    assert scaled.scaling.scale.tolist() == pytest.approx([np.sqrt((9 + 1 + 16) / 3), 1.0])
    assert scaled.train.x.mean(0).tolist() == pytest.approx([0, 0], abs=1e-12)
    assert scaled.test is not None
    torch.testing.assert_close(scaled.test.x[0], scaled.train.x[2])
    assert federation.train.x[2].tolist() == [8.0, 5.0]  # what was given is not changed


BROKEN = [
    ([["u", "v", "kind"], [1, "x", 0]], "a.csv, line 2: column v holds 'x', which is not a number"),
    ([["u", "v", "kind"], [1, 2, 0], [1, "", 0]], "a.csv, line 3: column v is empty"),
    ([["u", "v", "kind"], [1, "nan", 0]], "a.csv, line 2: column v is empty"),
    ([["u", "v", "kind"], [1, "inf", 0]], "a.csv, line 2: column v holds 'inf', which is not a number"),
    ([["u", "v", "kind"], [1, 2]], "a.csv, line 2: has 2 cells, but the header has 3"),
    (
        [["u", "kind"], [1, 0]],
        'a.csv: has no column v, which b.csv has; columns.v = "leave out" does without it',
    ),
    (
        [["u", "v", "kind", "w"], [1, 2, 0, 3]],
        'a.csv: has a column w, which b.csv has not; columns.w = "leave out" does without it',
    ),
    ([["u", "v"], [1, 2]], "a.csv: has no column kind, which b.csv has"),
    ([["u", "v", "kind"]], "a.csv: the client is empty"),
    ([["u", "u", "kind"], [1, 2, 0]], "a.csv, line 1: the header has a column twice"),
    ([["u", "v", "kind"], [1, 2, 0], [1, 2, -1]], "a.csv: y has the label -1 in line 3; labels start at 0"),
    ([["u", "v", "kind"], [1, 2, 0], [1, 2, 7]], "a.csv: y has the label 7 in line 3, but classes is 3"),
    ([["u", "v", "kind"], [1, 2, 0.5]], "a.csv: the label in line 2 is not a whole number"),
]


@pytest.mark.parametrize(("rows", "complaint"), BROKEN)
def test_training_and_inspection_complain_in_the_same_sentence(
    rows: list[list[Any]], complaint: str, folder: Path
) -> None:
    for name in ("c", "d"):  # so that most files are right
        (folder / f"{name}.csv").write_text((folder / "b.csv").read_text())
    write_csv(folder / "a.csv", rows)
    options = {"label": ["kind"], "task": "classification", "classes": 3, "missing": "refuse"}
    report = inspect_path(folder, options)
    assert not report["trainable"]
    assert any(complaint in sentence for sentence in report["problems"]), report["problems"]
    assert report["clients"] >= 3  # what is right is described all the same
    with pytest.raises(InvalidInput) as refused:
        read_folder(folder, 3, Columns(label=("kind",), kind="classification", missing="refuse"))
    assert str(refused.value) in report["problems"]


@pytest.mark.parametrize("rows", [[["u", "kind"], [1, 0]], [["w", "u", "v", "kind"], [1, 2, 3, 0]]])
def test_a_column_that_is_left_out_may_be_missing_in_some_files(rows: list[list[Any]], folder: Path) -> None:
    (folder / "c.csv").write_text((folder / "b.csv").read_text())
    write_csv(folder / "a.csv", rows)
    out: dict[str, Override] = {name: "leave out" for name in rows[0] + ["v"] if name in "vw"}
    federation = read_folder(folder, 3, Columns(label=("kind",), taken_as=out))
    assert federation.features == ("u",)
    assert federation.train.arrays(0)[0].tolist() == [[rows[1][rows[0].index("u")]]]
    with pytest.raises(InvalidInput, match=r"columns\.z: .* has no such column"):
        read_folder(folder, 3, Columns(label=("kind",), taken_as={**out, "z": "leave out"}))


def test_a_column_with_bad_cells_is_one_problem_however_many_they_are(folder: Path) -> None:
    rows = [[f"x{i}" if i < 3 else 1.5, "", i % 3] for i in range(30)]
    write_csv(folder / "a.csv", [["u", "v", "kind"], *rows])
    report = inspect_path(folder, {"label": ["kind"], "missing": "refuse"})
    assert report["problems"] == [
        f"{folder}/a.csv, line 2: column u holds 'x0', which is not a number (and 2 more cells of this "
        'column); columns.u = "number" takes such cells as missing',
        f"{folder}/a.csv, line 2: column v is empty (and 29 more cells of this column); "
        'missing = "fill" fills such cells',
    ]


def test_all_problems_are_counted_and_some_are_listed(folder: Path) -> None:
    names = [f"f{i}" for i in range(12)]
    write_csv(folder / "a.csv", [[*names, "kind"], *[["x"] + [1] * 11 + [0]] * 2])
    write_csv(folder / "b.csv", [[*names, "kind"], *[[2.5] * 12 + [1]] * 40])
    write_csv(folder / "c.csv", [[*names[:-1], "kind"], [1] * 11 + [0]])
    report = inspect_path(folder, {"label": ["kind"]}, most=1)
    assert (report["problem_count"], len(report["problems"])) == (2, 1)


def test_a_name_in_capitals_is_a_problem(folder: Path) -> None:
    write_csv(folder / "a.csv", [["u", "v", "kind"], *[[0.5, 1.5, word] for word in ("cat", "dog", "cat")]])
    (folder / "b.csv").rename(folder / "B.CSV")
    report = inspect_path(folder, {"label": ["kind"]})
    assert report["problems"] == [f"{folder}/B.CSV: its name must end in .csv, in small letters"]
    assert report["class_names"] == ["cat", "dog"]


def test_the_task_can_be_said_of_npz_files(tmp_path: Path) -> None:
    for name, (x, y) in CLIENTS.items():
        np.savez(tmp_path / f"{name}.npz", x=x, y=y.astype(float))
    guessed = inspect_path(tmp_path, {})
    assert guessed["task"] == "regression"
    assert any('task = "classification"' in remark for remark in guessed["remarks"])
    said = read_folder(tmp_path, None, Columns(kind="classification"))
    assert (said.classes, said.train.y.dtype) == (3, torch.int64)
    assert read_folder(tmp_path, None, Columns(kind="regression")).classes is None
    np.savez(tmp_path / "b.npz", x=np.ones((2, 2)), y=[0.0, 0.5])
    with pytest.raises(InvalidInput, match=r"b\.npz: the label in row 1 is not a whole number"):
        read_folder(tmp_path, None, Columns(kind="classification"))


def test_inspection_says_what_was_understood(folder: Path) -> None:
    write_csv(folder / "a.csv", [["u", "v", "kind"], *rows_of("a"), [1e9, 0, 1]])
    report = inspect_path(folder, {"label": ["kind"]})
    assert report["trainable"]
    assert report["task"] == "classification"
    assert (report["clients"], report["samples"], report["features"]) == (2, 13, ["u", "v"])
    counts = np.bincount(np.concatenate([y for _, y in CLIENTS.values()]), minlength=3)
    counts[1] += 1
    assert report["class_samples"] == counts.tolist()
    said = " ".join(report["remarks"])
    for words in ("a.csv: x has a value of size 1e+09 in line 7", "nothing to test on"):
        assert words in said
    assert "times in scale" not in said  # features of tables are standardised, unless
    job = f'[data]\nname = "folder"\npath = "{folder}"\nlabel = "kind"\nstandardise = false\n'
    (file := folder.parent / "job.toml").write_text(job)
    assert "times in scale" in " ".join(inspect_path(file, {})["remarks"])
    table = inspect_path(one_table(folder), {"client": "site", "label": ["kind"]})
    assert (table["kind"], table["clients"]) == ("table", 2)
    missing = inspect_path(one_table(folder), {"label": ["kind"]})
    assert (
        "which column says whose a row is? Give client (columns: site, u, v, kind)" in missing["problems"][0]
    )
    assert json.loads(json.dumps(report)) == report


def test_what_is_not_there_is_one_problem(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path, words in ((tmp_path / "nowhere", "no such folder"), (tmp_path / "empty", "the folder has no")):
        report = inspect_path(path, {})
        assert (report["trainable"], report["problem_count"]) == (False, 1)
        assert words in report["problems"][0]
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(InvalidInput, match=r"a\.txt: a folder, a \.csv or \.parquet table"):
        inspect_path(tmp_path / "a.txt", {})


def test_mixed_kinds_and_bad_tables_are_refused(folder: Path) -> None:
    write_client(folder / "c.npz", Client(*CLIENTS["a"]))
    with pytest.raises(InvalidInput, match=r"several kinds, \.csv \(a\.csv\) and \.npz \(c\.npz\)"):
        read_folder(folder, columns=BOTH)
    table = folder.parent / "all.csv"
    write_csv(table, [["site", "u", "kind"], ["a", 1, 0], ["", 2, 1]])
    with pytest.raises(InvalidInput, match=r"all\.csv, line 3: column site is empty: whose row is it\?"):
        read_clients_table(table, BOTH)
    (folder.parent / "cut.parquet").write_bytes(b"PAR1 and no more")
    if pytest.importorskip("pyarrow"):
        with pytest.raises(InvalidInput, match=r"cut\.parquet: not a readable \.parquet file"):
            read_clients_table(folder.parent / "cut.parquet", BOTH)


def test_leaf_folders_of_any_task(tmp_path: Path) -> None:
    for part, n in (("train", 4), ("test", 2)):
        (tmp_path / part).mkdir()
        data = {user: {"x": [[i, 1.5] for i in range(n)], "y": [i % 2 for i in range(n)]} for user in "uv"}
        content = {"users": ["u", "v"], "num_samples": [n, n], "user_data": data}
        (tmp_path / part / "all.json").write_text(json.dumps(content))
    federation = make_federation(read_config(None, [f"data={{name='leaf', path='{tmp_path}'}}"]))
    assert (federation.train.ids, federation.classes) == (("u", "v"), 2)
    assert federation.test is not None
    assert federation.test.sizes.tolist() == [2, 2]
    assert inspect_path(tmp_path, {})["kind"] == "leaf"


class TestHuggingFace:
    @pytest.fixture
    def dataset(self) -> Any:
        datasets = pytest.importorskip("datasets")
        rows = [(name, *row) for name in CLIENTS for row in rows_of(name)]
        columns = zip(("site", "u", "v", "kind"), zip(*rows, strict=True), strict=True)
        return datasets.Dataset.from_dict({name: list(column) for name, column in columns})

    def test_a_column_says_whose_a_row_is(self, dataset: Any, folder: Path, tmp_path: Path) -> None:
        dataset.save_to_disk(str(tmp_path / "saved"))
        known = "client='site', label='kind', standardise=false"
        data = f"data={{name='hugging-face', path='{tmp_path / 'saved'}', {known}}}"
        same(make_federation(read_config(None, [data])), read_folder(folder, columns=BOTH))
        assert inspect_path(tmp_path / "saved", {"client": "site", "label": ["kind"]})["trainable"]

    def test_partitioners_of_flower(self, dataset: Any) -> None:
        partitioners = pytest.importorskip("flwr_datasets.partitioner")
        from ifca.data.sources.huggingface import partition_clients

        partitioner = partitioners.NaturalIdPartitioner(partition_by="site")
        partitioner.dataset = dataset
        columns = Columns(label=("kind",), features=("u", "v"))
        federation = Federation.from_clients(partition_clients(partitioner, columns))
        assert sorted(federation.train.sizes.tolist()) == [5, 7]

    def test_images_and_text(self, dataset: Any) -> None:
        import datasets

        from ifca.data.sources.huggingface import dataset_clients

        images = datasets.Dataset.from_dict(
            {"pixels": np.zeros((4, 3, 3), np.uint8).tolist(), "label": [0, 1, 0, 1], "who": list("aabb")}
        )
        client = dataset_clients(images, Columns(client="who"))[0]
        assert np.asarray(client.x).shape == (2, 3, 3)
        text = dataset.add_column("words", ["hello"] * len(dataset))
        with pytest.raises(InvalidInput, match="column words holds 'hello' in row 0; numbers or images"):
            dataset_clients(text, BOTH)


def test_a_function_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loads_clients.py").write_text(
        "import torch\nfrom torch.utils.data import TensorDataset\n"
        "def load(n=3):\n    make = lambda: TensorDataset(torch.ones(n, 2), torch.zeros(n))\n"
        "    return {'one': (make(), None), 'two': (make(), make())}\n"
        "def wrong():\n    return 3\n"
    )
    (tmp_path / "job.toml").write_text(
        "[data]\nname = 'function'\nload = 'loads_clients:load'\narguments = {n = 5}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))  # undone after the test
    federation = make_federation(read_config(tmp_path / "job.toml"))
    assert (federation.train.sizes.tolist(), federation.classes) == ([5, 5], None)
    with pytest.raises(InvalidInput, match="loads_clients:wrong must return a Federation"):
        make_federation(
            read_config(tmp_path / "job.toml", ["data.load='loads_clients:wrong'", "data.arguments={}"])
        )
    with pytest.raises(InvalidInput, match=r"data\.load: loads_clients:load failed"):
        make_federation(read_config(tmp_path / "job.toml", ["data.arguments={m=1}"]))
