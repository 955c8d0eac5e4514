"""The experiments by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ifca.core.errors import InvalidInput

if TYPE_CHECKING:
    import torch

    from ifca.paper.frame import Experiment
    from ifca.runs.units.unit import Line, Unit

MODULES = {
    **{f"synthetic-{panel}": "success" for panel in "abcd"},
    "rotated-mnist": "table1_mnist",
    "rotated-cifar": "table1_cifar",
    "femnist": "table2_femnist",
    "cluster-accuracy": "cluster_accuracy",
    "theory-linear": "theory_linear",
    "theory-convex": "theory_convex",
    "initialisation": "initialisation",
    "communication": "communication",
    "collapse": "collapses",
}
"""Name -> module of this package, which holds it as EXPERIMENTS[name]; imported when it is asked for."""


def experiment(name: str) -> Experiment:
    """The experiment of this name."""
    if name not in MODULES:
        raise InvalidInput(f"unknown experiment {name} (known: {', '.join(MODULES)})")
    found: Experiment = import_module(f"ifca.paper.{MODULES[name]}").EXPERIMENTS[name]
    return found


def run_unit_of(unit: Unit, device: torch.device) -> Line:
    """A unit of whichever experiment, in whichever process."""
    return experiment(unit.experiment).run(unit, device)
