"""What the fast paths promise besides speed: the same results, bounded memory, honest numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ifca.bench.speed import JOBS, bench
from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.data import Federation, mixture_of_regressions
from ifca.engines.gram.fast import FastEngine
from ifca.engines.gram.judge import Judge
from ifca.engines.precision import products
from ifca.engines.vectorised import VectorisedEngine
from ifca.models import linear, logistic, mlp
from ifca.training import Job, fit
from ifca.training.local_training import local_scores
from ifca.training.start import start

CPU = torch.device("cpu")


def pixels(m: int = 8, n: int = 12, seed: int = 0) -> Federation:
    rng = np.random.default_rng(seed)
    x = [rng.integers(0, 256, (n, 5, 5), dtype=np.uint8) for _ in range(m)]
    return Federation.from_arrays(x, [rng.integers(0, 3, n) for _ in range(m)], classes=3)


TANH = nn.Sequential(nn.Flatten(), nn.Linear(25, 6), nn.Tanh(), nn.Linear(6, 3))


@pytest.mark.parametrize(
    "model",
    [
        lambda: mlp(25, 3, (7,)),
        lambda: mlp(25, 3, (7, 6)),
        lambda: logistic(25, 3),
        lambda: linear(25, 3),
        TANH,
    ],
    ids=["mlp", "deep mlp", "logistic", "linear without bias", "tanh"],
)
@pytest.mark.parametrize("settings", [{}, {"algorithm": "local"}, {"weighted": True}, {"option": "gradient"}])
def test_the_fast_path_equals_the_loop_in_single_precision(model: Any, settings: dict[str, Any]) -> None:
    make = model if not isinstance(model, nn.Module) else lambda: TANH
    recipe = Recipe(**{"algorithm": "ifca-plain", "k": 2, "rounds": 4, "local_steps": 5, **settings})
    warm = (
        None
        if make is model
        else {n: torch.stack([p.detach(), p.detach() * 0.9]) for n, p in TANH.named_parameters()}
    )
    warm = None if warm is None or recipe.algorithm == "local" else warm
    job = Job(pixels(), recipe, make, warm_start=warm)
    assert isinstance(job.engine_of(job.federation.train), FastEngine)
    loop, fast = fit(replace(job, engine="loop")), fit(job)
    assert torch.equal(loop.labels, fast.labels)
    for name, value in loop.state.theta.items():
        assert float((fast.state.theta[name] - value).norm() / value.norm()) < 1e-5


def test_the_fast_path_serves_regression() -> None:
    federation, _ = mixture_of_regressions(clients=6, samples=15, dimension=4)
    job = Job(
        federation,
        Recipe(algorithm="ifca-plain", k=2, rounds=5, option="gradient", initial="bernoulli"),
        lambda: linear(4),
    )
    job = replace(job, precision="float64")
    assert isinstance(job.engine_of(job.federation.train), FastEngine)
    torch.testing.assert_close(fit(job).state.theta, fit(replace(job, engine="loop")).state.theta)


@pytest.mark.parametrize(("samples", "tested"), [(12, 4), (3, 40)])  # both sides of "cheaper"
@pytest.mark.parametrize("steps", [{}, {"optimizer": "momentum", "proximal": 0.5}])
def test_local_models_are_tested_without_being_formed(
    samples: int, tested: int, steps: dict[str, Any]
) -> None:
    train, test = pixels(m=5, n=samples).train, pixels(m=5, n=tested, seed=1).train
    recipe = Recipe(algorithm="local", rounds=3, local_steps=4, step_decay=0.9, **steps)
    job = Job(Federation(train, test, 3), recipe, lambda: mlp(25, 3, (7,)), precision="float64")
    formed = fit(replace(job, engine="loop"))
    assert formed.test is not None
    scores = local_scores(job, test, [[i] for i in range(5)])
    torch.testing.assert_close(scores.loss.double(), formed.test.scores.loss, rtol=1e-5, atol=1e-6)
    assert torch.equal(scores.correct.double(), formed.test.scores.correct)
    everyone = local_scores(job, test, [range(5)] * 5)
    assert everyone.correct.shape == (5, 1)
    with pytest.raises(InvalidInput, match="local_scores needs"):
        local_scores(replace(job, recipe=replace(recipe, batch_size=2)), test, [[0]] * 5)


def test_with_stable_identities_only_own_models_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The saving saves computation: between re-checks no product with all k first layers is made."""
    job = Job(
        pixels(),
        Recipe(algorithm="ifca-plain", k=3, rounds=9, stable_after=1, recheck_every=4),
        lambda: mlp(25, 3, (7,)),
    )
    judged: list[int] = []
    plain = Judge.products

    def counted(self: Judge, wide: Any, data: Any) -> torch.Tensor:
        judged.append(wide[2])
        return plain(self, wide, data)

    monkeypatch.setattr(Judge, "products", counted)
    fitted = fit(replace(job, recipe=replace(job.recipe, evaluate_every=0)))
    asked = [record["sent_all_models"] > 0 for record in fitted.history]
    assert not all(asked)
    assert judged.count(3) == sum(asked) + 1  # one chunk a round, and the final identities


