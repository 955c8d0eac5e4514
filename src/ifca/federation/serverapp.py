"""The server's side of a federation: gather clients, train over the grid, let others join, write the run."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from ifca.core.callbacks import Callback, Silent
from ifca.core.errors import InvalidInput
from ifca.data import Federation
from ifca.data.files import write_atomically
from ifca.engines.flower import Exchange, FaultLog, FlowerEngine, Member, Roster, Session, Terms
from ifca.engines.flower.faults import Fault
from ifca.engines.flower.roster import introduce
from ifca.federation.joining import admit
from ifca.models.task import Factory
from ifca.runs.config import Config, with_absolute_paths
from ifca.runs.make import make_job
from ifca.runs.own_code import Code
from ifca.runs.results import SUMMARY
from ifca.runs.round_log import append_line
from ifca.runs.run import go_on
from ifca.runs.run_code import code_of
from ifca.runs.run_folder import CONFIG, new_directory
from ifca.training import Job
from ifca.training.preflight import check

ROSTER, FAULTS = "roster.json", "faults.jsonl"
DESCRIBE_TIMEOUT = 60.0


class Joined(Exception):
    """A client came that the run does not know yet: the rounds go on with it, from the last checkpoint."""


class Gathering:
    """Looks for nodes that were not there before, and asks them who they are."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._seen: set[int] = set()
        self._strangers: list[Member] = []
        self._rivals: list[Member] = []  # whose name is in use at another node

    def wait(self, clients: int) -> None:
        """Until so many clients are there."""
        while True:
            self._meet(0)
            self._join(self._strangers, 0)
            self._strangers = []
            if sum(member.node in self._seen for member in self.session.roster.members) >= clients:
                return
            time.sleep(max(0.2, self.session.exchange.poll))

    def look(self, t: int, joining: bool) -> None:
        """Before a round: who came back is found at its new node; who is new joins where that can be."""
        self._meet(t)
        known = {member.id for member in self.session.roster.members}
        back = [member for member in self._strangers if member.id in known]
        self._strangers = [member for member in self._strangers if member.id not in known]
        for member in self._join(back, t):
            self.session.faults.add(t, member.id, member.node, "came-back", "at another node")
        if joining and self._strangers:
            raise Joined

    def _meet(self, t: int) -> None:
        """Ask nodes that were not connected before who they are."""
        connected = self.session.exchange.nodes()
        slow = {
            node for node in connected if self.session.exchange.owes(node)
        } - self._seen  # to say who they are
        new = [node for node in connected if node not in self._seen | slow]
        self._seen = set(connected) - slow
        places = {member.node: member.id for member in self.session.roster.members}
        for node in new:
            if node in places:
                self.session.faults.add(t, places[node], node, "came-back", "at its own node")
        unknown = [node for node in new if node not in places]
        if unknown:
            timeout = min(DESCRIBE_TIMEOUT, self.session.exchange.timeout)
            self._strangers += introduce(self.session.exchange, unknown, self.session.faults, t, timeout)
            self._seen -= {
                node for node in unknown if self.session.exchange.owes(node)
            }  # asked again when they answer

    def _join(self, members: list[Member], t: int) -> list[Member]:
        """Give members their places, and say who got one.

        A name that is in use may be that of a client which was started again, and whose old node Flower has
        not missed yet: it is tried again when that node is gone.
        """
        here = [member for member in self._rivals if member.node in self._seen]
        free = [member for member in here if self.session.roster.node(member.id) not in self._seen]
        arrived = [*members, *free]
        roster = self.session.roster.joined(arrived, sorted(self._seen), self.session.faults, t)
        at = {member.id: member.node for member in roster.members}
        late = [one for one in arrived if at.get(one.id) != one.node and at.get(one.id) in self._seen]
        self._rivals, self.session.roster = [one for one in here if one not in free] + late, roster
        return [one for one in arrived if at.get(one.id) == one.node]


def serve(
    grid: Grid,
    config: Config,
    out: Path,
    callback: Callback | None = None,
    *,
    model: Factory | None = None,
    poll: float = 0.1,
    code: Code | None = None,
) -> dict[str, Any]:
    """Train a new run in an unused folder, or go on with the one that is there.

    code: the user's modules that the config names; None: as they lie here.
    """
    _refuse_what_needs_the_data(config)
    code = code_of(config) if code is None else code
    config, terms = replace(with_absolute_paths(config), engine="flower"), config.federation
    faults = FaultLog(partial(_log, out))
    faults.counts.update(json.loads(line)["kind"] for line in _lines(out / FAULTS))
    agreed = Terms(terms.min_clients, terms.attempts, half=terms.half_precision)
    session = Session(Exchange(grid, timeout=terms.round_timeout, poll=poll), _known(out), agreed, faults)
    session.exchange.late = lambda node: faults.add(
        -1, _name(session, node), node, "late", "came after the timeout"
    )
    before, gathering = session.roster, Gathering(session)
    session.look = gathering.look
    gathering.wait(terms.clients or terms.min_clients)
    make = partial(_job, session, model)
    check(make(config, session.roster.federation(), code))
    if not (out / CONFIG).exists():
        new_directory(config, out, code)
    while True:
        federation = session.roster.federation()
        admit(out, before, federation)
        write_atomically(out / ROSTER, json.dumps(session.roster.to_json(), indent=1).encode())
        before = session.roster
        try:
            summary = go_on(config, federation, out, callback or Silent(), code, make)
            break
        except Joined:
            gathering.wait(1)
    summary |= {"faults": dict(sorted(faults.counts.items())), "bytes_evaluation": session.evaluation_bytes}
    write_atomically(out / SUMMARY, json.dumps(summary, indent=2, allow_nan=False).encode())
    return summary


def _refuse_what_needs_the_data(config: Config) -> None:
    """The server of a federation never sees a sample."""
    if getattr(config.data, "standardise", False):
        raise InvalidInput(
            "data.standardise: is for 'ifca run'; in a federation clients scale their own data"
        )
    if config.model.metrics:
        raise InvalidInput(
            "model.metrics: are for 'ifca run'; in a federation clients report their loss only"
        )


def _job(session: Session, model: Factory | None, config: Config, federation: Federation, code: Code) -> Job:
    """The job of a config over the grid; model: the user's, in place of the config's."""
    job = make_job(config, federation, code)

    def engine(job: Job) -> FlowerEngine:
        alone = job.recipe.algorithm != config.algorithm  # the local solutions of one-shot clustering
        joins = not alone and job.recipe.algorithm != "local"
        return FlowerEngine(session, job.recipe, job.federation, job.shared, alone=alone, open_to_new=joins)

    return replace(job, remote=engine, model=model or job.model)


def _known(out: Path) -> Roster:
    """The clients of a run that was begun; none in a new one."""
    file = out / ROSTER
    return Roster.from_json(json.loads(file.read_text())) if file.exists() else Roster(())


def _name(session: Session, node: int) -> str:
    return next((member.id for member in session.roster.members if member.node == node), "?")


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def _log(out: Path, fault: Fault) -> None:
    if out.is_dir():
        append_line(out / FAULTS, json.dumps(fault))
