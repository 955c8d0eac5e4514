"""The Triton kernels of the CUDA path on a CPU, by Triton's interpreter, against plain torch in float64.

A wrong kernel cannot pass where there is no GPU. tests/__init__.py asks for the interpreter.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn.functional import cross_entropy

from ifca.core.types import Params
from ifca.engines.cuda.chain import chain_of
from ifca.engines.cuda.convnet import ConvNet
from ifca.models.networks import ResponseNorm

pytest.importorskip("triton", reason="Triton has wheels for Linux only")
if torch.cuda.is_available():  # pragma: no cover
    pytest.skip("kernels are compiled here: tests/test_cuda.py", allow_module_level=True)
from ifca.engines.cuda import fused_kernels as kernels

M, D, H, C, K, TAU, GAMMA = 3, 7, 20, 3, 2, 3, 0.3


def network(seed: int) -> Params:
    """K models of one hidden layer, in float64."""
    torch.manual_seed(seed)
    shapes = {"w1": (K, H, D), "b1": (K, H), "w2": (K, C, H), "b2": (K, C)}
    return {name: torch.randn(shape, dtype=torch.float64) * 0.4 for name, shape in shapes.items()}


def clients(n: int) -> tuple[Tensor, Tensor]:
    """Samples of M clients [M, n, D] from 0 to 1, and their classes."""
    torch.manual_seed(n)
    return torch.randint(256, (M, n, D)).double() / 255, torch.randint(C, (M, n))


def hidden(theta: Params, x: Tensor) -> Tensor:
    """Of every sample under every model: [M n, K H]."""
    return torch.cat([x.flatten(0, 1) @ theta["w1"][j].T + theta["b1"][j] for j in range(K)], 1)


@pytest.mark.parametrize("n", [5, 130])
def test_losses_of_every_sample_under_every_model(n: int) -> None:
    theta, (x, y) = network(0), clients(n)
    z, weight = hidden(theta, x), torch.rand(M, n)
    found = kernels.row_losses(
        z.float() / 8,
        torch.tensor(8.0),
        theta["w2"].float(),
        theta["b2"].float(),
        y.int().contiguous(),
        weight,
    )
    for j in range(K):
        logits = z[:, j * H : (j + 1) * H].relu() @ theta["w2"][j].T + theta["b2"][j]
        expected = cross_entropy(logits, y.flatten(), reduction="none") * weight.flatten()
        torch.testing.assert_close(found[j].double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [40, 70])  # one tile of rows; two, of which one is short
def test_all_local_steps_of_all_clients(n: int) -> None:
    """Sums of the steps' gradients, against autograd step by step."""
    theta, (x, y) = network(1), clients(n)
    identity, place = torch.tensor([1, 0, 1]), torch.tensor([1, 0, 2])
    parts = torch.zeros(2, M, *kernels.gram_shape(n), dtype=torch.float16)
    scale = kernels.power_of_two(torch.tensor(D + 1.0), 1024.0)
    kernels.split_gram((x @ x.transpose(1, 2) + 1).float(), scale, n, parts)
    weight, scales = torch.full((M, n), 1 / n), torch.tensor([1.0, 2.0, 1.0])
    sums, unit, out, out_bias = kernels.local_steps(
        hidden(theta, x).float(),
        torch.tensor(1.0),
        (parts, scale),
        theta["w2"].float(),
        theta["b2"].float(),
        y.int().contiguous(),
        weight,
        identity,
        place,
        scales,
        torch.tensor(GAMMA),
        TAU,
        lambda _name, shape, dtype=torch.float32: torch.zeros(shape, dtype=dtype),
    )
    for i in range(M):
        first, last, bias = stepped({name: value[identity[i]] for name, value in theta.items()}, x[i], y[i])
        rows = sums[place[i] * n : (place[i] + 1) * n].double()
        mine = (rows[:, :H] + rows[:, H:]) / unit
        torch.testing.assert_close(mine, scales[i] * first, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(out[i].double(), last, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(out_bias[i].double(), bias, rtol=1e-4, atol=1e-6)


def stepped(model: Params, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sums over TAU steps of the gradients by the hidden layer's inputs [n, H], by w2 and by b2."""
    first, last, bias = torch.zeros(len(x), H).double(), torch.zeros(C, H).double(), torch.zeros(C).double()
    for _ in range(TAU):
        w1, b1, w2, b2 = (model[name].clone().requires_grad_() for name in ("w1", "b1", "w2", "b2"))
        z = x @ w1.T + b1
        loss = cross_entropy(z.relu() @ w2.T + b2, y)
        slopes = torch.autograd.grad(loss, [w1, b1, w2, b2, z])
        first, last, bias = first + slopes[4], last + slopes[2], bias + slopes[3]
        model = {
            name: model[name] - GAMMA * slope
            for name, slope in zip(("w1", "b1", "w2", "b2"), slopes[:4], strict=True)
        }
    return first, last, bias


NETWORKS = {
    "pooled": [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3)],
    "normed": [
        *[nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2, 1), ResponseNorm(16, alpha=1.0)],
        *[nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), ResponseNorm(16, alpha=1.0), nn.MaxPool2d(2)],
        *[nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)],
    ],
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_of_many_clients_convolutions(name: str) -> None:
    """Outputs and a gradient step of two clients, each with weights of its own, against autograd."""
    module = nn.Sequential(*NETWORKS[name])
    chain = chain_of(module)
    assert chain is not None
    torch.manual_seed(0)
    images = torch.rand(5, 3 if name == "pooled" else 1, 4, 4)
    at, y = torch.tensor([[0, 3, 1], [4, 2, 2]]), torch.tensor([[0, 1, 2], [2, 1, 0]])
    theta = {key: torch.randn(2, *value.shape) * 0.3 for key, value in module.named_parameters()}
    net = ConvNet(chain, images[:1], None, "ieee")
    moved = {key: value.clone() for key, value in theta.items()}
    outputs, kept = net.forward(moved, net.prepare(images), at)
    slope = (outputs.softmax(2) - nn.functional.one_hot(y, 3)) / 3
    net.descend(moved, at, 0.1 * slope, kept)
    wide = module.double()
    for i in range(2):
        x, own = images[at[i]].double(), {key: value[i].double() for key, value in theta.items()}
        torch.testing.assert_close(outputs[i].double(), functional_call(wide, own, x), rtol=1e-4, atol=1e-5)

        def loss(model: Params, x: Tensor = x, y: Tensor = y[i]) -> Tensor:
            return cross_entropy(functional_call(wide, model, x), y)

        for key, value in grad(loss)(own).items():
            expected = own[key] - 0.1 * value
            torch.testing.assert_close(moved[key][i].double(), expected, rtol=1e-4, atol=1e-5)
