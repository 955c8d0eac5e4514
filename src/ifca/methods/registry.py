"""Methods by name: those of the package, and those that users register."""

from __future__ import annotations

from typing import Any

from ifca.core.averages import norm_layers, parameters_of
from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.methods.apfl import APFL
from ifca.methods.cfl import CFL
from ifca.methods.clove import CLOVE, CLOVE_AUTO
from ifca.methods.ditto import DITTO
from ifca.methods.fedbn import FEDBN
from ifca.methods.fedem import FEDEM
from ifca.methods.fedgroup import FEDGROUP
from ifca.methods.fedper import FEDPER, FEDREP
from ifca.methods.fedrc import FEDRC
from ifca.methods.giant import GIANT
from ifca.methods.global_model import GLOBAL
from ifca.methods.ifca import IFCA
from ifca.methods.ifca_plain import IFCA_PLAIN
from ifca.methods.local_models import LOCAL
from ifca.methods.mapper import MAPPER
from ifca.methods.method import FACTS, Method
from ifca.methods.mocha import MOCHA
from ifca.methods.one_shot import ONE_SHOT
from ifca.methods.per_fedavg import PER_FEDAVG, PER_FEDAVG_HF
from ifca.methods.sr_fca import SR_FCA
from ifca.methods.stocfl import STOCFL

_USUAL = (IFCA, IFCA_PLAIN, GLOBAL, LOCAL, ONE_SHOT, CLOVE)
_CLUSTERED = (CLOVE_AUTO, CFL, FEDGROUP, STOCFL, SR_FCA, GIANT)
_PERSONAL = (PER_FEDAVG, PER_FEDAVG_HF, DITTO, FEDPER, FEDREP, FEDBN, APFL, MAPPER, MOCHA, FEDEM, FEDRC)
_METHODS = {method.name: method for method in (*_USUAL, *_CLUSTERED, *_PERSONAL)}
BUILT_IN = tuple(_METHODS)


def register(method: Method) -> Method:
    """Make a method known by its name, to every front and engine of this process."""
    if method.name in BUILT_IN:
        raise InvalidInput(f"method {method.name} is the package's own; choose another name")
    _METHODS[method.name] = method
    return method


def method_of(name: str) -> Method:
    """The method of this name."""
    if name not in _METHODS:
        known = f"{', '.join(_METHODS)}, or package.module:NAME of your own"
        raise InvalidInput(f"algorithm must be one of {known}, got {name!r}")
    return _METHODS[name]


def method_names() -> tuple[str, ...]:
    """All that are known now."""
    return tuple(_METHODS)


def usual_methods() -> tuple[str, ...]:
    """Those that are compared where none are named: the paper's and the simplest rivals, and users' own."""
    others = {method.name for method in (*_CLUSTERED, *_PERSONAL)}
    return tuple(name for name in _METHODS if name not in others)


def facts_of(name: str) -> dict[str, Any]:
    """What reports need of a method; of one that is not known here, what is usual."""
    if name in _METHODS:
        return _METHODS[name].facts()
    usual = {"title": name, "about": name, "clustered": True}
    return {fact: usual.get(fact, False) for fact in FACTS}


def sends_models(recipe: Recipe) -> bool:
    """Whether a client's update is a model; else it is a change, such as a gradient."""
    return recipe.option == "model" and not method_of(recipe.algorithm).gradients


def shared_parameters(recipe: Recipe, names: list[str]) -> frozenset[str]:
    """The parameters that all clusters share; none where there is only one kind of model."""
    method = method_of(recipe.algorithm)
    kept = norm_layers(names) if recipe.batch_norm == "client" else frozenset()
    if method.shared is not None:
        return method.shared(recipe, names) - kept
    if not method.clustered:
        return frozenset()
    return parameters_of(names, recipe.shared)
