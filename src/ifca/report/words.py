"""Numbers and names in words, the same wherever a run is told of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

LARGE = ((1e6, "million"), (1e9, "billion"), (1e12, "trillion"))
RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def title_of(summary: dict[str, Any]) -> str:
    """The name of a run's method."""
    title: str = summary["method"]["title"]
    return title


def clusters_asked(summary: dict[str, Any]) -> int:
    """The clusters that a run could end with; older runs say only how many models it had room for."""
    most: int = summary.get("clusters_asked", summary["k"])
    return most


def percent(share: float | None, digits: int = 2) -> str:
    """95.89 %; a dash where it is unknown."""
    return "–" if share is None else f"{100 * share:.{digits}f} %"


def number(value: float | None) -> str:
    """Four digits that matter, without powers of ten as long as there are words for them."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    for least, word in LARGE:
        if least <= size < 1000 * least:
            return f"{value / least:.4g} {word}"
    if 9999.5 <= size < 1e6:
        return f"{value:,.0f}"
    if size == 0 or 1e-4 <= size < 9999.5:
        return f"{value:.4g}"
    digits, power = f"{value:.2e}".split("e")
    return f"{digits} × 10{str(int(power)).translate(RAISED)}"


def signed(text: str) -> str:
    """With a minus as long as a plus."""
    return text.replace("-", "−")


def count(n: int, one: str, many: str | None = None) -> str:
    """1 client, 2 clients."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def size_of(bytes_: float) -> str:
    """764 MB."""
    size = float(bytes_)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def duration(seconds: float) -> str:
    """2.5 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def listed(words: Sequence[object]) -> str:
    """a, b and c."""
    texts = [str(word) for word in words]
    return " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else "".join(texts)
