"""Which method is best: intervals and verdicts by hand, and 'ifca compare' over seeds with its folder."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import ifca
from ifca.cli.main import app
from ifca.core.errors import Diverged, InvalidInput
from ifca.methods import facts_of, method_of, registry
from ifca.report.live_run import LiveRun
from ifca.report.page import write_report
from ifca.report.page.metric import METRICS
from ifca.report.terminal.status import status
from ifca.runs.chosen_job import chosen_job
from ifca.runs.chosen_methods import folder_name, method_list, with_methods
from ifca.runs.comparison import JUDGED, comparison
from ifca.runs.config import Config, read_config
from ifca.runs.run import compare, resume, run

KEY = "test_accuracy_train_rule"
HEADS = (
    *("id", "cluster", "true_cluster", "train_samples", "train_loss", "test_samples", "test_cluster"),
    *("test_loss", "test_accuracy", "test_accuracy_train_rule", "bytes_down", "bytes_up"),
)
NONE = dict.fromkeys(("cluster", "train_samples", "bytes_down", "bytes_up"), 0)
T2 = 4.302653  # Student's t, 97.5 %, 2 degrees of freedom
METHODS = ("ifca", "global", "local")


def written(folder: Path, seed: int, scores: dict[str, Any], key: str = KEY) -> tuple[Path, dict[str, Any]]:
    """A run folder of methods: method -> the numbers of its clients of 10 test samples each, or its end."""
    made: dict[str, dict[str, Any]] = {}
    for name, numbers in scores.items():
        if isinstance(numbers, str):
            made[name] = {"algorithm": name, "error": numbers}
            continue
        here = folder / f"seed-{seed}" / ("" if not made else f"baselines/{name}")
        here.mkdir(parents=True)
        rows = [
            ",".join(str({**NONE, "id": f"c{i}", "test_samples": 10, key: value}.get(h, "")) for h in HEADS)
            for i, value in enumerate(numbers)
        ]
        (here / "clients.csv").write_text("\n".join([",".join(HEADS), *rows]) + "\n")
        made[name] = {"algorithm": name, "method": facts_of(name), key: sum(numbers) / len(numbers)}
    first, *others = made.items()
    return folder / f"seed-{seed}", first[1] | {"baselines": dict(others)}


def compared(folder: Path, seeds: list[dict[str, Any]], **how: Any) -> dict[str, Any]:
    key = how.pop("key", KEY)
    found = comparison({s: written(folder, s, one, key) for s, one in enumerate(seeds)}, **how)
    assert found is not None
    return found


def test_a_lead_over_seeds_by_hand(tmp_path: Path) -> None:
    """Leads of 2, 3 and 4 points: 3 ± t 1 / sqrt(3); the methods' own numbers vary much more."""
    seeds = [{"ifca": [0.62], "local": [0.60]}, {"ifca": [0.83], "local": [0.80]}]
    found = compared(tmp_path, [*seeds, {"ifca": [0.74], "local": [0.70]}], same_data=False)
    (pair,) = found["pairs"]
    reach = T2 * 0.01 / math.sqrt(3)
    assert (pair["first"], pair["second"], pair["clear"]) == ("ifca", "local", True)
    assert (pair["by"], pair["low"], pair["high"]) == pytest.approx((0.03, 0.03 - reach, 0.03 + reach))
    assert pair["by_seed"] == pytest.approx([0.02, 0.03, 0.04])
    assert (found["best"], found["paired_over"], found["seeds"]) == ("ifca", "seeds", [0, 1, 2])
    assert [row["standing"] for row in found["table"]] == ["best", "worse"]
    assert found["verdict"] == (
        "Best is IFCA, test accuracy 73.0 %, clearly ahead of local, behind by 3.0 points (0.5 to 5.5)."
    )
    assert all(0 <= row["low"] <= row["high"] <= 1 for row in found["table"])


def test_a_tie_is_called_a_tie_with_the_simplest(tmp_path: Path) -> None:
    """Ahead of global by 0, 3 and 6 points: 3 ± t 3 / sqrt(3) crosses 0; local is far behind."""
    seeds = [
        {"ifca": [0.80 + 0.03 * s], "global": [0.80], "local": [0.30], "ifca-plain": [0.80 + 0.03 * s]}
        for s in range(3)
    ]
    found = compared(tmp_path, seeds, same_data=False)
    assert [row["standing"] for row in found["table"]] == ["tie", "tie", "tie", "worse"]
    assert found["verdict"] == (
        "No clear winner: no method is clearly better than global, test accuracy 80.0 %. Highest is IFCA "
        "with 83.0 %, but its lead of 3.0 points (−4.5 to 10.5) may be chance, like that over plain IFCA. "
        "Clearly worse than IFCA: local."
    )
    assert "More seeds make them narrower" in found["basis"]


