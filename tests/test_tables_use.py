"""Trained on messy tables, used on messy tables: words in the answer, known clients, tables of several."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ifca import IFCA
from ifca.cli.main import app
from ifca.core.errors import InvalidInput
from ifca.data.sources.columns import Columns
from ifca.data.sources.folder import read_clients_table
from ifca.runs.clients_table import read_clients
from ifca.runs.config import read_config
from ifca.runs.run import run
from ifca.use.assign import assign_clients
from ifca.use.predict import predict, predict_clients, table_of

HEAD = "site,age,sex,outcome"


def rows(site: str, kind: int, n: int, seed: int) -> list[str]:
    """Old women are well at sites of kind 0, ill at others; some ages are missing."""
    rng, made = np.random.default_rng(seed), []
    for _ in range(n):
        age, sex = int(rng.integers(20, 90)), str(rng.choice(["male", "female"]))
        well = (age > 55) == (kind == 0)
        made.append(f"{site},{age if rng.random() > 0.05 else 'NA'},{sex},{'well' if well else 'ill'}")
    return made


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One table of eight sites of two kinds, and a run on it."""
    folder = tmp_path_factory.mktemp("tables")
    every = [row for i in range(8) for row in rows(f"s{i}", i % 2, 60, i)]
    (folder / "all.csv").write_text("\n".join([HEAD, *every]) + "\n")
    data = f"data={{name='table', path='{folder / 'all.csv'}', client='site'}}"
    run(read_config(None, [data, "k=2", "rounds=10", "baselines=[]"]), folder / "run")
    return folder


def without(column: str, lines: list[str]) -> list[str]:
    place = HEAD.split(",").index(column)
    return [",".join(cell for i, cell in enumerate(line.split(",")) if i != place) for line in lines]


def test_a_client_of_the_run_is_known_by_its_name(here: Path, tmp_path: Path) -> None:
    clusters = {row["id"]: int(row["cluster"]) for row in read_clients(here / "run")}
    assert clusters["s0"] != clusters["s1"]
    fresh = [row for i in range(3) for row in rows(f"s{i}", i % 2, 5, 50 + i)]
    (tmp_path / "new.csv").write_text("\n".join(without("outcome", [HEAD, *fresh])) + "\n")
    found = predict_clients(here / "run", tmp_path / "new.csv")
    assert [(one.client, one.cluster) for one in found] == [(f"s{i}", clusters[f"s{i}"]) for i in range(3)]
    table = list(csv.DictReader(table_of(found).splitlines()))
    assert list(table[0]) == ["client", "row", "prediction", "probability_ill", "probability_well"]
    assert [int(line["row"]) for line in table] == list(range(15))
    right = [line["prediction"] == row.split(",")[-1] for line, row in zip(table, fresh, strict=True)]
    assert np.mean(right) > 0.8
    (tmp_path / "s1.csv").write_text(
        "\n".join(without("site", without("outcome", [HEAD, *fresh[5:10]]))) + "\n"
    )
    alone = predict(here / "run", tmp_path / "s1.csv")
    assert (alone.client, alone.cluster) == ("s1", clusters["s1"])
    np.testing.assert_array_equal(alone.outputs, found[1].outputs)


def test_clients_of_a_personal_run_are_predicted_by_their_own_models(here: Path, tmp_path: Path) -> None:
    data = f"data={{name='table', path='{here / 'all.csv'}', client='site'}}"
    run(read_config(None, [data, "algorithm='ditto'", "rounds=5", "baselines=[]"]), tmp_path / "run")
    fresh = [row for i in range(3) for row in rows(f"s{i}", i % 2, 5, 50 + i)]
    (tmp_path / "new.csv").write_text("\n".join([HEAD, *fresh]) + "\n")
    found = predict_clients(tmp_path / "run", tmp_path / "new.csv")
    assert [(one.client, one.cluster, one.own) for one in found] == [(f"s{i}", i, True) for i in range(3)]
    made = CliRunner().invoke(app, ["predict", str(tmp_path / "run"), str(tmp_path / "new.csv")])
    assert made.exit_code == 0
    assert "models of their own: 3 clients, 15 samples" in made.output
    (tmp_path / "strange.csv").write_text("\n".join([HEAD, *rows("new", 0, 3, 1)]) + "\n")
    with pytest.raises(InvalidInput, match="new is no client of this run, in which every client has a model"):
        predict_clients(tmp_path / "run", tmp_path / "strange.csv")
    with pytest.raises(InvalidInput, match="leave out --cluster and --personalise"):
        predict_clients(tmp_path / "run", tmp_path / "new.csv", cluster=0)
    with pytest.raises(InvalidInput, match="holds a model per client, for nobody else; 'ifca predict"):
        assign_clients(tmp_path / "run", tmp_path / "new.csv")


