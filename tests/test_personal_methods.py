"""Personal methods by hand: one sample (x, y) = (1, 1), the model theta x, the loss (theta x - y)^2."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.core.sampling import Plan
from ifca.core.types import ClientReply, Data, Params, Task
from ifca.data import Federation
from ifca.methods import method_of
from ifca.methods.apfl import mixed
from ifca.methods.mapper import MAPPER
from ifca.methods.mocha import related, together
from ifca.methods.personal_models import mixture
from ifca.models import logistic, mlp
from ifca.training import Job, fit
from ifca.training.halving import attempt
from ifca.training.preflight import check
from ifca.training.start import drawn_models
from tests.conftest import groups, make_job

ONE = Data(torch.ones(1, 1).double(), torch.ones(1).double(), torch.ones(1).double())
PLAIN = Task(lambda theta, x: x[:, 0] * theta["w"], lambda output, y: (output - y) ** 2)


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def turn(name: str, theta: dict[str, Any], **recipe: Any) -> Params:
    """What one client sends after a turn from these parameters; step 0.1."""
    method = method_of(name)
    chosen = Recipe(**{"algorithm": name, "local_steps": 1, "step_size": 0.1, **recipe})
    models = {key: torch.as_tensor(value, dtype=torch.float64)[None] for key, value in theta.items()}
    plan, task = Plan(None, None, None), method.task(chosen, PLAIN)
    reply: ClientReply = method.client(task, chosen, 0.1, models, ONE, plan, torch.tensor(0))
    return reply.update


def test_ditto() -> None:
    """w: 0, 0.2, 0.36. v: 0, 0.2, then 0.2 - 0.1 (2 (0.2 - 1) + 1 (0.2 - 0)) = 0.34."""
    found = turn("ditto", {"w": 0.0, ".common.w": 0.0}, local_steps=2, ditto_lambda=1.0)
    assert found[".common.w"].item() == pytest.approx(0.36)
    assert found["w"].item() == pytest.approx(0.34)


def test_apfl() -> None:
    """Step 1: slope -2 at 0: v = 0.1, w = 0.2, alpha = 0.5 - 0.1 x 0.02 x 0.5 = 0.499."""
    start = {"w": 0.0, ".common.w": 0.0, ".share": 0.5}
    found = turn("apfl", start)
    assert [found[n].item() for n in ("w", ".common.w", ".share")] == pytest.approx([0.1, 0.2, 0.499])
    assert mixed(found)["w"].item() == pytest.approx(0.499 * 0.1 + 0.501 * 0.2)
    slope = 2 * (0.499 * 0.1 + 0.501 * 0.2 - 1)
    again = turn("apfl", start, local_steps=2)
    assert again[".share"].item() == pytest.approx(0.499 - 0.1 * (-0.1 * slope + 0.02 * 0.499))
    assert again["w"].item() == pytest.approx(0.1 - 0.1 * 0.499 * slope)


def test_per_fedavg() -> None:
    """w' = 0.2, g = -1.6: w = 0.16. The Hessian is 2: d = -3.2, so w = 0.1 (1.6 - 0.1 x 3.2) = 0.128."""
    start = {"w": 0.0, ".common.w": 0.0}
    first, free = turn("per-fedavg", start), turn("per-fedavg-hf", start)
    assert first[".common.w"].item() == pytest.approx(0.16)
    assert free[".common.w"].item() == pytest.approx(0.128)
    assert first["w"].item() == free["w"].item() == pytest.approx(0.2)  # one step from what was sent
    assert turn("per-fedavg", start, inner_step_size=0.25)["w"].item() == pytest.approx(0.5)


def test_halving_shortens_the_step_by_which_clients_adapt_too(unequal: Federation) -> None:
    """However short beta becomes, an alpha that is too long would still spoil every model that serves."""
    recipe = Recipe("per-fedavg", rounds=8, inner_step_size=100.0, on_divergence="halve", local_steps=2)
    job = make_job(unequal, recipe)
    twice = attempt(job, 2).job.recipe
    assert (twice.step_size, twice.inner_step_size) == (0.025, 25.0)
    fitted = fit(job)
    assert fitted.state.progress.halved
    assert fitted.train_loss < 2 * float(fitted.history[0]["train_loss"])