def test_a_budget_too_small_names_the_smallest() -> None:
    for fast in (True, False):
        job = Job(
            pixels(),
            Recipe(algorithm="ifca-plain", k=2),
            lambda: mlp(25, 3, (4000,)),
            budget=2**20,
            fast_path=fast,
        )
        with pytest.raises(
            InvalidInput, match=r"memory_budget of 1 MiB is too small .* smallest that works is (\d+) MiB"
        ):
            fit(job)
        with pytest.raises(InvalidInput) as complaint:
            fit(job)
        smallest = int(str(complaint.value).split("works is ")[1].split(" MiB")[0])
        assert (
            fit(
                replace(job, budget=smallest * 2**20, recipe=Recipe(algorithm="ifca-plain", k=2, rounds=1))
            ).state.round
            == 1
        )


@pytest.mark.parametrize("kind", [FastEngine, VectorisedEngine])
def test_a_full_device_halves_the_chunk_says_so_once_and_changes_nothing(kind: Any) -> None:
    job = Job(
        pixels(), Recipe(algorithm="ifca-plain", k=2, rounds=1), lambda: mlp(25, 3, (7,)), precision="float64"
    )
    theta, who = start(job).theta, torch.arange(8)
    known = torch.full_like(who, -1)
    whole = kind(job.task, job.recipe, job.federation.train).train(theta, who, known, 0)
    engine = kind(job.task, job.recipe, job.federation.train)
    name = "_turn" if kind is FastEngine else "_turns"
    plain = getattr(engine, name)

    def full(*arguments: Any) -> Any:
        members = next(a for a in arguments if isinstance(a, np.ndarray))
        if len(members) > 3:
            raise torch.OutOfMemoryError("pretended")
        return plain(*arguments)

    setattr(engine, name, full)
    with pytest.warns(RuntimeWarning, match="with 8 clients at once") as said:
        replies = engine.train(theta, who, known, 0)
    assert len(said) == 1
    engine.train(theta, who, known, 0)  # a warning would be an error here
    assert torch.equal(replies.identity, whole.identity)
    for key, value in whole.total.total.items():
        torch.testing.assert_close(replies.total.total[key], value)


def test_low_precision_is_never_silent() -> None:
    before = torch.backends.cudnn.allow_tf32
    with products("float32"):
        assert not torch.backends.cudnn.allow_tf32
        assert not torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.allow_tf32 == before
    with pytest.raises(InvalidInput, match="precision tf32 is for CUDA"):
        Job(pixels(), Recipe(), lambda: mlp(25, 3), precision="tf32")


@pytest.mark.parametrize("name", ["mnist-1200", "synthetic-k2"])
def test_bench_gives_the_promised_keys(name: str) -> None:
    rows = list(bench(name, scale=0.01, device=CPU, engines=("loop", "vectorised", "fast", "fast-stable")))
    keys = {"job", "scale", "engine", "seconds_per_round", "ratio_to_loop", "gflops", "fraction_of_gemm_peak"}
    assert all(row.keys() >= keys and row["seconds_per_round"] > 0 for row in rows)
    assert [row["engine"] for row in rows][:3] == ["loop", "vectorised", "fast"]
    assert rows[0]["ratio_to_loop"] == 1


def test_bench_refuses_what_it_does_not_know() -> None:
    with pytest.raises(InvalidInput, match="unknown job mnits"):
        list(bench("mnits", device=CPU))
    with pytest.raises(InvalidInput, match="scale must be"):
        list(bench(JOBS[0], scale=0, device=CPU))
