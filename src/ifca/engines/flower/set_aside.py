"""The founding and the referee over the wire: clients solve the probe, and compare models on what they set
aside. Numbers come back, never samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from torch import Tensor

from ifca.core.checks import far_solutions
from ifca.core.errors import InvalidInput, TooFewClients
from ifca.core.probe import FEATURES
from ifca.core.replies import Savings, Solutions
from ifca.core.sampling import count_aside
from ifca.core.types import Params, select
from ifca.engines.flower.exchange import Answers
from ifca.engines.flower.faults import Unusable, check_like, savings_of
from ifca.engines.flower.records import TURN, UPDATE, ByteCounter, byte_count, from_record, pack

if TYPE_CHECKING:
    from ifca.engines.flower.flower_engine import FlowerEngine

Bytes = tuple[Tensor, Tensor]


def solve(engine: FlowerEngine) -> Solutions:
    """Every client's solution of the probe (core/probe.py); zero for one that sent none, if not for all."""
    clients, turn = engine.federation.train, ConfigRecord({**engine.told(0, "probe"), "own": False})
    features, outputs = torch.Size(engine.federation.input_shape).numel(), engine.federation.outputs
    like = {"w": torch.empty(min(features, FEATURES) + 1, outputs)}
    engine.session.expect(like["w"].numel() * like["w"].element_size())
    engine.session.update_roster(0, False)
    messages = {i: RecordDict({TURN: turn}) for i in range(len(clients))}
    answers, (down, up) = _exchanged(engine, "train", messages)
    w, answered = torch.zeros(len(clients), *like["w"].shape), torch.zeros(len(clients), dtype=torch.bool)
    for i, name in enumerate(clients.ids):
        found = engine.usable(answers, name, 0, lambda reply: _solution_of(reply, like))
        if found is not None:
            w[i], answered[i] = found["w"], True
    for i in torch.nonzero(answered)[far_solutions(w[answered]), 0].tolist():
        node, said = engine.session.roster.node(clients.ids[i]), "its solution is far longer than the others'"
        engine.session.faults.add(0, clients.ids[i], node, "too-large", said)
        w[i], answered[i] = 0, False
    if not bool(answered.any()):
        raise TooFewClients(
            f"the founding had no usable reply of {len(clients)} clients; faults.jsonl says why"
        )
    return Solutions({"w": w}, answered, down, up)


def compare(
    engine: FlowerEngine, theta: Params, who: Tensor, own: Tensor, others: Tensor, part: str
) -> Savings:
    """Each client is sent its own model and the others, and says what it loses more, summed over samples."""
    clients, q = engine.federation.train, others.shape[1]
    turn = ConfigRecord({**engine.told(engine.t, part), "own": False})
    shared = engine.shared if part == "aside" else frozenset[str]()
    packed: dict[tuple[int, ...], dict[str, ArrayRecord]] = {}
    messages = {}
    for i, models in zip(
        who.tolist(), map(tuple, torch.cat([own[:, None], others], 1).tolist()), strict=True
    ):
        if models not in packed:
            packed[models] = pack(select(theta, torch.tensor(models)), shared)
        messages[i] = RecordDict({**packed[models], TURN: turn})
    answers, carried = _exchanged(engine, "evaluate", messages)
    samples, answered = torch.zeros(len(who), dtype=torch.long), torch.zeros(len(who), dtype=torch.bool)
    total, square = (torch.zeros(len(who), q, dtype=torch.float64) for _ in range(2))
    for row, i in enumerate(who.tolist()):
        most = int(count_aside(clients.sizes[i : i + 1])[0])
        found = engine.usable(
            answers,
            clients.ids[i],
            engine.t,
            lambda reply, most=most: savings_of(reply, q, most),  # type: ignore[misc]
        )
        if found is not None:
            samples[row], answered[row] = found[0], True
            total[row], square[row] = (torch.tensor(part, dtype=torch.float64) for part in found[1:])
    return Savings(samples, total, square, None if bool(answered.all()) else answered, carried)


def _exchanged(engine: FlowerEngine, kind: str, contents: dict[int, RecordDict]) -> tuple[Answers, Bytes]:
    """The replies to messages by client; bytes down and up by client [m]."""
    clients, counter = engine.federation.train, ByteCounter()
    down, up = (torch.zeros(len(clients), dtype=torch.long) for _ in range(2))
    connected, messages = set(engine.session.exchange.nodes()), {}
    for i, content in contents.items():
        node = engine.session.roster.node(clients.ids[i])
        if node in connected and clients.ids[i] not in engine.session.left_out:
            messages[node] = content
    answers = engine.session.exchange.send_and_receive(kind, messages)
    for i, content in contents.items():
        if engine.session.roster.node(clients.ids[i]) in messages:
            down[i] += counter.count(content)
        reply = answers.replies.get(engine.session.roster.node(clients.ids[i]))
        if reply is not None and reply.has_content():
            up[i] += sum(byte_count(record) for record in reply.content.values())
    return answers, (down, up)


def _solution_of(reply: Message, like: Params) -> Params:
    try:
        found = from_record(reply.content.array_records[UPDATE])
    except (KeyError, InvalidInput) as reason:
        raise Unusable("malformed", str(reason)) from reason
    check_like(found, like, torch.float32)
    if not bool(torch.isfinite(found["w"]).all()):
        raise Unusable("not-finite", "the solution has a NaN or infinite value")
    return found