@pytest.mark.parametrize("name", ["per-fedavg", "per-fedavg-hf"])
def test_per_fedavg_passes_over_batches_without_samples(name: str, unequal: Federation) -> None:
    """Beside large clients a small one's epochs end with such batches; alone they do not."""
    recipe = Recipe(algorithm=name, rounds=2, batch_size=3, local_epochs=2)
    loop, fast = (
        fit(make_job(unequal, recipe, engine=engine)).state.theta for engine in ("loop", "vectorised")
    )
    for key, value in loop.items():
        assert torch.allclose(value, fast[key], atol=1e-12), key


def test_fedrep() -> None:
    """Output b h x from b = h = 1 to y = 2: h = 1.2, then b = 1 - 0.1 x 2 (1.2 - 2) 1.2 = 1.192."""
    method, recipe = method_of("fedrep"), Recipe(algorithm="fedrep", local_steps=1, step_size=0.1)
    task = Task(lambda theta, x: x[:, 0] * theta["b.w"] * theta["h.w"], lambda output, y: (output - y) ** 2)
    theta = {"b.w": torch.ones(1).double(), "h.w": torch.ones(1).double()}
    data = ONE._replace(y=2 * ONE.y)
    reply = method.client(task, recipe, 0.1, theta, data, Plan(None, None, None), torch.tensor(0))
    assert [reply.update[n].item() for n in ("b.w", "h.w")] == pytest.approx([1.192, 1.2])
    assert method.shared is not None
    assert method.shared(recipe, ["b.w", "h.w"]) == {"b.w"}


def test_fedem() -> None:
    """Losses 1 and 0: q = (1, e) / (1 + e); model 0 moves by 0.1 x 2 q_0, model 1 is right already."""
    found = turn("fedem", {"w": [0.0, 1.0], ".pi": [0.5, 0.5]})
    q = 1 / (1 + np.e)
    assert found[".pi"].tolist() == pytest.approx([q, 1 - q])
    assert found["w"].tolist() == pytest.approx([0.2 * q, 1.0])


def test_fedrc() -> None:
    """Losses 1 and 0, class 1, whose share is 1/2 in model 0 and 4/5 in model 1: q ~ (1/e / 0.5, 1 / 0.8)."""
    table = [[0.25, 0.25], [0.1, 0.4]]
    found = turn("fedrc", {"w": [0.0, 1.0], ".pi": [0.5, 0.5], ".labels": table})
    q = (2 / np.e) / (2 / np.e + 1.25)
    assert found[".pi"].tolist() == pytest.approx([q, 1 - q])
    assert found["w"].tolist() == pytest.approx([0.2 * q, 1.0])
    assert found[".labels"].tolist() == [pytest.approx([0, q]), pytest.approx([0, 1 - q])]


def test_mapper() -> None:
    """Probabilities are mixed, not models; a client whose common model is bad takes its own."""
    say = torch.tensor([[[0.8, 0.2]], [[0.4, 0.6]]]).double().log()
    task = Task(PLAIN.output, PLAIN.loss, correct=lambda _output, y: y)
    assert mixture(torch.tensor([0.25, 0.75]).double(), say, task).exp().tolist()[0] == pytest.approx(
        [0.5, 0.5]
    )
    assert mixture(torch.tensor([0.25, 0.75]).double(), say.exp(), PLAIN).tolist()[0] == pytest.approx(
        [0.5, 0.5]
    )
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(10, 1)))
    data = Data(x, x[:, 0], torch.ones(10).double())
    recipe = Recipe(algorithm="mapper", local_steps=1, step_size=0.01)
    theta = {"w": number(1.0)[None], ".common.w": number(-5.0)[None], ".share": number(0.5)[None]}
    made = MAPPER.task(recipe, PLAIN)
    reply = MAPPER.client(made, recipe, 0.01, theta, data, Plan(None, None, None), torch.tensor(0))
    assert reply.update[".share"].item() == 1.0


