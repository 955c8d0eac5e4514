"""Data that change after a run: alarms, moved clients, misfits, new models; streams whose concepts return."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ifca import IFCA
from ifca.cli.main import app
from ifca.core.errors import InvalidInput
from ifca.data import Client, Federation
from ifca.methods.groups import Memory, memory_of
from ifca.methods.memory import tensors_of
from ifca.runs.chosen_job import chosen_job
from ifca.runs.clients_table import read_clients
from ifca.runs.drift_words import moved, report_lines
from ifca.runs.run import resume, run
from ifca.use.assign import assign_clients
from ifca.use.continue_run import check_run, continue_run

SMALL = ["k=3", "rounds=12", "model.name=logistic", "baselines=[]", "step_size=0.5", "evaluate_every=0"]


def client_rows(rng: np.random.Generator, n: int, law: str) -> list[list[Any]]:
    """Rows a, b, ward, y: the answer follows a, its opposite, or b and the ward."""
    rows = []
    for _ in range(n):
        a, b, ward = rng.normal(), rng.normal(), str(rng.choice(["north", "south"]))
        score = {"up": a, "down": -a, "other": b + (2 if ward == "north" else -2)}[law]
        rows.append([round(a, 3), round(b, 3), ward, "yes" if score + 0.3 * rng.normal() > 0 else "no"])
    return rows


def write_clients(folder: Path, laws: dict[str, str], seed: int, n: int = 80) -> Path:
    folder.mkdir()
    for i, (name, law) in enumerate(laws.items()):
        rows = client_rows(np.random.default_rng([seed, i]), n + 10 * i, law)
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["a", "b", "ward", "y"], *rows])
    return folder


FIRST = {f"c{i}": "up" if i % 2 else "down" for i in range(8)}
LATER = {**FIRST, "c0": "up", "c2": "other", "c5": "other", "n9": "down"}  # c0 moves, two agree on a new law


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run on eight clients, and new data a year later: c7 is gone, c3 has no labels."""
    home = tmp_path_factory.mktemp("drift")
    old = write_clients(home / "old", FIRST, 0)
    run(chosen_job(old, {"label": ["y"]}, None, SMALL), home / "run")
    new = write_clients(home / "new", LATER, 1)
    (new / "c7.csv").unlink()
    rows = list(csv.reader((new / "c3.csv").read_text().splitlines()))
    with (new / "c3.csv").open("w", newline="") as file:
        csv.writer(file).writerows([row[:-1] for row in rows])
    return home / "run", new


def content_of(folder: Path) -> str:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return hashlib.sha256(b"".join(file.name.encode() + file.read_bytes() for file in files)).hexdigest()


def test_a_check_says_who_stayed_who_moved_and_whom_no_model_fits(finished: tuple[Path, Path]) -> None:
    folder, new = finished
    before = content_of(folder)
    found = check_run(folder, new)
    state = {row["client"]: row["state"] for row in found["clients"]}
    moved = {"c0": "moved", "c2": "misfit", "c5": "misfit", "n9": "joined"}
    assert state == {**dict.fromkeys(("c1", "c4", "c6"), "stayed"), **moved}
    assert found["gone"] == ["c7"]
    row = next(row for row in found["clients"] if row["client"] == "c0")
    assert row["saved"] == pytest.approx(row["loss_own"] - row["loss"])
    assert row["saved"] > 1
    assert sorted(sentence.split()[0] for sentence in found["alarms"]) == ["c0", "c2", "c5"]
    assert any("no model fits it" in sentence for sentence in found["alarms"])
    # The two laws have the same features: confidence cannot tell, and c3 keeps its model.
    (without,) = found["unlabelled"]
    assert without["client"] == "c3"
    assert without["by"] == "run"
    assert without["cluster"] == without["was"]
    said = CliRunner().invoke(app, ["check", str(folder), "--data", str(new)]).output
    assert "3 stayed, 1 moved, 1 new, 2 fit no model, 1 without labels, 1 not in the new data" in said
    assert content_of(folder) == before


def test_no_alarm_where_nothing_changed(finished: tuple[Path, Path], tmp_path: Path) -> None:
    found = check_run(finished[0], write_clients(tmp_path / "same", FIRST, 2))
    assert found["alarms"] == []
    assert {row["state"] for row in found["clients"]} == {"stayed"}


