"""When training ends: early stopping, steps that are halved, callbacks that stop it."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ifca import IFCA, Client, Diverged, Federation, StepHalvedWarning, StopTraining
from ifca.cli.main import main
from ifca.core.callbacks import Record
from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.core.sampling import is_aside
from ifca.core.types import Params
from ifca.models import linear
from ifca.runs.config import Config, read_config
from ifca.runs.run import resume, run
from ifca.runs.run_folder import same_config
from ifca.training import Job, fit
from ifca.training.early_stopping import held_out_losses, is_due, last_round
from ifca.training.going_back import looked_at, most_growth
from ifca.training.start import start
from tests.conftest import groups, make_job
from tests.test_resume import SMALL, assert_same_result

SIZES = (12, 7, 20, 4, 9, 16, 11, 1)
AUTO = Recipe(algorithm="ifca-plain", rounds=60, early_stopping=True, local_steps=5)
ONE = ["restarts=1", "baselines=[]"]


def overfitted() -> Federation:
    """Few samples, every third with a label at random: the held-out loss falls and then rises."""
    rng = np.random.default_rng(0)
    rule, clients = 2 * rng.normal(size=(6, 3)), []
    for i, n in enumerate(SIZES):
        x = rng.normal(size=(n, 6))
        y = np.where(rng.random(n) < 1 / 3, rng.integers(0, 3, n), (x @ rule).argmax(1))
        clients.append(Client(x, y, id=f"c{i}"))
    return Federation.from_clients(clients, classes=3)


def same(a: Params, b: Params) -> bool:
    return all(torch.equal(value, b[name]) for name, value in a.items())


class TestEarlyStopping:
    @pytest.mark.parametrize("engine", ["loop", "vectorised"])
    @pytest.mark.parametrize("algorithm", ["ifca", "ifca-plain", "global", "local", "oneshot", "clove"])
    def test_it_ends_with_the_models_of_the_lowest_held_out_loss(self, algorithm: str, engine: str) -> None:
        job = make_job(overfitted(), replace(AUTO, algorithm=algorithm, step_size=1.0), engine=engine)
        states: dict[int, Any] = {}
        fitted = fit(job, on_round=lambda state, _record: states.update({state.round: state}))
        found = {r["round"] + 1: r["held_out_loss"] for r in fitted.history if "held_out_loss" in r}
        first = float(held_out_losses(job.make_engine(), job.federation.train, start(job)).nanmean())
        best = min(found, key=lambda t: (found[t], t)) if min(found.values()) < first else 0
        assert list(found) == [t for t in range(1, len(fitted.history) + 1) if is_due(t, 60)]
        assert fitted.stopped is not None
        assert fitted.stopped["kept_round"] == best
        assert fitted.stopped["rounds"] == len(fitted.history) == fitted.state.round >= last_round(best)
        assert len(fitted.history) < 60
        assert fitted.stopped["why"] == f"the held-out loss did not fall any more after round {best}"
        if algorithm == "global":
            assert same(fitted.state.theta, states[best].theta)

    def test_engines_agree(self) -> None:
        by = [fit(make_job(groups(SIZES), AUTO, engine=name)) for name in ("loop", "vectorised")]
        for a, b in zip(by[0].history, by[1].history, strict=True):
            assert a.get("held_out_loss") == pytest.approx(b.get("held_out_loss"))

    def test_the_loss_is_that_of_samples_nobody_trained_on(self) -> None:
        """A sample set aside is changed: the models stay, the held-out loss does not."""
        federation = groups(SIZES)
        recipe = replace(AUTO, algorithm="global", rounds=3)
        waits = is_aside(recipe.seed, federation.train.keys, federation.train.sizes)
        y = federation.train.y.clone()
        aside = int(federation.train.offsets[2] + waits[federation.train.offsets[2] :].argmax())
        y[aside] = (y[aside] + 1) % 3
        changed = replace(federation, train=replace(federation.train, y=y))
        a, b = (fit(make_job(one, recipe)) for one in (federation, changed))
        assert [r["train_loss"] for r in a.history] == [r["train_loss"] for r in b.history]
        assert a.history[0]["held_out_loss"] != b.history[0]["held_out_loss"]

    def test_held_out_losses_on_paper(self) -> None:
        """y = theta x with theta = 0: the loss of a sample is y^2; of a client with one sample NaN."""
        parts = [np.array([3.0] * 5), np.array([1.0] * 10), np.array([7.0])]
        clients = [Client(np.ones((len(y), 1)), y) for y in parts]
        zero = {"fc1.weight": torch.zeros(1, 1, 1, dtype=torch.float64)}
        recipe = Recipe("global", rounds=1, early_stopping=True)
        job = Job(
            Federation.from_clients(clients),
            recipe,
            lambda: linear(1),
            precision="float64",
            warm_start=zero,
        )
        losses = held_out_losses(job.make_engine(), job.federation.train, start(job))
        torch.testing.assert_close(losses[:2] / losses[1], torch.tensor([9.0, 1.0], dtype=torch.float64))
        assert losses[2].isnan()

    def test_patience(self) -> None:
        assert [last_round(best) for best in (1, 10, 20, 40, 41)] == [11, 20, 30, 60, 62]
        assert [t for t in range(18, 32) if is_due(t, 31)] == [18, 19, 20, 25, 30, 31]

    def test_auto_is_early_stopping_with_500_rounds(self) -> None:
        assert IFCA(rounds="auto")._job(groups(SIZES)).recipe == replace(
            IFCA(rounds=500, early_stopping=True)._job(groups(SIZES)).recipe
        )
        assert read_config(None, ["rounds=auto"]).rounds == "auto"
        with pytest.raises(InvalidInput, match='rounds must be a whole number or "auto"'):
            read_config(None, ["rounds=many"])
        with pytest.raises(InvalidInput, match="neither rounds = "):
            read_config(None, ["rounds=auto", "resample=true"])

    def test_nobody_can_set_aside(self) -> None:
        one = Federation.from_clients([Client(np.ones((1, 2)), np.array([i])) for i in range(2)])
        with pytest.raises(InvalidInput, match="early stopping needs samples that clients set aside"):
            IFCA(k=1, rounds="auto").fit(one)

    @pytest.mark.parametrize("every", [1, 3])
    def test_a_run_that_was_cut_off_ends_with_the_same_bits(self, tmp_path: Path, every: int) -> None:
        more = ["data.samples=150", "model.hidden=[8]", "device=cpu", "step_size=2.0", *ONE]
        config = read_config(None, ["rounds=60", "early_stopping=true", f"checkpoint_every={every}", *more])
        whole = run(config, tmp_path / "whole")
        assert whole["rounds"] < 60
        assert whole["stopped"]["rounds"] == whole["rounds"]
        out = tmp_path / "cut"
        for last in (4, 17, whole["rounds"] - 1):
            with pytest.raises(KeyboardInterrupt):
                run(config, out, CutAt(last)) if not out.exists() else resume(out, CutAt(last))
        resume(out)
        assert_same_result(tmp_path / "whole", out)


class CutAt:
    """Stands for a kill; it has only one of a callback's methods."""

    def __init__(self, last: int) -> None:
        self.last = last

    def round_ended(self, record: Record) -> None:
        if record["round"] == self.last:
            raise KeyboardInterrupt


