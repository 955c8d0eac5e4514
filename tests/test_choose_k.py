"""How many clusters: the measures by hand, what is said of them, and the command with its folder."""

from __future__ import annotations

import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress
from typer.testing import CliRunner

from ifca.cli.main import app, main
from ifca.core.callbacks import Training
from ifca.core.errors import InvalidInput
from ifca.report.choose_k_figure import choice_figure
from ifca.report.terminal.progress_bar import BARS, Bars
from ifca.report.terminal.run_tables import choice_table
from ifca.runs.choose_k import choose_k
from ifca.runs.config import read_config
from ifca.runs.data_config import SyntheticData
from ifca.runs.run import run
from ifca.runs.supported_k import Ended, loss_points, loss_silhouette, stability, supported
from ifca.runs.units.choice import parse_range

SMALL = ["rounds=24", "data.samples=150", "model.hidden=[8]", "device=cpu", "restarts=1", "step_size=0.3"]
SMALL += ["evaluate_every=0"]
OPTIONS = [part for setting in SMALL for part in ("--set", setting)]


def test_stability_by_hand() -> None:
    """[0 0 1 1] and its renaming agree: 1. Against [0 1 0 1]: (0 - 2/3) / (2 - 2/3) = -1/2, twice."""
    labels = [[0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1]]
    assert stability(labels) == pytest.approx((1 - 0.5 - 0.5) / 3)
    assert stability(labels[:2]) == 1
    assert stability([[0, 0, 0], [5, 5, 5]]) == 1
    assert stability(labels[:1]) is None


def test_silhouette_by_hand() -> None:
    """Log ratios of the two losses -3, -2 | 2, 3: inside 1, to the others 5.5 and 4.5 in the mean."""
    ratio, scale = np.array([-3.0, -2.0, 2.0, 3.0]), np.array([1.0, 10.0, 1.0, 10.0])
    unused = np.full(4, math.nan)  # a place without a model
    losses = np.stack([scale * np.exp(ratio), unused, scale], axis=1)
    assert loss_silhouette(losses, [0, 0, 2, 2]) == pytest.approx((4.5 / 5.5 + 3.5 / 4.5) / 2)


def test_silhouette_is_unknown_of_one_cluster_and_of_clients_alone() -> None:
    losses = np.arange(1.0, 10.0).reshape(3, 3)
    assert loss_silhouette(losses, [1, 1, 1]) is None
    assert loss_silhouette(losses, [0, 1, 2]) is None


def test_points_of_losses_that_are_zero_or_infinite_are_finite() -> None:
    points = loss_points(np.array([[0.0, 1.0], [math.inf, 2.0], [0.0, 0.0]]))
    assert points[0] == pytest.approx([math.log(2e-6) / 2, -math.log(2e-6) / 2])
    assert np.isfinite(points).all()


def event(kind: str, p: float, loses: float = 0.2) -> dict[str, Any]:
    return {"event": kind, "p": p, "loses": loses, "samples": 30, "alpha": 0.0025}


def ended(live: int, *events: dict[str, Any]) -> Ended:
    return Ended(0, live, list(events), rounds=24)


KEPT, MERGED = event("kept", 1e-9), event("merged", 0.5, -0.01)


