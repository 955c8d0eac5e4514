"""Commands that torchrun has started several times: one leads, the others follow it without a word."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ifca.core.errors import InvalidInput, RankLost

VERBS = ("run", "compare", "resume")
"""What may be started so."""


def check_launch(arguments: list[str]) -> None:
    """Refuse verbs that do not know of other processes; only one of these says so."""
    verb = next((word for word in arguments if not word.startswith("-")), None)
    if _size() < 2 or verb is None or verb in VERBS:
        return
    if int(os.environ.get("RANK", "0")) > 0:
        sys.exit(InvalidInput.code)
    raise InvalidInput(f"torchrun starts 'ifca {', '.join(VERBS[:-1])}' and '{VERBS[-1]}', not '{verb}'")


@contextmanager
def among_ranks() -> Iterator[bool]:
    """Whether this process is to do the work: alone, or as the one that leads. Others follow it in here."""
    if _size() < 2:
        yield True
        return
    from ifca.engines.ranks import joined
    from ifca.runs.on_ranks import follow

    with joined() as ranks:
        if not ranks.leads:
            try:
                follow(ranks)
            except RankLost:
                if ranks.rank == 1:  # the one that leads may be the one that is lost
                    raise
                sys.exit(RankLost.code)
        yield ranks.leads


def _size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))
