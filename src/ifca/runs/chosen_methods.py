"""The methods that are trained side by side: by name, and where each is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ifca.core.errors import InvalidInput
from ifca.methods import method_names
from ifca.methods.registry import usual_methods
from ifca.runs.complaints import did_you_mean
from ifca.runs.config import Config


def method_list(given: Sequence[str]) -> list[str]:
    """Names without repetition, from words with commas between them; refused: one alone, unknown ones."""
    names = list(dict.fromkeys(name.strip() for word in given for name in word.split(",") if name.strip()))
    for name in names:
        if ":" not in name and name not in method_names():
            near = did_you_mean(name, list(method_names())) or f" (known: {', '.join(method_names())})"
            raise InvalidInput(f"--methods {name}: there is no such method{near}")
    if len(names) < 2:
        said = ",".join(given) or '""'
        raise InvalidInput(f"--methods {said}: name two methods or more, such as ifca,global,local")
    return names


def with_methods(config: Config, methods: Sequence[str] | None) -> Config:
    """The config that trains these methods and no others; None: the usual ones, and the config's.

    The config's own method comes first, where it is among them; settings that are its alone (restarts, a warm
    start) are no other's.
    """
    if methods is None:
        return replace(config, baselines=usual_methods())
    names = method_list([methods] if isinstance(methods, str) else methods)
    if config.algorithm not in names:
        config = other_method(config, names[0])
    return replace(config, baselines=tuple(names))


def other_method(config: Config, algorithm: str) -> Config:
    """The same job by another method."""
    return replace(config, algorithm=algorithm, restarts=1, baselines=(), warm_start=None)


def folder_name(algorithm: str, beside: Sequence[str]) -> str:
    """What a method's folder is called: a user's own without its module, unless another has that name."""
    name = algorithm.rpartition(":")[2]
    alike = {other for other in beside if other.rpartition(":")[2] == name}
    return name if len(alike) < 2 or ":" not in algorithm else algorithm.replace(":", ".")
