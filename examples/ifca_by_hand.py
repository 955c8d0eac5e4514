"""Algorithm 2 of the paper by hand: no engine, no vectorisation, one client after the other.

    python examples/ifca_by_hand.py             option II, averages of models
    python examples/ifca_by_hand.py --gradient  option I, averages of gradients

Only the data, the network and the draw of the initial models come from the library; the rest is plain
torch. A test checks that the library gives the same models and the same clusters.

A start can lose or mix a cluster: with --seed 0 or 1 option II does, and option I on this network does from
each of the seeds 0 to 5. The library's restarts are for that.
"""

from __future__ import annotations

import argparse
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from ifca.core.initial import random_models
from ifca.data import Federation, rotated_digits
from ifca.models import make_draw, mlp

Model = dict[str, Tensor]
Samples = tuple[Tensor, Tensor]  # x [n, ...], y [n]


def F_i(network: nn.Module, theta: Model, samples: Samples) -> Tensor:  # noqa: N802, the paper's name
    """The empirical loss of worker machine i: the mean of f(theta; z) over its samples."""
    x, y = samples
    return F.cross_entropy(functional_call(network, theta, (x,)), y)


def gradient(network: nn.Module, theta: Model, samples: Samples) -> Model:
    """The gradient of F_i at theta, by autograd."""
    theta = {name: value.detach().requires_grad_() for name, value in theta.items()}
    g = torch.autograd.grad(F_i(network, theta, samples), list(theta.values()))
    return dict(zip(theta, g, strict=True))


def local_update(network: nn.Module, theta: Model, gamma: float, tau: int, samples: Samples) -> Model:
    """LocalUpdate(theta, gamma, tau): tau gradient steps on the worker machine's own samples."""
    for _q in range(tau):
        g = gradient(network, theta, samples)
        theta = {name: value - gamma * g[name] for name, value in theta.items()}
    return theta


def estimate(network: nn.Module, theta: list[Model], samples: Samples) -> tuple[int, float]:
    """The cluster identity j-hat = argmin_j F_i(theta_j), and the loss there."""
    with torch.no_grad():
        losses = torch.stack([F_i(network, theta_j, samples) for theta_j in theta])
    j_hat = int(losses.argmin())
    return j_hat, float(losses[j_hat])


def ifca_by_hand(
    federation: Federation,
    k: int,
    rounds: int,
    step_size: float,
    local_steps: int,
    option: Literal["model", "gradient"] = "model",
    seed: int = 0,
) -> tuple[Model, Tensor]:
    """IFCA with all worker machines in every round; returns the k models [k, ...] and the identities [m]."""
    gamma, tau, m = step_size, local_steps, len(federation.train)
    inputs = int(torch.Size(federation.input_shape).numel())
    network = mlp(inputs, federation.outputs)  # only its form is used; its weights are passed in as theta
    workers = [federation.train.one(i, torch.device("cpu"), torch.float32)[:2] for i in range(m)]

    # Line 1: k different initial models theta_j^(0).
    stacked = random_models(
        make_draw(lambda: mlp(inputs, federation.outputs)), k, seed, restart=0, shared=frozenset()
    )
    theta = [{name: value[j] for name, value in stacked.items()} for j in range(k)]

    for t in range(rounds):  # lines 2 to 16; line 3, broadcast: every worker machine sees theta
        s, losses, sent = [], [], []  # what the center machine receives
        for z_i in workers:  # lines 4 and 5: M_t is everybody
            j_hat, loss = estimate(network, theta, z_i)  # line 6
            s.append(j_hat)  # line 7: the place of the 1 in the one-hot vector s_i
            losses.append(loss)
            if option == "gradient":  # lines 8 and 9
                sent.append(gradient(network, theta[j_hat], z_i))
            else:  # lines 10 and 11
                sent.append(local_update(network, theta[j_hat], gamma, tau, z_i))

        for j in range(k):  # line 13, center machine
            members = [sent[i] for i in range(m) if s[i] == j]
            if not members:
                continue  # nobody chose model j: it stays as it is
            total = {name: torch.stack([one[name] for one in members]).sum(0) for name in stacked}
            if option == "gradient":  # line 14
                theta[j] = {name: value - gamma / m * total[name] for name, value in theta[j].items()}
            else:  # line 15
                theta[j] = {name: value / len(members) for name, value in total.items()}

        sizes = " ".join(f"{s.count(j):3d}" for j in range(k))
        print(f"round {t + 1:3d}  training loss {sum(losses) / m:.4f}  cluster sizes {sizes}")

    # Line 17. The models have moved since they were last chosen, so every worker machine chooses once more.
    labels = torch.tensor([estimate(network, theta, z_i)[0] for z_i in workers])
    return {name: torch.stack([theta_j[name] for theta_j in theta]) for name in stacked}, labels


def main() -> None:
    """Rotated Digits: four rotations, which nobody tells the algorithm."""
    arguments = argparse.ArgumentParser(description="IFCA by hand on Rotated Digits")
    arguments.add_argument("--gradient", action="store_true", help="option I instead of option II")
    arguments.add_argument("--seed", type=int, default=2, help="decides the initial models")
    given, federation = arguments.parse_args(), rotated_digits(samples=50)
    if given.gradient:
        _, labels = ifca_by_hand(federation, 4, 100, 1.0, 1, option="gradient", seed=given.seed)
    else:
        _, labels = ifca_by_hand(federation, 4, 20, 0.1, 10, option="model", seed=given.seed)
    true = torch.as_tensor(federation.train.true_cluster)
    for angle in (0, 90, 180, 270):
        counts = torch.bincount(labels[true == angle], minlength=4).tolist()
        print(f"turned by {angle:3d} degrees: clients in clusters 0 to 3: {counts}")


if __name__ == "__main__":
    main()
