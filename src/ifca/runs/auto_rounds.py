"""How many rounds a run does: the number of its config, or until the held-out loss no longer falls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from ifca.core.errors import InvalidInput

AUTO = "auto"
MOST = 500
"""Rounds that auto does, at most. Who needs more gives the number and early_stopping."""


def _number_or_auto(value: Any) -> Any:
    if value == AUTO or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise InvalidInput(f'rounds must be a whole number or "auto", got {value!r}')


Rounds = Annotated[int | Literal["auto"], BeforeValidator(_number_or_auto)]
"""The rounds of a config."""


def rounds_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a recipe that rounds decides, from those of a config or the arguments of Python."""
    rounds = _number_or_auto(given["rounds"])
    return {"rounds": MOST, "early_stopping": True} if rounds == AUTO else {"rounds": rounds}
