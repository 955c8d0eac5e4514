"""FedGroup with numbers that can be redone on paper: scalar models y = theta x, squared loss, a step of 0.25.

Then a client changes the model by half of its distance to y.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.methods.directions import cosines
from ifca.methods.fedgroup import FEDGROUP, differences, edc, groups_of, madc
from ifca.methods.method import grow
from ifca.training import Fitted, fit
from tests.conftest import scalar_job
from tests.test_cfl import at_angles, changes

HALF = {"algorithm": "fedgroup", "local_steps": 1, "step_size": 0.25}


def trained(ys: list[float], **options: Any) -> Fitted:
    engine = options.pop("engine", "vectorised")
    job = scalar_job([(1.0, y) for y in ys], [0.0], Recipe(**{**HALF, **options}))
    return fit(replace(job, engine=engine))


def models(fitted: Fitted) -> list[float]:
    values: list[float] = fitted.state.theta["fc1.weight"].flatten().tolist()
    return values


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
@pytest.mark.parametrize("distance", ["edc", "madc"])
def test_groups_are_found_in_the_first_round_and_trained_from_then_on(engine: str, distance: str) -> None:
    """Updates 1, -1, 2, -1 from theta = 0: groups of models 1.5 and -1, then half of the way to 3 and -2."""
    ys = [2.0, -2.0, 4.0, -2.0]
    first = trained(ys, rounds=1, engine=engine, fedgroup_distance=distance)
    assert sorted(models(first)) == pytest.approx([-1, 1.5])
    second = trained(ys, rounds=2, engine=engine, fedgroup_distance=distance)
    assert sorted(models(second)) == pytest.approx([-1.5, 2.25])
    assert second.labels[0] == second.labels[2] != second.labels[1] == second.labels[3]
    assert [record["models"] for record in second.history] == [3, 2]  # the initial one is given up at the end


def test_models_move_to_each_other() -> None:
    """From 1 and -1 to 1.5 and -1.5; then (1.5 - 1.5 w) / (1 + w) with w = 0.1 / 1.5."""
    fitted = trained([2.0, -2.0, 2.0, -2.0], rounds=2, fedgroup_step=0.1)
    weight = 0.1 / 1.5
    moved = (1.5 - 1.5 * weight) / (1 + weight)
    assert sorted(models(fitted)) == pytest.approx([-moved, moved])


def test_who_is_not_in_the_group_cold_start_joins_in_its_first_turn() -> None:
    """Of 50 clients 20 k = 40 are drawn; ten train the initial model in round 1, all their group's in 2."""
    ys = [2.0 if i % 2 else -2.0 for i in range(50)]
    fitted = trained(ys, rounds=3)
    assert [record["participants"] for record in fitted.history] == [40, 50, 50]
    labels = fitted.labels.numpy()
    assert len(set(labels[::2])) == len(set(labels[1::2])) == 1
    assert sorted(models(fitted)) == pytest.approx([-1.75, 1.75])  # the ten changed no model in round 1


def test_who_joins_has_no_group_and_is_sent_the_initial_model() -> None:
    states = []
    job = scalar_job([(1.0, y) for y in (2.0, -2.0, 2.0)], [0.0], Recipe(**HALF, rounds=2))  # type: ignore[arg-type]
    fit(job, on_round=lambda state, _record: states.append(state))
    state = grow(job.recipe, states[0], 1)
    assert state is not None
    assert FEDGROUP.needs(job.recipe, state).updates
    assert FEDGROUP.sends(job.recipe, state, torch.tensor([0, 3])).tolist() == [int(state.identity[0]), 2]
    assert float(state.theta["fc1.weight"][2]) == 0.0


def test_some_clients_at_a_time() -> None:
    fitted = trained([2.0, -2.0, 2.0, -2.0, 2.0, -2.0], rounds=6, participation=0.5)
    assert [record["participants"] for record in fitted.history] == [6, 3, 3, 3, 3, 3]
    served = fitted.state.theta["fc1.weight"].flatten()[fitted.labels]
    assert (served.sign().tolist()) == [1, -1, 1, -1, 1, -1]


def test_differences_of_cosines_by_hand() -> None:
    """Angles 0, 60, 180: cosines 0.5, -1, -0.5. M_01 = |-1 + 0.5|, M_02 = |0.5 + 0.5|, M_12 = |0.5 + 1|."""
    found = differences(cosines(changes(at_angles(0, 60, 180)).gram()))
    expected = torch.tensor([[0, 0.5, 1], [0.5, 0, 1.5], [1, 1.5, 0]], dtype=torch.float64)
    torch.testing.assert_close(found, expected)
    first, second, third = madc(changes(at_angles(0, 60, 180)).gram(), 2).tolist()
    assert first == second != third


def test_edc_sees_directions_not_lengths() -> None:
    delta = at_angles(0, 90, 0, 90) * torch.tensor([[1.0], [1], [9], [5]])
    found = edc(changes(delta).gram(), 2, 0).tolist()
    assert found[0] == found[2] != found[1] == found[3]


def test_the_cosines_of_edc_are_those_of_the_singular_vectors() -> None:
    delta = torch.randn(6, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    size, way = torch.linalg.eigh(delta @ delta.T)
    along = way[:, -2:] * size[-2:].sqrt()
    _, _, right = np.linalg.svd(delta.numpy(), full_matrices=False)
    np.testing.assert_allclose(np.abs(along.flip(1).numpy()), np.abs(delta.numpy() @ right[:2].T))


def test_equal_clients_make_fewer_groups() -> None:
    fitted = trained([2.0] * 4, rounds=2)
    assert models(fitted) == pytest.approx([1.5])
    assert len(groups_of(fitted.state).ways) == 1


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"fedgroup_distance": "cosine"}, "fedgroup_distance must be 'edc' or 'madc', got 'cosine'"),
        ({"fedgroup_step": -0.1}, "fedgroup_step must be zero or positive, got -0.1"),
    ],
)
def test_bad_settings_are_refused_in_a_sentence(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Recipe(**setting)