def steep() -> Job:
    """y = 2x for x = 1 and 3: full-batch steps above 0.2 diverge in the mean."""
    clients = [Client(np.full((4, 1), x), np.full(4, 2.0 * x)) for x in (1.0, 3.0)]
    recipe = Recipe("global", rounds=60, step_size=3.0, local_steps=1, on_divergence="halve")
    zero = {"fc1.weight": torch.zeros(1, 1, 1, dtype=torch.float64)}
    return Job(
        Federation.from_clients(clients), recipe, lambda: linear(1), precision="float64", warm_start=zero
    )


class TestHalving:
    @pytest.mark.parametrize("engine", ["loop", "vectorised"])
    def test_on_paper(self, engine: str) -> None:
        """Losses (2x)^2, mean 20. The step is halved until it is short enough, each time from theta = 0."""
        fitted = fit(replace(steep(), engine=engine))  # type: ignore[arg-type]
        steps = [event["step_size"] for event in fitted.state.progress.halved]
        assert steps == [1.5, 0.75, 0.375, 0.1875]
        assert fitted.job.recipe.step_size == 0.1875
        assert fitted.train_loss < 1e-3
        assert all(event["back_to"] == 0 for event in fitted.state.progress.halved)
        told = [event for record in fitted.history for event in record.get("halved", [])]
        assert told == list(fitted.state.progress.halved)
        assert {record["round"] for record in fitted.history} == set(range(60))
        spent = sum(record["bytes_down"] for record in fitted.history)
        assert spent == int(fitted.state.bytes_down.sum()) == (60 + len(steps)) * 2 * 8

    def test_how_much_growth_is_chance(self) -> None:
        """F with 2 and 2 degrees of freedom exceeds x in 1 / (1 + x) of cases; one of two counts as two."""
        assert most_growth(1, 1, 2) == pytest.approx(1 / 1e-4 - 1)
        assert most_growth(5, 5, 5) == most_growth(150, 150, 1000) == 2
        assert most_growth(6, 6, 20) > most_growth(20, 6, 20) > most_growth(60, 60, 200) > 2

    @pytest.mark.parametrize("algorithm", ["ifca", "global"])
    def test_few_clients_of_one_sample_each_are_no_divergence(self, algorithm: str) -> None:
        """Six of twenty take part. Who was heard in the first round may lose more by chance."""
        rng = np.random.default_rng(0)
        x = rng.normal(size=(20, 3)).astype(np.float32)
        y = (x @ [1, 2, -1] + 0.1 * rng.normal(size=20)).astype(np.float32)
        front = IFCA(algorithm=algorithm, participation=0.3, rounds=30, evaluate_every=0)
        front.fit(x, y, groups=[f"c{i}" for i in range(20)])
        assert front.fitted_.state.progress.halved == ()

    def test_models_that_were_gone_back_to_are_given_a_round(self) -> None:
        """Clients lose 3, in the first round it was 1: half the step does not change these models."""
        recipe, first = Recipe(on_divergence="halve"), torch.tensor([1.0, 1.0])
        begun = fit(replace(steep(), recipe=replace(steep().recipe, rounds=1, step_size=0.1))).state
        everyone, loss = torch.tensor([0, 1]), torch.tensor([3.0, 3.0])
        state = replace(begun, progress=replace(begun.progress, first=first.double()))
        with pytest.raises(Diverged, match="the mean loss is 3, in the first round it was 1"):
            looked_at(recipe, state, state, everyone, loss)
        halved = replace(state, progress=replace(state.progress, halved=({"round": state.round},)))
        looked_at(recipe, halved, halved, everyone, loss)
        later = replace(halved, round=halved.round + 1)
        with pytest.raises(Diverged):
            looked_at(recipe, later, later, everyone, loss)

    def test_real_divergence_is_seen_by_few(self) -> None:
        """Two of the ten clients take part; gradients of y = 2x at x = 1 to 3, steps above 0.5 grow."""
        clients = [Client(np.full((4, 1), x), np.full(4, 2.0 * x)) for x in np.linspace(1, 3, 10)]
        job = replace(steep(), federation=Federation.from_clients(clients))
        fitted = fit(replace(job, recipe=replace(job.recipe, participation=0.2)))
        assert fitted.state.progress.halved
        assert fitted.train_loss < 1e-3

    def test_stop_is_an_error_as_before(self) -> None:
        job = steep()
        with pytest.raises(Diverged, match=r"smaller step_size than 320\.0"):
            fit(replace(job, recipe=replace(job.recipe, step_size=320.0, rounds=200, on_divergence="stop")))

    def test_ten_times_at_most(self) -> None:
        job = steep()
        with pytest.raises(Diverged, match=r"halved 10 times") as failure:
            fit(replace(job, recipe=replace(job.recipe, step_size=1e9)))
        assert failure.value.bytes_down > 0

    def test_users_have_halve_and_recipes_stop(self) -> None:
        assert (Recipe().on_divergence, Config().on_divergence, IFCA().on_divergence) == (
            "stop",
            "halve",
            "halve",
        )
        same_config(Path("older"), {}, Config())  # a run of an older version goes on

    def test_python_warns(self) -> None:
        job = steep()
        front = IFCA(algorithm="global", rounds=60, step_size=3.0, local_steps=1, model=lambda: linear(1))
        with pytest.warns(StepHalvedWarning, match=r"step_size 3 was halved to 0\.\d"):
            front.fit(job.federation)
        assert front.step_size_ < 3

    def test_the_start_of_one_shot_clustering_is_halved_too(self) -> None:
        recipe = Recipe("oneshot", k=2, rounds=3, step_size=0.05, erm_step_size=8.0, on_divergence="halve")
        clients = [Client(np.full((4, 1), x), np.full(4, 2.0 * x)) for x in (1.0, 3.0, 1.5)]
        fitted = fit(Job(Federation.from_clients(clients), recipe, lambda: linear(1), precision="float64"))
        assert fitted.state.progress.halved[0]["round"] == 0
        assert "erm_step_size" in fitted.state.progress.halved[0]["because"]

    @pytest.mark.parametrize("rounds", ["rounds=12", "rounds=auto"])
    def test_a_run_that_was_cut_off_ends_with_the_same_bits(
        self, rounds: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        more = [rounds, "step_size=80", "checkpoint_every=2", *ONE]
        config = read_config(None, [*SMALL, *more])
        whole = run(config, tmp_path / "whole")
        assert whole["halved"]
        assert whole["step_size"] == whole["halved"][-1]["step_size"] < 80
        out = tmp_path / "cut"
        for last in (0, 2, 3, 7):
            with pytest.raises(KeyboardInterrupt):
                run(config, out, CutAt(last)) if not out.exists() else resume(out, CutAt(last))
        resume(out)
        assert_same_result(tmp_path / "whole", out)


class TestCallbacks:
    class Returns:
        def round_ended(self, record: Record) -> bool:
            return np.bool_(record["round"] == 4)  # type: ignore[return-value]

    class Raises:
        def round_ended(self, record: Record) -> None:
            if record["round"] == 4:
                raise StopTraining

    @pytest.mark.parametrize("callback", [Returns(), Raises()])
    @pytest.mark.parametrize("algorithm", ["ifca", "ifca-plain"])
    def test_it_ends_as_if_that_had_been_the_last_round(self, callback: object, algorithm: str) -> None:
        options: dict[str, Any] = {"algorithm": algorithm, "k": 3, "seed": 1, "model": None}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of clusters without clients
            stopped = IFCA(rounds=50, callbacks=[callback], **options).fit(groups(SIZES))
            five = IFCA(rounds=5, **options).fit(groups(SIZES))
        assert same(stopped.models_, five.models_)
        assert stopped.labels_.tolist() == five.labels_.tolist()
        assert [r.get("events") for r in stopped.history_] == [r.get("events") for r in five.history_]
        assert stopped.stopped_ == {"rounds": 5, "why": "a callback asked to stop"}
        assert five.stopped_ is None

    def test_on_round_may_stop_too(self) -> None:
        front = IFCA(k=2, rounds=50, on_round=lambda state, _record: state.round == 3).fit(groups(SIZES))
        assert len(front.history_) == 3

    def test_a_run_is_finished(self, tmp_path: Path) -> None:
        config = read_config(None, [*SMALL, *ONE, "checkpoint_every=4"])
        summary = run(config, tmp_path / "run", self.Returns())
        assert (summary["rounds"], summary["stopped"]["why"]) == (5, "a callback asked to stop")
        short = run(replace(config, rounds=5), tmp_path / "short")
        assert summary["train_loss"] == short["train_loss"]
        for lost in ("summary.json", "models.safetensors"):  # killed before the results were written
            (tmp_path / "run" / lost).unlink()
        assert resume(tmp_path / "run") == summary

    @pytest.mark.parametrize("kind", [KeyboardInterrupt, ZeroDivisionError])
    def test_any_other_exception_leaves_the_rounds_done(self, kind: type[BaseException]) -> None:
        class Fails:
            def round_ended(self, record: Record) -> None:
                if record["round"] == 4:
                    raise kind

        front = IFCA(k=2, rounds=50, callbacks=[Fails()])
        with pytest.raises(kind):
            front.fit(groups(SIZES))
        five = IFCA(k=2, rounds=5).fit(groups(SIZES))
        assert same(front.finish().models_, five.models_)
        with pytest.raises(InvalidInput, match="finish: call fit first"):
            IFCA().finish()

    def test_a_callback_may_lack_methods(self) -> None:
        class Ends:
            def finished(self, summary: dict[str, Any]) -> None:
                told.append(summary)

        told: list[dict[str, Any]] = []
        IFCA(k=2, rounds=2, callbacks=[Ends(), object()]).fit(groups(SIZES))
        assert told[0]["rounds"] == 2


def test_the_terminal_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    more = ["rounds=auto", "step_size=80", *ONE]
    given = [part for one in (*SMALL, *more) for part in ("--set", one)]
    monkeypatch.setattr("sys.argv", ["ifca", "run", "--quiet", "--out", str(out), *given])
    main()
    printed = capsys.readouterr().out
    summary = json.loads((out / "summary.json").read_text())
    kept = summary["stopped"]["kept_round"]
    assert f"Stopped after {summary['rounds']} rounds: the held-out loss did not fall any more" in printed
    assert f"The models are those of round {kept}" in printed
    times = f"{len(summary['halved'])} times, " if len(summary["halved"]) > 1 else ""
    assert f"the step was halved {times}from 80 to {summary['step_size']:g}" in printed
