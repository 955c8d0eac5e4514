"""What the data of a run could not decide, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

DOUBT = 0.1  # p of a loss that chance alone explains less often


def undecided(
    events: Sequence[dict[str, Any]] | None, live: int, sizes: NDArray[np.int64], alpha: float
) -> str | None:
    """Of clusters that became one although their clients lose by it, but not beyond doubt; None: of none.

    events: the referee's; live: clusters in the end; sizes: [m] samples of each client; alpha: the recipe's.
    """
    merged = [one for one in events or [] if one["event"] == "merged"]
    doubtful = [one for one in merged if one.get("loses", 0.0) > 0 and one["p"] < DOUBT]
    if not doubtful:
        return None
    least, most = int(sizes.min()), int(sizes.max())
    samples = f"{least} samples" if least == most else f"{least} to {most} samples"
    most_at_once = _most_at_once(events or [], doubtful)
    more = f"{live + 1}" if most_at_once == 1 else f"{live + 1} to {live + most_at_once}"
    closest = min(doubtful, key=lambda one: float(one["p"]))
    return (
        f"{len(sizes)} clients, {samples} each: the data cannot tell {live} from {more} clusters at level "
        f"{alpha:g} (one model for two groups costs {closest['loses']:.2g} a sample, p = {closest['p']:.2g})"
    )


def _most_at_once(events: Sequence[dict[str, Any]], doubtful: list[dict[str, Any]]) -> int:
    """The most of them between two partings: each parting asks the same question again."""
    counts = [0]
    for one in events:
        if one["event"] == "parted":
            counts.append(0)
        counts[-1] += one in doubtful
    return max(counts)