def test_a_stranger_without_labels_gets_one_sentence(here: Path, tmp_path: Path) -> None:
    fresh = [*rows("s0", 0, 3, 1), *rows("new", 0, 3, 1), *rows("other", 0, 3, 1)]
    (tmp_path / "new.csv").write_text("\n".join(without("outcome", [HEAD, *fresh])) + "\n")
    sentence = (
        r"client new: new is no client of this run \(nor are 1 more\), and has no labels .* give --cluster"
    )
    with pytest.raises(InvalidInput, match=sentence):
        predict_clients(here / "run", tmp_path / "new.csv")
    found = predict_clients(here / "run", tmp_path / "new.csv", cluster=0)
    assert [one.cluster for one in found] == [0, 0, 0]


def test_labelled_rows_choose_and_all_are_predicted(here: Path, tmp_path: Path) -> None:
    fresh = rows("new", 1, 40, 9)
    half = [row if i % 2 else row.rpartition(",")[0] + "," for i, row in enumerate(fresh)]
    (tmp_path / "new.csv").write_text("\n".join([HEAD, *half]) + "\n")
    (found,) = predict_clients(here / "run", tmp_path / "new.csv")
    clusters = {row["id"]: int(row["cluster"]) for row in read_clients(here / "run")}
    assert found.cluster == clusters["s1"]
    lines = list(csv.DictReader(found.table().splitlines()))
    assert [line["label"] for line in lines] == [row.rpartition(",")[2] for row in half]
    assert (
        np.mean(
            [line["prediction"] == row.rpartition(",")[2] for line, row in zip(lines, fresh, strict=True)]
        )
        > 0.8
    )


def test_a_folder_of_clients_and_a_word_that_training_never_saw(here: Path, tmp_path: Path) -> None:
    for name, kind in (("s0", 0), ("new", 1)):
        lines = without("site", [HEAD, *rows("", kind, 30, 4)])
        (tmp_path / f"{name}.csv").write_text("\n".join(lines).replace(",male", ",diverse") + "\n")
    done = CliRunner().invoke(app, ["predict", str(here / "run"), str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert [one["client"] for one in told] == ["new", "s0"]
    assert "column sex holds 'diverse', which training never saw" in told[0]["warnings"][0]
    assert {one["client"]: one["cluster"] for one in assign_clients(here / "run", tmp_path)} == {
        one["client"]: one["cluster"] for one in told
    }


def test_a_label_that_training_never_saw_is_refused(here: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("age,sex,outcome\n30,male,dead\n")
    with pytest.raises(InvalidInput, match="the label in line 2 is not one of the classes ill, well: 'dead'"):
        assign_clients(here / "run", tmp_path / "new.csv")


def test_python_gives_back_the_words(here: Path) -> None:
    federation = read_clients_table(here / "all.csv", Columns(client="site"))
    assert federation.scaling is not None
    model = IFCA(k=2, rounds=10).fit(federation)
    assert federation.preparation is not None
    x = np.array([[30.0, 0, 1], [80.0, 0, 0]])[:, : len(federation.preparation.features)]
    assert federation.preparation.features == ("age", "age is missing", "sex = male")
    cluster = int(model.assign(x, ["ill", "well"]))
    assert model.predict(x, cluster).tolist() == ["ill", "well"]
    with pytest.raises(InvalidInput, match="y has the label fine; training had ill, well"):
        model.assign(x, ["ill", "fine"])
    again = read_clients_table(here / "all.csv", Columns(client="site", preparation=federation.preparation))
    assert model.score(again) > 0.8


def test_exports_name_the_classes_and_the_columns(here: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["export", str(here / "run"), "--cluster", "0", "--to", str(tmp_path / "m.pt")]
    )
    assert done.exit_code == 0, done.output
    card = (tmp_path / "m.pt.card.md").read_text()
    assert "Classes, in this order: `ill`, `well`" in card
    assert "| `sex` | category | male: 1, female: 0 | `sex = male` |" in card
    columns = json.loads((tmp_path / "m.pt.columns.json").read_text())
    assert columns["class_names"] == ["ill", "well"]
