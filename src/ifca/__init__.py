"""Clustered federated learning: IFCA, its baselines, its experiments.

Every public name is imported when it is first asked for: 'import ifca' itself brings no torch.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers read; a test compares it with _HOMES
    from ifca.core.callbacks import Callback, StopTraining
    from ifca.core.errors import Diverged, FewerClustersWarning, IFCAError, InvalidInput, StepHalvedWarning
    from ifca.core.recipe import Recipe
    from ifca.data import (
        Client,
        Deal,
        Federation,
        Population,
        femnist,
        mixture_of_regressions,
        mnist_writers,
        partition,
        read_client,
        read_folder,
        rotated_cifar,
        rotated_digits,
        rotated_mnist,
        write_client,
    )
    from ifca.estimator import IFCA, open_run
    from ifca.methods import Aggregation, Method, register, register_aggregation
    from ifca.runs.choose_k import choose_k
    from ifca.runs.config import Config, read_config
    from ifca.runs.run import compare, resume, run
    from ifca.use.tune_front import tune
else:

    def __getattr__(name: str) -> Any:
        """A public name, imported now."""
        if name not in _HOMES:
            raise AttributeError(f"module 'ifca' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOMES})


def _let_threads_sleep() -> None:
    """Threads that wait for each other turn in circles for microseconds and then sleep: where other programs
    keep the cores busy, those that turn in circles for long can wait for a processor for minutes
    (benchmarks/busy.py). Read when torch is imported.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & set(os.environ):
        os.environ |= {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "10000"}


_let_threads_sleep()
__version__ = "0.1.0"  # the one place: pyproject.toml reads it from here

_HOMES = {
    "Aggregation": "ifca.methods",
    "Callback": "ifca.core.callbacks",
    "Client": "ifca.data",
    "Config": "ifca.runs.config",
    "Deal": "ifca.data",
    "Diverged": "ifca.core.errors",
    "Federation": "ifca.data",
    "FewerClustersWarning": "ifca.core.errors",
    "IFCA": "ifca.estimator",
    "IFCAError": "ifca.core.errors",
    "InvalidInput": "ifca.core.errors",
    "Method": "ifca.methods",
    "Population": "ifca.data",
    "Recipe": "ifca.core.recipe",
    "StepHalvedWarning": "ifca.core.errors",
    "StopTraining": "ifca.core.callbacks",
    "choose_k": "ifca.runs.choose_k",
    "compare": "ifca.runs.run",
    "femnist": "ifca.data",
    "mixture_of_regressions": "ifca.data",
    "mnist_writers": "ifca.data",
    "open_run": "ifca.estimator",
    "partition": "ifca.data",
    "read_client": "ifca.data",
    "read_config": "ifca.runs.config",
    "read_folder": "ifca.data",
    "register": "ifca.methods",
    "register_aggregation": "ifca.methods",
    "resume": "ifca.runs.run",
    "rotated_cifar": "ifca.data",
    "rotated_digits": "ifca.data",
    "rotated_mnist": "ifca.data",
    "run": "ifca.runs.run",
    "tune": "ifca.use.tune_front",
    "write_client": "ifca.data",
}
"""Public name -> the module that it is taken from."""

__all__ = [
    "IFCA",
    "Aggregation",
    "Callback",
    "Client",
    "Config",
    "Deal",
    "Diverged",
    "Federation",
    "FewerClustersWarning",
    "IFCAError",
    "InvalidInput",
    "Method",
    "Population",
    "Recipe",
    "StepHalvedWarning",
    "StopTraining",
    "choose_k",
    "compare",
    "femnist",
    "mixture_of_regressions",
    "mnist_writers",
    "open_run",
    "partition",
    "read_client",
    "read_config",
    "read_folder",
    "register",
    "register_aggregation",
    "resume",
    "rotated_cifar",
    "rotated_digits",
    "rotated_mnist",
    "run",
    "tune",
    "write_client",
]
