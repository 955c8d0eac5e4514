"""The engine whose clients are elsewhere: turns go out as messages, replies are checked and folded."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TypeVar

import torch
from flwr.app import ArrayRecord, ConfigRecord, ConfigRecordValues, RecordDict
from torch import Tensor

from ifca.core.checks import within_others
from ifca.core.errors import TooFewClients
from ifca.core.recipe import Recipe
from ifca.core.rejections import IN_A_ROW
from ifca.core.replies import Needs, Rejection, Replies, Savings, Scores, Solutions
from ifca.core.sampling import count_aside
from ifca.core.types import Params, model_count
from ifca.data import Clients, Federation
from ifca.engines.base import SUMS
from ifca.engines.flower.checked_turns import Turn, collected, needed, nobody_scored, reply_of
from ifca.engines.flower.exchange import Answers
from ifca.engines.flower.faults import REJECTED, Unusable, scores_of, update_of
from ifca.engines.flower.records import TURN, ByteCounter, byte_count, pack
from ifca.engines.flower.session import Session
from ifca.engines.flower.set_aside import compare, solve
from ifca.models.built_in import BuiltIn
from ifca.models.task import Factory

Read = TypeVar("Read")


class FlowerEngine:
    """Maps the client function over nodes. Rounds, averages and identities are those of every engine."""

    name = "flower"

    def __init__(
        self,
        session: Session,
        recipe: Recipe,
        federation: Federation,
        shared: frozenset[str] = frozenset(),
        *,
        alone: bool = False,
        open_to_new: bool = True,
        model: Factory | None = None,
        step_size: float | None = None,
    ) -> None:
        """alone: clients train the local solutions of one-shot clustering; open_to_new: others may join.

        model: the job's; clients are told which of ifca's own it is, as that may follow from all their data.
        step_size: what clients are told to take in place of their config's; None: that.
        """
        self.step_size, self.model = step_size, model.to_json() if isinstance(model, BuiltIn) else None
        self.session, self.recipe, self.federation, self.shared = session, recipe, federation, shared
        self.alone, self.open_to_new = alone, open_to_new
        self.t, self.began = 0, False  # the round that was trained last; whether rounds have begun
        self._scores: dict[str, tuple[Params, Tensor | None, Scores]] = {}  # the last ones of each part

    def train(self, theta: Params, who: Tensor, known: Tensor, t: int, needs: Needs = SUMS) -> Replies:
        """Round t; with too few usable replies it is repeated, and at last given up."""
        terms, self.t, rejected = self.session.terms, t, list[Rejection]()
        m = len(self.federation.train)
        self.session.expect(sum(value[0].numel() * value.element_size() for value in theta.values()))
        carried = torch.zeros(m, dtype=torch.long), torch.zeros(m, dtype=torch.long)
        for attempt in range(terms.attempts):
            self.session.update_roster(t, self.open_to_new)
            turns, refused = self._turns(theta, who, known, t, carried, self.aside(needs))
            replies, now = collected(self, theta, who, known, turns, refused, needs)
            rejected += now
            usable, need = len(replies.identity), needed(terms.min_clients, len(who), rejected)
            if usable >= need:
                return replies._replace(carried=carried, rejected=tuple(rejected))
            detail = f"{usable} usable replies, min_clients is {need}, attempt {attempt + 1}"
            self.session.faults.add(t, "-", 0, "repeated", detail)
            time.sleep(terms.pause)
        raise TooFewClients(
            f"round {t + 1} had {usable} usable replies of {len(who)} clients, min_clients is {need}, "
            f"in each of {terms.attempts} attempts; faults.jsonl says why"
        )

    def score(self, theta: Params, clients: Clients, own: Tensor | None = None) -> Scores:
        """Let every client score all k models, or its own. Clients that do not answer: NaN."""
        return self._score(theta, clients, own, "test" if clients is self.federation.test else "train")

    def score_aside(self, theta: Params, own: Tensor) -> Scores:
        """Let every client score its own model on the samples that it set aside."""
        scores = self._score(theta, self.federation.train, own, "held")
        return scores._replace(loss=within_others(scores.loss))

    def leave_out(self, who: Tensor) -> None:
        """Whoever was rejected too often is named, and asked nothing any more. who: [m]."""
        names = frozenset(self.federation.train.ids[i] for i in torch.nonzero(who)[:, 0].tolist())
        for name in sorted(names - self.session.left_out) if self.began else ():
            node, said = (
                self.session.roster.node(name),
                f"rejected {IN_A_ROW} times in a row: not asked again",
            )
            self.session.faults.add(self.t, name, node, "left-out", said)
        self.session.left_out, self.began = names, True

    def _score(self, theta: Params, clients: Clients, own: Tensor | None, part: str) -> Scores:
        last = self._last(theta, part, own)
        if last is not None:
            return last
        models, counter = model_count(theta) if own is None else 1, ByteCounter()
        wanted = torch.full((len(clients),), -1) if own is None else own
        table = torch.full((len(clients), models, 2), torch.nan, dtype=torch.float64)
        answered = torch.zeros(len(clients), dtype=torch.bool)
        self.session.update_roster(self.t, False)
        missing = [i for i, name in enumerate(clients.ids) if name not in self.session.left_out]
        for _ in range(self.session.terms.attempts):
            messages = self.messages(theta, clients, missing, wanted[missing], 0, part)
            answers = self.session.exchange.send_and_receive("evaluate", messages)
            self.session.evaluation_bytes += sum(counter.count(content) for content in messages.values())
            for i in missing:
                most = None if self.federation.classes is None else int(clients.sizes[i])
                found = self.usable(
                    answers,
                    clients.ids[i],
                    self.t,
                    lambda reply, most=most: scores_of(reply, models, most),  # type: ignore[misc]
                )
                if found is not None:
                    table[i], answered[i] = torch.tensor(found, dtype=torch.float64).T, True
            failed = {clients.ids[i]: i for i in missing if not answered[i]}
            missing = [i for name, i in failed.items() if self.session.roster.node(name) in answers.replies]
            if not missing:  # who is silent or gone will not be there a moment later either
                break
        if not bool(answered.any()):
            raise nobody_scored(self, clients, part)
        table = table.to(next(iter(theta.values())).dtype)
        scores = Scores(table[..., 0], table[..., 1], None if bool(answered.all()) else answered)
        self._scores[part] = theta, own, scores
        return scores

    def aside(self, needs: Needs) -> bool:
        """Whether clients train without the samples that they set aside."""
        return needs.aside or self.recipe.early_stopping

    def fits(self, theta: Params) -> None:
        """Clients bring their own memory."""

    def _last(self, theta: Params, part: str, own: Tensor | None) -> Scores | None:
        """The answer to the same question, where it was put before: after the last round it is put twice."""
        if part not in self._scores:
            return None
        of, chosen, scores = self._scores[part]
        same = chosen is own or (chosen is not None and own is not None and torch.equal(chosen, own))
        known = of.keys() == theta.keys() and all(torch.equal(v, of[name]) for name, v in theta.items())
        return scores if known and same else None

    def _turns(
        self,
        theta: Params,
        who: Tensor,
        known: Tensor,
        t: int,
        carried: tuple[Tensor, Tensor],
        aside: bool,
    ) -> tuple[dict[int, Turn], list[Rejection]]:
        """Usable replies by participant, and those that are refused; all messages' bytes are counted."""
        clients, places, counter = self.federation.train, who.tolist(), ByteCounter()
        messages = self.messages(theta, clients, places, known, t, "kept" if aside else "train")
        answers = self.session.exchange.send_and_receive("train", messages)
        turns, refused = dict[int, Turn](), list[Rejection]()
        sizes = clients.sizes - count_aside(clients.sizes) if aside else clients.sizes
        for row, (i, own) in enumerate(zip(places, known.tolist(), strict=True)):
            node = self.session.roster.node(clients.ids[i])
            if node in messages and node not in answers.busy:
                carried[0][i] += counter.count(messages[node])
            reply = answers.replies.get(node)
            if reply is not None and reply.has_content():
                carried[1][i] += sum(byte_count(record) for record in reply.content.values())
            half, option = self.session.terms.half, self.recipe.option
            try:
                found = reply_of(answers, node)
                turns[i] = update_of(found, theta, own, t, int(sizes[i]), half=half, option=option)
            except Unusable as reason:
                self.session.faults.add(t, clients.ids[i], node, reason.kind, str(reason))
                if reason.kind in REJECTED:
                    refused.append(Rejection(row, reason.kind, str(reason), reason.cluster))
        return turns, refused

    def messages(
        self, theta: Params, clients: Clients, places: list[int], known: Tensor, t: int, part: str
    ) -> dict[int, RecordDict]:
        """A message by node: the k models, or the one that is known. Equal records are one object."""
        turn = self.told(t, part)
        packed: dict[int, dict[str, ArrayRecord]] = {}
        connected, messages = set(self.session.exchange.nodes()), {}
        for i, own in zip(places, known.tolist(), strict=True):
            node = self.session.roster.node(clients.ids[i])
            if node not in connected or clients.ids[i] in self.session.left_out:
                continue
            if own not in packed:
                some = theta if own < 0 else {n: v[own : own + 1] for n, v in theta.items()}
                packed[own] = pack(some, self.shared)
            messages[node] = RecordDict({**packed[own], TURN: ConfigRecord({**turn, "own": own >= 0})})
        return messages

    def told(self, t: int, part: str) -> dict[str, ConfigRecordValues]:
        """What clients are told beside models; part: of their data, train, kept, aside, held, probe, test."""
        classes = self.federation.classes
        weights = self.federation.class_weights(self.recipe.class_weights)
        agreed: dict[str, ConfigRecordValues] = {}
        if self.session.preparation:
            agreed["preparation"] = self.session.preparation
        scalings = {"feature": self.federation.scaling, "target": self.federation.target_scaling}
        for name, scaling in scalings.items():
            if scaling is not None:
                agreed[f"{name}_mean"] = scaling.mean.flatten().tolist()
                agreed[f"{name}_scale"] = scaling.scale.flatten().tolist()
        if weights is not None:
            agreed["class_weights"] = list(weights)
        if self.model is not None:
            agreed["model"] = json.dumps(self.model)
        if self.step_size is not None:
            agreed["step_size"] = self.step_size
        return {
            **agreed,
            "round": t,
            "alone": self.alone,
            "half": self.session.terms.half,
            "part": part,
            "classes": -1 if classes is None else classes,
        }

    def solve(self) -> Solutions:
        """Every client's solution of the probe; who does not answer has none."""
        return solve(self)

    def compare(
        self, theta: Params, who: Tensor, own: Tensor, others: Tensor, *, probes: bool = False
    ) -> Savings:
        """Each client is sent its own model and the others, and says what it loses more, summed."""
        return compare(self, theta, who, own, others, "probe" if probes else "aside")

    def usable(self, answers: Answers, name: str, t: int, read: Callable[..., Read]) -> Read | None:
        """What a client's reply says, or None and a fault; None of one that is not asked any more."""
        node = self.session.roster.node(name)
        if name in self.session.left_out:
            return None
        try:
            return read(reply_of(answers, node))
        except Unusable as reason:
            self.session.faults.add(t, name, node, reason.kind, str(reason))
            return None
