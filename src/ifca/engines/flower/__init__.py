"""Flower as an engine: the client function runs at the clients, messages carry models and replies.

Needs the extra [flower]. Everything else of the library works without it.
"""

from ifca.engines.flower.client import Site, make_client_app, one_client
from ifca.engines.flower.desk import Desk, Terms
from ifca.engines.flower.engine import FlowerEngine
from ifca.engines.flower.faults import FaultLog, TooFewClients
from ifca.engines.flower.mail import Mail
from ifca.engines.flower.roster import Member, Roster

__all__ = [
    "Desk",
    "FaultLog",
    "FlowerEngine",
    "Mail",
    "Member",
    "Roster",
    "Site",
    "Terms",
    "TooFewClients",
    "make_client_app",
    "one_client",
]
