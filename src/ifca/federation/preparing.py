"""One preparation for the tables of all clients: each tells statistics of its columns, which are added up."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict

from ifca.data import Federation
from ifca.data.column_statistics import ColumnStatistics
from ifca.data.files import write_atomically
from ifca.data.preparation import Preparation
from ifca.engines.flower import Session
from ifca.engines.flower.faults import Unusable, content_of
from ifca.engines.flower.members import QUERY_TIMEOUT
from ifca.engines.flower.records import REPLY, TURN
from ifca.federation.table_agreement import Told, agreed_preparation, alike
from ifca.runs.config import Config
from ifca.runs.own_data_config import FolderData

PREPARED, STATISTICS = "preparation.json", "statistics"


def prepare(
    session: Session, config: Config, out: Path, clients: int, timeout: float, earlier: str = ""
) -> None:
    """Let the session know how tables are prepared: as the run kept it, or by what its clients tell.

    Only a config of own files has tables. clients: nodes to wait for before they are asked. earlier: the
    preparation of a run that is continued.
    """
    file = out / PREPARED
    if earlier or file.exists():
        session.preparation = earlier or file.read_text("utf-8")
        return
    if not isinstance(config.data, FolderData):
        return
    told = _gathered(session, clients, timeout)
    made, left_out = agreed_preparation(told, config.data)
    names = session.exchange.names()
    for node, why in left_out.items():
        session.faults.add(0, names.get(node, "?"), node, "refused", f"its statistics do not count: {why}")
    if made is not None:
        session.preparation = json.dumps(made.to_json())


def _gathered(session: Session, clients: int, timeout: float) -> dict[int, Told]:
    """What clients tell of their tables, by node: of so many that are alike, or of all who come in time."""
    told, failed, said = dict[int, Told](), set[int](), ""
    known, deadline = set[int](), time.monotonic() + timeout
    while True:
        here = set(session.exchange.nodes())
        if here - known:
            known, deadline = known | here, time.monotonic() + timeout
        told, failed = {node: one for node, one in told.items() if node in here}, failed & here
        asked = sorted(here - told.keys() - failed - session.exchange.busy_nodes())
        late = time.monotonic() > deadline
        if asked and (len(here) >= clients or late):
            found = _asked(session, asked)
            told |= {node: one for node, one in found.items() if one is not None}
            failed |= {node for node, one in found.items() if one is None}
        same = len(alike(told))
        hopeless = len(here) >= clients and not told and here == failed
        if same >= clients or late or hopeless:
            return told
        state = f"{len(here)} of {clients} clients are connected, to tell how their tables are"
        if told:
            state = f"{same} of {clients} clients tell of tables that are alike, {len(here)} are connected"
        if state != said:
            session.say(f"{state}; if none comes in {deadline - time.monotonic():.0f} s, it goes on as it is")
            said = state
        time.sleep(session.exchange.poll)


def keep(session: Session, out: Path) -> None:
    """Write it into the run, for those who resume it."""
    if session.preparation:
        write_atomically(out / PREPARED, session.preparation.encode())


def read_told(text: str) -> Preparation | None:
    """What a server told of tables; empty: nothing."""
    return Preparation.from_json(json.loads(text) if text else None)


def with_preparation(federation: Federation, session: Session) -> Federation:
    """The server's view of a federation, with what is kept beside the models."""
    made = read_told(session.preparation)
    return federation if made is None else replace(federation, preparation=made, features=made.features)


def statistics_json(statistics: dict[str, ColumnStatistics], label: tuple[str, ...]) -> dict[str, Any]:
    """What a client tells of its table."""
    return {"columns": {name: one.to_json() for name, one in statistics.items()}, "label": list(label)}


def _asked(session: Session, nodes: list[int]) -> dict[int, Told | None]:
    """What nodes answer when asked how their tables are; None: a fault. Who is late is asked again."""
    content = {node: RecordDict({TURN: ConfigRecord({"part": STATISTICS})}) for node in nodes}
    timeout = min(QUERY_TIMEOUT, session.exchange.timeout)
    answers, names = session.exchange.send_and_receive("query", content, timeout), session.exchange.names()
    return {
        node: _answer(session, node, names.get(node, "?"), reply) for node, reply in answers.replies.items()
    }


def _answer(session: Session, node: int, name: str, message: Message) -> Told | None:
    """What one node told, checked; None and a fault where it cannot be read."""
    try:
        reply: Any = content_of(message).content.config_records[REPLY]
        told: dict[str, Any] = json.loads(reply[STATISTICS]) if STATISTICS in reply else {}
        if "columns" in told:
            columns = {name: ColumnStatistics.from_json(one) for name, one in told["columns"].items()}
            label = tuple(map(str, told["label"]))
            if not columns.keys() >= set(label):
                raise ValueError("its label is no column of its table")
            return {"columns": columns, "label": label}
        made = Preparation.from_json(told.get("preparation"))
        return {} if made is None else {"ready": made}
    except Unusable as reason:
        session.faults.add(0, name, node, reason.kind, f"told nothing of its table ({reason})")
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as reason:
        session.faults.add(0, name, node, "malformed", f"told nothing of its table ({reason})")
    return None
