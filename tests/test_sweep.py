"""A sweep of many runs over one X equals the runs one by one."""

from __future__ import annotations

import pytest
import torch

from ifca.core.recipe import Recipe
from ifca.data import Client, Federation
from ifca.engines import Job, fit
from ifca.engines import sweep as sweeps
from ifca.models import linear


@pytest.mark.parametrize("chunk_bytes", [2**27, 2000])
def test_all_runs_of_a_trial_equal_the_loop(chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "CHUNK_BYTES", chunk_bytes)
    rng = torch.Generator().manual_seed(0)
    m, n, d, k, rounds = 6, 8, 5, 2, 7
    x = torch.randn(m, n, d, generator=rng, dtype=torch.float64)
    star = torch.randn(k, d, generator=rng, dtype=torch.float64)
    clean = torch.einsum("mnd,md->mn", x, star[torch.arange(m) % k])
    y = torch.stack([scale * clean for scale in (1.0, 1.0, 0.5)])  # three runs
    theta = torch.bernoulli(torch.full((3, k, d), 0.5, dtype=torch.float64), generator=rng)
    step = torch.tensor([0.1, 0.5, 0.3], dtype=torch.float64)
    models, identity = sweeps.sweep(x, y, theta, step, rounds)
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


def test_wrong_targets_are_refused() -> None:
    with pytest.raises(ValueError, match=r"y must be \[runs, m, n\]"):
        sweeps.sweep(torch.zeros(2, 3, 4), torch.zeros(1, 2, 3), torch.zeros(5, 2, 4), torch.ones(5), 1)
