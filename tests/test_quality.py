"""Metrics of test data by hand, and a sentence where a guess would do better than the models."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ifca import IFCA, Federation, open_run
from ifca.cli.main import app
from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.data import Client
from ifca.training import fit
from ifca.training.poor_fit import PoorFitWarning, poor_fit
from ifca.training.quality import measured_quality, quality_of
from tests.conftest import groups, make_job, scalar_job


def logits(*shares: float) -> np.ndarray:
    """Outputs of two classes, by the probability of the second."""
    return np.array([[0.0, math.log(p / (1 - p))] for p in shares])


def test_metrics_of_two_classes_by_hand() -> None:
    """Of 2 x 2 pairs of a right and a wrong sample 3 are in order; two of four answers are right."""
    found = quality_of(logits(0.9, 0.6, 0.7, 0.2), np.array([1, 1, 0, 0]), 2)
    assert found["samples"] == 4
    assert found["accuracy"] == 0.75
    assert found["auroc"] == 0.75
    assert found["f1"] == pytest.approx((2 / 3 + 0.8) / 2)  # of class 0: 2 * 1 * 0.5 / 1.5; of class 1: 4 / 5
    told = -(math.log(0.9) + math.log(0.6) + math.log(0.3) + math.log(0.8)) / 4
    assert found["log_loss"] == pytest.approx(told)
    # one bin each: sure 0.9 and right, 0.6 and right, 0.7 and wrong, 0.8 and right
    assert found["calibration_error"] == pytest.approx((0.1 + 0.4 + 0.7 + 0.2) / 4)


def test_metrics_of_several_classes_and_of_one_alone() -> None:
    outputs = np.array([[2.0, 0, 0], [0, 2, 0], [0, 0, 2], [2, 0, 0]])
    found = quality_of(outputs, np.array([0, 1, 2, 2]), 3)
    assert found["accuracy"] == 0.75
    # classes 0, 1, 2: samples in order of 1 x 3, 1 x 3 and 2 x 2 pairs, a tie counts half
    assert found["auroc"] == pytest.approx((2.5 / 3 + 1 + 3 / 4) / 3)
    alone = quality_of(outputs[:1], np.array([0]), 3)
    assert (alone["accuracy"], alone["auroc"]) == (1, None)
    assert quality_of(np.full((2, 2), np.nan), np.array([0, 1]), 2)["accuracy"] is None


def test_metrics_of_a_regression_by_hand() -> None:
    """Errors 1, -1, 0 of targets 1, 2, 3 around their mean 2."""
    found = quality_of(np.array([[2.0], [1], [3]]), np.array([1.0, 2, 3]), None)
    assert found == {
        "samples": 3,
        "mae": pytest.approx(2 / 3),
        "rmse": pytest.approx(math.sqrt(2 / 3)),
        "r2": pytest.approx(1 - 2 / 2),
    }


def test_the_summary_has_what_serves_the_test_samples(tmp_path: Path) -> None:
    federation = groups((60,) * 6)
    front = IFCA(2, rounds=20).fit(federation)
    found = front.quality_
    assert found is not None
    assert found["overall"]["samples"] == 30 == sum(one["samples"] for one in found["clusters"])
    assert found["overall"]["accuracy"] == pytest.approx(front.score(federation))
    assert 0.5 < found["overall"]["auroc"] <= 1
    again = open_run(front.save(tmp_path / "run"))
    assert again.quality_ == found
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["warnings"] == []


def test_clients_never_seen_count_too_and_local_models_have_no_clusters() -> None:
    known, new = groups((40,) * 4), groups((40,) * 6)
    federation = Federation(known.train, new.test, 3)
    whole = measured_quality(fit(make_job(federation, Recipe(k=2, rounds=3))))
    assert whole is not None
    assert whole["overall"]["samples"] == 4 * 5 + 2 * 3  # of the two new ones the half that did not choose
    local = measured_quality(fit(make_job(known, Recipe(algorithm="local", rounds=3))))
    assert local is not None
    assert local["clusters"] is None
    assert measured_quality(fit(make_job(Federation(known.train, None, 3), Recipe(k=2, rounds=1)))) is None


def test_worse_than_the_mean_is_said() -> None:
    """Targets 1 and 3 have variance 1; theta = 0 and a tiny step leave a loss of (1 + 9) / 2."""
    job = scalar_job([(1.0, 1.0), (1.0, 3.0)], [0.0], Recipe(algorithm="global", rounds=1, step_size=1e-9))
    (said,) = poor_fit(fit(job))
    assert said.startswith("the training loss, 5, is above the variance of the targets, 1: the mean of the")
    assert "standardise_target" in said
    better = scalar_job([(1.0, 1.0), (1.0, 3.0)], [1.9], Recipe(algorithm="global", rounds=1, step_size=1e-9))
    assert poor_fit(fit(better)) == ["the training loss, 1.01, is above" + said.partition("is above")[2]]
    best = scalar_job([(1.0, 1.0), (2.0, 3.0)], [1.5], Recipe(algorithm="global", rounds=1, step_size=1e-9))
    assert poor_fit(fit(best)) == []


def test_rarer_than_the_largest_class_is_said() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 3)), np.arange(40) % 4 == 0  # nothing to learn, three of four are 0
    federation = Federation.from_clients([Client(x, y.astype(int), id=name) for name in "ab"])
    with pytest.warns(PoorFitWarning, match="below the share of the largest class, 75.00%"):
        IFCA(1, algorithm="global", model="logistic", rounds=1, step_size=1e-6).fit(federation)


def test_the_command_shows_metrics_and_the_sentence(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(3):
        x = rng.normal(size=(30, 2))
        np.savez(tmp_path / f"{i}.npz", x=x, y=100 + x[:, 0])
    settings = [f"data={{name='folder', path='{tmp_path}', test_share=0.2}}", "step_size=1e-6"]
    settings += ["rounds=2", "k=1", "baselines=[]"]
    arguments = [part for one in settings for part in ("--set", one)]
    shown = CliRunner().invoke(app, ["run", *arguments, "--out", str(tmp_path / "run")], terminal_width=80)
    assert shown.exit_code == 0, shown.output
    assert "R2" in shown.output
    assert "warning: the training loss" in shown.output
    predicted = CliRunner().invoke(app, ["predict", str(tmp_path / "run"), str(tmp_path / "0.npz"), "--json"])
    quality = json.loads(predicted.output)["quality"]
    assert quality["samples"] == 30
    assert {"mae", "rmse", "r2"} < quality.keys()


def test_balanced_weights_by_hand() -> None:
    """6 samples of two classes that there are, 2 and 4 of them: 6 / (2 * 2) and 6 / (2 * 4)."""
    clients = [Client(np.ones((3, 1)), np.array([0, 2, 2])), Client(np.ones((3, 1)), np.array([0, 2, 2]))]
    federation = Federation.from_clients(clients, classes=3)
    assert federation.class_weights("balanced") == (1.5, 1.0, 0.75)
    with pytest.raises(InvalidInput, match="class_weights has 2 numbers for 3 classes"):
        IFCA(1, class_weights=(1.0, 2.0)).fit(federation)
    with pytest.raises(InvalidInput, match="class_weights must be positive"):
        IFCA(1, class_weights=(1.0, 2.0, 0.0)).fit(federation)
    floats = Federation.from_arrays([np.ones((3, 1))], [np.array([0.5, 1, 2])])
    with pytest.raises(InvalidInput, match=r"floats \(regression\), which have no classes"):
        IFCA(1, class_weights="balanced").fit(floats)


def test_weights_find_a_rare_class_and_the_reported_loss_is_plain() -> None:
    rng = np.random.default_rng(0)
    y = (rng.random(4000) < 0.05).astype(int)
    x = rng.normal(size=(4000, 2)) + 1.2 * y[:, None]
    halves = [x[:2000], x[2000:]], [y[:2000], y[2000:]]
    federation = Federation.from_arrays(*halves, *halves)
    plain, balanced = (
        IFCA(1, model="logistic", rounds=40, class_weights=weights).fit(federation)
        for weights in (None, "balanced")
    )
    found = [float((one.predict(x, 0)[y == 1] == 1).mean()) for one in (plain, balanced)]
    assert found[0] < 0.3 < 0.7 < found[1]
    shares = balanced.predict_proba(x, 0)[np.arange(len(y)), y]
    assert balanced.train_loss_ == pytest.approx(float(-np.log(shares).mean()), rel=1e-4)  # without weights
