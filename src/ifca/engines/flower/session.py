"""What the engines of one run share, and the terms of its federation."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from ifca.engines.flower.exchange import Exchange
from ifca.engines.flower.faults import FaultLog
from ifca.engines.flower.roster import Roster


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
    say: Callable[[str], None] = logging.getLogger("ifca.federation").info  # to whoever runs the server
    preparation: str = ""  # how clients prepare their tables, as JSON; empty: they have arrays
