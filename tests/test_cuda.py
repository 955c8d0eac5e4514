"""On a CUDA machine: the same results as the loop on the CPU. Skipped where there is no GPU."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ifca.core.client import cluster_losses
from ifca.core.identity import one_hot
from ifca.core.optimisers import PLAIN
from ifca.core.recipe import Option, Recipe
from ifca.core.replies import Needs
from ifca.core.sampling import make_plan
from ifca.core.sketch import make_sketch
from ifca.core.types import Data
from ifca.data import Federation
from ifca.engines.cuda import fused
from ifca.engines.cuda.convsteps import conv_steps
from ifca.engines.cuda.graphed import begun, mapped_step
from ifca.engines.loop import LoopEngine
from ifca.engines.precision import Precision, products
from ifca.models import cifar_cnn, femnist_cnn, mlp
from ifca.models.task import Factory
from ifca.training import Job, fit
from ifca.training.start import start

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
CUDA = torch.device("cuda")


def pixels(m: int, n: int, shape: tuple[int, ...], ink: float = 0.19) -> Federation:
    rng = np.random.default_rng(0)
    x = [rng.integers(0, 256, (n, *shape), dtype=np.uint8) for _ in range(m)]
    x = [np.where(rng.random(one.shape) < ink, one, 0).astype(np.uint8) for one in x]
    return Federation.from_arrays(x, [rng.integers(0, 10, n) for _ in range(m)], classes=10)


def assert_equals_the_loop(job: Job, tolerance: float = 1e-5) -> None:
    """The typical entry within tolerance, and all together within 0.5%.

    The oracle meets inputs of ReLUs as small as 1e-8, whose sign is a matter of rounding. In float32 on a CPU
    some of these data then end with a few hidden units off by 1e-4 to 1e-3, and the others by 1e-7.
    """
    oracle = fit(replace(job, engine="loop", device=torch.device("cpu"), precision="float64"))
    result = fit(job)
    assert torch.equal(result.labels, oracle.labels)
    for name, value in oracle.state.theta.items():
        gap = result.state.theta[name].cpu() - value
        assert float(gap.abs().median()) <= tolerance * float(value.abs().mean()), name
        assert float(gap.norm() / value.norm()) < 5e-3, name


@pytest.mark.parametrize("n", [33, 50, 100, 129, 200])
def test_the_fused_round(n: int) -> None:
    job = Job(
        pixels(8, n, (28, 28)),
        Recipe(algorithm="ifca-plain", k=3, rounds=3, evaluate_every=0),
        lambda: mlp(784, 10),
        device=CUDA,
    )
    assert fused.applies(job.task, job.recipe, job.federation.train, CUDA) == (
        find_spec("triton") is not None
    )
    assert_equals_the_loop(job)


@pytest.mark.parametrize("hidden", [(200,), (200, 72)])
def test_the_fused_round_in_tf32(hidden: tuple[int, ...]) -> None:
    recipe = Recipe(algorithm="ifca-plain", k=3, rounds=3, evaluate_every=0)
    model = partial(mlp, 784, 10, hidden)
    job = Job(pixels(8, 100, (28, 28)), recipe, model, device=CUDA, precision="tf32")
    assert_equals_the_loop(job, tolerance=1e-2)


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("hidden", [(200,), (200, 72), (48, 130, 200)])
@pytest.mark.parametrize(
    "settings", [{}, {"weighted": True, "participation": 0.5}, {"option": "gradient", "step_size": 0.1}]
)
def test_the_fused_round_of_uneven_clients(
    floats: bool, hidden: tuple[int, ...], settings: dict[str, Any]
) -> None:
    """From 1 to 300 samples; bytes, or floats whose columns have scales of their own."""
    rng, sizes = np.random.default_rng(0), (300, 1, 64, 33, 130, 20, 65, 2)
    x: list[Any] = [rng.integers(0, 256, (n, 40), dtype=np.uint8) for n in sizes]
    if floats:
        x = [(part / 255 * np.linspace(0.1, 2, 40)).astype(np.float32) for part in x]
    federation = Federation.from_arrays(x, [rng.integers(0, 10, n) for n in sizes], classes=10)
    recipe = Recipe(algorithm="ifca-plain", k=3, rounds=4, evaluate_every=0, **settings)
    job = Job(federation, recipe, lambda: mlp(40, 10, hidden), device=CUDA)
    assert fused.applies(job.task, job.recipe, federation.train, CUDA) == (find_spec("triton") is not None)
    assert_equals_the_loop(job)


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(algorithm="ifca-plain", k=3, rounds=3, stable_after=1),
        Recipe(algorithm="ifca-plain", k=3, rounds=3, weighted=True, step_decay=0.9),
        Recipe(algorithm="ifca-plain", k=3, rounds=3, participation=0.5),
        Recipe(algorithm="ifca-plain", k=2, rounds=2, batch_size=10, local_epochs=1),
        Recipe(algorithm="local", rounds=2),
    ],
)
def test_other_recipes(recipe: Recipe) -> None:
    assert_equals_the_loop(Job(pixels(6, 40, (9, 9)), recipe, lambda: mlp(81, 10), device=CUDA))


@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize("known", [False, True])
def test_captured_steps_of_clients_of_unlike_size(by_hand: bool, known: bool) -> None:
    """Steps are those of the clients that have samples left; who takes part changes."""
    recipe = Recipe(algorithm="ifca-plain", k=2, rounds=4, local_epochs=2, batch_size=8, step_size=1e-3)
    recipe = replace(recipe, participation=0.7, stable_after=1 if known else None, weighted=True)
    job = Job(uneven((30, 12, 47, 8, 30, 3, 21)), recipe, plain_cnn, device=CUDA, fast_path=by_hand)
    assert_equals_the_loop(job, tolerance=1e-3)


@pytest.mark.parametrize("by_hand", [True, False])
def test_captured_steps_of_a_convolutional_network(by_hand: bool) -> None:
    recipe = Recipe(k=2, rounds=3, local_epochs=2, batch_size=20, step_size=0.01, stable_after=1)
    recipe = replace(recipe, algorithm="ifca-plain")
    job = Job(pixels(3, 50, (3, 32, 32), ink=1), recipe, cifar_cnn, device=CUDA, fast_path=by_hand)
    assert_equals_the_loop(job, tolerance=1e-3)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize(("model", "shape"), [(cifar_cnn, (3, 32, 32)), (femnist_cnn, (28, 28))])
@pytest.mark.parametrize("batch", [1, 32])
def test_a_step_by_hand_is_as_exact_as_core_s_in_the_same_precision(
    model: Factory, shape: tuple[int, ...], batch: int, precision: Precision
) -> None:
    """The step written by hand and core's own, mapped by vmap, in one precision; both against double.

    In float32 they agree to 1e-5. In bfloat16 each has a rounding noise of its own, so what is compared is
    its size: that of the step by hand is at most 1.5 times core's. In TF32 kernels cut mantissas off where
    cuDNN rounds (or takes float32): measured 1.6 to 5.6 % on the first convolution, core's 0.03 to 0.7 %.
    """
    pytest.importorskip("triton")
    c, n, gamma = 3, 40, torch.tensor(100.0, device=CUDA)  # large: theta must not swallow the step's digits
    job = Job(pixels(c, n, shape), Recipe(k=2), model, device=CUDA, precision=precision)
    data = job.federation.train.padded(np.arange(c), CUDA, torch.float32)
    draws = [job.draw(torch.Generator().manual_seed(seed)) for seed in range(c)]
    theta = {name: torch.stack([draw[name] for draw in draws]).to(CUDA) for name in draws[0]}
    order = torch.Generator().manual_seed(0)
    rows = torch.stack([torch.randperm(n, generator=order)[:batch] for _ in range(c)]).to(CUDA)
    rows[1, 1:] = -1
    double = Data(data.x.double(), data.y, data.weight.double())
    exact = mapped_step(replace(job, precision="float64").task, PLAIN, compiled=False)(
        begun({name: value.double() for name, value in theta.items()}, PLAIN), double, gamma.double(), rows
    ).theta
    with products(precision):
        mapped = mapped_step(job.task, PLAIN, compiled=False)(begun(theta, PLAIN), data, gamma, rows).theta
        by_hand = conv_steps(job.task, data.x, len(data.x))
        assert by_hand is not None
        got = by_hand.step({name: v.clone() for name, v in theta.items()}, by_hand.prepare(data), gamma, rows)
    for name, value in theta.items():
        moved = (exact[name] - value).norm()
        if precision == "float32":
            assert float((got[name] - mapped[name]).norm() / moved) < 1e-5, name
        else:
            hand, core = (float((one[name] - exact[name]).norm() / moved) for one in (got, mapped))
            assert hand < (0.08 if precision == "tf32" else 1.5 * core + 1e-5), (name, hand, core)


@pytest.mark.parametrize("option", ["model", "gradient"])
def test_a_median_on_the_gpu(option: Option) -> None:
    """First layers formed block by block on the device."""
    recipe = Recipe(
        algorithm="ifca-plain", k=2, rounds=2, option=option, aggregation="median", evaluate_every=0
    )
    assert_equals_the_loop(Job(pixels(9, 40, (28, 28)), recipe, lambda: mlp(784, 10), device=CUDA), 1e-4)


@pytest.mark.parametrize("augment", [False, True])
def test_captured_steps_with_random_crops(augment: bool) -> None:
    recipe = Recipe(
        algorithm="ifca-plain", k=2, rounds=2, local_epochs=2, batch_size=25, step_size=0.01, evaluate_every=0
    )
    recipe = replace(recipe, augment=augment)
    assert_equals_the_loop(Job(pixels(2, 50, (3, 32, 32)), recipe, cifar_cnn, device=CUDA), tolerance=1e-3)


def test_a_step_by_hand_with_augmentation_and_regulariser() -> None:
    pytest.importorskip("triton")
    c, n = 2, 30
    recipe = Recipe(k=2, augment=True, l2=0.5, l2_layers=("fc1",), batch_size=8)
    job = Job(pixels(c, n, (3, 32, 32)), recipe, cifar_cnn, device=CUDA)
    clients = job.federation.train
    data = clients.padded(np.arange(c), CUDA, torch.float32)
    theta = {
        name: torch.stack([value, value]).to(CUDA) for name, value in job.draw(torch.Generator()).items()
    }
    plan = make_plan(recipe, 0, clients.keys, clients.sizes)
    assert plan.steps is not None
    assert plan.draws is not None
    rows, draws, gamma = (
        plan.steps[:, 0].to(CUDA),
        plan.draws[:, 0].to(CUDA),
        torch.tensor(100.0, device=CUDA),
    )
    with products("float32"):  # torch by itself lets convolutions use TF32
        want = mapped_step(job.task, PLAIN, compiled=False)(
            begun(theta, PLAIN), data, gamma, rows, draws
        ).theta
        by_hand = conv_steps(job.task, data.x, len(data.x))
        assert by_hand is not None
        got = by_hand.step({name: v.clone() for name, v in theta.items()}, data, gamma, rows, draws)
    for name, value in theta.items():
        error = (got[name] - want[name]).norm() / (want[name] - value).norm()
        assert float(error) < 5e-3, name


@pytest.mark.parametrize("known", [False, True])
def test_judging_clients_of_unlike_size_by_hand(known: bool) -> None:
    pytest.importorskip("triton")
    rng, sizes, k = np.random.default_rng(1), (3, 40, 17), 3
    x = [rng.integers(0, 256, (n, 28, 28), dtype=np.uint8) for n in sizes]
    federation = Federation.from_arrays(x, [rng.integers(0, 62, n) for n in sizes], classes=62)
    job = Job(federation, Recipe(k=k), femnist_cnn, device=CUDA)
    draws = [job.draw(torch.Generator().manual_seed(seed)) for seed in range(k)]
    theta = {name: torch.stack([draw[name] for draw in draws]) for name in draws[0]}
    exact, double = replace(job, precision="float64").task, {name: v.double() for name, v in theta.items()}
    one = [federation.train.one(i, torch.device("cpu"), torch.float64) for i in range(len(sizes))]
    want = torch.stack([cluster_losses(exact, double, data) for data in one])  # [c, k]
    own = torch.tensor([2, 0, 1]) if known else None
    data = federation.train.padded(np.arange(len(sizes)), CUDA, torch.float32)
    with products("float32"):
        by_hand = conv_steps(job.task, data.x, len(data.x))
        assert by_hand is not None
        found, losses = by_hand.estimate(
            {name: v.to(CUDA) for name, v in theta.items()},
            by_hand.prepare(data),
            None,
            None if own is None else own.to(CUDA),
        )
    judged = torch.ones_like(want, dtype=torch.bool) if own is None else one_hot(own, k)
    assert torch.equal(found.cpu(), want.argmin(1) if own is None else own)
    assert torch.allclose(losses.cpu().double()[judged], want[judged], rtol=1e-5)
    assert bool(losses.cpu()[~judged].isnan().all())


@pytest.mark.parametrize("weighted", [False, True])
def test_the_sketch_of_a_fused_round(weighted: bool) -> None:
    recipe = Recipe(algorithm="ifca-plain", k=3, weighted=weighted)
    job = Job(pixels(8, 50, (28, 28)), recipe, lambda: mlp(784, 10), device=CUDA)
    clients, theta = job.federation.train, start(job).theta
    who = torch.arange(len(clients))
    sketch = make_sketch(theta, 0)
    replies = job.make_engine().train(theta, who, torch.full_like(who, -1), 0, Needs(sketch=sketch))
    oracle = LoopEngine(job.task, recipe, clients).train(
        theta, who, replies.identity, 0, Needs(sketch=sketch)
    )
    assert replies.sketch is not None
    assert oracle.sketch is not None
    assert float((replies.sketch - oracle.sketch).norm() / oracle.sketch.norm()) < 1e-3


def norm_and_dropout() -> nn.Module:
    """A small convolutional network with what behaves otherwise in gradient steps."""
    return nn.Sequential(
        *(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(4),
            nn.Flatten(),
        ),
        *(nn.Linear(128, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 10)),
    )


def plain_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(128, 10)
    )


def uneven(sizes: tuple[int, ...]) -> Federation:
    rng = np.random.default_rng(2)
    x = [rng.integers(0, 256, (n, 3, 16, 16), dtype=np.uint8) for n in sizes]
    return Federation.from_arrays(x, [rng.integers(0, 10, n) for n in sizes], classes=10)


MINI = Recipe(algorithm="ifca-plain", k=2, rounds=3, local_epochs=1, batch_size=8, step_size=1e-3)


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_captured_turns_with_adam_batch_norm_and_dropout(participation: float) -> None:
    recipe = replace(MINI, optimizer="adam", batch_norm="average", participation=participation)
    job = Job(uneven((30, 12, 47, 8, 30)), recipe, norm_and_dropout, device=CUDA)
    assert_equals_the_loop(job, tolerance=1e-3)


@pytest.mark.parametrize(
    "recipe",
    [
        replace(MINI, optimizer="momentum", stable_after=1),
        replace(MINI, option="gradient", local_epochs=None),
        *(replace(MINI, algorithm=name) for name in ("per-fedavg", "ditto", "apfl", "fedrep", "fedem")),
    ],
)
def test_captured_turns_of_other_methods(recipe: Recipe) -> None:
    assert_equals_the_loop(Job(uneven((30, 12, 47)), recipe, plain_cnn, device=CUDA), tolerance=1e-3)


def test_captured_turns_of_many_clients_at_once() -> None:
    """Models without convolutions; steps that become smaller are read anew."""
    recipe = replace(MINI, optimizer="momentum", step_decay=0.5)
    assert_equals_the_loop(Job(pixels(6, 40, (9, 9)), recipe, lambda: mlp(81, 10), device=CUDA))
