"""JSON, read only as what is expected: a schema names the fields, and a complaint names file and field."""

from __future__ import annotations

import importlib.util
import json
import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ifca.core.errors import Unreadable
from ifca.data.formats.whole_file import read_whole

if TYPE_CHECKING:  # a machine that only trains needs no pydantic
    from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")
MOST = 1 << 30  # bytes
ALTERED = "it was cut off or altered"


def read_json(file: Path, kind: type[T], advice: str = ALTERED) -> T:
    """A file of one JSON value of a kind. advice: how a complaint ends."""
    return parse_json(read_whole(file, MOST), str(file), kind, advice)


def parse_json(
    content: bytes | str, where: str, kind: type[T], advice: str = ALTERED, *, finite: bool = True
) -> T:
    """JSON as it stands there, checked to be of a kind (a TypedDict, say), which may have more keys.

    where: the file, or the file and the line, to be named. finite: NaN and Infinity, which are no JSON, are
    refused. pydantic's parser stops at a depth of 200, and takes no broken text.
    """
    try:
        if importlib.util.find_spec("pydantic") is None:  # a bare machine, which trains what was checked
            return cast(T, json.loads(content))
        from pydantic_core import from_json

        _of_kind(content, where, kind, advice)
        found: T = from_json(content, allow_inf_nan=not finite)
    except Unreadable:
        raise
    except (ValueError, RecursionError) as reason:
        raise Unreadable(f"{where}: not valid JSON ({_short(reason)}); {advice}") from None
    return found


def read_record(file: Path, kind: type[T], advice: str = ALTERED) -> T:
    """A file of one object, as an object of a dataclass."""
    return _of_kind(read_whole(file, MOST), str(file), kind, advice)


def _of_kind(content: bytes | str, where: str, kind: type[T], advice: str) -> T:
    from pydantic import ValidationError

    try:
        found: T = schema(cast(Any, kind)).validate_json(content, strict=True)
    except ValidationError as errors:
        raise Unreadable(f"{where}: {first_complaint(errors)}; {advice}") from None
    return found


@cache
def schema(kind: Any) -> TypeAdapter[Any]:
    """What checks values of a kind."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def first_complaint(errors: ValidationError) -> str:
    """The first of them in words: the field, what it must be, what it is."""
    error = errors.errors(include_url=False)[0]
    if error["type"] == "json_invalid":
        return f"not valid JSON ({_short(error['ctx']['error'])})"
    place = ".".join(_short(part, 40) for part in error["loc"])
    if error["type"] == "missing":
        return f"{place} is missing"
    what = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return f"{place} {_short(what)}, got {_short(repr(error['input']), 60)}".strip()


def _short(value: Any, most: int = 120) -> str:
    """One line of printable letters."""
    text = str(value).encode("utf-8", "backslashreplace").decode()
    text = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text[: most + 1])
    return text if len(text) <= most else f"{text[:most]}..."


def json_text(value: Any, indent: int | None = None) -> str:
    """A value as JSON, with null in place of numbers that are not finite."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except ValueError:  # such as the test loss of a last round that diverged
        return json.dumps(finite(value), indent=indent, allow_nan=False)


def finite(value: Any) -> Any:
    """The same with null in place of numbers that are not finite, which JSON cannot hold."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
