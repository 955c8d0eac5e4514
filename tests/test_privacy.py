"""A private run as a whole: its budget, its noise, what it says of itself and what it refuses."""

from __future__ import annotations

import json
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ifca import IFCA, choose_k, tune
from ifca.core.callbacks import Record, Training
from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.core.replies import Needs
from ifca.core.sampling import is_empty
from ifca.core.types import ClusterState
from ifca.methods import Ask, Problem, Round, method_of, register
from ifca.report.page import write_report
from ifca.runs.config import read_config
from ifca.runs.make import make_job as make_run_job
from ifca.runs.privacy_words import privacy_sentences
from ifca.runs.run import compare, resume, run
from ifca.runs.run_folder import open_directory
from ifca.training import fit
from ifca.training.checkpoint import load_tensors
from ifca.training.preflight import check
from ifca.training.privacy import drawn_from, known_by
from ifca.training.start import start
from ifca.use.card import write_card
from ifca.use.continue_run import continue_run
from ifca.use.export import export_model
from tests.conftest import groups, make_job
from tests.test_contract import same_bits
from tests.test_resume import assert_same_result

SMALL = ["algorithm=ifca-plain", "k=2", "rounds=8", "data.samples=300", "model.hidden=[8]", "device=cpu"]
SMALL += ["restarts=1", "baselines=[]", "evaluate_every=0", "dp_noise=0.2", "dp_clip=0.5", "dp_delta=0.001"]
CROWD = groups((5,) * 40)


class StopAt:
    """A ctrl-C after round 3."""

    def started(self, training: Training) -> None: ...

    def round_ended(self, record: Record) -> None:
        if record["round"] == 3:
            raise KeyboardInterrupt

    def finished(self, summary: dict[str, object]) -> None: ...


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("private") / "run"
    run(read_config(None, SMALL), folder)
    return folder


def models(folder: Path) -> dict[str, torch.Tensor]:
    return load_tensors(folder / "models.safetensors")[0]


