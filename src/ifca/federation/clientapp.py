"""The ClientApp: each handler is the turn of ONE client, and only translates records and calls core."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from ifca.core.client import savings, score
from ifca.core.errors import InvalidInput
from ifca.core.probe import probe_task, solve
from ifca.core.sampling import Plan, make_plan, on
from ifca.core.types import Params, model_count, select
from ifca.data import Client, Clients, Federation
from ifca.data.scaling import Scaling
from ifca.engines.flower.faults import printable
from ifca.engines.flower.moments import moments_of
from ifca.engines.flower.records import REFUSED, REPLY, TURN, UPDATE, to_record, unpack
from ifca.federation.preparing import STATISTICS
from ifca.federation.rehearsal import as_it_trains, enlarged, opposite, sent_turn
from ifca.models import BuiltIn
from ifca.training.job import Job

REFUSED_BY, CANNOT_JOIN = "refused by the server:", "cannot take part:"
NodeData = Callable[[Context], Federation]
"""A node's own data: a federation of one client."""
JobOf = Callable[[Context, Federation], Job]
"""How that client trains: recipe, model, device. Only the server knows k and the other clients."""


NodeTable = Callable[[Context], dict[str, Any]]
"""What a node tells of its table, as plain JSON values; nothing where its data are arrays."""


