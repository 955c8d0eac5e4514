"""Attacks of hostile clients, to rehearse a federation against: what they send, given what they know."""

from __future__ import annotations

from ifca.core.attacks.attack import Attack, Block, Kind, Seen
from ifca.core.attacks.attack_names import KINDS, kind_of
from ifca.core.attacks.attackers import attackers

__all__ = ["KINDS", "Attack", "Block", "Kind", "Seen", "attackers", "kind_of"]