@pytest.mark.parametrize(
    ("seeds", "k", "words"),
    [
        ([ended(4, MERGED, KEPT)] * 3, 4, "asked for at most 6, the referee left 4 from each of 3 seeds."),
        ([ended(4, KEPT), ended(3, KEPT), ended(3, KEPT)], 3, "left 3 from 2 of 3 seeds (4 from 1)."),
        ([ended(4, KEPT), ended(3, KEPT)], 3, "left 3 from 1 of 2 seeds (4 from 1)."),
        ([ended(4, KEPT)], 4, "the referee left 4."),
        ([ended(4, KEPT), ended(4, event("kept", 1e-5))], 4, "0.2 more a sample (p = 1e-05, level 0.0025"),
        (
            [ended(1, MERGED)],
            1,
            "Other groups became one: one model for two of them costs their clients nothing",
        ),
        ([ended(1, MERGED, event("merged", 0.1))], 1, "0.2 more a sample, not beyond doubt (p = 0.1, level"),
        ([ended(3)], 3, "It had not decided when the 24 rounds were over"),
        ([ended(6, KEPT)], 6, "largest k asked for"),
    ],
)
def test_what_is_said(seeds: list[Ended], k: int, words: str) -> None:
    verdict = supported(seeds, 6)
    assert verdict.k == k
    assert words in verdict.because


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of it, without an interruption."""
    out = tmp_path_factory.mktemp("choose-k") / "whole"
    choose_k(read_config(None, SMALL), range(3, 6), 2, out)
    return out


def result(out: Path) -> dict[str, Any]:
    """What was found, but for the time it took."""
    found: dict[str, Any] = json.loads((out / "choose-k.json").read_text())
    for pair in found["pairs"]:
        del pair["seconds"]
    return found


def test_four_rotations_support_four_clusters(whole: Path) -> None:
    found = result(whole)
    assert found["supported_k"] == 4
    assert [one["k"] for one in found["table"]] == [3, 4, 5]
    four, five = found["table"][1:]
    assert four["live_clusters"] == five["live_clusters"] == [4, 4]
    assert four["stability"] == five["stability"] == 1
    assert four["silhouette"] > 0.5
    losses = [pair["train_loss"] for pair in found["pairs"] if pair["k"] == 4]
    assert four["train_loss"] == pytest.approx(sum(losses) / 2)
    assert four["train_loss_std"] == pytest.approx(abs(losses[0] - losses[1]) / math.sqrt(2))


def test_all_seeds_are_of_one_federation(whole: Path) -> None:
    configs = [read_config(whole / "k-3" / f"seed-{seed}" / "config.toml") for seed in (0, 1)]
    assert [config.seed for config in configs] == [0, 1]
    assert all(config.data.seed == 0 for config in configs)  # type: ignore[union-attr]


def test_a_killed_choice_goes_on_and_repeats_nothing(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "ifca", "choose-k", "--k", "3:5", "--seeds", "2", "--out", str(out)]
    process = subprocess.Popen(
        [*command, *OPTIONS], stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    while process.poll() is None and len(list(out.rglob("summary.json"))) < 2:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = {file: file.stat().st_mtime_ns for file in out.rglob("summary.json")}
    assert 2 <= len(done) < 6
    choose_k(read_config(None, SMALL), range(3, 6), 2, out)
    assert all(file.stat().st_mtime_ns == before for file, before in done.items())
    assert result(out) == result(whole)


def test_another_config_or_other_data_is_refused(whole: Path, tmp_path: Path) -> None:
    config = read_config(None, SMALL)
    with pytest.raises(InvalidInput, match="rounds was 24, this command says 25"):
        choose_k(replace(config, rounds=25), range(3, 5), 2, whole)
    with pytest.raises(InvalidInput, match="data was"):
        choose_k(replace(config, data=SyntheticData()), range(3, 5), 2, whole)
    begun = json.loads((whole / "begun.json").read_text())
    (tmp_path / "begun.json").write_text(json.dumps({**begun, "data": "0"}))
    with pytest.raises(InvalidInput, match="the clients' files have changed"):
        choose_k(config, range(1, 3), 2, tmp_path)


def test_the_command_prints_a_table_a_sentence_and_a_figure(whole: Path, tmp_path: Path) -> None:
    arguments = ["choose-k", "--k", "3:5", "--seeds", "2", "--out", str(whole), *OPTIONS]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    for words in ("The data supports 4 clusters", "silhouette", "* 4", f"figure: {whole / 'choose-k.png'}"):
        assert words in shown.stdout
    assert (whole / "choose-k.png").read_bytes().startswith(b"\x89PNG")
    printed = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(printed.stdout)["supported_k"] == 4


def test_plain_regression_with_one_seed(tmp_path: Path) -> None:
    """No accuracy, no stability; a range without the supported k has no line in the figure."""
    data = 'data={name="synthetic", clients=12, dimension=5, samples=30, clusters=2}'
    config = read_config(None, [data, "model.name=linear", "rounds=15", "algorithm=ifca-plain", "restarts=3"])
    found = choose_k(config, parse_range("3"), 1, tmp_path / "out")
    assert found["table"][0]["stability"] is None
    assert found["table"][0]["train_loss_std"] is None
    printed = io.StringIO()
    Console(width=80, file=printed).print(choice_table(found))
    assert "plain IFCA by number of clusters (1 seed)" in printed.getvalue()
    assert all(len(line) <= 80 for line in printed.getvalue().splitlines())
    assert len(choice_figure(found).axes) == 4


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--k", "6:1"], "--k 6:1: the range is empty"),
        (["--k", "0:3"], "--k 0:3: k must be at least 1"),
        (["--k", "one:3"], "--k one:3: expected two whole numbers"),
        (["--k", "1:2:3"], "expected two whole numbers"),
        (
            ["--k", "1:113", "--set", "algorithm=ifca-plain"],
            "k is 113, but the federation has only 112 clients",
        ),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--set", "algorithm=local"], "algorithm is local, which has no k to choose"),
        (["--out", "."], ".: already holds something; choose another --out"),
        (["nowhere.toml"], "nowhere.toml: no such config file"),
    ],
)
def test_wrong_input_is_one_sentence(
    arguments: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text("")
    monkeypatch.setattr(sys, "argv", ["ifca", "choose-k", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    errors = capsys.readouterr().err
    assert complaint in errors
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_bars_stay_on_the_screen() -> None:
    progress = Progress(console=Console(quiet=True))
    bars = Bars(progress)
    for stage in range(BARS + 5):
        bars.started(Training(str(stage), 10))
    assert [task.description for task in progress.tasks][-1] == str(BARS + 4)
    assert len(progress.tasks) == BARS


def referee_of(folder: Path) -> tuple[int, list[dict[str, Any]]]:
    """What a run of ifca ended with, and the referee's verdicts."""
    summary = json.loads((folder / "summary.json").read_text())
    return summary["live_clusters"], [event for event in summary["events"] or [] if "p" in event]


