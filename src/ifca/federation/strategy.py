"""IFCA as a Flower Strategy, for those who drive Flower's own loop: hooks translate records and call core.

A round of Algorithm 2 is a round of Flower. The founding and what clients say of models on samples set aside
have no place among Flower's hooks, so these messages go over the grid between two of them. What is left to
decide when the rounds end (Method.finish) is decided after the averages of the last round, before Flower
evaluates and returns the models. Checkpoints and clients that join are in 'serve' of ifca.federation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from secrets import randbits

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from ifca.core.callbacks import Record
from ifca.core.errors import InvalidInput, TooFewClients
from ifca.core.rejections import left_out
from ifca.core.types import ClusterState
from ifca.engines.flower.exchange import Answers, Exchange
from ifca.engines.flower.flower_engine import FlowerEngine
from ifca.engines.flower.records import from_record, to_record
from ifca.engines.flower.roster import Roster
from ifca.engines.flower.session import Session, Terms
from ifca.engines.live_models import live_part
from ifca.federation.client_manager import ClientManager
from ifca.training.evaluate import evaluate
from ifca.training.job import Job
from ifca.training.privacy import check_private, most_rounds
from ifca.training.rounds import finished, one_round, taking_part
from ifca.training.start import problem_of


class _CollectedReplies(Exchange):
    """An exchange whose messages Flower's own loop has sent and whose replies it has collected already.

    What is sent beyond that goes over the grid.
    """

    collected: dict[int, Message] | None = None  # by node

    def send_and_receive(
        self, message_type: str, content: Mapping[int, RecordDict], timeout: float | None = None
    ) -> Answers:
        """The collected replies, once."""
        if self.collected is None:
            return super().send_and_receive(message_type, content, timeout)
        replies, self.collected = self.collected, None
        return Answers(replies, set(), set(content) - set(replies))


class IFCAStrategy(Strategy):
    """IFCA, its options and the global baseline, one hook at a time. state: as start() makes it.

    history: a record for each round, as in rounds.jsonl.
    """

    def __init__(self, grid: Grid, job: Job, state: ClusterState, roster: Roster, terms: Terms | None = None):
        if job.recipe.early_stopping:
            raise InvalidInput(
                "early stopping is for 'ifca federate'; Flower's own loop does num_rounds rounds"
            )
        job = replace(job, recipe=replace(job.recipe, on_divergence="stop"))  # its loop cannot go back
        if job.recipe.private:
            check_private(job)
            job = replace(job, secret=randbits(64) if job.secret is None else job.secret)
        self.job, self.state, self._exchange = job, state, _CollectedReplies(grid)
        self.history, self._problem = list[Record](), problem_of(job)
        self._last = job.recipe.rounds  # the round after which the method finishes
        terms = replace(terms or Terms(), attempts=1, pause=0)
        self.session = Session(self._exchange, roster, terms)
        self._engine, self._sent = (
            FlowerEngine(self.session, job.recipe, job.federation, job.shared, model=job.model),
            list[Message](),
        )

    @property
    def arrays(self) -> ArrayRecord:
        """The k models as start() of Flower carries them."""
        return to_record(self.state.theta)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Flower's loop. After num_rounds the method finishes, whatever the recipe's number of rounds."""
        self._last, recipe = num_rounds, self.job.recipe
        if recipe.dp_epsilon is not None and num_rounds > (allowed := most_rounds(self.job)):
            raise InvalidInput(
                f"num_rounds is {num_rounds}, but dp_epsilon = {recipe.dp_epsilon:g} allows {allowed} rounds"
            )
        return super().start(
            grid, initial_arrays, num_rounds, timeout, train_config, evaluate_config, evaluate_fn
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Lines 3 and 4: who takes part, and who is sent which models."""
        del server_round, config, grid
        self.state = replace(self.state, theta=from_record(arrays))
        self._who, self._known = taking_part(self.job, self.state)
        models, own, _ = live_part(self.state.theta, self.state.live, self._known)
        clients, places = self.job.federation.train, self._who.tolist()
        part = "kept" if self.job.method.needs(self.job.recipe, self.state).aside else "train"
        return self._messages(
            self._engine.messages(models, clients, places, own, self.state.round, part), "train"
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Lines 13 to 15: the averages. Too few usable replies: the models stay, the round is done again."""
        self._exchange.collected = self._by_node(replies)
        record: Record | None = None
        try:
            self.state, record = one_round(
                self.job, self._problem, self._engine, self.state, self._who, self._known
            )
            self.history.append(record)
            self._engine.leave_out(left_out(self.state.checks, len(self.state.identity)))
        except TooFewClients as reason:
            logging.getLogger("ifca.federation").warning("%s", reason)
        ends = server_round == self._last and bool(self.history)
        if ends:
            self.state, self.history[-1] = finished(
                self.job, self._problem, self._engine, self.state, self.history[-1]
            )
        if record is None:
            return self.arrays if ends else None, None
        told = MetricRecord({"train_loss": record["train_loss"], "cluster_sizes": record["cluster_sizes"]})
        return self.arrays, told

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """All models to all clients that have test data."""
        del server_round, arrays, config, grid
        test = self.job.federation.test
        if test is None:
            return []
        everyone = list(range(len(test)))
        models, unknown, _ = live_part(self.state.theta, self.state.live, torch.full((len(test),), -1))
        return self._messages(self._engine.messages(models, test, everyone, unknown, 0, "test"), "evaluate")

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Accuracy and loss by the paper's rule."""
        del server_round
        self._exchange.collected = self._by_node(replies)
        test = evaluate(self._engine, self.job, self.state, self.state.identity)
        if test is None:
            return None
        numbers = {
            "test_accuracy": test.accuracy(test.paper_rule),
            "test_loss": test.mean_loss(test.paper_rule),
        }
        return MetricRecord({name: value for name, value in numbers.items() if value is not None})

    def summary(self) -> None:
        """What will be run."""
        log = logging.getLogger("ifca.federation")
        log.info(
            "%s, k = %d, %d clients", self.job.recipe.algorithm, self.job.models, len(self.state.identity)
        )

    def _messages(self, messages: Mapping[int, RecordDict], kind: str) -> list[Message]:
        self._sent = [Message(content, node, kind) for node, content in messages.items()]
        return self._sent

    def _by_node(self, replies: Iterable[Message]) -> dict[int, Message]:
        """An error reply may name the SuperLink as its source, so by the message that it answers."""
        node = {message.metadata.message_id: message.metadata.dst_node_id for message in self._sent}
        return {node[reply.metadata.reply_to_message_id]: reply for reply in replies}


def gather(grid: Grid, clients: int = 1, timeout: float = 60.0) -> Roster:
    """Wait for so many clients; given up when no new one has joined for timeout seconds."""
    session = Session(Exchange(grid), Roster(()))
    ClientManager(session).wait_for(clients, timeout)
    return session.roster
