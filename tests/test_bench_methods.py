"""The bench of methods: regimes that can be made, units that are never repeated, rows that can be redone."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ifca.bench import regimes, sets
from ifca.bench.methods import Choice, bench_methods, units
from ifca.bench.regimes import Partitioned
from ifca.bench.rivals import RIVALS, job_of
from ifca.bench.sets import Parts
from ifca.bench.standings import BEATEN, standings, write_standings
from ifca.cli import main as cli
from ifca.core.errors import InvalidInput
from ifca.core.metrics import adjusted_rand_index
from ifca.core.recipe import Recipe
from ifca.data.partitioning import Labelled
from ifca.data.public.rotated import Images
from ifca.methods.loss_clusters import clusters, matched
from ifca.report.methods_figure import LOOKS, write_methods_figure
from ifca.report.methods_table import methods_table
from ifca.runs.units.lines import RUNS, read_lines
from ifca.runs.units.unit import Line
from ifca.training import fit
from tests.conftest import groups, make_job

CPU = torch.device("cpu")
TINY = "cancer-swapped"
ALL = regimes.regimes()


def fake(*shape: int) -> Parts:
    """Noise in the shape of a public set."""
    rng = np.random.default_rng(0)
    train, test = (
        Labelled(rng.integers(0, 256, (n, *shape), dtype=np.uint8), np.arange(n) % 10) for n in (300, 100)
    )
    return Parts(train, test)


SHAPES = {"mnist": (28, 28), "cifar10": (32,)}


def test_there_are_enough_regimes_of_every_kind() -> None:
    assert len(ALL) >= 24
    for start in ("mnist-", "digits-", "cifar-", "cancer-", "wine-", "diabetes-"):
        assert any(name.startswith(start) for name in ALL)
    assert all(regime.why and len(regime.why) < 80 for regime in ALL.values())
    assert set(BEATEN) == set(RIVALS) - {"ifca", "local", "oracle"}
    page = (Path(__file__).parent.parent / "docs" / "bench.md").read_text()
    for regime in ALL.values():
        true = "not known" if regime.populations is None else regime.populations
        assert f"| `{regime.name}` | {regime.why} | {true} | {regime.k} |" in page
    assert all(f"`{name}`" in page for name in RIVALS)
    with pytest.raises(InvalidInput, match="unknown regime moon"):
        regimes.regime_of("moon")


@pytest.mark.parametrize("name", [name for name in ALL if name != "mnist-writers"])
def test_every_regime_can_be_made(name: str) -> None:
    regime = ALL[name]
    make = regime.make
    if isinstance(make, Partitioned):
        deal = replace(make.deal, samples=10, test_samples=5)
        data = (lambda: fake(*SHAPES[regime.needs[0]])) if regime.needs else make.data
        regime = replace(regime, make=replace(make, deal=deal, data=data))
    job = regime.job(1000)
    true = job.federation.train.true_cluster
    assert true is not None
    assert len(set(true.tolist())) == regime.populations
    assert job.federation.test is not None
    assert job.federation.test.ids == job.federation.train.ids
    assert job.recipe.k == regime.k <= len(true)
    out = job.template(torch.zeros(2, *job.federation.input_shape))
    assert out.shape == (2, job.federation.outputs)


def test_features_of_cifar(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    pair = [Images(rng.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8), np.arange(n)) for n in (30, 10)]
    monkeypatch.setattr(sets, "read_cifar", lambda: pair)
    train, test = sets.cifar_features.__wrapped__()
    assert test is not None
    assert train.x.shape == (30, 1024)
    assert test.x.shape == (10, 1024)
    assert np.allclose(train.x.mean(0), 0, atol=1e-4)


def test_clusters_of_losses_by_hand() -> None:
    """Two kinds of clients; both kinds lose least by model 0, but only one of them gets it."""
    losses = torch.tensor([[1.0, 5.0], [1.1, 5.1], [2.0, 2.5], [2.1, 2.6], [2.0, 2.4]])
    found = clusters(losses, 0)
    assert found[0] == found[1] != found[2] == found[3] == found[4]
    assert matched(losses, found).tolist() == [0, 0, 1, 1, 1]
    assert clusters(losses[:2], 0).tolist() == [0, 1]
    assert len(clusters(torch.ones(5, 2), 0)) == 5  # all alike: fewer clusters, no warning
    bad = torch.tensor([[1.0, torch.nan], [torch.nan, 1.0], [1.0, torch.inf], [1.0, 5.0]])
    assert matched(bad, clusters(bad, 0)).tolist() == [0, 1, 0, 0]


def test_a_one_shot_start_trains_its_clusters_first() -> None:
    recipe = Recipe(algorithm="ifca-plain", initial="oneshot", k=2, rounds=2, erm_rounds=5, erm_step_size=0.3)
    fitted = fit(make_job(groups((40,) * 6), recipe))
    assert [record["sent_all_models"] for record in fitted.history] == [0, 6]
    assert fitted.history[0]["cluster_accuracy"] == 1.0
    plain = fit(make_job(groups((40,) * 6), replace(recipe, algorithm="oneshot")))
    assert plain.history[0]["identity"] == fitted.history[0]["identity"]
    assert int(fitted.state.bytes_up.sum()) > 0


def test_the_oracle_is_told_the_truth() -> None:
    job = job_of(TINY, "oracle", 1000, CPU)
    fitted = fit(replace(job, recipe=replace(job.recipe, rounds=1)))
    true = job.federation.train.true_cluster
    assert true is not None
    assert adjusted_rand_index(true, fitted.labels.numpy()) == 1


def test_units_are_those_that_are_asked_for() -> None:
    asked = units(Choice())
    assert len(asked) == 10 * (len(ALL) * len(RIVALS) - 1)  # nobody can tell the oracle who writes how
    some = units(Choice((TINY,), ("ifca", "global"), range(1000, 1002)))
    assert [unit.key for unit in some] == [
        (TINY, method, seed) for seed in (1000, 1001) for method in ("ifca", "global")
    ]
    with pytest.raises(InvalidInput, match="unknown method magic"):
        units(Choice(methods=("magic",)))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two regimes of three rounds."""
    short = {
        name: replace(ALL[name], recipe={**ALL[name].recipe, "rounds": 3}) for name in (TINY, "gaussian")
    }
    monkeypatch.setattr(regimes, "regimes", lambda: short)
    monkeypatch.setattr("ifca.bench.methods.regimes", lambda: short)


