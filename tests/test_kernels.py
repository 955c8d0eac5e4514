"""The Triton kernels of the CUDA path on a CPU, by Triton's interpreter, against plain torch in float64.

A wrong kernel cannot pass where there is no GPU. tests/__init__.py asks for the interpreter.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn.functional import cross_entropy

from ifca.core.recipe import Recipe
from ifca.core.replies import Needs
from ifca.core.sketch import make_sketch
from ifca.core.types import Params
from ifca.data import Federation
from ifca.engines.cuda import fused
from ifca.engines.cuda.chain import chain_of
from ifca.engines.cuda.convnet import ConvNet
from ifca.engines.loop import LoopEngine
from ifca.engines.precision import Precision, products
from ifca.models import mlp
from ifca.models.networks import ResponseNorm
from ifca.training import Job

pytest.importorskip("triton", reason="Triton has wheels for Linux only")
if torch.cuda.is_available():  # pragma: no cover
    pytest.skip("kernels are compiled here: tests/test_cuda.py", allow_module_level=True)
from ifca.engines.cuda.dense_kernel import dense_back

CPU, K = torch.device("cpu"), 3
STABLE = {"stable_after": 1}
DECADES = 10.0 ** np.arange(-4, 5)  # scales of nine columns


def uneven(sizes: tuple[int, ...], *, pixels: bool) -> Federation:
    """Random samples: bytes, or floats of which every column has a scale of its own."""
    rng = np.random.default_rng(0)
    shapes = [(n, len(DECADES)) for n in sizes]
    if pixels:
        x = [rng.integers(0, 256, shape, dtype=np.uint8) for shape in shapes]
    else:
        x = [(rng.normal(size=shape) * DECADES).astype(np.float32) for shape in shapes]
    return Federation.from_arrays(x, [rng.integers(0, 3, n) for n in sizes], classes=3)


def models(job: Job, *, pixels: bool) -> Params:
    """K of them, that see all columns alike."""
    drawn = [job.draw(torch.Generator().manual_seed(seed)) for seed in range(K)]
    theta = {name: torch.stack([one[name] for one in drawn]) for name in drawn[0]}
    scale = torch.ones(len(DECADES)) if pixels else torch.from_numpy(DECADES).float()
    return theta | {"fc1.weight": theta["fc1.weight"] / scale}


@pytest.mark.parametrize(
    ("sizes", "pixels", "hidden", "who", "known", "settings"),
    [
        ((40, 40, 70), True, (20,), None, None, {}),
        ((2, 33, 150, 64, 17, 65), True, (20,), None, None, {"weighted": True}),
        ((2, 33, 150, 64, 17), False, (20,), None, None, {"step_size": 1e-9}),  # of columns of 1e4
        ((5, 33, 90), True, (20,), None, None, {"option": "gradient", "weighted": True}),
        ((5, 33, 90, 64, 17), True, (20,), (1, 3, 4), (0, -1, 2), {}),
        ((1, 20, 3), False, (20,), None, (1, 1, 0), {"local_steps": 1, "step_size": 1e-9, **STABLE}),
        ((2, 33, 150, 64), True, (20, 33), None, None, {"weighted": True}),
        ((5, 70, 20), True, (33, 20, 130), (0, 1), (-1, 2), {}),
        ((1, 20, 3), True, (150, 20), None, None, {"option": "gradient"}),
        ((5, 33, 90, 64, 17), True, (20,), None, (2, 0, 2, 0, 0), {"weighted": True, **STABLE}),
        ((5, 33, 90), False, (33, 20), None, (1, 2, 1), {"step_size": 1e-9, **STABLE}),
        ((5, 33, 90), True, (20,), None, (2, 0, 1), {"option": "gradient", **STABLE}),
        ((5, 7, 6), True, (20,), None, None, {"local_steps": 65}),  # S is a sum in two parts, in TF32 too
    ],
)
@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_a_whole_round_is_the_loop_s(
    precision: Precision,
    sizes: tuple[int, ...],
    pixels: bool,
    hidden: tuple[int, ...],
    who: tuple[int, ...] | None,
    known: tuple[int, ...] | None,
    settings: dict[str, Any],
) -> None:
    """Identities, losses, sums and sketches, against the loop in double precision.

    Where identities are stable and everybody is sent one model, the second time and the third are of
    clients by cluster.
    """
    federation = uneven(sizes, pixels=pixels)
    given: dict[str, Any] = {
        "algorithm": "ifca-plain",
        "k": K,
        "local_steps": 3,
        "step_size": 0.1,
        **settings,
    }
    job = Job(federation, Recipe(**given), lambda: mlp(len(DECADES), 3, hidden))
    theta = models(job, pixels=pixels)
    double = {name: value.double() for name, value in theta.items()}
    some = torch.arange(len(sizes)) if who is None else torch.tensor(who)
    sent = torch.full((len(some),), -1) if known is None else torch.tensor(known)
    needs = Needs(losses=True, sketch=make_sketch(double, 0))
    exact = LoopEngine(replace(job, precision="float64").task, job.recipe, federation.train)
    want = exact.train(double, some, sent, 0, needs)
    with products(precision):
        whole = fused.FusedRound(job.task, job.recipe, federation.train, CPU)
    for _ in range(3):
        step, sketch = job.recipe.step(0), make_sketch(theta, 0)
        identity, losses, total, drawn = whole(theta, some, sent, step, sketch)
    assert whole.single == (precision == "tf32")
    most, near = (3e-2, 1e-3) if whole.single else (3e-6, 1e-6)  # gradients partly cancel each other
    settled = "stable_after" in settings
    assert ((1,) in whole.places.kept) == settled
    assert torch.equal(identity, want.identity)
    if want.losses is not None:
        asked = want.losses.isfinite()
        torch.testing.assert_close(losses.double()[asked], want.losses[asked], rtol=near, atol=near)
    torch.testing.assert_close(total.weight, want.total.weight)
    for name, value in want.total.total.items():
        at = double[name] if job.recipe.option == "model" else torch.zeros_like(double[name])
        moved = value - want.total.weight.reshape(-1, *[1] * (value.dim() - 1)) * at
        assert float((total.total[name] - value).norm() / moved.norm()) < most, name
    assert want.sketch is not None
    assert drawn is not None
    assert float((drawn - want.sketch).norm() / want.sketch.norm()) < most


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of what is no number
@pytest.mark.parametrize("precision", ["float32", "tf32"])
@pytest.mark.parametrize("hidden", [(20,), (20, 33)])
def test_what_one_model_is_does_not_decide_how_exact_another_is(
    hidden: tuple[int, ...], precision: Precision
) -> None:
    """The first is huge, infinite or no number: what the clients of the second do has the same bits."""
    federation = uneven((5, 33, 90), pixels=True)
    recipe = Recipe(algorithm="ifca-plain", k=K, local_steps=3, step_size=0.1)
    job = Job(federation, recipe, lambda: mlp(len(DECADES), 3, hidden))
    theta, known, found = models(job, pixels=True), torch.tensor([1, 2, 1]), []
    for factor in (1.0, 1e6, torch.inf, torch.nan):
        spoilt = {name: value.clone() for name, value in theta.items()}
        for value in spoilt.values():
            value[0] *= factor
        with products(precision):
            whole = fused.FusedRound(job.task, recipe, federation.train, CPU)
        _, losses, total, drawn = whole(spoilt, torch.arange(3), known, 0.1, make_sketch(theta, 0))
        assert drawn is not None
        found.append([losses[:, 1:], drawn, *(value[1:] for value in total.total.values())])
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            assert torch.equal(one, same)


@pytest.mark.parametrize("hidden", [(20,), (20, 33)])
def test_other_clients_take_the_place_of_those_before(hidden: tuple[int, ...]) -> None:
    """Rounds of some clients, as many and with as many rows and tiles as the ones before: in their memory."""
    federation = uneven((5, 33, 90, 64, 17, 6, 34, 88), pixels=True)
    recipe = Recipe(algorithm="ifca-plain", k=K, local_steps=3, step_size=0.1, weighted=True)
    job = Job(federation, recipe, lambda: mlp(len(DECADES), 3, hidden))
    theta = models(job, pixels=True)
    double = {name: value.double() for name, value in theta.items()}
    exact = LoopEngine(replace(job, precision="float64").task, recipe, federation.train)
    whole = fused.FusedRound(job.task, recipe, federation.train, CPU)
    for who in (torch.tensor([0, 1, 2]), torch.tensor([5, 6, 7]), torch.tensor([0, 6, 7])):
        asked = torch.full((3,), -1)
        identity, losses, total, _ = whole(theta, who, asked, 0.1, None)
        want = exact.train(double, who, asked, 0, Needs(losses=True))
        assert want.losses is not None
        assert torch.equal(identity, want.identity)
        torch.testing.assert_close(losses.double(), want.losses, rtol=1e-6, atol=1e-6)
        for name, value in want.total.total.items():
            moved = value - want.total.weight.reshape(-1, *[1] * (value.dim() - 1)) * double[name]
            assert float((total.total[name] - value).norm() / moved.norm()) < 3e-6, name
    assert len(whole.places.kept) == 1


def test_clusters_that_change_are_put_together_anew() -> None:
    """The same models are known twice, then others, then none; own losses are those of the loop."""
    federation = uneven((5, 33, 90, 64), pixels=True)
    recipe = Recipe(algorithm="ifca-plain", k=K, local_steps=3, step_size=0.1, stable_after=1)
    job = Job(federation, recipe, lambda: mlp(len(DECADES), 3, (20,)))
    theta, everybody = models(job, pixels=True), torch.arange(4)
    double = {name: value.double() for name, value in theta.items()}
    exact = LoopEngine(replace(job, precision="float64").task, recipe, federation.train)
    whole = fused.FusedRound(job.task, recipe, federation.train, CPU)
    first, second, none = (torch.tensor(one) for one in ([2, 0, 2, 1], [0, 0, 2, 1], [-1] * 4))
    for known in (first, first, second, second, first, none, first):
        identity, losses, total, _ = whole(theta, everybody, known, 0.1, None)
        want = exact.train(double, everybody, known, 0, Needs(losses=True))
        assert torch.equal(identity, want.identity)
        own = losses.gather(1, identity[:, None])[:, 0].double()
        torch.testing.assert_close(own, want.loss, rtol=1e-6, atol=1e-6)
        for name, value in want.total.total.items():
            moved = value - want.total.weight.reshape(-1, *[1] * (value.dim() - 1)) * double[name]
            assert float((total.total[name] - value).norm() / moved.norm()) < 3e-6, name
    assert sorted(whole.places.kept) == [(0,), (1,)]


NETWORKS = {
    "pooled": [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3)],
    "normed": [
        *[nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2, 1), ResponseNorm(16, alpha=1.0)],
        *[nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), ResponseNorm(16, alpha=1.0), nn.MaxPool2d(2)],
        *[nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)],
    ],
}


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_of_many_clients_convolutions(name: str, precision: str) -> None:
    """Outputs and a gradient step of two clients, each with weights of its own, against autograd.

    TF32: images and the first layer's weights, and what gradients by weights are made of, have 11 bits.
    """
    module = nn.Sequential(*copy.deepcopy(NETWORKS[name]))
    chain = chain_of(module)
    assert chain is not None
    torch.manual_seed(0)
    images = torch.rand(5, 3 if name == "pooled" else 1, 4, 4)
    at, y = torch.tensor([[0, 3, 1], [4, 2, 2]]), torch.tensor([[0, 1, 2], [2, 1, 0]])
    theta = {key: torch.randn(2, *value.shape) * 0.3 for key, value in module.named_parameters()}
    net = ConvNet(chain, images[:1], None, precision, 1)
    moved = {key: value.clone() for key, value in theta.items()}
    outputs, kept = net.forward(moved, net.prepare(images, 1), at, len(images))
    slope = (outputs.softmax(2) - nn.functional.one_hot(y, 3)) / 3
    net.descend(moved, at, len(images), 0.1 * slope, kept)
    wide = module.double()
    rtol, atol = (1e-4, 1e-5) if precision == "ieee" else (0.0, 3e-4)  # of steps of 0.1
    near = (1e-4, 1e-5) if precision == "ieee" else (0.0, 2e-3)
    for i in range(2):
        x, own = images[at[i]].double(), {key: value[i].double() for key, value in theta.items()}
        wanted = functional_call(wide, own, x)
        torch.testing.assert_close(outputs[i].double(), wanted, rtol=near[0], atol=near[1])

        def loss(model: Params, x: Tensor = x, y: Tensor = y[i]) -> Tensor:
            return cross_entropy(functional_call(wide, model, x), y)

        for key, value in grad(loss)(own).items():
            expected = own[key] - 0.1 * value
            torch.testing.assert_close(moved[key][i].double(), expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("batch", "out", "wide"), [(3, 1, 70), (20, 45, 33), (64, 7, 64), (65, 7, 20)])
def test_a_dense_layer_back(batch: int, out: int, wide: int, relu: bool) -> None:
    """The gradient by its inputs and its step, also of a batch that is too large for one program."""
    torch.manual_seed(0)
    g, x, weight = torch.randn(2, batch, out), torch.randn(2, batch, wide).relu(), torch.randn(2, out, wide)
    by_inputs, stepped = g.double() @ weight.double(), weight.double() - g.double().mT @ x.double()
    found = dense_back(g, x, weight, "ieee", relu=relu)
    wanted = torch.where(x > 0, by_inputs, 0) if relu else by_inputs
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(weight.double(), stepped, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")  # numpy's, of what is no number
@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_what_a_client_has_does_not_decide_how_exact_another_is(precision: str) -> None:
    """Huge images and infinite weights of the second leave the first's outputs and step as they were."""
    module = nn.Sequential(*copy.deepcopy(NETWORKS["pooled"]))
    chain = chain_of(module)
    assert chain is not None
    torch.manual_seed(0)
    images, at = torch.rand(6, 3, 4, 4), torch.tensor([[0, 2, 1], [5, 3, 3]])
    theta = {key: torch.randn(2, *value.shape) * 0.3 for key, value in module.named_parameters()}
    net, found = ConvNet(chain, images[:1], None, precision, 2), []
    for factor, weight in ((1.0, 1.0), (1e9, 1.0), (torch.nan, 1.0), (1.0, torch.inf)):
        x, moved = images.clone(), {key: value.clone() for key, value in theta.items()}
        x[3:] *= factor
        moved["0.weight"][1] *= weight
        outputs, kept = net.forward(moved, net.prepare(x, 2), at, 3)
        net.descend(moved, at, 3, 0.1 * outputs.softmax(2), kept)
        found.append([outputs[0], *(value[0] for value in moved.values())])
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            assert torch.equal(one, same)
