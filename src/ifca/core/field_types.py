"""Fields of a record hold what their annotations say."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any, get_type_hints

from ifca.core.errors import InvalidInput


def check_types(record: object) -> None:
    """A typo in a name or a number of the wrong kind must not pass silently."""
    if importlib.util.find_spec("pydantic") is None:  # a bare machine, which trains what was checked
        return
    from pydantic import ValidationError

    try:
        _model(type(record)).model_validate(vars(record))  # type: ignore[arg-type]
    except ValidationError as found:
        error = found.errors()[0]
        wanted = error["msg"].removeprefix("Input should be ").replace("a valid ", "of type ")
        raise InvalidInput(f"{error['loc'][0]} must be {wanted}, got {error['input']!r}") from None


@cache
def _model(kind: type) -> Any:
    """The fields of a record as pydantic checks them: no number becomes another kind."""
    from pydantic import ConfigDict, create_model

    fields: dict[str, Any] = {name: (hint, ...) for name, hint in get_type_hints(kind).items()}
    return create_model(kind.__name__, __config__=ConfigDict(strict=True), **fields)
