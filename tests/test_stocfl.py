"""StoCFL with numbers that can be redone on paper: scalar models y = theta x, squared loss, a step of 0.25.

Then a client changes the model by half of its distance to y.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.data import Federation
from ifca.methods.averaging import initial_state
from ifca.methods.memory import tensors_of
from ifca.methods.server_optimiser import LIVE
from ifca.methods.stocfl import STOCFL, Memory, merged, together
from ifca.training import Fitted, fit
from ifca.training.checkpoint import load_state, save_state
from ifca.training.start import problem_of
from tests.conftest import make_job, scalar_job
from tests.test_cfl import at_angles, changes
from tests.test_contract import recipe_of, same_bits

HALF = {"algorithm": "stocfl", "local_steps": 1, "step_size": 0.25}


def trained(ys: list[float], **options: Any) -> Fitted:
    engine = options.pop("engine", "vectorised")
    job = scalar_job([(1.0, y) for y in ys], [0.0], Recipe(**{**HALF, **options}))
    return fit(replace(job, engine=engine))


def models(fitted: Fitted) -> list[float]:
    values: list[float] = fitted.state.theta["fc1.weight"].flatten().tolist()
    return values


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_clusters_are_made_of_first_updates_and_pulled_to_the_global_model(engine: str) -> None:
    """psi are 1, -1, 2, -2 from theta = 0, and the global model stays at their mean, 0. Clusters begin there:
    to half of 3, then a tenth back, 1.35; to half of the way from there to 3, 2.175, then 1.9575.
    """
    ys = [2.0, -2.0, 4.0, -4.0]
    fitted = trained(ys, rounds=3, stocfl_pull=0.1, k=4, engine=engine)
    assert sorted(models(fitted)) == pytest.approx([-1.9575, 1.9575])
    assert fitted.labels[0] == fitted.labels[2] != fitted.labels[1] == fitted.labels[3]
    assert [record["models"] for record in fitted.history] == [4, 4, 2]  # with the initial and the global one
    free = trained(ys, rounds=3, stocfl_pull=0.0, k=4, engine=engine)
    assert sorted(models(free)) == pytest.approx([-2.25, 2.25])


def test_a_round_with_a_global_model_is_two_turns_in_the_ledger() -> None:
    one, two = (trained([2.0, -2.0, 2.0], rounds=2, stocfl_pull=pull).state for pull in (0.0, 0.1))
    assert two.bytes_down.tolist() == (2 * one.bytes_down).tolist()
    assert two.bytes_up.tolist() == (2 * one.bytes_up).tolist()


def test_some_clients_at_a_time() -> None:
    ys = [2.0, -2.0] * 5
    fitted = trained(ys, rounds=8, participation=0.3, k=4)
    served = fitted.state.theta["fc1.weight"].flatten()[fitted.labels]
    assert served.sign().tolist() == [1, -1] * 5
    assert len(models(fitted)) == 2


def test_the_most_similar_become_one_down_to_tau() -> None:
    """0 and 40 degrees become 20, which is 60 from 80: a cosine of 0.5."""
    gram = changes(at_angles(0, 40, 80, 180)).gram()
    label, said = merged(gram, 0.7, 4)
    assert label.tolist() == [0, 0, 2, 3]
    (a, b, cosine) = said[0]
    assert (a, b) == (0, 1)
    assert cosine == pytest.approx(math.cos(math.radians(40)))
    assert merged(gram, 0.7, 2)[0].tolist() == [0, 0, 0, 3]  # no more than two have places
    assert merged(gram, 0.49, 4)[0].tolist() == [0, 0, 0, 3]
    assert merged(gram, 0.8, 4)[0].tolist() == [0, 1, 2, 3]


def test_the_larger_cluster_s_model_stays() -> None:
    """Psi of one client at 0, of two at 60 degrees; a new one at 30 makes one cluster of 15 degrees with the
    first, and then one of all: 45 degrees are a cosine of 0.707.
    """
    job = scalar_job([(1.0, 2.0)] * 4, [0.0], Recipe(**HALF, k=3, stocfl_tau=0.7))  # type: ignore[arg-type]
    theta = {"w": torch.tensor([[5.0, 5], [7, 7], [0, 0], [1, 1], [2, 2]], dtype=torch.float64)}
    live, psi = torch.tensor([True, True, False, True, True]), torch.zeros(3, 2, dtype=torch.float64)
    psi[:2] = at_angles(0, 60) * torch.tensor([[1.0], [2]])
    state = initial_state(theta, torch.tensor([0, 1, 1, 4]), live)  # the new one was sent the initial model
    state = replace(state, memory=tensors_of(Memory(psi)), moments={LIVE: live.clone()})
    after, events = together(problem_of(job), state, torch.tensor([3]), changes(at_angles(30)))
    assert after.identity.tolist() == [0, 0, 0, 0]
    assert after.theta["w"][:, 0].tolist() == [7, 0, 0, 1, 2]
    assert after.live.tolist() == [True, False, False, True, True]
    assert events == [
        {"event": "merged", "cluster": 0, "other": 1, "cosine": pytest.approx(math.cos(math.radians(45)))}
    ]
    torch.testing.assert_close(after.memory["psi"][0], psi.sum(0) + at_angles(30)[0])
    assert after.moments[LIVE].tolist() == [False, True, False, True, True]  # place 0 has another model
    alone, _ = together(problem_of(job), state, torch.tensor([3]), changes(at_angles(200)))
    assert alone.identity.tolist() == [0, 1, 1, 2]
    assert alone.theta["w"][:, 0].tolist() == [5, 7, 1, 1, 2]  # a new cluster begins with the global model
    assert alone.moments[LIVE].tolist() == live.tolist()
    full = replace(state, moments={LIVE: torch.ones(5, dtype=torch.bool)})  # place 2 had a model before
    again, _ = together(problem_of(job), full, torch.tensor([3]), changes(at_angles(200)))
    assert again.moments[LIVE].tolist() == [True, True, False, True, True]


def test_the_initial_model_is_sent_to_who_has_no_cluster() -> None:
    state = initial_state({"w": torch.zeros(5, 1)}, torch.tensor([1, -1, 0]))
    assert STOCFL.sends(Recipe(), state, torch.tensor([0, 1])).tolist() == [1, 4]
    assert STOCFL.needs(Recipe(), state).updates


@pytest.mark.parametrize("name", ["cfl-partial", "fedgroup-partial", "stocfl-partial"])
def test_a_checkpoint_goes_on_with_the_same_bits(name: str, unequal: Federation, tmp_path: Path) -> None:
    job = make_job(unequal, recipe_of(name))

    def write(state: Any, _record: Any) -> None:
        save_state(tmp_path / str(state.round), state, {})

    whole = fit(job, on_round=write)
    for done in range(1, job.recipe.rounds):
        state = load_state(tmp_path / str(done), job.device, lambda _header: None)
        assert same_bits(fit(job, resume=state).state.theta, whole.state.theta)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"stocfl_tau": 1.5}, r"stocfl_tau must be in \[-1, 1\], got 1.5"),
        ({"stocfl_pull": 1.0}, r"stocfl_pull must be in \[0, 1\), got 1.0"),
    ],
)
def test_bad_settings_are_refused_in_a_sentence(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Recipe(**setting)
