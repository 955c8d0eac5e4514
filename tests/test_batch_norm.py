"""Batch norm: torch's layers step by step, averaged, or kept by the client (FedBN)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ifca.core.averages import norm_layers, running_statistics
from ifca.core.client import local_step, mean_loss
from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.core.types import Batch, Data, Params, Task
from ifca.data import Client, Federation
from ifca.engines.gram.fast import applies
from ifca.engines.loop import LoopEngine
from ifca.engines.vectorised import VectorisedEngine
from ifca.estimator import IFCA
from ifca.methods.cfl import tree_of
from ifca.methods.fedgroup import groups_of
from ifca.models import make_task
from ifca.models.batch_norm import entries_of
from ifca.training import Job, fit
from ifca.training.start import drawn_models, start
from tests.conftest import groups, make_job, with_norm

CPU = torch.device("cpu")
AVERAGE = Recipe(batch_norm="average")


def flat() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, momentum=0.3), nn.Tanh(), nn.Linear(6, 3))


def images() -> nn.Module:
    norm = nn.BatchNorm2d(3, affine=False, eps=1e-3)
    return nn.Sequential(nn.Conv2d(1, 3, 2), norm, nn.ReLU(), norm, nn.Flatten(), nn.Linear(12, 3))


def task_of(module: nn.Module, recipe: Recipe = AVERAGE) -> tuple[Task, Params]:
    theta = {name: value.clone() for name, value in entries_of(module).items()}
    return make_task(module, recipe, regression=False, device=CPU), theta


@pytest.mark.parametrize(("make", "shape"), [(flat, (4,)), (images, (1, 3, 3))])
def test_steps_are_those_of_torch_and_padding_does_not_count(make: Any, shape: tuple[int, ...]) -> None:
    """Three steps of SGD; the norm of images is used twice in a pass."""
    torch.manual_seed(0)
    module = make().double()
    task, theta = task_of(module)
    optimiser = torch.optim.SGD(module.parameters(), 0.1)
    for n in (5, 2, 8):
        x, y = torch.randn(n + 3, *shape).double() * 3 + 1, torch.randint(3, (n + 3,))
        weight = (torch.arange(n + 3) < n).double()
        theta = local_step(task, theta, 0.1, Batch(x, y, weight))
        optimiser.zero_grad()
        nn.functional.cross_entropy(module.train()(x[:n]), y[:n]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        for name, value in entries_of(module).items():
            torch.testing.assert_close(theta[name], value)
        torch.testing.assert_close(task.output(theta, x[:1]), task.output(theta, x)[:1])  # each on its own
        torch.testing.assert_close(task.output(theta, x), module.eval()(x))


def test_numbers_by_hand() -> None:
    """Values 1 and 3: mean 2, variance 1 (2 with n - 1). Momentum 0.1: 0.2, and 0.9 x 1 + 0.1 x 2 = 1.1."""
    task, theta = task_of(nn.Sequential(nn.BatchNorm1d(1, eps=0.0), nn.Linear(1, 3)))
    data = Data(torch.tensor([[1.0], [3.0], [50.0]]), torch.tensor([0, 1, 2]), torch.tensor([1.0, 1.0, 0.0]))
    assert task.training is not None
    _, after = task.training(theta, data)
    assert {name: value.tolist() for name, value in after.items()} == {
        "0.running_mean": pytest.approx([0.2]),
        "0.running_var": pytest.approx([1.1]),
    }
    alone = data._replace(weight=torch.tensor([1.0, 0.0, 0.0]))  # torch fails here
    output, after = task.training(theta, alone)
    assert after["0.running_mean"].tolist() == [0.0]
    torch.testing.assert_close(output, task.output(theta, data.x))


def test_statistics_are_averaged_as_parameters_are() -> None:
    """Clients with the means 0 and 4, a step each: running means 0 and 0.4, on average 0.2."""
    clients = [Client(np.array([[m - 1.0], [m + 1.0]]), np.array([0, 1])) for m in (0.0, 4.0)]
    recipe = Recipe("global", rounds=1, local_steps=1, batch_norm="average")
    make = lambda: nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 2))  # noqa: E731
    state = fit(Job(Federation.from_clients(clients, classes=2), recipe, make)).state
    assert state.theta["0.running_mean"].tolist() == [pytest.approx([0.2])]
    assert state.theta["0.running_var"].tolist() == [pytest.approx([1.1])]


def test_fedbn_keeps_the_layers_of_each_client_and_shares_the_others() -> None:
    federation = groups((9, 12, 7))
    job = make_job(federation, Recipe("fedbn", rounds=3, batch_norm="client", step_size=0.3))
    theta = fit(job).state.theta
    kept = {"norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"}
    assert norm_layers(theta) == kept
    for name, value in theta.items():
        assert bool((value[0] == value[1]).all()) == (name not in kept), name


def test_convolutions_are_trained_alike_on_both_engines() -> None:
    rng = np.random.default_rng(0)
    x, y = [rng.normal(size=(n, 1, 3, 3)) for n in (3, 5)], [rng.integers(0, 3, n) for n in (3, 5)]
    federation = Federation.from_arrays(x, y, classes=3)
    recipe = Recipe(k=2, rounds=1, local_epochs=1, batch_size=3, batch_norm="average")
    job = Job(federation, recipe, images, precision="float64")
    assert not applies(job.task, recipe)
    theta, who = start(job).theta, torch.arange(2)
    totals = [
        kind(job.task, recipe, federation.train).train(theta, who, torch.full_like(who, -1), 0).total.total
        for kind in (LoopEngine, VectorisedEngine)
    ]
    for name, value in totals[0].items():
        torch.testing.assert_close(value, totals[1][name])


def test_neither_l2_nor_weight_decay_nor_bernoulli_touches_statistics() -> None:
    task, theta = task_of(flat(), replace(AVERAGE, l2=2.0))
    assert task.penalty is not None
    squares = sum(float((v**2).sum()) for n, v in theta.items() if n not in running_statistics(theta))
    assert float(task.penalty(theta)) == pytest.approx(squares)
    job = Job(groups((4, 5)), replace(AVERAGE, initial="bernoulli"), lambda: with_norm(6))
    drawn = job.draw(torch.Generator().manual_seed(0))
    assert drawn["norm.running_var"].tolist() == [1.0] * 5
    assert set(drawn["fc1.weight"].flatten().tolist()) == {0.0, 1.0}


def test_a_saved_model_predicts_and_is_exported(tmp_path: Path) -> None:
    federation = groups((20, 24, 16, 30))
    model = IFCA(k=2, batch_norm="average", model=lambda: with_norm(6), rounds=3).fit(federation)
    x, _ = federation.train.arrays(0)
    said = model.predict_proba(x, int(model.labels_[0]))
    model.save(tmp_path / "saved")
    again = IFCA.load(tmp_path / "saved", model=lambda: with_norm(6))
    np.testing.assert_array_equal(again.predict_proba(x, int(model.labels_[0])), said)
    for kind in ("pt", "safetensors", "onnx"):
        if kind == "onnx":
            pytest.importorskip("onnxscript")
        model.export(int(model.labels_[0]), tmp_path / f"m.{kind}")  # compares what is read back
    state = torch.load(tmp_path / "m.pt", weights_only=True)["state_dict"]
    assert float(state["norm.running_mean"].abs().max()) > 0


def test_a_client_of_one_sample_and_personalising() -> None:
    federation = groups((1, 12, 9, 14, 8, 11))
    recipe = Recipe("ifca", rounds=4, batch_norm="average", batch_size=4, personalise=True)
    from ifca.training.personalise import personalise

    fitted = fit(make_job(federation, recipe))
    assert np.isfinite(personalise(fitted).after[1:]).all()
    assert bool(torch.isfinite(fitted.train.loss).all())


class TestRefusals:
    def refused(self, words: str, make: Any = flat, **recipe: Any) -> None:
        with pytest.raises(InvalidInput, match=words):
            fit(Job(groups((6, 8), dimension=4), Recipe(**{"rounds": 1, **recipe}), make))

    def test_by_default_with_the_options(self) -> None:
        self.refused('layer 1 is a BatchNorm1d.*"average".*"client".*use GroupNorm')

    def test_where_statistics_would_be_lost(self) -> None:
        self.refused('option must be "model"', batch_norm="average", option="gradient")
        self.refused("ditto: its clients take steps of their own", batch_norm="average", algorithm="ditto")

    def test_where_nobody_could_keep_them(self) -> None:
        self.refused("but ifca has no model per client.*use algorithm fedbn", batch_norm="client")
        self.refused('so batch_norm must be "client", got "average"', batch_norm="average", algorithm="fedbn")
        plain = lambda: nn.Linear(4, 3)  # noqa: E731
        self.refused("no batch-norm layers", plain, batch_norm="client", algorithm="fedbn")
        self.refused("batch_norm must be 'refuse', 'average' or 'client'", batch_norm="keep")

    @pytest.mark.parametrize(
        ("layer", "words"),
        [
            (nn.BatchNorm1d(6, momentum=None), "give momentum as a number"),
            (nn.BatchNorm1d(6, track_running_stats=False), "leave track_running_stats true"),
            (nn.SyncBatchNorm(6), "is a SyncBatchNorm, whose running statistics cannot be followed"),
            (nn.InstanceNorm1d(6, track_running_stats=True), "is a InstanceNorm1d, whose running"),
        ],
    )
    def test_other_kinds(self, layer: nn.Module, words: str) -> None:
        module = nn.Sequential(nn.Linear(4, 6), layer, nn.Linear(6, 3))
        with pytest.raises(InvalidInput, match=words):
            make_task(module, AVERAGE, regression=False, device=CPU)


def test_the_loss_that_decides_uses_running_statistics() -> None:
    task, theta = task_of(flat())
    x, y = torch.randn(6, 4), torch.randint(3, (6,))
    whole = mean_loss(task, theta, Data(x, y, torch.ones(6)))
    single = [mean_loss(task, theta, Data(x[i : i + 1], y[i : i + 1], torch.ones(1))) for i in range(6)]
    torch.testing.assert_close(whole, torch.stack(single).mean())


def test_directions_are_of_parameters_not_of_statistics(unequal: Federation) -> None:
    """A running variance far from where it began says nothing of where clients pull."""
    plain = Recipe(algorithm="cfl", k=2, rounds=1, batch_norm="average")
    job = make_job(unequal, plain)
    state, first = fit(job).state, drawn_models(job, 0)
    names = [name for name, _ in job.template.named_parameters()]
    apart = torch.cat([(state.theta[name][0] - first[name][0]).flatten() for name in names])
    assert float(tree_of(state).moved[0]) == pytest.approx(float(apart.norm()))
    founded = fit(make_job(unequal, replace(plain, algorithm="fedgroup"))).state
    assert groups_of(founded).ways.shape == (2, len(apart))


def test_fedgroup_takes_statistics_of_members_and_does_not_mix_groups(unequal: Federation) -> None:
    """A group of one client begins with its model, statistics too; the step between groups leaves them."""
    alone = Recipe(algorithm="fedgroup", k=7, rounds=1, batch_norm="average")
    found, local = fit(make_job(unequal, alone)), fit(make_job(unequal, replace(alone, algorithm="local")))
    for name, value in local.state.theta.items():
        assert torch.allclose(found.state.theta[name][found.labels], value)
    two = replace(alone, k=2, rounds=2)
    apart, drawn = (
        fit(make_job(unequal, replace(two, fedgroup_step=step))).state.theta for step in (0.0, 0.5)
    )
    differ = {name for name in apart if not torch.equal(apart[name], drawn[name])}
    assert differ == set(apart) - running_statistics(apart)
