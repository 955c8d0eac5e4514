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


def parse_range(text: str) -> range:
    """1:6 is every k from 1 to 6; 4 is 4 alone."""
    first, colon, last = text.partition(":")
    try:
        low, high = int(first), int(last if colon else first)
    except ValueError:
        raise InvalidInput(f"--k {text}: expected two whole numbers, such as 1:6") from None
    if low < 1:
        raise InvalidInput(f"--k {text}: k must be at least 1, got {low}")
    if high < low:
        raise InvalidInput(f"--k {text}: the range is empty, {high} is less than {low}")
    return range(low, high + 1)