def test_resumed_with_the_same_bits(done: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(read_config(None, SMALL), tmp_path / "run", StopAt())
    resume(tmp_path / "run")
    assert_same_result(done, tmp_path / "run")


def test_summary_page_and_card_say_what_was_spent(done: Path, tmp_path: Path) -> None:
    summary = json.loads((done / "summary.json").read_text())
    told = summary["privacy"]
    assert told["noise"] == 0.2
    assert told["rounds"] == 8
    assert told["budget"] is None
    assert told["adjacency"] == "one client more or less"
    assert told["noise_from"] == "the seed"
    assert any("guesses the seed" in text for text in told["not_covered"])
    spent = f"epsilon = {told['epsilon']:.4g}"
    page = write_report([done], tmp_path / "page.html").read_text()
    model = tmp_path / "m.safetensors"
    card = write_card(done, 0, model, export_model(done, 0, model)).read_text()
    for text in (page, card):
        for words in (
            spent,
            "delta = 0.001",
            "one client more or less",
            "all clients in every round",
            "Not covered",
        ):
            assert words in text
    assert "losses and accuracies are not covered either" in card
    ids = re.findall(r'^"?([^,"]+)', (done / "clients.csv").read_text(), re.M)[1:]
    assert ids
    assert not [name for name in ids if name in card]


def test_training_stops_before_the_budget_is_passed(done: Path, tmp_path: Path) -> None:
    whole = json.loads((done / "summary.json").read_text())["privacy"]["epsilon"]
    summary = run(read_config(None, [*SMALL, f"dp_epsilon={0.6 * whole}"]), tmp_path / "run")
    assert 0 < summary["rounds"] < 8
    assert summary["privacy"]["epsilon"] <= 0.6 * whole
    assert summary["stopped"]["rounds"] == summary["rounds"]
    assert summary["stopped"]["why"].startswith("another round would spend more than dp_epsilon = ")
    records = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    first = [json.loads(line) for line in (done / "rounds.jsonl").read_text().splitlines()]
    assert [r["train_loss"] for r in records] == [r["train_loss"] for r in first[: len(records)]]
    assert resume(tmp_path / "run") == summary


def test_no_two_trainings_draw_the_same_noise() -> None:
    """Only how many rounds were asked for does not matter: what is released until then is the same."""
    recipe = Recipe(algorithm="global", dp_noise=1.0, dp_delta=1e-3, rounds=3)
    job = make_job(CROWD, recipe)
    begun = {"w": torch.zeros(1, 2)}
    others = [
        replace(job, recipe=replace(recipe, seed=1)),
        replace(job, recipe=replace(recipe, algorithm="ifca-plain", k=2)),
        replace(job, recipe=replace(recipe, step_size=0.2)),
        replace(job, recipe=replace(recipe, dp_noise=2.0)),
        replace(job, warm_start=begun),
        replace(job, warm_start={"w": torch.ones(1, 2)}),
        replace(job, warm_start=begun, other_data=known_by(CROWD.train)),
        replace(job, warm_start=begun, other_data=known_by(groups((5,) * 40, seed=1).train)),
    ]
    assert len({drawn_from(one) for one in (job, *others)}) == 1 + len(others)
    assert drawn_from(replace(job, recipe=replace(recipe, rounds=9, dp_epsilon=50.0))) == drawn_from(job)
    assert drawn_from(replace(job, secret=7)) == 7
    assert drawn_from(make_job(CROWD, Recipe())) is None


def test_a_continuation_draws_its_own_noise_and_budgets_add_up(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        for i in range(30):
            rows = [f"{a:.3f},{b:.3f},{int(a > 0)}" for a, b in rng.normal(size=(12, 2)).tolist()]
            (tmp_path / name / f"h{i:02d}.csv").write_text("\n".join(["a,b,outcome", *rows]) + "\n")
    file = tmp_path / "job.toml"
    data = 'name = "folder"\npath = "old"\nlabel = "outcome"\nstandardise = false\ntest_share = 0.2\n'
    file.write_text(f'[data]\n{data}[model]\nname = "logistic"\n')
    terms = [term for term in SMALL if not term.startswith(("data.", "model."))]
    first = run(read_config(file, terms), tmp_path / "first")["privacy"]
    second = continue_run(tmp_path / "first", tmp_path / "new", tmp_path / "second")["privacy"]
    again = continue_run(tmp_path / "second", tmp_path / "old", tmp_path / "third")["privacy"]
    assert "before" not in first
    assert second["before"] == {"epsilon": first["epsilon"], "delta": 0.001}
    assert again["in_all"]["epsilon"] == pytest.approx(3 * first["epsilon"])
    assert again["in_all"]["delta"] == pytest.approx(0.003)
    assert f"all models together tell epsilon = {3 * first['epsilon']:.4g}" in privacy_sentences(again)[1]
    page = write_report([tmp_path / "third"], tmp_path / "third" / "report.html")
    assert "all models together tell" in page.read_text()
    assert "the models that training began with" not in again["not_covered"]
    jobs = [make_run_job(open_directory(tmp_path / name)) for name in ("first", "second", "third")]
    assert len({drawn_from(job) for job in jobs}) == 3


def test_trainings_that_are_compared_add_up(tmp_path: Path) -> None:
    """Two methods and two seeds are four trainings of the same clients, each with an epsilon of its own."""
    out = tmp_path / "seeds"
    found = compare(read_config(None, SMALL), out, None, ["ifca-plain", "global"], 2)
    first = json.loads((out / "seed-0" / "summary.json").read_text())
    each, words = first["privacy"]["epsilon"], "of each, all models together tell epsilon ="
    said = f"{words} {4 * each:.4g}, delta = 0.004"
    assert found["comparison"]["basis"].count("These 4 private trainings") == 1
    assert said in found["comparison"]["basis"]
    assert said in write_report([out], tmp_path / "page.html").read_text()
    assert f"{words} {2 * each:.4g}, delta = 0.002" in first["comparison"]["basis"]


def test_a_budget_alone_decides_the_noise() -> None:
    given = {"algorithm": "global", "dp_epsilon": 60.0, "dp_delta": 1e-3, "dp_clip": 0.3, "rounds": 20}
    model = IFCA(**given, standardise=False, device="cpu").fit(CROWD)  # type: ignore[arg-type]
    assert model.privacy_ is not None
    assert 59 < model.privacy_["epsilon"] <= 60
    assert model.stopped_ is None


def test_a_sampled_run_says_so(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    told = run(read_config(None, [*SMALL, "participation=0.6"]), tmp_path / "run")["privacy"]
    assert told["sampling"] == "each client by itself (Poisson)"
    assert told["accountant"].startswith("dp-accounting")
    rounds = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert len({record["participants"] for record in rounds}) > 1


def test_a_method_of_ones_own_is_given_noised_sums_alone() -> None:
    plain = method_of("ifca-plain")

    def curious(problem: Problem, state: ClusterState, now: Round, ask: Ask) -> tuple[ClusterState, None]:
        ask.turn(state, now.who, now.known)
        return state, None

    asks = replace(plain, name="asks", server=curious)
    wants = replace(plain, name="wants", needs=lambda _recipe, _state: Needs(losses=True))
    for method in (asks, wants):
        job = make_job(CROWD, Recipe(algorithm=register(method).name, dp_noise=0.1))
        with pytest.raises(InvalidInput, match="given noised sums alone"):
            fit(job)


@pytest.mark.parametrize("name", ["ifca", "clove", "oneshot", "local", "ditto", "cfl"])
def test_methods_that_ask_for_more_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"{name}: needs more of clients than sums that noise can cover"):
        make_job(CROWD, Recipe(algorithm=name, dp_noise=1.0))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"dp_delta": 0.1}, "less than 1 over the number of clients \\(40\\), got 0.1: try 0.003"),
        ({"dp_noise": 30.0}, "needs at least 190 clients of a cluster in a round"),
        (
            {"dp_noise": 1.0, "dp_epsilon": 1.0},
            "in the first round, more than dp_epsilon = 1: take more noise",
        ),
    ],
)
def test_what_noise_or_budget_do_not_allow_is_refused(settings: dict[str, Any], complaint: str) -> None:
    recipe = Recipe(**{"algorithm": "global", "dp_noise": 1.0, "dp_delta": 1e-3, **settings})
    with pytest.raises(InvalidInput, match=complaint):
        check(make_job(CROWD, recipe))


