"""Regimes on images: MNIST, scikit-learn's digits, features of CIFAR-10."""

from __future__ import annotations

from typing import Any

from ifca.bench.regimes import Partitioned, Regime, small_mlp, turns
from ifca.bench.sets import cifar_features, digits, mnist
from ifca.data import Deal, Federation, Population, mnist_writers

QUARTERS = (0, 90, 180, 270)
PERMUTED = Population(permutation="random")
EIGHT = (*turns(*QUARTERS), *turns(*QUARTERS, invert=True))
PLAIN = Population()


def _mnist(
    name: str, why: str, k: int, deal: Deal, populations: tuple[Population, ...], **recipe: Any
) -> Regime:
    made = Partitioned(mnist, deal, populations)
    return Regime(f"mnist-{name}", why, k, made, recipe, needs=("mnist",), populations=len(populations))


def _digits(
    name: str, why: str, k: int, deal: Deal, populations: tuple[Population, ...], **recipe: Any
) -> Regime:
    made = Partitioned(digits, deal, populations)
    return Regime(f"digits-{name}", why, k, made, recipe, small_mlp, populations=len(populations))


def _cifar(
    name: str, why: str, k: int, deal: Deal, populations: tuple[Population, ...], **recipe: Any
) -> Regime:
    made = Partitioned(cifar_features, deal, populations)
    return Regime(
        f"cifar-{name}", why, k, made, recipe, small_mlp, needs=("cifar10",), populations=len(populations)
    )


def _writers(seed: int) -> Federation:
    return mnist_writers(populations=False, test_share=0.2, seed=seed)