@pytest.mark.parametrize(("angles", "k"), [("[0, 90, 180, 270]", 4), ("[0]", 1)])
def test_it_says_what_ifca_says(angles: str, k: int, tmp_path: Path) -> None:
    """Of a job of plain IFCA, whose own clusters do not decide."""
    settings = [*SMALL, f"data.angles={angles}", "data.samples=100", "algorithm=ifca-plain"]
    found = choose_k(read_config(None, settings), range(5, 6), 1, tmp_path / "out")
    assert found["supported_k"] == k
    assert (tmp_path / "out" / "referee" / "k-5" / "seed-0" / "summary.json").exists()
    ifca = read_config(None, [*settings, "algorithm=ifca", "k=5", "data.seed=0"])
    for one in found["referee"]:
        run(replace(ifca, seed=one["seed"]), alone := tmp_path / f"alone-{one['seed']}")
        live, verdicts = referee_of(alone)
        assert live == one["live_clusters"] == k
        assert verdicts == [event for event in one["events"] if "p" in event] != []


def test_a_constant_added_to_the_loss_changes_no_verdict(tmp_path: Path) -> None:
    code = "import torch.nn.functional as F\n\n\ndef {name}(outputs, y):\n    "
    code += "return F.cross_entropy(outputs, y, reduction='none') + {constant}\n\n\n"
    text = code.format(name="plain", constant=0) + code.format(name="more", constant=100)
    (tmp_path / "own_loss_of_choice.py").write_text(text)
    found: list[dict[str, Any]] = []
    for name in ("plain", "more"):
        loss = [f"model.loss=own_loss_of_choice:{name}", f"code={json.dumps(str(tmp_path))}"]
        config = read_config(None, [*SMALL, *loss, "data.samples=50"])
        found.append(choose_k(config, range(5, 6), 1, tmp_path / name))
    assert [one["supported_k"] for one in found] == [4, 4]
    kept = [[event["event"] for event in one["referee"][0]["events"]] for one in found]
    assert kept[0] == kept[1]


@pytest.mark.parametrize("m", [2, 6, 12])
def test_few_clients_from_the_command_line(m: int, tmp_path: Path) -> None:
    """Two populations of m / 2 clients; k is left out of the config, and larger than m in the range."""
    (tmp_path / "job.toml").write_text(
        f'rounds = 16\ndevice = "cpu"\nstep_size = 0.05\n[data]\nname = "synthetic"\n'
        f"clients = {m}\nsamples = 200\ndimension = 5\nclusters = 2\nseparation = 2\n"
    )

    def said(*arguments: str) -> str:
        done = CliRunner().invoke(app, [*arguments, "--quiet"])
        assert done.exit_code == 0, done.output
        return done.stdout

    job = str(tmp_path / "job.toml")
    chosen = said("choose-k", job, "--k", f"{m}:{m + 1}", "--seeds", "1", "--out", str(tmp_path / "choice"))
    said("run", job, "--out", str(tmp_path / "run"))
    live, verdicts = referee_of(tmp_path / "run")
    assert live == 2
    assert "The data supports 2 clusters" in chosen
    kept = [event for event in verdicts if event["event"] == "kept"]
    assert kept
    assert f"p = {kept[-1]['p']:.2g}" in chosen
