"""Personalisation that cannot hurt: the rule and the candidates by hand, then whole federations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from ifca.core.callbacks import Record, Silent
from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.core.safe_choice import CandidateSavings, Prior, choose, learn_prior
from ifca.core.types import Data
from ifca.data import Client, Federation
from ifca.models import linear, make_task
from ifca.report.page.build import page
from ifca.report.read_run import read_run
from ifca.runs.clients_table import read_clients
from ifca.runs.config import read_config
from ifca.runs.personal_results import personal_cells, personal_summary
from ifca.runs.run import resume, run
from ifca.training import Fitted, Job, fit
from ifca.training.candidates import ALL, SERVED, Candidate, Tuner, folds
from ifca.training.personalise import Personalised, personalise, worth_trying
from tests.conftest import groups, make_job
from tests.test_contract import ALGORITHMS, recipe_of


def saved(*samples: list[float]) -> CandidateSavings:
    """Clients with these savings of one candidate on their held-out samples."""
    mean = np.array([[0.0, np.mean(one)] for one in samples])
    spread = np.array([[0.0, np.sum((np.array(one) - np.mean(one)) ** 2)] for one in samples])
    return CandidateSavings(mean, spread, np.array([len(one) for one in samples]))


def keys(m: int) -> np.ndarray:
    return np.arange(m, dtype=np.uint64)


class TestRule:
    def test_alone_a_client_moves_above_one_standard_error(self) -> None:
        # mean 2, variance of the mean 2.25 (4 / 3) / 4 = 0.75
        found = choose(saved([1, 3, 1, 3]), None)
        assert found.candidate.tolist() == [1]
        assert found.expected[0] == pytest.approx(2.0)
        assert found.error[0] == pytest.approx(0.75**0.5)

    def test_alone_a_client_stays_below(self) -> None:
        # mean 1, variance of the mean 2.25 (16 / 3) / 4 = 3
        assert choose(saved([-1, 3, -1, 3]), None).candidate.tolist() == [0]

    def test_clients_borrow_from_each_other(self) -> None:
        # within = 16 / 3, noise 2.25 (16 / 3) / 4 = 3, between = 0: everybody expects the mean, 1,
        # with variance 3 / m: 1.5 for two clients, 0.75 for four
        for m, moved in ((2, 0), (4, 1)):
            savings = saved(*[[-1.0, 3.0, -1.0, 3.0]] * m)
            prior = learn_prior(savings, keys(m))
            assert prior is not None
            assert prior.line[1].tolist() == pytest.approx([1.0, 0.0])
            assert prior.between[1] == 0.0
            assert prior.unsure[1, 0, 0] == pytest.approx(3 / m)
            assert choose(savings, prior).candidate.tolist() == [moved] * m

    def test_where_clients_differ_each_goes_by_itself(self) -> None:
        # no spread between samples: savings -1 and 3 are sure, and so is that clients differ
        savings = saved([-1, -1], [3, 3])
        found = choose(savings, learn_prior(savings, keys(2)))
        assert found.candidate.tolist() == [0, 1]
        assert found.expected.tolist() == [0.0, 3.0]

    def test_lucky_small_clients_are_held_back_by_what_others_lost(self) -> None:
        bad = [[-1.5, -0.5, -1.0, -1.0]] * 20
        savings = saved(*bad, [0.2, 0.4, 0.3])
        assert choose(savings, None).candidate[-1] == 1
        assert choose(savings, learn_prior(savings, keys(21))).candidate[-1] == 0

    def test_savings_may_grow_with_samples(self) -> None:
        rng = np.random.default_rng(0)
        sizes = [4] * 20 + [64] * 20
        savings = saved(*[list(rng.normal(-1 if n == 4 else 1, 1, n)) for n in sizes])
        prior = learn_prior(savings, keys(40))
        assert prior is not None
        assert prior.line[1, 1] == pytest.approx(2 / np.log(16), rel=0.3)
        assert choose(savings, prior).candidate.tolist() == [0] * 20 + [1] * 20

    def test_a_candidate_that_diverged_is_nobodys(self) -> None:
        savings = saved([1, 3, 1, 3], [1, 3, 1, 3], [1, 1, 1, 2])
        savings.mean[1, 1] = -np.inf
        prior = learn_prior(savings, keys(3))
        assert choose(savings, prior).candidate.tolist() == [1, 0, 1]
        savings.mean[:, 1] = np.nan
        assert choose(savings, learn_prior(savings, keys(3))).candidate.tolist() == [0, 0, 0]

    def test_a_client_without_held_out_samples_goes_by_the_others(self) -> None:
        savings = saved(*[[1.0, 1.2, 0.9, 1.1]] * 5, [5.0])
        assert choose(savings, learn_prior(savings, keys(6))).candidate.tolist() == [1] * 6
        assert choose(savings, None).candidate.tolist() == [1] * 5 + [0]

    def test_scale_and_order_do_not_matter(self) -> None:
        rng = np.random.default_rng(1)
        savings = saved(*[list(rng.normal(0.3, 1, n)) for n in rng.integers(3, 30, 25)])
        found = choose(savings, learn_prior(savings, keys(25))).candidate
        larger = savings._replace(mean=1e4 * savings.mean, spread=1e8 * savings.spread)
        assert choose(larger, learn_prior(larger, keys(25))).candidate.tolist() == found.tolist()
        order = rng.permutation(25)
        other = CandidateSavings(savings.mean[order], savings.spread[order], savings.samples[order])
        again = choose(other, learn_prior(other, keys(25)[order])).candidate
        assert again.tolist() == found[order].tolist()

    def test_a_prior_survives_json(self) -> None:
        savings = saved([1, 3, 1, 3], [1, 2, 1, 2], [0, 1, 5, 2])
        prior = learn_prior(savings, keys(3))
        assert prior is not None
        again = Prior.from_json(prior.to_json())
        assert choose(savings, again).expected.tolist() == choose(savings, prior).expected.tolist()


def scalar(served: float, *, mapped: bool = True) -> tuple[Tuner, dict[str, torch.Tensor]]:
    """The model y = theta x; local models begin at 0; gamma = 0.01."""
    task = make_task(linear(1).double(), Recipe(), regression=True, device=torch.device("cpu"))
    common = {"fc1.weight": torch.zeros(1, 1, dtype=torch.float64)}
    return Tuner(task, 0.01, common, 0, mapped), {"fc1.weight": torch.full((1, 1, 1), served).double()}


def ones(n: int) -> Data:
    """One client whose samples are all x = 1, y = 1."""
    return Data(*(torch.ones(1, n, *shape, dtype=torch.float64) for shape in ((1,), (), ())))


class TestCandidates:
    @pytest.mark.parametrize("mapped", [True, False])
    def test_numbers_by_hand(self, mapped: bool) -> None:
        # a step is theta <- theta + 0.02 (1 - theta): from 0.5 the loss (1 - theta)^2 is 0.25 0.98^(2 q)
        tuner, served = scalar(0.5, mapped=mapped)
        found, losses, right = tuner.tried(ALL, served, ones(6), np.array([6]), keys(1))
        by_hand = {"served": 0.25, "tuned": 0.25 * 0.98**160, "local": 0.98**640}
        by_hand["half tuned"] = 0.25 * ((1 + 0.98**80) / 2) ** 2
        by_hand["half local"] = ((0.5 + 0.98**320) / 2) ** 2
        for c, candidate in enumerate(ALL):
            if candidate.steps in (0, 80, 320):
                assert losses[0, c] == pytest.approx(by_hand[candidate.kind]), candidate
        assert found.mean[0].tolist() == pytest.approx((0.25 - losses[0]).tolist())
        assert found.spread[0].max() < 1e-20  # all samples are alike
        assert np.isnan(right).all()  # a regression

    @pytest.mark.parametrize("mapped", [True, False])
    def test_what_is_chosen_is_made_on_all_data(self, mapped: bool) -> None:
        tuner, served = scalar(0.5, mapped=mapped)
        for candidate, theta in (
            (SERVED, 0.5),
            (Candidate("tuned", 5), 1 - 0.5 * 0.98**5),
            (Candidate("local", 320), 1 - 0.98**320),
            (Candidate("half tuned", 20), 1 - 0.5 * 0.98**20),
        ):
            made = tuner.made([candidate], served, ones(3))
            assert float(made["fc1.weight"]) == pytest.approx(theta)
        said = tuner.outputs([candidate], served, made, torch.ones(1, 1, 1).double())
        assert float(said) == pytest.approx((0.5 + 1 - 0.5 * 0.98**20) / 2)

    def test_a_sample_judges_models_that_did_not_learn_from_it(self) -> None:
        tuner, served = scalar(0.0)
        data, n = ones(5), np.array([5])  # five folds of one sample each
        data.y[0, 2] = -1.0
        found, losses, _ = tuner.tried((SERVED, Candidate("tuned", 1)), served, data, n, keys(1))
        # of the other four: the mean of y is 1 for sample 2 and 0.5 for the others, theta = 0.02 of it
        each = [(1 - 0.01) ** 2] * 4 + [(1 + 0.02) ** 2]
        assert losses[0, 1] == pytest.approx(np.mean(each))
        assert found.mean[0, 1] == pytest.approx(1 - np.mean(each))
        assert found.spread[0, 1] == pytest.approx(np.sum((1 - np.array(each) - found.mean[0, 1]) ** 2))

    def test_folds_are_the_clients_own(self) -> None:
        both = folds(3, np.array([7, 12]), keys(2))
        assert (both[0, 7:] == -1).all()
        assert sorted(both[0, :7]) == [0, 0, 1, 1, 2, 3, 4]
        assert np.array_equal(folds(3, np.array([12]), keys(2)[1:])[0], both[1])
        assert not np.array_equal(folds(4, np.array([12]), keys(2)[1:])[0], both[1])


def test_the_first_clients_spare_the_others_what_nobody_takes() -> None:
    def tried(*taken: Candidate) -> list[str]:
        return [str(ALL[c]) for c in worth_trying(list(taken))]

    short = ["served", *(f"tuned, {steps} steps" for steps in (5, 10, 20)), "half tuned, 20 steps"]
    assert tried(SERVED, SERVED) == short
    assert tried(SERVED, Candidate("tuned", 20)) == [*short[:4], "tuned, 40 steps", short[4]]
    assert tried(Candidate("half local", 320)) == [*short, "local, 320 steps", "half local, 320 steps"]
    assert tried(Candidate("tuned", 80), Candidate("local", 320)) == [str(one) for one in ALL]


def skewed(sizes: list[int], seed: int, *, own: float) -> Federation:
    """Regression y = (w + own v_i)'x + noise: how much of its rule is a client's own."""
    rng = np.random.default_rng(seed)
    w, clients = rng.normal(size=8), []
    for n in sizes:
        rule = w + own * rng.normal(size=8)
        x = rng.normal(size=(n + 100, 8))
        y = x @ rule + rng.normal(size=n + 100)
        clients.append(Client(x[:n], y[:n], x[n:], y[n:]))
    return Federation.from_clients(clients)


def fitted_on(federation: Federation, **recipe: object) -> Fitted:
    chosen = Recipe(**{"algorithm": "global", "rounds": 20, "step_size": 0.02, **recipe})  # type: ignore[arg-type]
    return fit(Job(federation, chosen, lambda: linear(8), precision="float64"))


def on_test(found: Personalised) -> tuple[float, float, float]:
    before, after = found.fitted.test, found.test
    assert before is not None
    assert after is not None
    one, two = before.loss(before.train_rule), after.loss(after.train_rule)
    return float(one.mean()), float(two.mean()), float((two > one).double().mean())


@pytest.mark.parametrize("seed", range(1000, 1002))
def test_small_uneven_clients_of_one_population_lose_nothing(seed: int) -> None:
    """Always tuning would cost them; by its own samples alone many a client would be misled."""
    sizes = np.random.default_rng(seed).integers(4, 25, 60).tolist()
    found = personalise(fitted_on(skewed(sizes, seed, own=0.0)))
    before, after, _ = on_test(found)
    assert after <= before * 1.005
    tuned_40 = found.choice._replace(candidate=np.full(60, ALL.index(Candidate("tuned", 40))))
    always = replace(found, candidates=ALL, choice=tuned_40)
    tuned = torch.stack([_own_loss(always, i) for i in range(60)]).mean()
    assert float(tuned) > before * 1.1


def _own_loss(found: Personalised, i: int) -> torch.Tensor:
    test = found.fitted.job.federation.test
    assert test is not None
    one = test.one(i, torch.device("cpu"), torch.float64)
    return ((found.outputs(i, one.x).flatten() - one.y) ** 2).mean()


@pytest.mark.parametrize("seed", range(1000, 1002))
def test_clients_with_rules_of_their_own_gain(seed: int) -> None:
    found = personalise(fitted_on(skewed([80] * 30, seed, own=1.0)))
    before, after, worse = on_test(found)
    assert after < 0.2 * before
    assert worse == 0.0
    assert found.after.mean() == pytest.approx(after, rel=0.2)  # held-out loss foretells test loss


@pytest.mark.parametrize("name", ["ifca", "plain", "plain-epochs", "global", "local-whole", "oneshot", "own"])
def test_every_method_and_engine(name: str, unequal: Federation) -> None:
    """Where the same models are served, the same is chosen: by the loop, and in any order of clients."""
    assert name in ALGORITHMS
    job = make_job(unequal, recipe_of(name))
    found = personalise(fit(job))
    assert len(found.chosen) == len(unequal.train)
    again = personalise(fit(job))
    assert again.choice.expected.tolist() == found.choice.expected.tolist()
    if found.test is not None and again.test is not None:
        assert torch.equal(again.test.scores.loss, found.test.scores.loss)
    loop = personalise(fit(replace(job, engine="loop", fast_path=False)))
    assert loop.chosen == found.chosen
    order = [3, 1, 6, 0, 5, 2, 4]
    turned = replace(unequal, train=unequal.train.subset(order))
    other = personalise(fit(replace(job, federation=turned)))
    if name not in ("local-whole", "oneshot", "ifca"):  # whose models may differ in their last bits
        assert [other.chosen[order.index(i)] for i in range(7)] == found.chosen


def test_steps_by_gram_and_one_by_one_agree() -> None:
    federation = groups((5, 4))
    found = personalise(fit(make_job(federation, Recipe(algorithm="global", rounds=3))))
    tuner, like = found.tuner, torch.zeros((), dtype=torch.float64)
    data = federation.train.padded(np.arange(2), like.device, like.dtype)
    served = {name: value.expand(2, *value.shape[1:]) for name, value in found.fitted.state.theta.items()}
    facts = federation.train.sizes, federation.train.keys
    some = SERVED, Candidate("tuned", 5), Candidate("half tuned", 20), Candidate("local", 30)
    fast = tuner.tried(some, served, data, *facts)
    no_first = replace(tuner, task=replace(tuner.task, first=None))
    for slow in (no_first, replace(no_first, mapped=False)):
        np.testing.assert_allclose(slow.tried(some, served, data, *facts).loss, fast.loss, rtol=1e-9)
    chosen = [Candidate("tuned", 20), Candidate("half local", 30)]
    for name, value in no_first.made(chosen, served, data).items():
        torch.testing.assert_close(value, tuner.made(chosen, served, data)[name], rtol=1e-9, atol=1e-12)


def test_convolutions_and_strangers() -> None:
    """A model that is looped over on a CPU; clients without test data, and test clients without training."""
    rng, clients = np.random.default_rng(0), []
    for i, n in enumerate((9, 6, 1)):
        x, y = rng.normal(size=(n + 4, 1, 6, 6)), rng.integers(0, 2, n + 4)
        x[:, 0, 0, 0] += 3 * y
        x_test, y_test = (x[n:], y[n:]) if i < 2 else (None, None)
        clients.append(Client(x[:n], y[:n], x_test, y_test, id=f"c{i}"))
    made = Federation.from_clients(clients, classes=2)
    assert made.test is not None
    federation = replace(made, test=replace(made.test, ids=("c1", "stranger")))

    def model() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))

    fitted = fit(Job(federation, Recipe(algorithm="global", rounds=2), model, precision="float64"))
    found = personalise(fitted)
    assert not found.tuner.mapped
    assert np.isnan(found.before).tolist() == [False, False, True]  # one sample cannot be held out
    cells = personal_cells(found)
    assert [row[-1] != "" for row in cells] == [False, True, False]
    assert personal_summary(found)["worse_on_test"] in (0.0, 1.0)
    some = SERVED, Candidate("tuned", 5)
    data = federation.train.padded(np.arange(2), torch.device("cpu"), torch.float64)
    served = {name: value.expand(2, *value.shape[1:]) for name, value in fitted.state.theta.items()}
    facts = federation.train.sizes[:2], federation.train.keys[:2]
    looped, mapped = (
        replace(found.tuner, mapped=one).tried(some, served, data, *facts) for one in (False, True)
    )
    np.testing.assert_allclose(looped.loss, mapped.loss, rtol=1e-9)


def test_a_resumed_run_has_the_same_columns_and_numbers(tmp_path: Path) -> None:
    small = ["rounds=6", "data.samples=150", "model.hidden=[8]", "device=cpu", "baselines=[]"]
    config = read_config(None, [*small, "personalise=true"])
    whole = run(config, tmp_path / "whole")

    class StopAtThree(Silent):
        def round_ended(self, record: Record) -> None:
            if record["round"] == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path / "torn", StopAtThree())
    assert resume(tmp_path / "torn")["personalised"] == whole["personalised"]
    files = [tmp_path / name / "clients.csv" for name in ("whole", "torn")]
    assert files[0].read_bytes() == files[1].read_bytes()
    rows = read_clients(tmp_path / "whole")
    assert all(float(row["held_out_gain"]) == 0 for row in rows if row["personal_model"] == "served")
    block = whole["personalised"]
    assert sum(block["chose"].values()) == pytest.approx(1.0)
    assert block["held_out_gain"] == pytest.approx(np.mean([float(row["held_out_gain"]) for row in rows]))
    right = sum(float(row["test_accuracy_personal"]) * int(row["test_samples"]) for row in rows)
    assert block["test_accuracy_after"] == pytest.approx(right / sum(int(r["test_samples"]) for r in rows))
    assert "What personalising did" in page([read_run(tmp_path / "whole")])


def test_a_federation_leaves_it_to_its_clients(tmp_path: Path) -> None:
    from ifca.federation.serverapp import serve

    config = read_config(None, ["personalise=true"])
    with pytest.raises(InvalidInput, match="each client chooses on its side, by 'ifca predict"):
        serve(None, config, tmp_path / "run")  # type: ignore[arg-type]