USUAL, SMALL = Deal(200, 100, 50), Deal(60, 50, 30)
MNIST = (
    _mnist("turned", "the paper's rotations", 4, USUAL, turns(*QUARTERS)),
    _mnist("turned-10", "a weak difference: 0 and 10 degrees", 2, Deal(300, 100, 50), turns(0, 10)),
    _mnist("turned-20", "weak differences in a row: 0, 20, 40, 60 degrees", 4, USUAL, turns(0, 20, 40, 60)),
    _mnist("permuted", "same inputs, other answers: one model fails", 4, USUAL, (PERMUTED,) * 4),
    _mnist(
        "label-groups",
        "each population has two classes of its own",
        5,
        USUAL,
        tuple(Population(labels=(c, c + 1)) for c in range(0, 10, 2)),
    ),
    _mnist(
        "dirichlet-0.3-turned",
        "label skew hides populations",
        4,
        Deal(300, 80, 50, alpha=0.3),
        turns(*QUARTERS),
    ),
    _mnist(
        "dirichlet-0.1-turned",
        "strong label skew over two turns",
        2,
        Deal(300, 80, 50, alpha=0.1),
        turns(0, 180),
    ),
    _mnist(
        "dirichlet-0.3", "label skew, no populations, k = 4 asked", 4, Deal(300, 80, 50, alpha=0.3), (PLAIN,)
    ),
    _mnist("bright-dim", "cameras: half of the light", 2, USUAL, (PLAIN, Population(gain=0.3))),
    _mnist(
        "rare",
        "60, 30, 9 and 1% of the clients",
        4,
        USUAL,
        tuple(Population(share, turn=a) for share, a in zip((60, 30, 9, 1), QUARTERS, strict=True)),
    ),
    _mnist(
        "few-6", "six sites with 1,000 samples, three label codes", 3, Deal(6, 1000, 300), (PERMUTED,) * 3
    ),
    _mnist("few-12", "twelve sites with 500 samples", 4, Deal(12, 500, 200), turns(*QUARTERS)),
    _mnist("many-small", "1,200 phones with 20 samples", 4, Deal(1200, 20, 20), turns(*QUARTERS)),
    _mnist(
        "part", "a tenth takes part in a round", 4, USUAL, turns(*QUARTERS), participation=0.1, rounds=120
    ),
    _mnist("too-many-k", "k = 12 for 8 populations", 12, Deal(240, 100, 50), EIGHT),
    _mnist("too-few-k", "k = 3 for 8 populations", 3, Deal(240, 100, 50), EIGHT),
    Regime(
        "mnist-writers",
        "natural clients: who wrote the digits; no truth is known",
        3,
        _writers,
        needs=("mnist", "mnist-writers"),
        populations=None,
    ),
)
DIGITS = (
    _digits("turned", "the default job", 4, Deal(112, 50, 20), turns(*QUARTERS)),
    _digits("swapped", "two of ten labels swapped", 2, SMALL, (PLAIN, Population(swap=(3, 8)))),
    _digits(
        "overlapping-labels",
        "populations share some of their classes",
        3,
        SMALL,
        tuple(Population(labels=some) for some in ((0, 1, 2, 3, 4), (3, 4, 5, 6, 7), (6, 7, 8, 9, 0))),
    ),
    _digits("alone-small", "no populations, 20 samples each, k = 4 asked", 4, Deal(70, 20, 30), (PLAIN,)),
    _digits("inverted", "white on black, black on white", 2, SMALL, (PLAIN, Population(invert=True))),
    _digits(
        "noise-blur",
        "devices: sharp, noisy, blurred",
        3,
        SMALL,
        (PLAIN, Population(noise=0.3), Population(blur=1.0, contrast=0.6)),
    ),
    _digits("wrong-labels", "30% wrong training labels", 2, SMALL, turns(0, 90, wrong_labels=0.3)),
    _digits("sizes", "lognormal sizes, sigma 1.2", 4, Deal(60, 30, 20, size_sigma=1.2), turns(*QUARTERS)),
    _digits(
        "dirichlet-1-turned", "mild label skew over turns", 4, Deal(80, 50, 30, alpha=1.0), turns(*QUARTERS)
    ),
    _digits(
        "dirichlet-0.1", "strong label skew, no populations, k = 3", 3, Deal(60, 50, 30, alpha=0.1), (PLAIN,)
    ),
    _digits(
        "two-classes",
        "two classes a client, no populations, k = 3",
        3,
        Deal(60, 50, 30, classes_per_client=2),
        (PLAIN,),
    ),
    _digits("dominant", "60% of one class, two turns", 2, Deal(60, 50, 30, dominant=0.6), turns(0, 180)),
    _digits("pair", "two sites with other label codes", 2, Deal(2, 400, 150), (PERMUTED,) * 2),
    _digits("one-alone", "one client unlike all others", 2, SMALL, (PLAIN, Population(clients=1, turn=180))),
    _digits(
        "gradient",
        "option I",
        4,
        Deal(112, 50, 20),
        turns(*QUARTERS),
        option="gradient",
        step_size=1.5,
        erm_step_size=0.1,
        rounds=300,
    ),
    _digits(
        "batches",
        "mini-batches of 10",
        4,
        Deal(80, 50, 20),
        turns(*QUARTERS),
        local_epochs=1,
        batch_size=10,
        step_size=0.3,
        rounds=40,
    ),
)
CIFAR = (
    _cifar(
        "swapped",
        "CLoVE's concept shift: two pairs of labels swapped in each population",
        4,
        Deal(80, 200, 50),
        tuple(
            Population(permutation=_swaps)
            for _swaps in (
                (3, 1, 2, 0, 4, 5, 6, 7, 9, 8),
                (0, 4, 2, 3, 1, 5, 9, 7, 8, 6),
                (0, 2, 1, 6, 4, 5, 3, 7, 8, 9),
                (0, 1, 2, 5, 7, 3, 6, 4, 8, 9),
            )
        ),
    ),
    _cifar(
        "label-groups",
        "four classes each, overlapping",
        3,
        Deal(60, 200, 50),
        tuple(Population(labels=some) for some in ((0, 1, 2, 3), (2, 3, 4, 5), (6, 7, 8, 9))),
    ),
)
