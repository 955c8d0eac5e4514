"""IFCA as a Flower Strategy, for those who drive Flower's own loop: hooks translate records and call core.

A round of Algorithm 2 is a round of Flower. The repair of collapses asks clients a second time in a round,
for which Flower's hooks have no place; that, checkpoints and clients that join are in 'serve' of
ifca.experiments.federation.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from ifca.core.errors import InvalidInput
from ifca.core.identity import known_identity
from ifca.core.metrics import cluster_sizes
from ifca.core.sampling import participants
from ifca.core.types import ClusterState
from ifca.engines.evaluate import evaluate
from ifca.engines.flower.desk import Desk, Terms
from ifca.engines.flower.engine import FlowerEngine
from ifca.engines.flower.faults import TooFewClients
from ifca.engines.flower.mail import Answers, Mail
from ifca.engines.flower.records import from_record, to_record
from ifca.engines.flower.roster import Roster, introduce
from ifca.engines.job import Job
from ifca.engines.server import next_state


class _Collected(Mail):
    """Mail that Flower's own loop has sent and collected already."""

    answers = Answers({}, set(), set())

    def ask(self, kind: str, content: Mapping[int, RecordDict], timeout: float | None = None) -> Answers:
        """What came back."""
        del kind, timeout
        replies = self.answers.replies
        return Answers(replies, set(), set(content) - set(replies))


class IFCAStrategy(Strategy):
    """Plain IFCA, its options and the global baseline, one hook at a time. state: as start() makes it."""

    def __init__(self, grid: Grid, job: Job, state: ClusterState, roster: Roster, terms: Terms | None = None):
        if job.recipe.repairs:
            raise InvalidInput(
                "algorithm: a Flower strategy cannot ask clients twice in a round; use ifca-plain"
            )
        self.job, self.state, self._mail = job, state, _Collected(grid)
        terms = replace(terms or Terms(), attempts=1, pause=0)
        self.desk = Desk(self._mail, roster, terms)
        self._engine, self._sent = FlowerEngine(self.desk, job), list[Message]()

    @property
    def arrays(self) -> ArrayRecord:
        """The k models as start() of Flower carries them."""
        return to_record(self.state.theta)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Lines 3 and 4: who takes part, and who is sent which models."""
        del server_round, config, grid
        self.state = replace(self.state, theta=from_record(arrays))
        recipe, clients = self.job.recipe, self.job.federation.train
        self._who = participants(recipe, self.state.round, clients.keys)
        self._known = known_identity(recipe, self.state, self._who)
        places = self._who.tolist()
        letters = self._engine.letters(
            self.state.theta, clients, places, self._known, self.state.round, "train"
        )
        return self._messages(letters, "train")

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Lines 13 to 15: the averages. Too few usable replies: the models stay, the round is done again."""
        del server_round
        self._mail.answers = self._collected(replies)
        who, known, t = self._who, self._known, self.state.round
        try:
            found = self._engine.train(self.state.theta, who, known, t)
        except TooFewClients as reason:
            logging.getLogger("ifca.federation").warning("%s", reason)
            return None, None
        if found.answered is not None:
            who, known = who[found.answered], known[found.answered]
        self.state = next_state(self.job, self.state, who, known, found)
        sizes = cluster_sizes(found.identity, self.job.models)
        told = MetricRecord({"train_loss": float(found.loss.double().mean()), "cluster_sizes": sizes})
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
        all_models = torch.full((len(test),), -1)
        return self._messages(
            self._engine.letters(self.state.theta, test, everyone, all_models, 0, "test"), "evaluate"
        )

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Accuracy and loss by the paper's rule."""
        del server_round
        self._mail.answers = self._collected(replies)
        test = evaluate(self._engine, self.job, self.state.theta, self.state.identity)
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

    def _messages(self, letters: Mapping[int, RecordDict], kind: str) -> list[Message]:
        self._sent = [Message(content, node, kind) for node, content in letters.items()]
        return self._sent

    def _collected(self, replies: Iterable[Message]) -> Answers:
        """By node: an error reply may name the SuperLink as its source, so by the message it answers."""
        node = {message.metadata.message_id: message.metadata.dst_node_id for message in self._sent}
        by_node = {node[r.metadata.reply_to_message_id]: r for r in replies}
        return Answers(by_node, set(), set())


def gather(grid: Grid, timeout: float = 60.0) -> Roster:
    """The clients at the nodes that are connected now."""
    mail = Mail(grid, timeout=timeout)
    desk = Desk(mail, Roster(()))
    members = introduce(mail, mail.nodes(), desk.faults, 0, timeout)
    return desk.roster.joined(members, mail.nodes(), desk.faults, 0)
