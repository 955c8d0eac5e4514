"""Flower as an engine: the client function runs at the clients, messages carry models and replies.

Needs the extra [flower]. Everything else of the library works without it. Names are imported when they are
asked for: who only administers a SuperLink does without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ifca.core.errors import TooFewClients
    from ifca.engines.flower.exchange import Exchange
    from ifca.engines.flower.faults import FaultLog
    from ifca.engines.flower.flower_engine import FlowerEngine
    from ifca.engines.flower.members import Member
    from ifca.engines.flower.roster import Roster
    from ifca.engines.flower.session import Session, Terms
else:
    _HOMES = {
        "Exchange": "ifca.engines.flower.exchange",
        "FaultLog": "ifca.engines.flower.faults",
        "FlowerEngine": "ifca.engines.flower.flower_engine",
        "Member": "ifca.engines.flower.members",
        "Roster": "ifca.engines.flower.roster",
        "Session": "ifca.engines.flower.session",
        "Terms": "ifca.engines.flower.session",
        "TooFewClients": "ifca.core.errors",
    }

    def __getattr__(name: str) -> Any:
        """A name, imported now."""
        if name not in _HOMES:
            raise AttributeError(f"module 'ifca.engines.flower' has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


__all__ = ["Exchange", "FaultLog", "FlowerEngine", "Member", "Roster", "Session", "Terms", "TooFewClients"]