def test_mocha() -> None:
    """Two related clients: (I + Omega)^-1 (1, 0) = (2/3, 1/3). Equal models: only to differ costs."""
    omega = torch.tensor([[1.0, -1.0], [-1.0, 1.0]]).double()
    w = torch.tensor([[1.0], [0.0]]).double()
    pulled = together(w, omega, 1.0, torch.arange(2))
    assert pulled.flatten().tolist() == pytest.approx([2 / 3, 1 / 3])
    alone = together(w, omega, 1.0, torch.tensor([1]))  # 2 w_1 = 0 + 1 w_0
    assert alone.flatten().tolist() == pytest.approx([1, 1 / 2])
    found = related(torch.ones(2, 1).double())
    assert (found @ torch.ones(2).double()).tolist() == pytest.approx([1, 1], rel=1e-5)
    assert float(found[0, 0] - found[0, 1]) > 1e6  # to differ is what costs


def test_mocha_pulls_only_those_who_took_part(unequal: Federation) -> None:
    recipe = Recipe(algorithm="mocha", rounds=1, participation=0.3, mocha_lambda=1.0)
    job = Job(unequal, recipe, lambda: logistic(6, 3), precision="float64", engine="loop")
    state, first = fit(job).state, drawn_models(job, 0)
    absent = state.bytes_up == 0
    assert int(absent.sum()) == 5
    for name, value in state.theta.items():
        assert torch.equal(value[absent], first[name].expand(5, *value.shape[1:]))
        assert not torch.equal(value[~absent], first[name].expand(2, *value.shape[1:]))


@pytest.mark.parametrize("name", ["ditto", "fedper", "fedrep", "apfl", "mapper", "fedem", "mocha"])
def test_a_server_optimiser_leaves_alone_what_clients_keep(name: str, unequal: Federation) -> None:
    """After one round from the same start only what is shared is elsewhere."""
    plain = Recipe(algorithm=name, rounds=1, k=2)
    model = (lambda: logistic(6, 3)) if name == "mocha" else (lambda: mlp(6, 3, (5,)))
    jobs = [
        Job(unequal, one, model, precision="float64", engine="loop")
        for one in (plain, replace(plain, server_optimizer="adam", server_step_size=0.5))
    ]
    before, after = (fit(job).state.theta for job in jobs)
    assert {key for key in before if not torch.equal(before[key], after[key])} == jobs[0].shared


def test_mocha_lets_small_clients_learn_from_related_ones() -> None:
    """Clients of two laws with few samples: better than alone."""
    federation = groups((6, 6, 6, 6, 6, 6, 40, 40), seed=3)

    def accuracy(name: str) -> float:
        recipe = Recipe(algorithm=name, rounds=60, step_size=0.5, mocha_lambda=1e-3, evaluate_every=0)
        job = Job(federation, recipe, lambda: logistic(6, 3), precision="float64", engine="loop")
        return float(fit(job).history[-1]["test_loss"])

    assert accuracy("mocha") < accuracy("local")


def test_what_cannot_be_is_one_sentence(unequal: Federation) -> None:
    with pytest.raises(InvalidInput, match="mocha: is for linear models"):
        check(make_job(unequal, Recipe(algorithm="mocha", rounds=1)))
    with pytest.raises(
        InvalidInput, match='ditto: clients train models of their own, so option must be "model"'
    ):
        check(make_job(unequal, Recipe(algorithm="ditto", option="gradient", rounds=1)))
    with pytest.raises(InvalidInput, match="apfl: its steps are its own, so optimizer, weight_decay"):
        check(make_job(unequal, Recipe(algorithm="apfl", optimizer="adam", rounds=1)))
    epochs = Recipe(algorithm="mocha", local_epochs=1, batch_size=4, rounds=1)
    with pytest.raises(InvalidInput, match="mocha: the pull of a round is that of so many steps"):
        check(Job(unequal, epochs, lambda: logistic(6, 3)))
    one = Job(unequal, Recipe(algorithm="fedper", rounds=1), lambda: logistic(6, 3))
    with pytest.raises(InvalidInput, match="fedper: the model has one layer"):
        check(one)
    with pytest.raises(InvalidInput, match="ditto_lambda must be zero or positive, got -1"):
        Recipe(algorithm="ditto", ditto_lambda=-1.0)
