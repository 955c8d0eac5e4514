"""The numbers behind drift: the band, the alarms' level, confidences, re-identification, streams."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ifca.core.errors import InvalidInput
from ifca.core.reidentification import reidentified
from ifca.data.drift_streams import change_points, drift_stream
from ifca.runs.bands import Known, alarms, bands_of
from ifca.use.confidence import Calibration


def test_the_band_by_hand() -> None:
    # Four clients lose 1, 1, 3, 3 on 4 samples each: mean 2, variance 4/3, h 1/4.
    (band,) = bands_of([Known(str(i), 0, loss, 4) for i, loss in enumerate((1, 1, 3, 3))]).values()
    assert (band.clients, band.mean, band.per_sample) == (4, 2, 0.25)
    assert band.variance == pytest.approx(4 / 3)
    # A client of 16 samples with s^2 = 4 loses 4: tau^2 = 4/3 - 4/4 = 1/3, times 1 + 1/4; noise 4/16 + 4/4/4.
    t, p = band.test(4.0, 4.0, 16)
    assert t == pytest.approx(2 / math.sqrt(1 / 3 * 5 / 4 + 1 / 4 + 1 / 4))
    assert 0.01 < p < 0.06
    assert band.test(2.0, 4.0, 16)[1] == pytest.approx(0.5)
    assert band.test(99.0, 4.0, 1) == (0.0, 1.0)  # one sample tells nothing


def test_alarms_by_hand() -> None:
    # Of four tests at level 1%: at most .0025 for the least, .005 for two, .0075 for three.
    assert alarms(np.array([0.004, 0.5, 0.003, 0.009])).tolist() == [True, False, True, False]
    assert not alarms(np.array([0.006, 0.5, 0.009, 0.9])).any()
    assert alarms(np.array([])).tolist() == []


@pytest.mark.parametrize("clients", [3, 20])
def test_honest_clients_of_few_samples_raise_false_alarms_at_the_level_only(clients: int) -> None:
    rng, false = np.random.default_rng(clients), 0
    looks = 150

    def losses(n: int) -> Any:  # mostly right and sure, now and then very wrong; clients differ a little
        rate = 0.08 * math.exp(0.3 * rng.normal())
        return np.where(rng.random(n) < rate, rng.exponential(3, n), rng.exponential(0.1, n))

    for _ in range(looks):
        sizes = np.clip(rng.lognormal(3, 1, clients), 2, 300).astype(int).tolist()
        (band,) = bands_of([Known(str(n), 0, float(losses(n).mean()), n) for n in sizes]).values()
        new = [losses(n) for n in np.clip(rng.lognormal(2.5, 1, 20), 2, 300).astype(int).tolist()]
        p = [band.test(float(one.mean()), float(one.var(ddof=1)), len(one))[1] for one in new]
        false += bool(alarms(np.array(p)).any())
    assert false <= 4  # the level is 1% of 150 looks; more than 4 would come by chance once in 50 times


def test_confidence_is_measured_from_what_is_usual_for_a_model() -> None:
    # Model 1 is always surer; measured from its mean, clients of cluster 0 are still told apart.
    known = Calibration(
        np.array([[0.8, 0.85], [0.82, 0.86], [0.6, 0.95], [0.61, 0.96]]), np.array([0, 0, 1, 1])
    )
    assert known.centre().tolist() == pytest.approx([0.7075, 0.905])
    assert known.right == 4
    assert known.p == pytest.approx(0.5**4)


def test_the_reidentification_score_by_hand() -> None:
    concepts = np.array([[0, 0], [1, 0], [0, 0], [1, 1]])
    # Step 1 brings a concept that nobody had: no return. Step 2: client 0 returns to 0; step 3: both to 1.
    assert reidentified(concepts, np.array([[0, 0], [1, 0], [0, 0], [1, 1]])) == (3, 3)
    assert reidentified(concepts, np.zeros((4, 2), np.int64)) == (1, 3)  # the one model is concept 0's
    # A new model at every return is no old one.
    assert reidentified(concepts, np.array([[0, 0], [1, 0], [2, 0], [3, 3]])) == (0, 3)
    assert reidentified(concepts[:2], concepts[:2]).score is None


def test_streams_change_and_return() -> None:
    plan = change_points("together", 4)
    assert plan[:, 0].tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0, 1]
    assert plan[:, 9].tolist() == [0, 0, 0, 0, 2, 2, 2, 0, 0, 0]
    assert change_points("staggered", 2)[:, 3].tolist() == [0, 0, 1, 1, 1, 1, 0, 0, 0, 0]
    first, again = (drift_stream("sine", samples=20, test_samples=5, seed=3) for _ in range(2))
    assert len(first) == 10
    assert torch.equal(first[4].train.x, again[4].train.x)
    x, y = first[4].train.arrays(0)
    assert ((x[:, 1] >= np.sin(x[:, 0])) == (y == 1)).all()  # concept 1: above the curve
    assert not torch.equal(first[4].train.x, first[5].train.x)
    assert {name for name in ("sea", "circle", "digits") if drift_stream(name, samples=5, test_samples=1)}
    with pytest.raises(InvalidInput, match="unknown stream sun"):
        drift_stream("sun")


def test_the_table_of_streams_is_what_was_measured() -> None:
    root = Path(__file__).parent.parent
    assert (root / "results" / "drift" / "table.md").read_text() in (root / "docs" / "drift.md").read_text()