@pytest.mark.usefixtures("quick")
def test_from_units_to_summary_table_and_picture(tmp_path: Path) -> None:
    """Seed 5 stands for the table's; seed 1000 sets constants and is in no row."""
    told: list[tuple[int, int]] = []
    choice = Choice(seeds=range(5, 6), device="cpu")
    assert bench_methods(tmp_path, choice, lambda _line, done, of: told.append((done, of))) == []
    assert told[-1] == (18, 18)
    folder = tmp_path / "methods"
    before = (folder / RUNS).read_bytes()
    assert bench_methods(tmp_path, choice) == []  # nothing is repeated
    assert (folder / RUNS).read_bytes() == before
    bench_methods(tmp_path, Choice((TINY,), ("ifca",), range(1000, 1001), "cpu"))
    lines = {(line["setting"], line["algorithm"]): line for line in read_lines(folder) if line["seed"] == 5}
    assert {"commit", "versions", "seconds", "by_client", "ari", "live", "turns", "bytes"} <= lines[
        TINY, "ifca"
    ].keys()
    assert lines[TINY, "best-of-5"]["bytes"] == 5 * lines[TINY, "ifca-plain"]["bytes"]
    assert lines["gaussian", "ifca-plain"]["turns"] == 3 * 60
    assert lines["gaussian", "oracle"]["accuracy"] <= 1
    assert "ari" not in lines[TINY, "local"]
    summary = json.loads((folder / "summary.json").read_text())
    rows = {(row["regime"], row["method"]): row for row in summary["rows"]}
    assert len(rows) == 18
    assert rows[TINY, "ifca"]["seeds"] == [5]
    assert rows[TINY, "ifca-plain"]["bytes_ratio"] == rows[TINY, "ifca-plain"]["turns_ratio"] == 1
    assert rows[TINY, "best-of-5"]["turns_ratio"] == 5
    assert rows[TINY, "global"]["worse_than_global"] == 0
    text = methods_table(summary)
    assert "seeds from 1000 on" in text
    assert f"| {TINY}: half of the sites" in text
    files = write_methods_figure(folder, summary)
    assert all(file.stat().st_size > 5000 for file in files)
    assert set(LOOKS) | {"oracle"} == set(RIVALS)


