"""A sweep of many runs over one X equals the runs one by one."""

from __future__ import annotations

import pytest
import torch

from ifca.core.recipe import Recipe
from ifca.data import Client, Federation
from ifca.engines import sweep as sweeps
from ifca.models import linear
from ifca.training import Job, fit


@pytest.mark.parametrize("chunk_bytes", [2**27, 2000])
@pytest.mark.parametrize(
    "group", [None, [0, 1, 0, 1, 0, 1], [0, 0, 0, 1, 1, 1]]
)  # none, the true, a wrong one
@pytest.mark.parametrize("rounds", [7, pytest.param(60, marks=pytest.mark.slow)])
def test_all_runs_of_a_trial_equal_the_loop(
    chunk_bytes: int, group: list[int] | None, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "CHUNK_BYTES", chunk_bytes)
    rng = torch.Generator().manual_seed(0)
    m, n, d, k = 6, 8, 5, 2
    x = torch.randn(m, n, d, generator=rng, dtype=torch.float64)
    star = torch.randn(k, d, generator=rng, dtype=torch.float64)
    clean = torch.einsum("mnd,md->mn", x, star[torch.arange(m) % k])
    y = torch.stack([scale * clean for scale in (1.0, 1.0, 0.5)])  # three runs
    theta = torch.bernoulli(torch.full((3, k, d), 0.5, dtype=torch.float64), generator=rng)
    step = torch.tensor([0.1, 0.5, 0.3], dtype=torch.float64)
    groups = None if group is None else torch.tensor(group)
    models, identity = sweeps.sweep(x, y, theta, step, rounds, groups)
    for run in range(3):
        federation = Federation.from_clients([Client(x[i], y[run, i]) for i in range(m)])
        recipe = Recipe(
            algorithm="ifca-plain", k=k, rounds=rounds, option="gradient", step_size=float(step[run])
        )
        start = {"fc1.weight": theta[run][:, None]}
        job = Job(federation, recipe, lambda: linear(d), engine="loop", precision="float64", warm_start=start)
        fitted = fit(job)
        torch.testing.assert_close(models[run][:, None], fitted.state.theta["fc1.weight"])
        assert identity[run].tolist() == fitted.history[-1]["identity"]


def test_settled_clients_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clients at 0 and 10, models that begin at 1 and 9: neither can move far enough to be mistaken."""
    asked: list[int] = []
    residuals = sweeps._residuals

    def counted(x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        asked.append(len(x))
        return residuals(x, *rest)

    monkeypatch.setattr(sweeps, "_residuals", counted)
    x, y = torch.ones(2, 1, 1), torch.tensor([[[0.0], [10.0]]])
    start, step = torch.tensor([[[1.0], [9.0]]]), torch.tensor([0.5])
    models, identity = sweeps.sweep(x, y, start, step, 40, torch.tensor([0, 1]))
    # A step halves the distance. At residuals of 1 and 9 a way of 0.49 x (9 - 1) = 3.92 is allowed;
    # the models go 1 each.
    assert asked == [2]
    assert identity.tolist() == [[0, 1]]
    torch.testing.assert_close(models, torch.tensor([[[0.0], [10.0]]]))


def test_a_run_that_diverges_ends_as_nan_and_leaves_the_others_alone() -> None:
    x, y = torch.ones(2, 1, 1), torch.tensor([[[0.0], [10.0]]]).repeat(2, 1, 1)
    start = torch.tensor([[[1.0], [9.0]]]).repeat(2, 1, 1)
    models, _ = sweeps.sweep(x, y, start, torch.tensor([0.5, 50.0]), 60, torch.tensor([0, 1]))
    assert models[1].isnan().all()
    torch.testing.assert_close(models[0], torch.tensor([[0.0], [10.0]]))


def test_wrong_targets_are_refused() -> None:
    with pytest.raises(ValueError, match=r"y must be \[runs, m, n\]"):
        sweeps.sweep(torch.zeros(2, 3, 4), torch.zeros(1, 2, 3), torch.zeros(5, 2, 4), torch.ones(5), 1)