def test_with_one_seed_clients_are_compared_with_themselves(tmp_path: Path) -> None:
    """Three clients, leads of 2, 3 and 4 points as over seeds before; a method that diverged is named."""
    one = {"ifca": [0.62, 0.93, 0.44], "global": [0.60, 0.90, 0.40], "clove": "became NaN"}
    found = compared(tmp_path, [one])
    reach = T2 * 0.01 / math.sqrt(3)
    assert (found["pairs"][0]["low"], found["paired_over"]) == (pytest.approx(0.03 - reach), "clients")
    assert found["verdict"].startswith("With this seed, best is IFCA")
    assert found["verdict"].endswith("No result has clove: became NaN.")
    assert "over the 3 clients that were tested" in found["basis"]


def test_seeds_with_the_same_data_take_the_wider_interval(tmp_path: Path) -> None:
    """Training that does not vary says nothing about other test data; clients do."""
    one = {"ifca": [0.9, 0.5, 0.7], "global": [0.8, 0.5, 0.3]}
    found = compared(tmp_path / "same", [one] * 3, same_data=True)
    alone = compared(tmp_path / "alone", [one])
    assert found["paired_over"] == "both"
    assert found["pairs"][0]["low"] == pytest.approx(alone["pairs"][0]["low"])
    shaken = [{"ifca": [v + d for v in (0.9, 0.5, 0.7)], "global": one["global"]} for d in (-0.3, 0.0, 0.1)]
    wider = compared(tmp_path / "shaken", shaken, same_data=True)["pairs"][0]
    by_seed = np.array(wider["by_seed"])
    assert wider["high"] - wider["by"] == pytest.approx(T2 * by_seed.std(ddof=1) / math.sqrt(3))


def test_losses_are_better_when_lower_and_training_loss_says_nothing(tmp_path: Path) -> None:
    seeds = [{"ifca": [2.0 + 0.1 * s], "global": [2.5 + 0.2 * s]} for s in range(3)]
    found = compared(tmp_path / "test", seeds, same_data=False, key="test_loss")
    assert (found["best"], found["higher_is_better"]) == ("ifca", False)
    assert "behind by 28.6 %" in found["verdict"]  # 0.6 of 2.1
    assert "in % of the first one's loss" in found["basis"]
    found = compared(tmp_path / "train", seeds, same_data=False, key="train_loss")
    assert found["best"] is None
    assert found["verdict"].startswith("Which method is best cannot be said: there are no test data")


