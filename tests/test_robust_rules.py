"""Robust rules: numbers by hand, against byzfl, and what holds of every rule. Engines: test_contract.py."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ifca.core.errors import Diverged, InvalidInput
from ifca.core.recipe import Recipe
from ifca.engines.updates import Kept
from ifca.methods import aggregation
from ifca.methods.aggregation import Aggregation, aggregated, register_aggregation, rule_of
from ifca.methods.registry import sends_models
from ifca.methods.robust_rules import MIXED, ROBUST, assumed
from ifca.training import fit
from tests.conftest import groups, make_job

RULES = [*ROBUST, *(MIXED + name for name in ROBUST)]


def said(name: str, values: Any, weight: Any = None, attackers: float = 0.2, width: int = 100) -> list[float]:
    """What the rule makes of changes [p, d], given in blocks of some coordinates."""
    x = torch.as_tensor(values, dtype=torch.float64)
    x = x[:, None] if x.dim() == 1 else x
    w = torch.ones(len(x)) if weight is None else torch.tensor(weight)
    rule = rule_of(Recipe(aggregation=name, attackers=attackers))
    assert rule.combine is not None
    blocks = [x[:, start : start + width] for start in range(0, x.shape[1], width)]
    return list(map(float, torch.cat(list(rule.combine(lambda: iter(blocks), w)))))


def test_how_many_are_assumed_to_attack() -> None:
    assert [assumed(0.2, p) for p in (1, 2, 3, 4, 5, 6, 10, 11, 15)] == [0, 0, 1, 1, 1, 2, 2, 3, 3]
    assert [assumed(0.49, p) for p in (1, 2, 3, 4, 5, 100)] == [0, 0, 1, 1, 2, 49]
    assert assumed(0.0, 100) == 0
    assert assumed(0.07, 100) == 7  # though 0.07 * 100 is a little more


def test_rules_by_coordinate_by_hand() -> None:
    assert said("median", [1.0, 2.0, 30.0]) == [2.0]
    assert said("median", [1.0, 2.0, 4.0, 30.0]) == [3.0]
    assert said("trimmed-mean", [1.0, 2.0, 3.0, 7.0, 1e9]) == [4.0]  # of 2, 3, 7
    assert said("trimmed-mean", [1.0, 3.0]) == [2.0]  # two cannot be trimmed
    assert said("trimmed-mean", [1.0, 2.0, 9.0], attackers=0.0) == [4.0]


def test_clipping_by_hand() -> None:
    """Norms 5, 1, 10 and median 5: the third counts half. Of two members the smaller norm is the limit."""
    changes = [[3.0, 4.0], [0.0, 1.0], [6.0, 8.0]]
    assert said("clip", changes) == pytest.approx([2.0, 3.0])
    assert said("clip", changes, weight=[1, 2, 1]) == pytest.approx([1.5, 2.5])
    assert said("clip", [1.0, 1e6]) == [1.0]
    assert said("clip", [0.0, 0.0, 1e6]) == [0.0]
    assert said("clip", [-1.0, 0.0]) == [0.0]  # one of two asks for nothing


def test_centred_clipping_by_hand() -> None:
    """0, 1, 2, 3, 100: median distances to others are 2, 1, 1, 2, 98, so r is 2; -2 - 1 + 0 + 1 + 2 = 0."""
    assert said("centred-clipping", [0.0, 1.0, 2.0, 3.0, 100.0]) == pytest.approx([2.0])
    assert said("centred-clipping", [7.0, 7.0, 7.0, 100.0]) == pytest.approx([7.0])
    many = said("centred-clipping", [0.0, 1.0, 2.0, 3.0, 100.0], weight=[1, 1, 3, 1, 1])
    assert many == pytest.approx([2.0])
    assert said("centred-clipping", [0.0, 2.0], weight=[3, 1])[0] < 1


def test_the_geometric_median_by_hand() -> None:
    """Of four corners where their diagonals cross; of a majority in one place that place."""
    corners = [[0.0, 0.0], [4.0, 0.0], [3.0, 3.0], [0.0, 4.0]]
    assert said("geometric-median", corners) == pytest.approx([2.0, 2.0], abs=1e-8)
    assert said("geometric-median", [2.0, 2.0, 2.0, 50.0, -9.0]) == pytest.approx([2.0], abs=1e-5)
    assert said("geometric-median", [1.0, 3.0]) == pytest.approx([2.0])


def test_krum_by_hand() -> None:
    """0, 1, 3, 7, 90 and f = 1: squares to the three nearest 0: 1 + 9 + 49, 1: 1 + 4 + 36, 3: 4 + 9 + 16."""
    values = [0.0, 1.0, 3.0, 7.0, 90.0]
    assert said("krum", values) == [3.0]
    assert said("multi-krum", values) == [2.75]
    assert said("krum", [0.0, 1.0, 9.0]) == [0.5]  # 0 and 1 are each other's nearest: equal, their mean
    assert said("krum", [1.0, 3.0]) == [2.0]


def test_mixing_by_hand() -> None:
    """0, 1, 3 and f = 1: each with its nearest is 0.5, 0.5, 2."""
    assert said("nnm+median", [0.0, 1.0, 3.0]) == [0.5]
    assert said("nnm+trimmed-mean", [0.0, 1.0, 3.0, 90.0]) == pytest.approx([4 / 3])  # 4/3, 4/3, 4/3, 94/3
    assert said("nnm+clip", [0.0, 1.0, 3.0]) == [0.5]
    assert said("nnm+krum", [0.0, 1.0, 3.0]) == [0.5]


@pytest.mark.parametrize("name", RULES)
def test_what_holds_of_every_rule(name: str) -> None:
    rng = np.random.default_rng(3)
    for p in (1, 2, 3, 6, 11):
        one = rng.normal(size=7)
        assert said(name, np.tile(one, (p, 1))) == pytest.approx(one, abs=1e-9)  # all say the same
        x = rng.normal(size=(p, 7)) * rng.uniform(0.5, 2, (p, 1))
        found = said(name, x)
        assert np.isfinite(found).all()
        assert (found <= x.max(0) + 1e-9).all() or name.endswith("clip")
        assert said(name, x[rng.permutation(p)]) == pytest.approx(found, abs=1e-7)
        assert said(name, x, width=2) == pytest.approx(found, abs=1e-9)  # blocks
        assert said(name, 3 * x) == pytest.approx([3 * v for v in found], abs=1e-7)
        if "clip" not in name or "centred" in name:  # clip is about no change
            assert said(name, x + 5) == pytest.approx([v + 5 for v in found], abs=1e-5)


@pytest.mark.parametrize("name", RULES)
def test_one_attacker_of_six_moves_no_rule_far(name: str) -> None:
    honest = np.random.default_rng(5).normal(size=(5, 20)) + 1
    reach = np.linalg.norm(honest, axis=1).max()
    for huge in (1e3, 1e9, 1e30):
        found = said(name, np.concatenate([honest, np.full((1, 20), -huge)]))
        assert np.linalg.norm(np.array(found) - honest.mean(0)) < 2 * reach
        single = torch.tensor(np.concatenate([honest, np.full((1, 20), -huge)]), dtype=torch.float32)
        torch.testing.assert_close(
            together(name, single, torch.zeros(1, 20), [0] * 6)[0].float(),
            torch.tensor(found, dtype=torch.float32),
            rtol=1e-3,
            atol=1e-3,
        )
    assert np.linalg.norm(np.concatenate([honest, np.full((1, 20), -1e3)]).mean(0) - honest.mean(0)) > 100


@pytest.mark.parametrize("name", RULES)
def test_numbers_without_squares_move_no_rule_either(name: str) -> None:
    honest = np.random.default_rng(5).normal(size=(5, 20)) + 1
    for huge in (1e160, 1e300):
        found = said(name, np.concatenate([honest, np.full((1, 20), -huge)]))
        assert np.linalg.norm(np.array(found) - honest.mean(0)) < 2 * np.linalg.norm(honest, axis=1).max()


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("no_number", [np.nan, np.inf, -np.inf])
def test_a_change_that_is_no_number_counts_as_one_that_is_too_large(name: str, no_number: float) -> None:
    """Krum does not choose it; every rule answers what it answers to one that is only large."""
    honest = np.random.default_rng(5).normal(size=(5, 20)) + 1
    for kind in (torch.float32, torch.float64):
        sent = torch.tensor(np.concatenate([honest, np.full((1, 20), no_number)])).to(kind)
        large = sent.clone()
        large[5] = -1e30 if no_number < 0 else 1e30
        found = together(name, sent, torch.zeros(1, 20).to(kind), [0] * 6)
        expected = together(name, large, torch.zeros(1, 20).to(kind), [0] * 6)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def together(name: str, x: Tensor, theta: Tensor, identity: list[int], *, shared: bool = False) -> Tensor:
    """The clusters' next models [k, d] of members' models x [p, d], trained from theta [k, d]."""
    kept = Kept({"w": theta}, len(x), 10**6, lambda _rows: iter(()))
    kept.add(torch.arange(len(x)), {"w": x})
    of = frozenset({"w"}) if shared else frozenset[str]()
    rule, weight = rule_of(Recipe(aggregation=name)), torch.ones(len(x), dtype=x.dtype)
    total = aggregated(rule, {"w": theta}, kept.updates(), torch.tensor(identity), weight, of, models=True)
    return total.total["w"] / total.weight.clamp(min=1)[:, None]


def test_rules_see_changes_of_models_not_models() -> None:
    """Two clusters at 100 and -100: changes 1, 2, 30 and 5; cut to 2 they are 1, 2, 2. The third is empty."""
    theta = torch.tensor([[100.0], [-100.0], [7.0]], dtype=torch.float64)
    x = torch.tensor([[101.0], [102.0], [130.0], [-95.0]], dtype=torch.float64)
    found = together("clip", x, theta, [0, 0, 0, 1])
    assert found[:, 0].tolist() == pytest.approx([100 + 5 / 3, -95, 0])  # of weight 0: it keeps its model
    level = torch.full((3, 1), 100.0, dtype=torch.float64)
    shared = together("clip", x[:3], level, [0, 0, 1], shared=True)
    assert shared[:2, 0].tolist() == pytest.approx([100 + 5 / 3] * 2)


def test_what_giant_s_clients_send_is_no_model() -> None:
    assert sends_models(Recipe(option="model"))
    assert not sends_models(Recipe(option="gradient"))
    assert not sends_models(Recipe(algorithm="giant"))


def test_blocks_that_rules_are_given_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    theta, x = torch.zeros(1, 10, dtype=torch.float64), torch.randn(6, 10, dtype=torch.float64)
    whole = together("geometric-median", x, theta, [0] * 6)
    monkeypatch.setattr(aggregation, "AT_ONCE", 18)  # three coordinates
    torch.testing.assert_close(together("geometric-median", x, theta, [0] * 6), whole)


def test_six_clients_of_uneven_sizes() -> None:
    federation = groups((40, 3, 17, 5, 90, 8), dimension=4)
    for name in RULES:
        recipe = Recipe("ifca-plain", k=2, rounds=3, aggregation=name, weighted=True, shared=("fc1",))
        fitted = fit(make_job(federation, recipe))
        assert all(bool(value.isfinite().all()) for value in fitted.state.theta.values())


def test_names_and_shares_are_refused_in_a_sentence() -> None:
    for wrong in ("nnm+mean", "nnm+nnm+clip", "nnm", "clipped"):
        with pytest.raises(
            InvalidInput, match="aggregation must be one of mean, weighted-mean, median, clip"
        ):
            rule_of(Recipe(aggregation=wrong))
    for share in (0.5, -0.1, float("nan")):
        with pytest.raises(InvalidInput, match=r"attackers must be in \[0, 0.5\)"):
            Recipe(attackers=share)
    with pytest.raises(InvalidInput, match=r"aggregation nnm\+clip is the package's own"):
        register_aggregation(Aggregation("nnm+clip", "Mine."))


def test_training_that_diverges_is_told_as_such() -> None:
    """No number is the clients' fault, not the rule's: the step may be halved."""
    job = make_job(
        groups((9, 7, 8, 6), dimension=4), Recipe("ifca-plain", k=2, rounds=9, aggregation="median")
    )
    wild = replace(job, recipe=replace(job.recipe, step_size=1e38, local_steps=40))
    with pytest.raises(Diverged, match="try a smaller step_size than"):
        fit(wild)


@pytest.fixture
def byzfl(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Byzfl's rules without the rest of it, which needs torchvision: pip install --no-deps byzfl==0.0.11."""
    found = importlib.util.find_spec("byzfl")
    if found is None:
        pytest.skip("byzfl is not installed")
    bare = types.ModuleType("byzfl")
    bare.__path__ = list(found.submodule_search_locations or [])
    monkeypatch.setitem(sys.modules, "byzfl", bare)
    yield importlib.import_module("byzfl.aggregators")
    for name in [name for name in sys.modules if name.startswith("byzfl.")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("p", [5, 8, 21])
def test_the_numbers_are_byzfl_s(p: int, byzfl: Any) -> None:
    x = np.random.default_rng(p).normal(size=(p, 6)) + 0.5
    x[-1] *= 30
    f = assumed(0.2, p)
    rules = {
        "median": byzfl.Median(),
        "trimmed-mean": byzfl.TrMean(f),
        "krum": byzfl.Krum(f),
        "multi-krum": byzfl.MultiKrum(f),
        "geometric-median": byzfl.GeometricMedian(nu=1e-9, T=3000),
    }
    for name, rule in rules.items():
        close = 1e-5 if name == "geometric-median" else 1e-9  # mixed changes may be equal, and the median one
        assert said(name, x) == pytest.approx(rule(x), abs=close), name
        assert said(MIXED + name, x) == pytest.approx(rule(byzfl.NNM(f)(x)), abs=close), name
    clip = byzfl.Clipping(float(np.sort(np.linalg.norm(x, axis=1))[(p - 1) // 2]))
    assert said("clip", x) == pytest.approx(clip(x).mean(0))
    apart = np.sort(np.linalg.norm(x[:, None] - x, axis=2), axis=1)[:, 1:]
    r = np.sort(apart[:, (p - 2) // 2])[(p - 1) // 2]
    centred = byzfl.CenteredClipping(L=300, tau=float(r))
    assert said("centred-clipping", x) == pytest.approx(centred(x), abs=1e-7)
