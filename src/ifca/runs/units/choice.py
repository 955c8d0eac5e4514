"""Which units: options of a command line."""

from __future__ import annotations

from ifca.core.errors import InvalidInput


def chosen_seeds(text: str | None) -> range | None:
    """first:end as of a Python range; nothing: all of the experiment's."""
    if text is None:
        return None
    first, _, end = text.partition(":")
    if not (first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise InvalidInput(f"seeds must be first:end with first < end, such as 0:5, got {text}")
    return range(int(first), int(end))


def chosen_names(text: str | None) -> tuple[str, ...]:
    """Names with commas between them; nothing: all."""
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else ()