def test_what_methods_are_judged_by_is_what_pages_show() -> None:
    assert tuple(metric.key for metric in METRICS) == JUDGED


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["ifka", "global"], "--methods ifka: there is no such method; did you mean ifca?"),
        (["foo,global"], "--methods foo: there is no such method (known: ifca, "),
        (["ifca"], "--methods ifca: name two methods or more, such as ifca,global,local"),
        (["ifca,", "ifca"], "name two methods or more"),
    ],
)
def test_wrong_methods_get_one_sentence(given: list[str], complaint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        method_list(given)
    assert complaint in str(refused.value)


def test_any_set_of_methods() -> None:
    """The job's own method is first where it is among them; else its restarts are nobody's."""
    config = Config(restarts=3)
    chosen = with_methods(config, ["global, ifca", "own:METHOD"])
    assert (chosen.algorithm, chosen.restarts) == ("ifca", 3)
    assert chosen.baselines == ("global", "ifca", "own:METHOD")
    chosen = with_methods(config, ["global", "local"])
    assert (chosen.algorithm, chosen.restarts) == ("global", 1)
    both = ("a:MINE", "b:MINE", "c:OTHER", "ifca")
    assert [folder_name(name, both) for name in both] == ["a.MINE", "b.MINE", "OTHER", "ifca"]


def test_a_method_of_ones_own_that_is_not_there_is_noticed_before_training(tmp_path: Path) -> None:
    config = read_config(
        None, ["k=auto", "rounds=1", "device=cpu", "data.samples=60", "baselines=['nowhere:METHOD']"]
    )
    with pytest.raises(InvalidInput, match="nowhere:METHOD"):
        run(config, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_method_that_cannot_do_the_job_is_named_and_the_others_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(problem: Any, restart: int) -> Any:
        raise InvalidInput("picky is for convex models")

    picky = replace(method_of("global"), name="picky", start=start)
    monkeypatch.setitem(registry._METHODS, "picky", picky)
    config = read_config(None, ["rounds=2", "device=cpu", "data.samples=60", "model.hidden=[8]"])
    found = compare(config, tmp_path / "out", methods=("ifca", "picky", "local"))
    assert found["comparison"]["failed"] == {"picky": "picky is for convex models"}
    assert found["comparison"]["verdict"].endswith("No result has picky: picky is for convex models.")
    assert len(found["comparison"]["table"]) == 2
    assert "comparison" in resume(tmp_path / "out")


@pytest.mark.parametrize("seeds", [1, 2])
def test_where_the_first_method_diverges_another_first_one_is_advised(tmp_path: Path, seeds: int) -> None:
    settings = ["rounds=2", "device=cpu", "data.samples=60", "model.hidden=[8]", "step_size=1e30"]
    config = read_config(None, [*settings, "on_divergence=stop"])
    with pytest.raises(Diverged, match=r"^per-fedavg: .*training diverged.*; .* name another first"):
        compare(config, tmp_path / "out", methods=("per-fedavg", "local"), seeds=seeds)


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six clients of uneven sizes, each with mostly two of four classes."""
    folder, draw = tmp_path_factory.mktemp("six") / "sites", np.random.default_rng(1)
    folder.mkdir()
    centres = draw.normal(size=(4, 3))
    for i, n in enumerate((40, 90, 30, 55, 60, 70)):
        share = np.full(4, 0.05)
        share[[i % 4, (i + 1) % 4]] = 0.6, 0.3
        y = draw.choice(4, n, p=share)
        rows = zip(centres[y] + draw.normal(size=(n, 3)), y, strict=True)
        lines = [",".join([*[f"{v:.3f}" for v in x], ("red", "blue", "green", "grey")[k]]) for x, k in rows]
        (folder / f"site-{i}.csv").write_text("\n".join(["a,b,c,kind", *lines]) + "\n")
    return folder


@pytest.fixture(scope="module")
def job(six: Path) -> Config:
    return chosen_job(six, {"label": ["kind"]}, settings=["rounds=4", "device=cpu", "evaluate_every=0"])


class Cut(Exception):
    """The end of a process."""


class CutIn:
    """Ends training in a round of one of the trainings."""

    def __init__(self, title: str) -> None:
        self.title, self.here = title, False

    def started(self, training: Any) -> None:
        self.here = training.title == self.title

    def round_ended(self, record: Any) -> None:
        if self.here and record["round"] == 2:
            raise Cut


def test_a_comparison_that_was_cut_off_goes_on_bit_for_bit(job: Config, tmp_path: Path) -> None:
    whole = compare(job, tmp_path / "whole", methods=METHODS, seeds=2)
    cut = tmp_path / "cut"
    with pytest.raises(Cut):
        ifca.compare(job, cut, CutIn("seed 1 (2 of 2), global"), METHODS, 2)
    assert not (cut / "summary.json").exists()
    assert status(LiveRun(cut).read()).endswith(f"are missing. 'ifca resume {cut}' goes on.")
    with pytest.raises(InvalidInput, match="is a comparison over seeds"):
        ifca.open_run(cut)
    gone_on = resume(cut)
    written = json.loads((cut / "summary.json").read_text())
    assert gone_on == {name: value for name, value in written.items() if name != "checksums"}
    assert gone_on["comparison"] == whole["comparison"]
    assert gone_on["folders"] == ["seed-0", "seed-1"]
    files = [file.relative_to(cut) for file in cut.rglob("clients.csv")]
    assert len(files) == 2 * len(METHODS)
    assert all((cut / file).read_bytes() == (tmp_path / "whole" / file).read_bytes() for file in files)
    assert whole["comparison"]["paired_over"] == "seeds"  # each seed sets other samples aside
    assert resume(cut) == gone_on
    html = write_report([cut]).read_text()
    assert "Which method is best" in html
    assert whole["comparison"]["verdict"].split(".")[0] in html.replace("&#39;", "'")
    assert html.count('class="bar mine"') + html.count('class="bar"') >= len(METHODS)
    with pytest.raises(InvalidInput, match="already holds something"):
        compare(job, cut, methods=METHODS, seeds=2)


def test_the_command_says_which_is_best(six: Path, tmp_path: Path) -> None:
    told = ["compare", str(six), "--label", "kind", "--quiet", "--set", "rounds=2", "--set", "device=cpu"]
    wrong = CliRunner().invoke(app, [*told, "--out", str(tmp_path / "no"), "--seeds", "0"])
    assert str(wrong.exception) == "--seeds must be at least 1, got 0"
    done = CliRunner().invoke(app, [*told, "--out", str(tmp_path / "out"), "--methods", "ifca,global"])
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "out" / "summary.json").read_text())["comparison"]
    assert "Methods compared" in done.output
    assert found["verdict"] in done.output
    assert found["basis"] in done.output
    assert {row["method"] for row in found["table"]} == {"ifca", "global"}
