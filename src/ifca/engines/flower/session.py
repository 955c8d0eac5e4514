"""What the engines of one run share, and the terms of its federation."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from ifca.engines.flower.exchange import Exchange
from ifca.engines.flower.faults import FaultLog
from ifca.engines.flower.roster import Roster

ROOM = 4 * 2**20  # bytes of a reply beside its model: losses, names, a description


@dataclass(frozen=True)
class Terms:
    """[federation] of the config, as far as an engine needs it."""

    min_clients: int = 1
    attempts: int = 3
    pause: float = 1.0  # seconds before a round is repeated
    half: bool = False


@dataclass
class Session:
    """What the engines of one run share: the exchange, who is where, what went wrong, bytes of evaluation."""

    exchange: Exchange
    roster: Roster
    terms: Terms = field(default_factory=Terms)
    faults: FaultLog = field(default_factory=FaultLog)
    update_roster: Callable[[int, bool], None] = lambda _t, _joining: None  # round, may new clients join
    left_out: frozenset[str] = frozenset()  # clients that are not asked any more
    evaluation_bytes: int = 0
    on_largest: Callable[[int], None] = lambda _size: None  # told how large replies may be
    say: Callable[[str], None] = logging.getLogger("ifca.federation").info  # to whoever runs the server
    preparation: str = ""  # how clients prepare their tables, as JSON; empty: they have arrays

    def expect(self, size: int) -> None:
        """Replies are about so many bytes from now on; what is much larger is not read."""
        largest = 2 * size + ROOM
        if self.exchange.receiver.largest != largest:
            self.exchange.receiver.largest = largest
            self.on_largest(largest)
