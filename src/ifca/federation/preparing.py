"""One preparation for the tables of all clients: each tells statistics of its columns, which are added up."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from flwr.app import ConfigRecord, Message, RecordDict

from ifca.data import Federation
from ifca.data.column_statistics import ColumnStatistics, merged
from ifca.data.files import write_atomically
from ifca.data.fit_preparation import fitted
from ifca.data.preparation import Preparation
from ifca.data.scaling import Scaling
from ifca.data.sources.folder import is_standardised
from ifca.engines.flower import Session
from ifca.engines.flower.faults import Unusable, content_of
from ifca.engines.flower.records import REPLY, TURN
from ifca.runs.config import Config
from ifca.runs.own_data_config import FolderData

PREPARED = "preparation.json"


def prepare(session: Session, config: Config, out: Path, clients: int, timeout: float) -> None:
    """Let the session know how tables are prepared: as the run kept it, or by what its clients tell.

    Only a config of own files has tables. clients: nodes to wait for before they are asked.
    """
    file = out / PREPARED
    if file.exists():
        session.preparation = file.read_text("utf-8")
        return
    if not isinstance(config.data, FolderData):
        return
    deadline = time.monotonic() + timeout
    while len(session.exchange.nodes()) < clients and time.monotonic() < deadline:
        time.sleep(session.exchange.poll)
    told = [one for one in _asked(session, "statistics", {}) if one]
    made, scaling = _agreed(told, config.data)
    if made is None:
        return
    session.preparation = json.dumps({"preparation": made.to_json(), "scaling": scaling})
    if scaling is None and is_standardised(config.data.standardise, made):
        scaling = _scaling(session, len(made.features)).to_json()
        session.preparation = json.dumps({"preparation": made.to_json(), "scaling": scaling})


def keep(session: Session, out: Path) -> None:
    """Write it into the run, for those who resume it."""
    if session.preparation:
        write_atomically(out / PREPARED, session.preparation.encode())


def read_told(text: str) -> tuple[Preparation | None, Scaling | None]:
    """What a server told of tables; empty: nothing."""
    told = json.loads(text) if text else {}
    return Preparation.from_json(told.get("preparation")), Scaling.from_json(told.get("scaling"))


def with_preparation(federation: Federation, session: Session) -> Federation:
    """The server's view of a federation, with what is kept beside the models."""
    made, scaling = read_told(session.preparation)
    if made is None:
        return federation
    known = {"preparation": made, "scaling": scaling, "features": made.features}
    return Federation(federation.train, federation.test, federation.classes, **known)  # type: ignore[arg-type]


def statistics_json(statistics: dict[str, ColumnStatistics], label: tuple[str, ...]) -> dict[str, Any]:
    """What a client tells of its table."""
    return {"columns": {name: one.to_json() for name, one in statistics.items()}, "label": list(label)}


def sums_json(mine: Federation, centre: list[float]) -> dict[str, Any]:
    """A client's number of rows, and the sums of its features' distances from a centre, plain and squared."""
    apart = mine.train.x.double() - (torch.tensor(centre, dtype=torch.float64) if centre else 0.0)
    return {"n": len(apart), "sum": apart.sum(0).tolist(), "square": (apart**2).sum(0).tolist()}


def _asked(session: Session, part: str, told: dict[str, Any]) -> list[dict[str, Any]]:
    """The answers of all nodes to a question about their tables; what cannot be read is a fault."""
    nodes, exchange = session.exchange.nodes(), session.exchange
    question: dict[str, Any] = {"part": part, "told": json.dumps(told)}
    if session.preparation:
        question["preparation"] = session.preparation
    content = {node: RecordDict({TURN: ConfigRecord(question)}) for node in nodes}
    answers = exchange.send_and_receive("query", content)
    return [_answer(session, node, answers.replies.get(node), part) for node in nodes]


def _answer(session: Session, node: int, message: Message | None, part: str) -> dict[str, Any]:
    """What one node told, checked; nothing and a fault where it cannot be read."""
    try:
        reply: Any = content_of(message).content.config_records[REPLY]
        told: dict[str, Any] = json.loads(reply[part]) if part in reply else {}
        if "columns" in told:
            columns = {name: ColumnStatistics.from_json(one) for name, one in told["columns"].items()}
            return {"columns": columns, "label": tuple(told["label"])}
        if "n" in told:
            numbers = [torch.tensor(told[name], dtype=torch.float64) for name in ("n", "sum", "square")]
            if not all(bool(torch.isfinite(value).all()) for value in numbers) or told["n"] < 1:
                raise Unusable("not-finite", "its sums have a NaN or infinite value")
        return told
    except (Unusable, KeyError, ValueError, TypeError, AttributeError) as reason:
        session.faults.add(0, "?", node, "malformed", f"told nothing of its table ({reason})")
        return {}


def _agreed(told: list[dict[str, Any]], data: FolderData) -> tuple[Preparation | None, Any]:
    """The preparation by the statistics of all clients, or the one that they have already."""
    ready = next((one for one in told if "preparation" in one), None)
    if ready is not None:
        return Preparation.from_json(ready["preparation"]), ready["scaling"]
    tables = [one for one in told if "columns" in one]
    if not tables:
        return None, None
    label = Counter(one["label"] for one in tables).most_common(1)[0][0]
    made = fitted(
        merged(one["columns"] for one in tables if one["label"] == label),
        label,
        data.columns,
        task=data.task,
        classes=data.classes,
        named=bool(data.features),
        refuse_holes=data.missing == "refuse",
    )
    return made, None


def _scaling(session: Session, features: int) -> Scaling:
    """Mean and deviation of each feature over all clients' rows: two questions, sums as answers."""
    mean = torch.zeros(features, dtype=torch.float64)
    for _ in range(2):  # the sums of squares are taken around the mean, which the first answers give
        sums = [one for one in _asked(session, "sums", {"centre": mean.tolist()}) if one]
        n = sum(one["n"] for one in sums)
        total, square = (
            torch.tensor([one[k] for one in sums], dtype=torch.float64).sum(0) for k in ("sum", "square")
        )
        scale, centre, mean = (square / n).sqrt(), mean, mean + total / n
    constant = scale <= 1e-12 * centre.abs().clamp(min=1e-300)
    return Scaling(centre, torch.where(constant, 1.0, scale))
