"""Flower as an engine: the client function runs at the clients, messages carry models and replies.

Needs the extra [flower]. Everything else of the library works without it.
"""

from ifca.core.errors import TooFewClients
from ifca.engines.flower.exchange import Exchange
from ifca.engines.flower.faults import FaultLog
from ifca.engines.flower.flower_engine import FlowerEngine
from ifca.engines.flower.members import Member
from ifca.engines.flower.roster import Roster
from ifca.engines.flower.session import Session, Terms

__all__ = ["Exchange", "FaultLog", "FlowerEngine", "Member", "Roster", "Session", "Terms", "TooFewClients"]
