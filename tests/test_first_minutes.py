"""A stranger's first ten minutes: what was stumbled over once (docs/first-ten-minutes.md)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ifca import IFCA
from ifca.cli.main import app
from ifca.core.errors import InvalidInput
from ifca.runs.clients_table import read_clients
from ifca.runs.inspect_data import inspect_path
from ifca.use.assign import assign_clients
from ifca.use.predict import predict_clients, table_of

HEAD = "age,smoker,outcome"


def patients(kind: int, n: int, seed: int) -> list[str]:
    """The old are ill at hospitals of kind 0, the young at others."""
    rng = np.random.default_rng(seed)
    ages = rng.integers(20, 90, n).tolist()
    return [f"{a},{rng.random() < 0.3},{'yes' if (a > 55) == (kind == 0) else 'no'}" for a in ages]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table for each of six hospitals, a run on it and what it printed."""
    folder = tmp_path_factory.mktemp("first")
    (folder / "hospitals").mkdir()
    for i in range(6):
        text = "\n".join([HEAD, *patients(i % 2, 60, i), ""])
        (folder / "hospitals" / f"h{i}.csv").write_text(text)
    settings = ["--set", "rounds=10", "--set", "k=2", "--set", "baselines=[]", "--quiet"]
    asked = ["run", str(folder / "hospitals"), "--label", "outcome", "--out", str(folder / "run")]
    done = CliRunner().invoke(app, [*asked, *settings])
    assert done.exit_code == 0, done.output
    (folder / "printed").write_text(done.output)
    return folder


def table_of_several(labels: bool = True) -> str:
    rows = [(f"h{i}", row) for i in range(3) for row in patients(i % 2, 20, 50 + i)]
    lines = [("hospital", HEAD), *rows]
    return "".join(f"{who},{row if labels else row.rpartition(',')[0]}\n" for who, row in lines)


def test_a_run_says_who_is_in_which_cluster(here: Path) -> None:
    clusters = {row["id"]: row["cluster"] for row in read_clients(here / "run")}
    printed = (here / "printed").read_text()
    for j in ("0", "1"):
        own = ", ".join(name for name in clusters if clusters[name] == j)
        assert f"cluster {j}: {own}\n" in printed


def test_one_table_of_several_clients_of_a_run_on_a_folder(here: Path, tmp_path: Path) -> None:
    clusters = {row["id"]: int(row["cluster"]) for row in read_clients(here / "run")}
    (tmp_path / "several.csv").write_text(table_of_several(labels=False))
    with pytest.raises(InvalidInput, match="give --cluster, or --client where a column says whose"):
        predict_clients(here / "run", tmp_path / "several.csv")
    found = predict_clients(here / "run", tmp_path / "several.csv", client="hospital")
    assert [(one.client, one.cluster) for one in found] == [(f"h{i}", clusters[f"h{i}"]) for i in range(3)]
    (tmp_path / "labelled.csv").write_text(table_of_several())
    assigned = assign_clients(here / "run", tmp_path / "labelled.csv", client="hospital")
    assert [(one["client"], one["cluster"]) for one in assigned] == list(clusters.items())[:3]
    asked = ["predict", str(here / "run"), str(tmp_path / "several.csv"), "--client", "hospital"]
    assert "1 client, 20 samples" in CliRunner().invoke(app, asked).output
    with pytest.raises(InvalidInput, match=r"has no column hospitl .*; did you mean hospital\?"):
        predict_clients(here / "run", tmp_path / "several.csv", client="hospitl")


def test_a_wrong_label_is_one_problem_and_the_right_one_is_offered(here: Path) -> None:
    (problem,) = inspect_path(here / "hospitals", {"label": ["outcom"]})["problems"]
    assert "h0.csv: has no column outcom (found: age, smoker, outcome); did you mean outcome?" in problem


def test_a_job_that_is_refused_names_no_folder(here: Path, tmp_path: Path) -> None:
    asked = ["run", str(here / "hospitals"), "--label", "outcom", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, asked)
    assert isinstance(done.exception, InvalidInput)
    assert "run folder" not in done.output


def test_a_spreadsheet_among_tables_is_not_passed_over(here: Path, tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"h{i}.csv").write_text((here / "hospitals" / f"h{i}.csv").read_text())
    (tmp_path / "h3.xlsx").write_bytes(b"PK")
    (tmp_path / "~$h3.xlsx").write_bytes(b"")  # Excel has it open
    (problem,) = inspect_path(tmp_path, {"label": ["outcome"]})["problems"]
    assert "h3.xlsx: is a spreadsheet; save its table as .csv" in problem


def test_inspection_ends_with_the_command_that_trains(here: Path) -> None:
    folder = here / "hospitals"
    printed = CliRunner().invoke(app, ["data", "inspect", str(folder)]).output
    assert f"this can be trained on: ifca run {folder} --label outcome\n" in printed


def test_a_model_of_a_data_frame_is_saved_and_used_on_files(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    rows = [(f"h{i}", *row.split(",")) for i in range(6) for row in patients(i % 2, 60, i)]
    table = pd.DataFrame(rows, columns=["hospital", *HEAD.split(",")])
    table = table.assign(age=table["age"].astype(int), smoker=table["smoker"] == "True")
    x = table.drop(columns="outcome")
    model = IFCA(rounds=8, k=2, client="hospital").fit(x, table["outcome"])
    model.save(tmp_path / "saved")
    loaded = IFCA.load(tmp_path / "saved")
    assert loaded.get_params()["client"] == "hospital"
    assert (loaded.predict(x) == model.predict(x)).all()
    x.to_csv(tmp_path / "several.csv", index=False)  # truths become the words True and False
    found = predict_clients(tmp_path / "saved", tmp_path / "several.csv")
    assert [line.split(",")[2] for line in table_of(found).splitlines()[1:]] == model.predict(x).tolist()
