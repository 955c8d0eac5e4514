"""How many clusters a run looks for: the number of its config, or as many as the referee finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator

from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.runs.auto_rounds import rounds_of

if TYPE_CHECKING:
    from ifca.methods import Method

AUTO: Literal["auto"] = "auto"
MOST = 10
"""Clusters that auto looks for, at most. While the referee judges, every client is sent a model for each
group, and every two groups need samples enough to be told apart: who expects more clusters says how many."""


def _number_or_auto(value: Any) -> Any:
    if value is None or value == AUTO or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise InvalidInput(f'k must be a whole number or "auto", got {value!r}')


K = Annotated[int | Literal["auto"] | None, BeforeValidator(_number_or_auto)]
"""The k of a config; None: left out."""


def recipe_of(given: Mapping[str, Any], m: int) -> Recipe:
    """The recipe of a config's keys, or of the arguments of Python, for m clients."""
    from ifca.methods import method_of

    values = {field.name: given[field.name] for field in fields(Recipe)}
    k = most_clusters(given["k"], method_of(given["algorithm"]), m)
    return Recipe(**values | {"k": k} | rounds_of(given))


def most_clusters(k: int | str | None, method: Method, m: int) -> int:
    """The k of a recipe: of methods with a referee the most. m: number of clients.

    Left out, k is auto for methods with a referee, and what recipes have by default for others.
    """
    number = _number_or_auto(k)
    if isinstance(number, int):
        return number
    if method.at_most_k:
        return min(m, MOST)
    if not method.clustered or number is None:
        return Recipe.k
    from ifca.methods import method_names, method_of

    able = ", ".join(name for name in method_names() if method_of(name).at_most_k)
    raise InvalidInput(f'k: {method.name} needs a number of clusters; "auto" is for {able}')