def a_line(method: str, accuracy: float, by_client: list[int], seed: int = 0, **more: object) -> Line:
    return {
        "setting": TINY,
        "algorithm": method,
        "seed": seed,
        "accuracy": accuracy,
        "by_client": by_client,
        "test_loss": 1.0,
        "train_loss": 0.5,
        "live": 2,
        "bytes": 100,
        "turns": 10,
        "seconds": 1.0,
        "versions": {},
        **more,
    }


def test_rows_by_hand() -> None:
    lines = [
        a_line("ifca", 0.70, [600, 700, 800], bytes=115),
        a_line("ifca", 0.90, [900, 900, 900], seed=1),
        a_line("global", 0.75, [700, 650, 800]),
        a_line("ifca-plain", 0.60, [500, 600, 700]),
        a_line(
            "oneshot", 0.80, [1, 2, 3], personalised={"accuracy": 0.9, "test_loss": 0, "by_client": [900] * 3}
        ),
        a_line("local", 0.99, [990] * 3),
        a_line("clove", 0.0, [0] * 3) | {"diverged": "yes"},
        a_line("global", 1.0, [1000] * 3, seed=1000),
    ]
    found = standings(lines)
    rows = {(row["method"], row["personalised"]): row for row in found["rows"]}
    ours = rows["ifca", False]
    assert (ours["accuracy"], ours["seeds"], ours["bytes_ratio"]) == (70, [0], 1.15)  # others have no seed 1
    assert ours["worse_than_global"] == pytest.approx(1 / 3, abs=1e-4)
    assert ours["worst_tenth"] == 60
    assert ours["worse_than_local"] == 1
    assert rows["oneshot", True]["accuracy"] == 90
    assert ("ifca", True) not in rows
    (behind,) = found["behind"]
    assert (behind["behind"], behind["best"]) == (10, "oneshot")  # of seed 0; local is not one of them
    assert found["diverged"] == [[TINY, "clove", 0]]


def test_nothing_run_and_data_that_are_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="nothing is run there yet"):
        write_standings(tmp_path)
    monkeypatch.setenv("IFCA_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    with pytest.raises(InvalidInput, match="cifar-swapped needs cifar10, which is not in"):
        bench_methods(tmp_path, Choice(("cifar-swapped",), ("global",)))
    left_out = bench_methods(tmp_path, Choice(("cifar-swapped", TINY), ("global",), range(1), minutes=0))
    assert [sentence.split(",")[0] for sentence in left_out] == ["cifar-swapped needs cifar10"]


@pytest.mark.usefixtures("quick")
def test_the_verb(tmp_path: Path) -> None:
    options = ["--regime", TINY, "--method", "ifca,ifca-plain", "--seeds", "0:1", "--device", "cpu"]
    done = CliRunner().invoke(cli.app, ["bench-methods", *options, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert f"{TINY}: ifca is " in done.output
    assert {file.name for file in (tmp_path / "methods").iterdir()} >= {"table.md", "methods.png", RUNS}
    shown = CliRunner().invoke(cli.app, ["bench-methods", "--no-run", "--out", str(tmp_path)])
    assert shown.exit_code == 0
    helped = CliRunner().invoke(cli.app, ["bench-methods", "--help"], env={"COLUMNS": "200"})
    for option in ("--regime", "--method", "--seeds", "--time-limit", "--processes", "--out", "--device"):
        assert option in helped.output


def test_it_runs_where_there_is_neither_pydantic_nor_typer_nor_rich(tmp_path: Path) -> None:
    """As on a machine that has a GPU and little else."""
    code = (
        "import sys\n"
        "for name in ('pydantic', 'typer', 'rich', 'matplotlib', 'jinja2', 'safetensors'):\n"
        "    sys.modules[name] = None\n"
        "import importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if sys.modules.get(name, 0) is None else find(name, *a)\n"
        f"sys.argv = ['x', '--out', {str(tmp_path)!r}, '--regime', {TINY!r}, '--method', 'global', "
        "'--seeds', '0:1', '--device', 'cpu']\n"
        "from ifca.bench.methods import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1 of 1: cancer-swapped, global, seed 0: accuracy" in done.stdout
    assert (tmp_path / "methods" / "summary.json").is_file()
