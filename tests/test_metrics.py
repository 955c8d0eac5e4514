"""Metrics and losses of the user's own: the same numbers from every engine, refused where they make none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.data import Client, Federation
from ifca.training import Job, fit
from ifca.training.preflight import check
from tests.conftest import groups, make_job, scalar_job


def wrong(output: Tensor, y: Tensor) -> Tensor:
    return (output.argmax(-1) != y).double()


def most_sure(output: Tensor, y: Tensor) -> Tensor:
    return output.softmax(-1).max()


@pytest.mark.parametrize("algorithm", ["ifca", "ifca-plain", "global", "local", "oneshot"])
def test_every_engine_reports_the_same_metrics(algorithm: str) -> None:
    federation = groups((12, 7, 20, 9))
    recipe = Recipe(algorithm=algorithm, k=2, rounds=3, local_steps=2)
    metrics = {"wrong": wrong, "most_sure": most_sure}
    tests = []
    for engine in ("loop", "vectorised"):
        fitted = fit(make_job(federation, recipe, engine=engine, metrics=metrics))
        assert fitted.test is not None
        mean = fitted.test.mean_metrics(fitted.test.metrics)
        accuracy = fitted.test.accuracy(fitted.test.paper_rule)
        assert accuracy is not None
        assert mean["wrong"] == pytest.approx(1 - accuracy)  # per sample: the mean over all samples
        assert fitted.history[-1]["test_metrics"] == mean
        train_rule = fitted.test.accuracy(fitted.test.train_rule)
        assert train_rule is not None
        assert fitted.test.mean_metrics(fitted.test.metrics_train_rule)["wrong"] == pytest.approx(
            1 - train_rule
        )
        tests.append(fitted.test.metrics)
    for name in metrics:
        torch.testing.assert_close(tests[0][name], tests[1][name])


def test_a_metric_by_hand() -> None:
    """Models y = theta x at 1 and 3; test points (2, 2) and (1, 5): absolute errors 0 and 2."""
    job = scalar_job([(1.0, 1.0), (1.0, 3.0)], [1.0, 3.0], Recipe(algorithm="ifca-plain", k=2, rounds=1))
    point = [np.array([[1.0]]), np.array([1.0]), np.array([[2.0]]), np.array([2.0])]
    other = [np.array([[1.0]]), np.array([3.0]), np.array([[1.0]]), np.array([5.0])]
    clients = [Client(x, y, x_test, y_test) for x, y, x_test, y_test in (point, other)]
    job = replace(
        job,
        federation=Federation.from_clients(clients),
        metrics={"off": lambda output, y: (output.flatten() - y).abs()},
    )
    test = fit(job).test
    assert test is not None
    assert test.metrics["off"].tolist() == pytest.approx([0, 2])
    assert test.mean_metrics(test.metrics) == {"off": pytest.approx(1.0)}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            {"metrics": {"m": lambda output, y: output}},
            r"m must give a number, or one per sample",
        ),
        (
            {"metrics": {"m": lambda output, y: output.nonsense()}},
            r"m fails \(AttributeError",
        ),
        ({"loss": lambda output, y: output.mean()}, "loss: must give one number per sample"),
        (
            {"loss": lambda output, y: y.nonsense()},
            r"loss: fails on the outputs .* \(AttributeError",
        ),
    ],
)
def test_what_makes_no_number_is_refused_before_training(change: dict[str, object], complaint: str) -> None:
    job: Job = make_job(groups((5, 6)), Recipe(k=1, rounds=1))
    with pytest.raises(InvalidInput, match=complaint):
        check(replace(job, **change))  # type: ignore[arg-type]


def test_one_loss_of_the_users_trains_alike_on_both_engines() -> None:
    federation, recipe = groups((12, 7, 20, 9)), Recipe(algorithm="ifca-plain", k=2, rounds=3, local_steps=2)

    def squared(output: Tensor, y: Tensor) -> Tensor:
        return ((output - torch.eye(3, dtype=output.dtype)[y]) ** 2).sum(-1)

    one, other = (fit(make_job(federation, recipe, engine=e, loss=squared)) for e in ("loop", "vectorised"))
    for name, value in one.state.theta.items():
        torch.testing.assert_close(value, other.state.theta[name])
    plain = fit(make_job(federation, recipe))
    assert one.train_loss != pytest.approx(plain.train_loss)


def test_a_loss_that_cannot_be_mapped_over_clients_is_sent_to_the_loop() -> None:
    def squared(output: Tensor, y: Tensor) -> Tensor:
        return ((output - torch.nn.functional.one_hot(y, 3)) ** 2).sum(-1)  # vmap has no rule for one_hot

    federation, recipe = groups((5, 6)), Recipe(algorithm="global", rounds=1)
    with pytest.raises(InvalidInput, match=r"for several clients at once .* engine = 'loop'"):
        check(make_job(federation, recipe, loss=squared))
    check(make_job(federation, recipe, loss=squared, engine="loop"))