def test_who_is_asked_because_nobody_was_drawn_counts_for_nothing() -> None:
    recipe = Recipe(algorithm="global", dp_noise=1e-9, participation=0.0001, rounds=3)
    job = make_job(CROWD, recipe)
    assert [is_empty(recipe, t, CROWD.train.keys) for t in range(3)] == [True, True, True]
    fitted = fit(job)
    assert [record["participants"] for record in fitted.history] == [1, 1, 1]
    assert same_bits(fitted.state.theta, start(job).theta)


def test_statistics_of_features_are_refused() -> None:
    with pytest.raises(InvalidInput, match="standardise = false"):
        IFCA(algorithm="global", dp_noise=1.0, dp_delta=1e-3, device="cpu", standardise=True).fit(CROWD)


def test_no_searching_with_a_budget(tmp_path: Path) -> None:
    config = read_config(None, SMALL)
    with pytest.raises(InvalidInput, match="are for one training"):
        choose_k(config, range(1, 3), 1, tmp_path / "k")
    with pytest.raises(InvalidInput, match="are for one training"):
        tune(IFCA(algorithm="global", dp_noise=0.2, dp_delta=1e-3, device="cpu", standardise=False), CROWD)
    with pytest.raises(InvalidInput, match="local: needs more of clients"):
        compare(config, tmp_path / "all", methods=["ifca-plain", "local"])


def test_a_federation_draws_its_noise_from_the_operating_system(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    from ifca.engines.flower.local_grid import LocalGrid
    from ifca.federation.apps import client_app
    from ifca.federation.serverapp import serve

    config = read_config(None, [*SMALL, "rounds=3", "federation.clients=16"])
    done, grid = tmp_path / "done", LocalGrid(client_app(config), 16)
    run(config, done)
    seeded = serve(grid, config, tmp_path / "seeded", poll=0.01, seeded=True)
    for name, value in models(done).items():
        torch.testing.assert_close(models(tmp_path / "seeded")[name], value, rtol=1e-3, atol=1e-4)
    assert not (tmp_path / "seeded" / "noise.key").exists()
    summary = serve(grid, config, tmp_path / "real", poll=0.01)
    assert summary["privacy"]["noise_from"] == "the operating system"
    assert summary["privacy"]["epsilon"] == seeded["privacy"]["epsilon"]
    assert not any("seed" in text for text in summary["privacy"]["not_covered"])
    key = tmp_path / "real" / "noise.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    mine, other = models(tmp_path / "real"), models(done)
    assert not any(torch.allclose(mine[name], value, atol=1e-3) for name, value in other.items())