def make_client_app(node_data: NodeData, job_of: JobOf, node_table: NodeTable = lambda _: {}) -> ClientApp:
    """The app of a node: query says who the client is, train and evaluate work on its own data."""
    app = ClientApp()

    def job(message: Message, context: Context) -> Job:
        _hear(message, context)
        turn, mine = message.content.config_records[TURN], node_data(context)
        classes = cast(int, turn["classes"])
        mine = replace(mine, classes=None if classes < 0 else classes)
        whole = as_agreed(job_of(context, mine), mine, turn)
        found = whole.local_solutions() if turn["alone"] else whole
        if "step_size" not in turn:
            return found
        return replace(found, recipe=found.recipe.stepping(cast(float, turn["step_size"])))

    @app.query()
    def describe(message: Message, context: Context) -> Message:
        asked = _hear(message, context)
        if asked == REFUSED:  # for the log of the SuperNode, which 'ifca federate client' reads
            why = printable(str(message.content.config_records[TURN][REFUSED]))
            logging.getLogger("ifca.federation").warning("%s %s", REFUSED_BY, why)
            return Message(RecordDict({REPLY: ConfigRecord({asked: ""})}), reply_to=message)
        if asked == STATISTICS:
            return Message(
                RecordDict({REPLY: ConfigRecord({asked: json.dumps(node_table(context))})}), reply_to=message
            )
        place = int(context.node_config.get("partition-id", -1))
        try:
            mine = node_data(context)
            return Message(description(mine, place, job_of(context, mine)), reply_to=message)
        except InvalidInput as reason:
            logging.getLogger("ifca.federation").warning("%s %s", CANNOT_JOIN, printable(str(reason)))
            raise

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(take_turn(job(message, context), message.content), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(score_models(job(message, context), message.content), reply_to=message)

    return app


def one_client(client: Client, context: Context) -> Federation:
    """A client as its node's data; without an id it is named by its partition, or by its node."""
    name = client.id or str(context.node_config.get("partition-id", context.node_id))
    return Federation.from_clients([replace(client, id=name, source=None, test_source=None)])


def told_preparation(context: Context) -> str:
    """How the server said that tables are prepared, as JSON; empty: it did not."""
    record = context.state.config_records.get(TURN)
    return "" if record is None else str(record["preparation"])


def _hear(message: Message, context: Context) -> str:
    """Keep what the server says of tables, for this message and later ones; returns what it asks for."""
    turn = message.content.config_records.get(TURN)
    if turn is not None and "preparation" in turn:
        context.state[TURN] = ConfigRecord({"preparation": turn["preparation"]})
    return "" if turn is None else str(turn.get("part", ""))


def as_agreed(job: Job, mine: Federation, turn: ConfigRecord) -> Job:
    """The job with what only the server knows: scales, class weights, the model by the data."""
    if "feature_mean" in turn:
        mine = mine.with_features_as(_scaling(turn, "feature", mine.input_shape))
    if "target_mean" in turn:
        mine = mine.with_targets_as(_scaling(turn, "target", tuple(mine.train.y.shape[1:])))
    if "class_weights" in turn:
        weights = tuple(cast("list[float]", turn["class_weights"]))
        job = replace(job, recipe=replace(job.recipe, class_weights=weights))
    if "model" in turn and isinstance(job.model, BuiltIn):
        known = mine.input_shape, mine.outputs
        job = replace(job, model=BuiltIn.from_json(json.loads(cast(str, turn["model"])), *known))
    return replace(job, federation=mine)


def _scaling(turn: ConfigRecord, name: str, shape: tuple[int, ...]) -> Scaling:
    parts = (cast("list[float]", turn[f"{name}_{part}"]) for part in ("mean", "scale"))
    return Scaling(*(torch.tensor(part, dtype=torch.float64).reshape(shape) for part in parts))


def description(mine: Federation, place: int, job: Job) -> RecordDict:
    """What the server may know of a client: its name, how much it has, of what kind.

    Where the job balances classes, also how many samples it has of each; where it scales features or targets,
    also their means and variances: all are summed over clients and sent back.
    """
    train, test = mine.train, mine.test
    content: dict[str, str | int | list[int] | list[float]] = {
        "id": train.ids[0],
        "place": place,
        "samples": int(train.sizes[0]),
        "test_samples": 0 if test is None else int(test.sizes[0]),
        "input_shape": list(mine.input_shape),
        "target_shape": list(train.y.shape[1:]),
        "pixels": int(train.x.dtype == torch.uint8),
        "classes": -1 if mine.classes is None else mine.classes,
    }
    if train.true_cluster is not None:
        content["cluster"] = int(train.true_cluster[0])
    if job.recipe.class_weights == "balanced" and mine.classes is not None:
        content["class_counts"] = list(mine.count_classes())
    if job.federation.target_scaling is not None:
        content["target_moments"] = moments_of(train.y)
    if job.federation.scaling is not None:
        content["feature_moments"] = moments_of(train.x)
    return RecordDict({REPLY: ConfigRecord(content)})  # type: ignore[arg-type]


def take_turn(job: Job, content: RecordDict) -> RecordDict:
    """Lines 5 to 12 of Algorithm 2 for this client; before the first round its solution of the probe."""
    turn, job = content.config_records[TURN], as_it_trains(job)
    if turn["part"] == "probe":
        data = _part(job, "kept").one(0, job.device, torch.float64)
        found = opposite(job, solve(data, job.federation.classes).float())
        return RecordDict({UPDATE: to_record({"w": found})})
    t, own = cast(int, turn["round"]), turn["own"]
    theta, clients = _models(job, content), _part(job, cast(str, turn["part"]))
    data = clients.one(0, job.device, job.dtype)
    known = torch.zeros((), dtype=torch.long, device=job.device) if own else None
    plan = _plan(job, t, clients)
    reply = job.method.client(job.task, job.recipe, job.recipe.step(t), theta, data, plan, known)
    reply = sent_turn(job, theta, t, reply, own=bool(own))
    j, update = int(reply.identity), reply.update
    if turn["half"]:
        sent = select(theta, j)
        update = {n: _half(v, sent[n], job.recipe.option == "model") for n, v in update.items()}
    losses, samples = reply.losses.double().tolist(), int(clients.sizes[0])
    told = MetricRecord({"round": t, "identity": j, "losses": losses, "samples": samples})
    return RecordDict({UPDATE: to_record(update), REPLY: told})


def score_models(job: Job, content: RecordDict) -> RecordDict:
    """Loss and right predictions of every model that was sent, on a part of this client's data."""
    part = cast(str, content.config_records[TURN]["part"])
    job = job if part in ("train", "test") else as_it_trains(job)
    theta, data = _models(job, content), _part(job, part).one(0, job.device, job.dtype)
    if part in ("aside", "probe"):
        task = probe_task(job.federation.classes) if part == "probe" else job.task
        with torch.no_grad():
            count, total, square = savings(task, theta, data, 0, list(range(1, model_count(theta))))
        total, square = opposite(job, total), enlarged(job, enlarged(job, square))
        found = MetricRecord({"count": count, "total": total.tolist(), "square": square.tolist()})
        return RecordDict({REPLY: found})
    table = [torch.stack(score(job.task, select(theta, j), data)) for j in range(model_count(theta))]
    loss, correct = torch.stack(table).double().cpu().T
    loss = enlarged(job, loss) if part == "held" else loss
    return RecordDict({REPLY: MetricRecord({"loss": loss.tolist(), "correct": correct.tolist()})})


def _part(job: Job, part: str) -> Clients:
    """The client with its training data, what it keeps of them, what it sets aside, or its test data."""
    if part in ("kept", "aside", "held", "probe"):
        return job.federation.train.parted(job.recipe.seed)[part != "kept"]
    found = job.federation.test if part == "test" else job.federation.train
    assert found is not None
    return found


def _half(value: torch.Tensor, sent: torch.Tensor, model: bool) -> torch.Tensor:
    """An update in half precision: of a model its change, which needs fewer digits than itself."""
    return (value - sent if model else value).half()


def _models(job: Job, content: RecordDict) -> Params:
    """The models that were sent, their parameters in the order of the model: shared ones travel apart."""
    found, place = unpack(content), {name: i for i, name in enumerate(job.names)}
    order = sorted(found, key=lambda name: place.get(name, len(place)))
    return {name: found[name].to(job.device, job.dtype) for name in order}


def _plan(job: Job, t: int, clients: Clients) -> Plan:
    plan = make_plan(job.recipe, t, clients.keys, clients.sizes, job.task.draws)
    return on(Plan(*(None if part is None else part[0] for part in plan)), job.device)
