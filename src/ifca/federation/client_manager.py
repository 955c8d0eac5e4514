"""Which clients are connected: wait for them, ask new nodes who they are, find those that came back."""

from __future__ import annotations

import time

from flwr.app import Message

from ifca.engines.flower import Member, Session, TooFewClients
from ifca.engines.flower.roster import member_of, query_members

QUERY_TIMEOUT = 60.0  # seconds; a node that takes longer joins when its reply comes


class Joined(Exception):
    """A client came that the run does not know yet: the rounds go on with it, from the last checkpoint."""


class ClientManager:
    """Keeps the roster of a session up to date with the nodes that are connected."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._known: set[int] = set()  # connected nodes that were asked who they are, and replied
        self._new: list[Member] = []  # clients that are not in the roster yet
        self._name_in_use: list[Member] = []  # clients whose name another node has
        session.exchange.on_late = self._late_reply

    def wait_for(self, clients: int, timeout: float) -> None:
        """Until so many clients are connected; given up when no new one has joined for timeout seconds."""
        most, last_joined = 0, time.monotonic()
        while True:
            self._query_new_nodes(0)
            self._join(self._new, 0)
            self._new = []
            here = sum(member.node in self._known for member in self.session.roster.members)
            if here >= clients:
                return
            if here > most:
                most, last_joined = here, time.monotonic()
            self._give_up_if_hopeless(here, clients)
            if time.monotonic() > last_joined + timeout:
                raise TooFewClients(
                    f"{here} of {clients} clients after {timeout:g} s without a new one "
                    f"(federation.gather_timeout); {self._why_not()}"
                )
            time.sleep(max(0.2, self.session.exchange.poll))

    def update_roster(self, t: int, joining: bool) -> None:
        """Before round t: who came back is found at its new node; who is new joins where that can be."""
        self._query_new_nodes(t)
        ids = {member.id for member in self.session.roster.members}
        back = [member for member in self._new if member.id in ids]
        self._new = [member for member in self._new if member.id not in ids]
        for member in self._join(back, t):
            self.session.faults.add(t, member.id, member.node, "came-back", "at another node")
        if joining and self._new:
            raise Joined

    def _query_new_nodes(self, t: int) -> None:
        """Ask nodes that were not connected before who they are, but none that still owes a reply."""
        exchange, faults = self.session.exchange, self.session.faults
        busy, connected = exchange.busy_nodes(), exchange.nodes()
        self._known &= set(connected)
        members = {member.node: member.id for member in self.session.roster.members}
        asked = []
        for node in connected:
            if node in self._known or node in busy:
                continue
            if node in members:
                faults.add(t, members[node], node, "came-back", "at its own node")
                self._known.add(node)
            else:
                asked.append(node)
        if asked:
            timeout = min(QUERY_TIMEOUT, exchange.timeout)
            found, silent = query_members(exchange, asked, faults, t, timeout, self.session.preparation)
            self._new += found
            self._known |= set(asked) - silent

    def _late_reply(self, node: int, reply: Message) -> None:
        """Who a client is stays true; the update or the scores of an earlier round are thrown away."""
        faults = self.session.faults
        if reply.metadata.message_type == "query":
            self._known.add(node)
            member = member_of(reply, node, faults, 0)
            self._new += [] if member is None else [member]
        elif not reply.has_error():
            ids = {member.node: member.id for member in self.session.roster.members}
            faults.add(-1, ids.get(node, "?"), node, "late", "came after the timeout")

    def _join(self, members: list[Member], t: int) -> list[Member]:
        """Put clients into the roster, and say who got in.

        A name that is in use may be that of a client which was started again, and whose old node Flower has
        not missed yet: it is tried again when that node is gone.
        """
        here = [member for member in self._name_in_use if member.node in self._known]
        free = [member for member in here if self.session.roster.node(member.id) not in self._known]
        arrived = [*members, *free]
        roster = self.session.roster.joined(arrived, sorted(self._known), self.session.faults, t)
        at = {member.id: member.node for member in roster.members}
        in_use = [one for one in arrived if at.get(one.id) != one.node and at.get(one.id) in self._known]
        self._name_in_use = [one for one in here if one not in free] + in_use
        self.session.roster = roster
        return [one for one in arrived if at.get(one.id) == one.node]

    def _give_up_if_hopeless(self, here: int, clients: int) -> None:
        """Enough nodes are connected, all have replied, and none of them can join."""
        nodes = self.session.exchange.nodes()
        if here == 0 and len(nodes) >= clients and self._known.issuperset(nodes):
            first = next(
                (why for why in map(self.session.faults.reasons.get, nodes) if why), "no reason given"
            )
            raise TooFewClients(f"none of the {len(nodes)} connected nodes can join; the first: {first}")

    def _why_not(self) -> str:
        """How many nodes are connected that are no clients of the run, and what is wrong with the first."""
        members = {member.node for member in self.session.roster.members}
        others = [node for node in self.session.exchange.nodes() if node not in members]
        if not others:
            return "no other node is connected"
        first = next((why for why in map(self.session.faults.reasons.get, others) if why), "no reply yet")
        return f"{len(others)} more connected, but did not join; the first: {first}"
