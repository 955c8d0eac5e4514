"""Settings chosen by held-out losses: the levels by hand, the folder that goes on, Python and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ifca import IFCA, InvalidInput, tune
from ifca.cli.main import main
from ifca.report.terminal.tune_table import tune_table
from ifca.runs.config import read_config
from ifca.runs.tune_run import default_values, tune_run
from ifca.training.successive_halving import (
    Settings,
    grid_of,
    steps_around,
    successive_halving,
    table_of,
    verdict_of,
)
from tests.conftest import groups

SMALL = ["data.samples=150", "model.hidden=[8]", "device=cpu", "k=4"]
SIZES = (12, 7, 20, 4, 9, 16, 11)


def test_each_level_trains_the_better_half_twice_as_long() -> None:
    """Loss of setting a: a; five settings become 3, then 2."""
    lines = successive_halving(
        [{"a": a} for a in (5, 1, 4, 2, 3)], 10, lambda _level, one, _rounds: {"held_out_loss": one["a"]}
    )
    assert [(line["level"], line["rounds"], line["settings"]["a"]) for line in lines] == [
        *[(1, 10, a) for a in (5, 1, 4, 2, 3)],
        *[(2, 20, a) for a in (1, 2, 3)],
        *[(3, 40, a) for a in (1, 2)],
    ]


def test_standard_errors_by_hand() -> None:
    """Differences 1, 2, 3: mean 2, standard error 1 / sqrt(3); a client without samples is left out."""
    losses: dict[int, list[float | None]] = {1: [1, 1, 1, None], 2: [2, 3, 4, None]}

    def run(_level: int, one: Settings, _rounds: int) -> dict[str, Any]:
        if one["a"] == 3:
            return {"held_out_loss": None, "losses": None, "diverged": "yes"}
        return {"held_out_loss": float(one["a"]), "losses": losses[one["a"]]}

    values = {"a": [3, 2, 1]}
    table = table_of(successive_halving(grid_of(values), 4, run))
    assert [row["settings"]["a"] for row in table] == [1, 2, 3]
    assert table[1]["behind"] == 2
    assert table[1]["standard_errors"] == pytest.approx(2 * 3**0.5)
    assert table[2]["held_out_loss"] is None
    said = verdict_of(table, values)
    assert "Recommended: a = 1. The second best (a = 2) loses 2 more, 3.5 standard errors: clear." in said
    assert "That is the smallest a tried" in said
    assert "no test data was used" in said


def test_the_default_is_a_small_grid_around_the_config() -> None:
    assert steps_around(0.1) == [0.0111, 0.0333, 0.1, 0.3]
    values = default_values(read_config(None, []))
    assert values == {"step_size": [0.0111, 0.0333, 0.1, 0.3], "local_steps": [10, 20]}
    assert "local_steps" not in default_values(read_config(None, ["option=gradient"]))


class CutAfter:
    """Stands for a kill in the training after so many."""

    def __init__(self, trainings: int) -> None:
        self.left = trainings

    def started(self, _training: object) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


def test_the_folder_goes_on_and_holds_a_config(tmp_path: Path) -> None:
    config = read_config(None, SMALL)
    values: dict[str, list[Any]] = {"step_size": [0.01, 0.3, 0.1], "hidden": [4]}
    whole = tune_run(config, tmp_path / "whole", values, 2)
    out = tmp_path / "cut"
    for trainings in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            tune_run(config, out, values, 2, CutAfter(trainings))
    assert len((out / "tune.jsonl").read_text().splitlines()) == 3
    assert tune_run(config, out, values, 2) == whole
    assert [row["rounds"] for row in whole["table"]] == [4, 4, 2]
    assert whole["best"]["step_size"] == 0.3
    tuned = read_config(out / "tuned.toml")
    assert (tuned.step_size, tuned.model.hidden, tuned.rounds) == (0.3, (4,), config.rounds)
    with pytest.raises(InvalidInput, match="is of another config: l2 was"):
        tune_run(replace(config, l2=0.5), out, values, 2)


def test_test_data_has_no_say() -> None:
    """Without its test data the federation gives the same table."""
    federation = groups(SIZES)
    front = IFCA(k=2, seed=3)
    found = tune(front, federation, rounds=2, step_size=[0.01, 0.5], local_steps=[1, 5])
    assert found == tune(
        front, replace(federation, test=None), rounds=2, step_size=[0.01, 0.5], local_steps=[1, 5]
    )
    assert found.best == found.table[0]["settings"]
    assert len(found.table) == 4
    front.set_params(**found.best)
    with pytest.raises(InvalidInput, match="speed: is no argument of IFCA"):
        tune(front, federation, speed=[1])
    with pytest.raises(InvalidInput, match="step_size: give a list of values to try"):
        tune(front, federation, step_size=[])


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [part for one in SMALL for part in ("--set", one)]
    options = ["--step-size", "0.1,0.3", "--local-steps", "5", "--rounds", "2", "--out", str(tmp_path / "t")]
    monkeypatch.setattr("sys.argv", ["ifca", "tune", "--quiet", *options, *given])
    main()
    printed = capsys.readouterr().out
    assert "Recommended: step_size = 0.3, local_steps = 5." in printed
    assert f"'ifca run {tmp_path / 't' / 'tuned.toml'}' trains it" in " ".join(printed.split())
    found = json.loads((tmp_path / "t" / "tune.json").read_text())
    console = Console(width=80, file=None, record=True)
    console.print(tune_table(found))
    assert all(len(line) <= 80 for line in console.export_text().splitlines())
    monkeypatch.setattr("sys.argv", ["ifca", "tune", "--step-size", "fast"])
    with pytest.raises(SystemExit):
        main()
    assert "--step-size fast: expected numbers with commas between them" in capsys.readouterr().err


def test_the_command_takes_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "".join(f"{who},{i % 7},{'yes' if i % 7 > 3 else 'no'}\n" for who in "ab" for i in range(30))
    (tmp_path / "all.csv").write_text(f"clinic,age,outcome\n{rows}")
    options = ["--label", "outcome", "--client", "clinic", "--step-size", "0.1", "--rounds", "1", "--quiet"]
    monkeypatch.setattr(
        "sys.argv", ["ifca", "tune", str(tmp_path / "all.csv"), *options, "--out", str(tmp_path / "t")]
    )
    main()
    assert read_config(tmp_path / "t" / "tuned.toml").step_size == 0.1
