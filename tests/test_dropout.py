"""Dropout from seeded streams: torch's dropout with masks that repeat on every engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ifca.core.client import gradient
from ifca.core.errors import InvalidInput
from ifca.core.random import _mix, mixed
from ifca.core.recipe import Recipe
from ifca.core.types import Batch
from ifca.data import Federation
from ifca.engines.gram.fast import applies
from ifca.models import make_task
from ifca.models.dropout import keeps
from ifca.training import Fitted, Job, fit
from tests.conftest import groups, make_job

CPU = torch.device("cpu")


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 3)).double()


def job_of(federation: Federation, **recipe: Any) -> Job:
    chosen = {"algorithm": "ifca-plain", "k": 2, "rounds": 3, "local_steps": 3, "seed": 3, **recipe}
    return replace(make_job(federation, Recipe(**chosen)), model=network)


def test_the_hash_is_that_of_the_other_streams() -> None:
    numbers = np.random.default_rng(0).integers(0, 2**64, 1000, np.uint64)
    found = mixed(torch.from_numpy(numbers.view(np.int64))).numpy().view(np.uint64)
    np.testing.assert_array_equal(found, _mix(numbers))


def test_a_mask_keeps_its_share_and_differs_by_sample_call_and_value() -> None:
    draws = torch.arange(200)
    one, other = keeps(draws, 1, 500, 0.3), keeps(draws, 2, 500, 0.3)
    assert float(one.double().mean()) == pytest.approx(0.7, abs=0.005)
    assert float((one == other).double().mean()) == pytest.approx(0.7**2 + 0.3**2, abs=0.005)
    assert float((one[1:] == one[:-1]).double().mean()) == pytest.approx(0.58, abs=0.005)
    assert float((one[:, 1:] == one[:, :-1]).double().mean()) == pytest.approx(0.58, abs=0.005)
    assert torch.equal(keeps(draws[50:60], 1, 500, 0.3), one[50:60])


def test_a_step_is_torchs_with_the_same_mask() -> None:
    module = network()
    task = make_task(module, Recipe(), regression=False, device=CPU)
    theta = {name: value.detach() for name, value in module.named_parameters()}
    x, y = torch.randn(5, 6).double(), torch.tensor([0, 1, 2, 0, 1])
    batch = Batch(x, y, torch.ones(5).double(), torch.arange(5) + 7)
    found = gradient(task, theta, batch)
    mask = keeps(torch.arange(5) + 7, 1, 8, 0.4)
    hidden = module[1](module[0](x)) * mask / 0.6  # type: ignore[index]
    nn.functional.cross_entropy(module[3](hidden), y).backward()  # type: ignore[index, no-untyped-call]
    for name, value in module.named_parameters():
        torch.testing.assert_close(found[name], value.grad)
    module.eval()
    assert torch.equal(task.output(theta, x), module(x))  # losses and evaluation drop nothing


def test_whole_channels() -> None:
    module = nn.Sequential(nn.Dropout2d(0.5), nn.Flatten(), nn.Linear(3 * 4, 1))
    task = make_task(module, Recipe(), regression=True, device=CPU)
    assert task.training is not None
    theta = {"2.weight": torch.ones(1, 12), "2.bias": torch.zeros(1)}
    batch = Batch(torch.ones(50, 3, 2, 2), torch.zeros(50), torch.ones(50), torch.arange(50))
    found = task.training(theta, batch)[0].flatten().tolist()
    assert set(found) == {0.0, 8.0, 16.0, 24.0}  # 4 pixels x 1 / (1 - p) for each channel kept


@pytest.mark.parametrize(
    ("algorithm", "how"),
    [
        ("ifca-plain", {"local_epochs": 2, "batch_size": 3}),
        ("ifca", {"option": "gradient"}),
        ("ditto", {}),
        ("fedrep", {"batch_size": 4}),
    ],
)
def test_engines_agree(algorithm: str, how: dict[str, Any], unequal: Federation) -> None:
    job = job_of(unequal, algorithm=algorithm, participation=0.7, **how)
    assert not applies(job.task, job.recipe)
    loop, vectorised = (fit(replace(job, engine=engine)) for engine in ("loop", "vectorised"))
    assert loop.labels.tolist() == vectorised.labels.tolist()
    same(loop, vectorised)
    plain = replace(job, model=lambda: nn.Sequential(*[p for i, p in enumerate(network()) if i != 2]))  # type: ignore[arg-type, var-annotated]
    assert not np.allclose(_first(fit(plain)), _first(loop))


def same(a: Fitted, b: Fitted) -> None:
    for name, value in a.state.theta.items():
        torch.testing.assert_close(value, b.state.theta[name], rtol=1e-10, atol=1e-10)


def _first(fitted: Fitted) -> Any:
    return fitted.state.theta["0.weight"].numpy()


def test_runs_repeat_and_the_seed_matters(unequal: Federation) -> None:
    job = job_of(unequal, algorithm="global")
    a, b = fit(job), fit(job)
    assert torch.equal(a.state.theta["3.weight"], b.state.theta["3.weight"])
    other = fit(
        replace(job, recipe=replace(job.recipe, seed=4), warm_start={n: v[:1] for n, v in _start(job)})
    )
    again = fit(replace(job, warm_start={n: v[:1] for n, v in _start(job)}))
    assert not torch.equal(other.state.theta["3.weight"], again.state.theta["3.weight"])


def _start(job: Job) -> Any:
    return [(name, value.detach()[None]) for name, value in network().named_parameters()]


def test_refusals() -> None:
    def task(*layers: nn.Module) -> None:
        make_task(nn.Sequential(*layers), Recipe(), regression=False, device=CPU)

    with pytest.raises(InvalidInput, match="layer 1 is a AlphaDropout, whose draws cannot be repeated"):
        task(nn.Linear(2, 3), nn.AlphaDropout(0.5))
    with pytest.raises(InvalidInput, match="layer 0 is a LSTM with a dropout of its own"):
        task(nn.LSTM(2, 3, 2, dropout=0.5))
    with pytest.raises(InvalidInput, match="fedem: mixes the outputs"):
        fit(job_of(groups((4, 5)), algorithm="fedem"))


class Turned(nn.Module):
    """Samples are not the first dimension inside."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.drop = nn.Linear(6, 3), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.drop(self.fc(x).T).T
        return y


def test_samples_must_come_first(unequal: Federation) -> None:
    with pytest.raises(InvalidInput, match=r"layer drop is given a tensor of shape .* whose first dimension"):
        fit(replace(job_of(unequal), model=Turned))
