"""Models by name, and the one that `auto` takes for some data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from ifca.core.errors import InvalidInput
from ifca.models.networks import cifar_cnn, cnn, femnist_cnn, linear, logistic, mlp

NAMES = ("linear", "logistic", "mlp", "cnn", "cifar-cnn", "femnist-cnn")
HIDDEN = (200,)  # of mlp where nothing else is said: the paper's for MNIST
SMALLEST = 16  # height and width from which on images are worth convolutions
NARROWEST, WIDEST = 8, 128  # hidden layer of a table's mlp; narrower ones give way to linear models
SAMPLES = 2  # of training to a parameter of that mlp


@dataclass(frozen=True)
class BuiltIn:
    """One of ifca's own models: called, it gives a freshly initialised module."""

    name: str
    shape: tuple[int, ...]  # of a sample
    outputs: int
    hidden: tuple[int, ...] = ()  # widths of mlp's hidden layers
    intercept: bool = True  # of linear

    def __call__(self) -> nn.Module:
        """Make it."""
        inputs, outputs = math.prod(self.shape), self.outputs
        makers: dict[str, Callable[[], nn.Module]] = {
            "linear": lambda: linear(inputs, outputs, bias=self.intercept),
            "logistic": lambda: logistic(inputs, outputs),
            "mlp": lambda: mlp(inputs, outputs, self.hidden),
            "cnn": lambda: cnn(self.shape, outputs),
            "cifar-cnn": lambda: cifar_cnn(outputs),
            "femnist-cnn": lambda: femnist_cnn(outputs),
        }
        return makers[self.name]()

    @property
    def source(self) -> str:
        """The call that makes it, as a line of Python, of a function of ifca.models."""
        first: Any = self.shape if self.name == "cnn" else math.prod(self.shape)
        more = {"linear": f", bias={self.intercept}", "mlp": f", {self.hidden}"}.get(self.name, "")
        sized = self.name not in ("cifar-cnn", "femnist-cnn")
        given = f"{first}, {self.outputs}{more}" if sized else f"{self.outputs}"
        return f"{self.name.replace('-', '_')}({given})"

    def to_json(self) -> dict[str, Any]:
        """For a file's header, which has shape and outputs already."""
        return {"name": self.name, "hidden": list(self.hidden), "intercept": self.intercept}

    @classmethod
    def from_json(cls, content: dict[str, Any], shape: tuple[int, ...], outputs: int) -> BuiltIn:
        """The inverse of to_json."""
        return cls(content["name"], shape, outputs, tuple(content["hidden"]), content["intercept"])


def choose_model(
    name: str,
    hidden: tuple[int, ...] | None,
    shape: tuple[int, ...],
    outputs: int,
    *,
    regression: bool,
    pixels: bool,
    samples: int,
    through_origin: bool = False,
) -> BuiltIn:
    """The model of a name; "auto": by the data.

    shape: of a sample; samples: to train on, of all clients; through_origin: a linear model needs no
    intercept. auto takes for images (3-dimensional samples, or square ones of bytes, from 16 x 16 on) cnn;
    for tables an mlp whose hidden layer is as wide as two training samples for each parameter allow (a power
    of two, at most 128), and below 8 linear or logistic; for everything else mlp.
    """
    if name == "auto":
        name, hidden = _auto(hidden, shape, outputs, regression, pixels, samples, through_origin)
    if name not in NAMES:
        raise InvalidInput(
            f"model.name: unknown model {name} (known: {', '.join(NAMES)}, or module:function)"
        )
    if regression and name in ("logistic", "cifar-cnn", "femnist-cnn"):
        raise InvalidInput(
            f"model.name is {name}, which classifies, but the targets y are floats (regression)"
        )
    if name == "cnn" and (len(shape) not in (2, 3) or not _is_large(shape, 4)):
        raise InvalidInput(f"model.name is cnn, which needs images of 4 x 4 or more, but samples are {shape}")
    layers = tuple(hidden or HIDDEN) if name == "mlp" else ()
    return BuiltIn(name, shape, outputs, layers, intercept=not through_origin)


def _auto(
    hidden: tuple[int, ...] | None,
    shape: tuple[int, ...],
    outputs: int,
    regression: bool,
    pixels: bool,
    samples: int,
    through_origin: bool,
) -> tuple[str, tuple[int, ...] | None]:
    if through_origin and regression:
        return "linear", None
    if hidden is not None:
        return "mlp", hidden
    square = len(shape) == 2 and shape[0] == shape[1] and pixels
    if (square or len(shape) == 3) and _is_large(shape, SMALLEST):
        return "cnn", None
    if len(shape) > 1:
        return "mlp", None
    width = samples // (SAMPLES * (math.prod(shape) + outputs))
    if width < NARROWEST:
        return ("linear" if regression else "logistic"), None
    return "mlp", (min(WIDEST, 2 ** int(math.log2(width))),)


def _is_large(shape: tuple[int, ...], least: int) -> bool:
    """Whether height and width are at least so; shape: of an image, its channels first or last."""
    return sorted(shape)[-2] >= least
