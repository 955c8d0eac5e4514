"""Tables as people have them: words, holes, dates, commas; from statistics that a federation could add up."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ifca.core.errors import InvalidInput
from ifca.data import Federation, read_folder
from ifca.data.cells import cells_of
from ifca.data.column_statistics import ColumnStatistics, client_statistics, merged
from ifca.data.fit_preparation import fitted
from ifca.data.preparation import Preparation
from ifca.data.sources.columns import Columns
from ifca.data.sources.folder import read_clients_table
from ifca.runs.config import parse_config, read_config, write_config
from ifca.runs.inspect_data import inspect_path

RNG = np.random.default_rng(0)


def cells(*values: Any, decimal_comma: bool = False) -> Any:
    return cells_of(np.array(values, dtype=object), decimal_comma)


def write(folder: Path, tables: dict[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in tables.items():
        (folder / name).write_bytes(text.encode())
    return folder


def test_numbers_are_read_as_people_write_them() -> None:
    assert cells("1", " 2.5", "-3e2").numbers.tolist() == [1, 2.5, -300]
    assert cells("141,5", "1.234,5", "1.234").numbers.tolist() == [141.5, 1234.5, 1234]
    assert cells("1,234", "12", "1,234,567.8").numbers.tolist() == [1234, 12, 1234567.8]
    assert cells("1,234", "2,5").numbers.tolist() == [1.234, 2.5]  # one comma says what all are
    assert cells("1,234", decimal_comma=True).numbers.tolist() == [1.234]
    holes = cells("", "NA", "n/a", "NaN", "null", "None", "-", "?", None)
    assert holes.missing.all()
    assert not holes.words.any()
    odd = cells("1", "inf", "abc")
    assert odd.words.tolist() == [False, True, True]


def test_statistics_of_clients_add_up_to_those_of_all_rows() -> None:
    rows = np.array([str(v) for v in RNG.normal(100, 15, 500).round(1)], dtype=object)
    rows[::17] = ""
    parts = [{"x": cells_of(part)} for part in np.array_split(rows, 7)]
    together = merged(client_statistics(part) for part in parts)["x"]
    whole = client_statistics({"x": cells_of(rows)})["x"]
    assert (together.rows, together.holes, together.numbers) == (whole.rows, whole.holes, whole.numbers)
    assert together.sketch == whole.sketch
    exact = np.median(cells_of(rows).numbers[~cells_of(rows).missing])
    assert together.median() == pytest.approx(exact, rel=0.003)
    told = json.loads(json.dumps(together.to_json()))
    assert ColumnStatistics.from_json(told) == together


@pytest.mark.parametrize("number", [1.79e308, -1.79e308, 1e300, 5e-324])
def test_the_median_of_the_largest_numbers_is_one_of_them(number: float) -> None:
    """Quotients and sums of them would be infinite. Found by the fuzzer."""
    found = client_statistics({"x": cells_of(np.array([1.0, number, number]))})["x"].median()
    assert found == pytest.approx(number if abs(number) > 1e-12 else 0.0, rel=0.01)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e7])
@pytest.mark.parametrize("shift", [-3.0, 0.0, 50.0])
def test_a_median_is_read_off_the_sketch(scale: float, shift: float) -> None:
    values = scale * (RNG.normal(size=2001) + shift)
    found = client_statistics({"x": cells_of(values)})["x"].median()
    size = np.abs(values).max()
    assert found == pytest.approx(np.median(values), rel=0.003, abs=0.003 * size)


def test_what_a_column_is_taken_as() -> None:
    n = 60
    table = {
        "age": cells(*[str(20 + i) for i in range(n)]),
        "sex": cells(*["male", "female"] * (n // 2)),
        "ward": cells(*["a", "b", ""] * (n // 3)),
        "smoker": cells(*["True", "False"] * (n // 2)),
        "date": cells(*[f"2025-01-{1 + i % 28:02d}" for i in range(n)]),
        "patient_id": cells(*[str(1000 + i) for i in range(n)]),
        "code": cells(*[f"P{i:04d}" for i in range(n)]),
        "country": cells(*["here"] * n),
        "note": cells(*["a sentence of more than four words", "another one that is long enough"] * (n // 2)),
        "empty": cells(*[""] * n),
        "y": cells(*["yes", "no"] * (n // 2)),
    }
    made = fitted(client_statistics(table, ["y"]), ("y",))
    assert made is not None
    assert {column.name: column.kind for column in made.columns} == {
        **{"age": "number", "sex": "category", "ward": "category", "smoker": "yes-no"},
        **dict.fromkeys(["date", "patient_id", "code", "country", "note", "empty"], "set aside"),
    }
    assert made.features == ("age", "sex = male", "ward = b", "ward is missing", "smoker")
    assert made.class_names == ("no", "yes")
    x = made.prepared(table)
    assert x[:3].tolist() == [[20, 1, 0, 0, 1], [21, 0, 1, 0, 0], [22, 1, 0, 1, 1]]
    assert made.labels(table)[:2].tolist() == [1, 0]
    again = Preparation.from_json(json.loads(json.dumps(made.to_json())))
    assert again == made
    overridden = fitted(client_statistics(table, ["y"]), ("y",), {"age": "leave out", "patient_id": "number"})
    assert overridden is not None
    assert {column.name for column in overridden.used} == {"sex", "ward", "smoker", "patient_id"}


def test_holes_are_filled_and_marked_or_refused(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "c", {"a.csv": "u,v,y\n1,5,0\n,6,1\n3,7,0\n", "b.csv": "u,v,y\n2,8,1\nNA,9,0\n"}
    )
    federation = read_folder(folder, standardise=False)
    assert federation.features == ("u", "u is missing", "v")
    assert federation.train.x.tolist() == [[1, 0, 5], [2, 1, 6], [3, 0, 7], [2, 0, 8], [2, 1, 9]]
    assert read_folder(folder).scaling is not None  # such a table is standardised unless that is refused
    with pytest.raises(InvalidInput, match=r"a\.csv, line 3: column u is empty \(and 1 more"):
        read_folder(folder, columns=Columns(missing="refuse"))


def test_tables_of_numbers_stay_as_they_were(tmp_path: Path) -> None:
    folder = write(tmp_path / "c", {"a.csv": "u,v,y\n1,5,0\n2,5,1\n", "b.csv": "u,v,y\n2,5,1\n"})
    federation = read_folder(folder)
    assert (federation.features, federation.classes, federation.class_names) == (("u", "v"), 2, None)
    assert federation.scaling is None
    assert federation.train.x.tolist() == [[1, 5], [2, 5], [2, 5]]


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (("-1", "+1", "-1"), ("-1", "1")),
        (("1", "2", "1"), ("1", "2")),
        (("10", "9", "9"), ("9", "10")),
        (("yes", "no", "no"), ("no", "yes")),
        (("True", "False", "True"), ("False", "True")),
        (("0", "1", "1"), None),
    ],
)
def test_classes_are_what_the_labels_say(
    tmp_path: Path, labels: tuple[str, ...], names: tuple[str, ...] | None
) -> None:
    rows = "".join(f"{i + 0.5},{label}\n" for i, label in enumerate(labels))
    federation = read_folder(
        write(tmp_path / "c", {"a.csv": f"u,label\n{rows}", "b.csv": f"u,label\n{rows}"})
    )
    assert (federation.classes, federation.class_names) == (2, names)


def test_a_row_without_a_label_is_left_out_and_counted(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "c", {"a.csv": "u,outcome\n1,yes\n2,\n3,no\n4,NA\n", "b.csv": "u,outcome\n5,no\n"}
    )
    assert read_folder(folder).train.sizes.tolist() == [2, 1]
    report = inspect_path(folder, {})
    assert (report["unlabelled_rows"], report["trainable"]) == (2, True)
    write(folder, {"b.csv": "u,outcome\n5,\n"})
    assert inspect_path(folder, {})["problems"] == [f"{folder}/b.csv: no row has a label (column outcome)"]


def test_many_whole_numbers_are_a_target_and_not_classes(tmp_path: Path) -> None:
    rows = "".join(f"{i},{20000 + 7 * i}\n" for i in range(100))
    assert read_folder(write(tmp_path / "c", {"a.csv": f"u,target\n{rows}"})).classes is None


def test_a_label_of_words_that_do_not_repeat_is_asked_about(tmp_path: Path) -> None:
    rows = "".join(f"{i},name {i}\n" for i in range(30))
    with pytest.raises(InvalidInput, match="column label has 30 different values in 30 rows; is it"):
        read_folder(write(tmp_path / "c", {"a.csv": f"u,label\n{rows}"}))


def test_which_column_is_the_label_is_asked_once(tmp_path: Path) -> None:
    folder = write(tmp_path / "c", {f"{name}.csv": "u,v\n1,2\n" for name in "abc"})
    report = inspect_path(folder, {})
    assert report["problem_count"] == 1
    assert "which column is the label? Give label (columns: u, v)" in report["problems"][0]


def test_encodings_separators_and_packed_files_give_the_same(tmp_path: Path) -> None:
    text = "alter;straße;y\n" + "".join(f"{i},5;{'für' if i % 2 else 'und'};{i % 2}\n" for i in range(12))
    plain = write(tmp_path / "utf8", {"a.csv": text})
    expected = read_folder(plain)
    assert expected.features == ("alter", "straße = und")
    for name, raw in (
        ("latin1", text.encode("latin-1")),
        ("bom", text.encode("utf-8-sig")),
        ("utf16", text.encode("utf-16")),
        ("tabs", text.replace(";", "\t").encode()),
        ("quoted", "\n".join(",".join(f'"{c}"' for c in line.split(";")) for line in text.split()).encode()),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.csv").write_bytes(raw)
        assert read_folder(tmp_path / name).train.x.tolist() == expected.train.x.tolist(), name
    (tmp_path / "gz").mkdir()
    (tmp_path / "gz" / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    packed = read_folder(tmp_path / "gz")
    assert packed.train.ids == ("a",)
    assert packed.train.x.tolist() == expected.train.x.tolist()


def test_row_numbers_that_pandas_wrote_are_set_aside(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i * 2.5},{i % 2}\n" for i in range(10))
    assert read_folder(write(tmp_path / "c", {"a.csv": f",u,y\n{rows}"})).features == ("u",)


def test_statistics_are_of_training_rows(tmp_path: Path) -> None:
    table = "u,w,y,part\n1,a,0,train\n2,a,1,train\n2,b,0,train\n,b,1,train\n900,c,1,test\n,a,0,test\n"
    federation = read_folder(
        write(tmp_path / "c", {"a.csv": table}), columns=Columns(test="part"), standardise=False
    )
    assert federation.features == ("u", "u is missing", "w = b")
    assert federation.test is not None
    assert federation.test.x.tolist() == [[900, 0, 0], [2, 1, 0]]


def test_a_line_of_config_overrides_a_column(tmp_path: Path) -> None:
    rows = "".join(f"{10000 + i % 3},{i},x{i},{i % 2}\n" for i in range(30))
    folder = write(tmp_path / "c", {"a.csv": f"zip,age,code,y\n{rows}"})
    content = {"name": "folder", "path": str(folder), "columns": {"zip": "category", "age": "leave out"}}
    config = parse_config({"data": content}, "job.toml")
    federation: Federation = config.data.federation(0)  # type: ignore[arg-type]
    assert federation.features == ("zip = 10000", "zip = 10001", "zip = 10002")
    (tmp_path / "again.toml").write_text(write_config(config))
    assert read_config(tmp_path / "again.toml").data == config.data
    with pytest.raises(
        InvalidInput, match=r"columns\.town: .* has no such column \(found: zip, age, code, y\)"
    ):
        parse_config({"data": {**content, "columns": {"town": "number"}}}, "x").data.federation(0)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"data\.columns\.zip"):
        parse_config({"data": {**content, "columns": {"zip": "date"}}}, "x")


def test_one_table_of_all_clients_gives_the_same_as_a_file_each(tmp_path: Path) -> None:
    rows = {
        name: [f"{i},{'ab'[i % 2]},{'yes' if i % 3 else 'no'}" for i in range(n)]
        for name, n in (("a", 9), ("b", 8))
    }
    each = {f"{name}.csv": "u,w,outcome\n" + "\n".join(mine) + "\n" for name, mine in rows.items()}
    together = "site,u,w,outcome\n" + "".join(
        f"{name},{row}\n" for name, mine in rows.items() for row in mine
    )
    folder = read_folder(write(tmp_path / "c", each))
    write(tmp_path / "one", {"all.csv": together})
    table = read_clients_table(tmp_path / "one" / "all.csv", Columns(client="site"))
    assert table.train.x.tolist() == folder.train.x.tolist()
    assert table.preparation == folder.preparation


def test_parquet_with_words_holes_and_truths(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = {
        "age": pa.array([30, None, 50, 60], pa.int64()),
        "smoker": pa.array([True, False, None, True]),
        "ward": pa.array(["a", "b", "a", None]),
        "outcome": pa.array(["yes", "no", "no", "yes"]),
    }
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    federation = read_folder(tmp_path, standardise=False)
    names = ("age", "age is missing", "smoker", "smoker is missing", "ward = b", "ward is missing")
    assert (federation.features, federation.class_names) == (names, ("no", "yes"))
    assert federation.train.x.tolist() == [
        [30, 0, 1, 0, 0, 0],
        [50, 1, 0, 0, 1, 0],
        [50, 0, 1, 1, 0, 0],
        [60, 0, 1, 0, 0, 1],
    ]
