"""Which clients are connected: wait for them, ask new nodes who they are, find those that came back."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from flwr.app import ConfigRecord, Message, RecordDict

from ifca.engines.flower import Member, Roster, Session, TooFewClients
from ifca.engines.flower.agreement import Refused, agreed
from ifca.engines.flower.members import QUERY_TIMEOUT, member_of, query_members
from ifca.engines.flower.records import REFUSED, REPLY, TURN

SAY_EVERY = 30.0  # seconds between two words about who is waited for


class Joined(Exception):
    """A client came that the run does not know yet: the rounds go on with it, from the last checkpoint."""


class ClientManager:
    """Keeps the roster of a session up to date with the nodes that are connected."""

    def __init__(self, session: Session, classes: int | None = None) -> None:
        """classes: the largest number that the server's config allows; None: as the clients' labels say."""
        self.session, self.classes = session, classes
        self._known: set[int] = set()  # connected nodes that were asked who they are, and replied
        self._described: dict[int, Member] = {}  # by node; who is connected and not in the roster of a run
        self._refused, self._told = Refused(), Refused()  # the last reasons: logged; told to the clients
        session.exchange.on_late, session.exchange.on_wait = self._late_reply, self._say_who_is_late

    def wait_for(self, clients: int, timeout: float) -> None:
        """Until so many clients are connected; given up when no new one has joined for timeout seconds."""
        here, said = self._here(), ""
        last_joined = last_said = time.monotonic()
        while True:
            self._query_new_nodes(0)
            before, here, refused = here, *self._gathered()
            now = time.monotonic()
            self._say_who_came(before, here, clients)
            if len(here) >= clients:
                self._log(refused, 0)
                taken = {member.node for member in self.session.roster.members}
                self._described = {node: one for node, one in self._described.items() if node not in taken}
                return
            last_joined = now if len(here) > len(before) else last_joined
            left = last_joined + timeout - now
            if left < 0 or self._is_hopeless(here, clients):
                self._log(refused, 0)
                self._give_up(len(here), clients, timeout, refused)
            state = self._waiting_for(len(here), clients, refused)
            if (state != said and now > last_said + 2) or now > last_said + SAY_EVERY:
                self.session.say(f"{state}; given up in {left:.0f} s without a new one")
                self._tell(refused)
                said, last_said = state, now
            time.sleep(max(0.2, self.session.exchange.poll))

    def _say_who_came(self, before: list[str], here: list[str], clients: int) -> None:
        """Also who went: a client is gone, or is no longer of the kind that most are."""
        total = f"{len(here)} of {clients}" if clients >= len(here) else f"{len(here)}"
        if new := [name for name in here if name not in before]:
            self.session.say(f"{_listed(new)} joined: {total} clients")
        if gone := [name for name in before if name not in here]:
            self.session.say(f"{_listed(gone)} cannot take part any more: {total} clients")

    def update_roster(self, t: int, joining: bool) -> None:
        """Before round t: who came back is found at its new node; who is new joins where that can be."""
        self._query_new_nodes(t)
        ids = {member.id for member in self.session.roster.members}
        back = [member for member in self._described.values() if member.id in ids]
        for member in self._join(back, t):
            self.session.faults.add(t, member.id, member.node, "came-back", "at another node")
        new = [member for member in self._described.values() if member.id not in ids]
        if joining and new:
            roster, refused = self.session.roster.joined(new, self._known)
            self._log(refused, t)
            if len(roster.members) > len(ids):
                raise Joined

    def _gathered(self) -> tuple[list[str], Refused]:
        """Names of the clients that are here and can take part; why others cannot."""
        roster, found = self.session.roster, list(self._described.values())
        if roster.begun:
            self._join(found, 0)
            refused = {node: why for node, why in self._refused.items() if node in self._described}
            return self._here(), refused
        taken, refused = agreed(found, self.classes)
        self.session.roster = Roster(tuple(taken))
        return [member.id for member in taken], refused

    def _here(self) -> list[str]:
        """Names of the clients of the run that are connected."""
        return [member.id for member in self.session.roster.members if member.node in self._known]

    def _query_new_nodes(self, t: int) -> None:
        """Ask nodes that were not connected before who they are, but none that still owes a reply."""
        exchange, faults = self.session.exchange, self.session.faults
        busy, connected = exchange.busy_nodes(), exchange.nodes()
        self._known &= set(connected)
        self._described = {node: one for node, one in self._described.items() if node in self._known}
        roster = self.session.roster
        members = {member.node: member.id for member in roster.members} if roster.begun else {}
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
            self._known |= set(asked) - silent
            self._keep(found, t)

    def _keep(self, found: list[Member], t: int) -> None:
        """Clients that have described themselves; a node that was registered under a name, with its key, can
        be no other client.
        """
        names, others = self.session.exchange.names(), Refused()
        for member in found:
            self._described[member.node] = member
            mine = names.get(member.node, member.id)
            if mine != member.id:
                others[member.node] = f"its key is that of {mine!r}, and it says that it is {member.id!r}"
        self._log(others, t)
        self._described = {node: one for node, one in self._described.items() if node not in others}

    def _late_reply(self, node: int, reply: Message) -> None:
        """Who a client is stays true; the update or the scores of an earlier round are thrown away."""
        faults = self.session.faults
        if reply.metadata.message_type == "query":
            if reply.has_content() and "id" not in reply.content.config_records.get(REPLY, ()):
                return  # about its table, or that it heard why it is refused: it is free again
            self._known.add(node)
            member = member_of(reply, node, faults, 0)
            self._keep([] if member is None else [member], 0)
        elif not reply.has_error():
            faults.add(-1, self._names([node])[0], node, "late", "came after the timeout")

    def _join(self, members: list[Member], t: int) -> list[Member]:
        """Put clients into the roster of a run, and say who got in.

        A name that is in use may be that of a client which was started again, and whose old node Flower has
        not missed yet: it is tried again when that node is gone.
        """
        self.session.roster, refused = self.session.roster.joined(members, self._known)
        self._log(refused, t)
        arrived = [member for member in members if member.node not in refused]
        for member in arrived:
            del self._described[member.node]
        return arrived

    def _log(self, refused: Refused, t: int) -> None:
        """Each reason is a fault, once."""
        for node, why in refused.items():
            if self._refused.get(node) != why:
                self._refused[node] = why
                name = self.session.exchange.names().get(node, self._described[node].id)
                self.session.faults.add(t, name, node, "refused", why)
        self._tell(refused)

    def _tell(self, refused: Refused) -> None:
        """Let clients know why they are not taken, each reason once."""
        exchange = self.session.exchange
        for node, why in refused.items():
            if self._told.get(node) != why and node not in exchange.busy_nodes():
                self._told[node] = why
                told = RecordDict({TURN: ConfigRecord({"part": REFUSED, REFUSED: why})})
                exchange.tell("query", node, told)

    def _is_hopeless(self, here: list[str], clients: int) -> bool:
        """Enough nodes are connected, all have replied, and none of them can join."""
        nodes = self.session.exchange.nodes()
        return not here and len(nodes) >= clients and self._known.issuperset(nodes)

    def _give_up(self, here: int, clients: int, timeout: float, refused: Refused) -> None:
        nodes = self.session.exchange.nodes()
        if self._is_hopeless([""] * here, clients):
            why = next(iter(self._reasons(nodes)), "no reason given")
            raise TooFewClients(f"none of the {len(nodes)} connected nodes can join; the first: {why}")
        raise TooFewClients(
            f"{self._waiting_for(here, clients, refused)}; after {timeout:g} s without a new one it is "
            "given up (federation.gather_timeout)"
        )

    def _waiting_for(self, here: int, clients: int, refused: Refused) -> str:
        """How many are here, and why others that are connected did not join."""
        members = {member.node for member in self.session.roster.members}
        others = [node for node in self.session.exchange.nodes() if node not in members]
        if not others:
            return f"{here} of {clients} clients; no other node is connected"
        told = [f"{self._names([node])[0]}: refused ({why})" for node, why in refused.items()]
        first = next(iter([*told, *self._reasons(others)]), "no reply yet")
        return f"{here} of {clients} clients; {len(others)} more connected, but did not join; first {first}"

    def _reasons(self, nodes: Iterable[int]) -> list[str]:
        """What was the last fault of nodes that have one."""
        return [why for why in map(self.session.faults.reasons.get, nodes) if why]

    def _say_who_is_late(self, kind: str, nodes: set[int], left: float) -> None:
        late = _listed(self._names(sorted(nodes)))
        self.session.say(f"waiting for the reply of {late} to '{kind}'; given up in {left:.0f} s")

    def _names(self, nodes: Iterable[int]) -> list[str]:
        """The clients at nodes, as far as they are known."""
        members = [*self.session.roster.members, *self._described.values()]
        ids = {member.node: member.id for member in members}
        return [ids.get(node, f"node {node}") for node in nodes]


def _listed(names: Collection[str], most: int = 3) -> str:
    """Some names, and how many more there are."""
    shown = ", ".join(list(names)[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