def test_a_new_client_without_labels_is_assigned_by_confidence(
    finished: tuple[Path, Path], tmp_path: Path
) -> None:
    """Alone it is a guess; beside clients with labels these tell how far confidence can be trusted."""
    folder, new = finished
    shutil.copy(new / "c3.csv", tmp_path / "stranger.csv")
    (alone,) = assign_clients(folder, tmp_path / "stranger.csv")
    assert (alone["by"], alone["tried"], alone["samples"]) == ("guess", 0, 110)
    assert alone["cluster"] == alone["most_confident"]
    said = CliRunner().invoke(app, ["assign", str(folder), str(tmp_path / "stranger.csv")]).output
    assert "stranger has no labels: model" in said
    assert "which is a guess" in said
    assert "how far confidence can be trusted is not known" in said
    found = {one["client"]: one for one in assign_clients(folder, new)}
    fitting = [name for name, one in found.items() if "losses" in one and not one["warnings"]]
    assert found["c3"]["tried"] >= len(fitting) >= 5
    assert found["c3"]["tried_by"] == "labels"
    said = CliRunner().invoke(app, ["assign", str(folder), str(new)]).output
    assert "c3 has no labels" in said
    assert "Clients and their clusters" in said


def test_continuing_makes_a_new_model_for_those_who_agree(
    finished: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, new = finished
    before = content_of(folder)
    out = tmp_path / "next"
    result = CliRunner().invoke(
        app, ["continue", str(folder), "--data", str(new), "--out", str(out), "--quiet"]
    )
    assert result.exit_code == 0, result.output
    summary = json.loads((out / "summary.json").read_text())
    cluster = {row["id"]: int(row["cluster"]) for row in read_clients(out)}
    assert cluster["c2"] == cluster["c5"] == 2  # models 0 and 1 are those of the run
    assert cluster["c0"] == cluster["c1"] != cluster["c4"] == cluster["c6"] == cluster["n9"]
    kept = [event for event in summary["events"] if event["event"] == "kept"]
    assert kept
    assert kept[-1]["p"] < 0.01
    ways = summary["continued"]["compared"]["ways"]
    assert ways["after"]["accuracy"] > ways["earlier_models"]["accuracy"] > ways["as_it_was"]["accuracy"]
    assert "model 2 is new: c2, c5" in result.output
    assert content_of(folder) == before

    # Whoever leaves a concept leaves its model there: nobody has model 2 now, and it is still there after.
    resting = write_clients(tmp_path / "resting", FIRST, 3)
    summary = continue_run(out, resting, tmp_path / "third")
    assert summary["models"] == 3
    assert summary["cluster_sizes"][2] == 0
    back = write_clients(tmp_path / "back", {**FIRST, "c1": "other"}, 4)
    rows = {row["client"]: row for row in check_run(tmp_path / "third", back)["clients"]}
    assert rows["c1"]["state"] == "moved"
    assert rows["c1"]["cluster"] == 2


def test_a_continuation_that_was_interrupted_resumes_to_the_same_bits(
    finished: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, new = finished

    class Stop:
        def round_ended(self, record: dict[str, Any]) -> None:
            if record["round"] == 4:
                raise KeyboardInterrupt

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    continue_run(folder, new, whole)
    with pytest.raises(KeyboardInterrupt):
        continue_run(folder, new, cut, Stop())
    summary = resume(cut)
    assert (whole / "clients.csv").read_bytes() == (cut / "clients.csv").read_bytes()
    assert summary["continued"]["compared"]["samples"] > 0


def test_wrong_input_is_one_sentence(finished: tuple[Path, Path], tmp_path: Path) -> None:
    folder, new = finished
    with pytest.raises(InvalidInput, match="no such run folder"):
        check_run(tmp_path / "nowhere", new)
    with pytest.raises(InvalidInput, match="not a run folder"):
        check_run(new, new)
    with pytest.raises(InvalidInput, match="no such file or folder"):
        check_run(folder, tmp_path / "nothing")
    strangers = write_clients(tmp_path / "strangers", {"x1": "up", "x2": "down"}, 5)
    with pytest.raises(InvalidInput, match=r"have no client of the run \(they have x1, x2, the run had c0"):
        check_run(folder, strangers)
    for name, head, label, sentence in (
        ("columns", "a,b,y", "yes", "has no column ward"),
        ("classes", "a,b,ward,y", "maybe", "is not one of the classes no, yes"),
    ):
        other = tmp_path / name
        other.mkdir()
        cells = ["1.0"] * (head.count(",")) + [label]
        (other / "c1.csv").write_text(f"{head}\n{','.join(cells)}\n")
        with pytest.raises(InvalidInput, match=sentence):
            check_run(folder, other)
    with pytest.raises(InvalidInput, match="already holds something"):
        continue_run(folder, new, folder)
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    (unfinished / "config.toml").write_bytes((folder / "config.toml").read_bytes())
    with pytest.raises(InvalidInput, match="is not finished"):
        check_run(unfinished, new)
    altered = shutil.copytree(folder, tmp_path / "altered")
    head, first, *rest = (folder / "clients.csv").read_text().splitlines()
    cells = first.split(",")
    cells[head.split(",").index("cluster")] = "x"
    (altered / "clients.csv").write_text("\n".join([head, ",".join(cells), *rest]))
    with pytest.raises(InvalidInput, match=r"clients.csv: is not what the run wrote; it was altered"):
        check_run(altered, new)


def test_one_sample_is_not_sure() -> None:
    row = {"client": "c", "was": 0, "cluster": 1, "saved": 1.0, "loss_own": 2.0, "loss": 1.0}
    row["margin_in_errors"] = None
    assert moved({**row, "samples": 1}).endswith("(not sure)")
    assert not moved({**row, "samples": 9}).endswith("(not sure)")


def flat(laws: list[int], seed: int, floats: bool = False) -> Federation:
    """A feature and its sign, or its opposite, as the label; or its multiple as the target."""
    rng, clients = np.random.default_rng(seed), []
    for i, law in enumerate(laws):
        x = rng.normal(size=(120, 2))
        y = (2.0 if law == 0 else -2.0) * x[:, 0] + 0.1 * rng.normal(size=120)
        y = y if floats else ((x[:, law % 2] > 0) ^ (law > 1)).astype(np.int64)
        clients.append(Client(x[:80], y[:80], x[80:], y[80:], f"c{i}"))
    return Federation.from_clients(clients)


def test_continue_fit_keeps_the_first_fit_and_names_misfits() -> None:
    first = IFCA(rounds=10, step_size=0.5, model="logistic", evaluate_every=0).fit(flat([0, 0, 1, 1], 0))
    theta = {name: value.clone() for name, value in first.models_.items()}
    second = first.continue_fit(flat([0, 2, 1, 2], 1))
    assert [row["state"] for row in second.drift_["clients"]] == ["stayed", "misfit", "stayed", "misfit"]
    assert second.labels_.tolist() == [first.labels_[0], 2, first.labels_[2], 2]
    assert all(torch.equal(first.models_[name], value) for name, value in theta.items())
    assert second.drift_["compared"]["ways"]["after"]["accuracy"] > 0.9
    with pytest.raises(InvalidInput, match="is for algorithm ifca or ifca-plain, this is global"):
        IFCA(rounds=1, algorithm="global").fit(flat([0, 0], 0)).continue_fit(flat([0, 0], 1))


def test_everybody_may_follow_a_new_law() -> None:
    """All clients are misfits, of one law: there is nobody to compare their model with, and it is kept."""
    before, after = flat([0, 0, 1, 1], 0), flat([2, 2, 2, 2], 1)
    settings: dict[str, Any] = {"k": 3, "rounds": 20, "step_size": 0.5, "model": "logistic"}
    model = IFCA(**settings).fit(before)
    later = model.continue_fit(after)
    assert {row["state"] for row in later.drift_["clients"]} == {"misfit"}
    assert len(set(later.labels_.tolist())) == 1
    assert later.score(after) > 0.8
    assert model.score(before) > 0.8


def test_a_check_of_clients_without_any_labels(finished: tuple[Path, Path], tmp_path: Path) -> None:
    """No loss is known: each has the most confident model, how sure that is, and what it had in the run."""
    directory, new = finished
    bare = tmp_path / "bare"
    bare.mkdir()
    for file in sorted(new.glob("*.csv")):
        cells = list(csv.reader(file.read_text().splitlines()))
        with (bare / file.name).open("w", newline="") as out:
            csv.writer(out).writerows([row[:3] for row in cells])
    found = check_run(directory, bare)
    assert (found["clients"], found["clusters"], found["alarms"], found["gone"]) == ([], [], [], ["c7"])
    rows = {row["client"]: row for row in found["unlabelled"]}
    assert sorted(rows) == [f"c{i}" for i in range(7)] + ["n9"]
    assert {(row["tried_by"], row["tried"]) for row in rows.values()} == {("run", 7)}
    assert (rows["n9"]["was"], rows["n9"]["by"], rows["c1"]["by"]) == (None, "guess", "run")
    assert rows["c1"]["cluster"] == rows["c1"]["was"]
    told = list(report_lines(found))
    sure = rows["n9"]
    assert (
        f"n9 has no labels: model {sure['most_confident']} is the most confident ({sure['most']:.2f}"
        in told[8]
    )
    assert told[8].endswith("standard errors ahead), which is a guess")
    assert f"by confidence alone {sure['right']} of 7 clients would get the model that they had" in told[9]
    assert told[10].startswith("nothing else can be said of clients without labels")
    assert told[-1].startswith("no client has labels, so no loss is known and no alarm can be raised")
    with pytest.raises(InvalidInput, match="no client has labels, so there is nothing to train on"):
        continue_run(directory, bare, tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "refused"), [("Outcome", True), ("OUTCOME", True), ("outcom", True), ("cost", False)]
)
def test_a_label_that_is_misspelt_is_no_missing_label(tmp_path: Path, name: str, refused: bool) -> None:
    """A column that is called nearly like the label is asked about; one that is not is left out."""
    old = _with_outcome(tmp_path / "old")
    run(chosen_job(old, {"label": ["outcome"]}, None, SMALL), tmp_path / "run")
    new = tmp_path / "new.csv"
    new.write_text((old / "c1.csv").read_text().replace("outcome", name, 1))
    if refused:
        with pytest.raises(InvalidInput, match=f"has no column outcome, but {name}; if that is the label"):
            assign_clients(tmp_path / "run", new)
    else:
        assert assign_clients(tmp_path / "run", new)[0]["client"] == "new"


@pytest.mark.parametrize("reading", [{"test": "outcomes"}, {"features": ["a", "b"]}])
def test_what_the_run_knew_or_left_alone_is_no_misspelt_label(
    tmp_path: Path, reading: dict[str, Any]
) -> None:
    """A column outcomes, which says what is to test on or is no feature."""
    old = _with_outcome(tmp_path / "old")
    for file in old.iterdir():
        first, *rest = file.read_text().splitlines()
        rows = [f"{line},{int(i % 5 == 0)}" for i, line in enumerate(rest)]
        file.write_text("\n".join([f"{first},outcomes", *rows]))
    run(chosen_job(old, {"label": ["outcome"], **reading}, None, SMALL), tmp_path / "run")
    lines = list(csv.reader((old / "c1.csv").read_text().splitlines()))
    new = tmp_path / "new.csv"
    with new.open("w", newline="") as table:
        csv.writer(table).writerows([[*line[:3], line[4]] for line in lines])
    assert "by" in assign_clients(tmp_path / "run", new)[0]


@pytest.mark.parametrize("name", ["Y", "labels", "target"])
def test_labels_of_arrays_that_are_called_otherwise(tmp_path: Path, name: str) -> None:
    IFCA(rounds=2).fit(flat([0, 0, 1, 1], 0)).save(tmp_path / "run")
    content: dict[str, Any] = {"x": np.zeros((5, 2)), name: np.ones(5)}
    np.savez(tmp_path / "c0.npz", **content)
    with pytest.raises(InvalidInput, match=f"has no array y, but {name}; if that is the label call it y"):
        assign_clients(tmp_path / "run", tmp_path / "c0.npz")


def _with_outcome(folder: Path) -> Path:
    """Four clients whose label is the column outcome."""
    write_clients(folder, {f"c{i}": "up" if i % 2 else "down" for i in range(4)}, 0, n=30)
    for file in folder.iterdir():
        file.write_text(file.read_text().replace(",y", ",outcome", 1))
    return folder


def test_a_regression_without_labels_is_refused(tmp_path: Path) -> None:
    IFCA(rounds=2).fit(flat([0, 0, 1, 1], 0, floats=True)).save(tmp_path / "run")
    new = tmp_path / "new"
    new.mkdir()
    np.savez(new / "c0.npz", x=np.zeros((5, 2)), y=np.ones(5))
    np.savez(new / "c1.npz", x=np.zeros((5, 2)))
    with pytest.raises(InvalidInput, match="client c1 has no labels: this is a regression"):
        check_run(tmp_path / "run", new)


def test_what_clients_without_labels_cannot_be_judged_by(tmp_path: Path) -> None:
    """Samples of another shape, none, too large for a model; and one model, which is no choice."""
    IFCA(k=1, rounds=2).fit(flat([0, 0, 1, 1], 0)).save(tmp_path / "run")
    for x, why in (
        (np.zeros((5, 3)), r"client c0: samples have shape \(3,\), training had \(2,\)"),
        (np.zeros(5), r"client c0: samples have shape \(\), training had \(2,\)"),
        (np.zeros((0, 2)), "client c0: has no samples"),
        (np.full((5, 2), 1e300), "client c0: a model gives no finite number on this data"),
    ):
        np.savez(tmp_path / "c0.npz", x=x)
        with pytest.raises(InvalidInput, match=why):
            assign_clients(tmp_path / "run", tmp_path / "c0.npz")
    np.savez(tmp_path / "c0.npz", x=np.ones((5, 2)))
    (found,) = assign_clients(tmp_path / "run", tmp_path / "c0.npz")
    assert (found["by"], found["cluster"]) == ("only", 0)
    said = CliRunner().invoke(app, ["assign", str(tmp_path / "run"), str(tmp_path / "c0.npz")]).output
    assert said.startswith(
        "c0 has no labels: it gets model 0\nthe run has one model, so every client gets it"
    )


def test_a_checkpoint_of_before_old_models_is_still_read() -> None:
    none = torch.zeros(2)
    memory = Memory(none, none, none, none, 0, 0, 0, 0.0, 0.0, 0.0)
    tensors = {name: value for name, value in tensors_of(memory).items() if name != "old"}

    class State:
        memory = tensors

    assert memory_of(State()).old == 0  # type: ignore[arg-type]
