"""What goes wrong in a federation: named, logged with the node, counted; the round goes on without it."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from flwr.app import Message

from ifca.core.errors import InvalidInput
from ifca.core.types import Params, select
from ifca.engines.flower.receiver import MALFORMED
from ifca.engines.flower.records import REPLY, UPDATE, from_record

# Flower's codes, and one of ours; others: "unavailable"
ERRORS = {1: "raised", 2: "raised", 5: "lost", 8: "crashed", MALFORMED: "malformed"}
Fault = dict[str, Any]
"""round, client, node, kind, detail: a line of faults.jsonl."""


REJECTED = ("malformed", "stale", "cluster-out-of-range", "wrong-shape", "not-finite", "wrong-count")
"""Kinds of replies that came and say what no honest client says; core/checks.py has others."""


class Unusable(Exception):
    """A reply that must not be used: its kind, what is wrong with it, the model that it was to change."""

    def __init__(self, kind: str, detail: str, cluster: int = -1) -> None:
        super().__init__(detail)
        self.kind, self.cluster = kind, cluster


class FaultLog:
    """Counts faults by kind, and tells each to the log and to whoever listens. reasons: the last, by node."""

    def __init__(self, tell: Callable[[Fault], None] | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self.reasons: dict[int, str] = {}
        self._tell = tell

    def add(self, t: int, client: str, node: int, kind: str, detail: str) -> None:
        """One event."""
        self.counts[kind] += 1
        detail = printable(detail)[:300]
        self.reasons[node] = f"{kind} ({detail})"
        logging.getLogger("ifca.federation").warning(
            "round %d: client %s: %s (%s)", t + 1, client, kind, detail
        )
        if self._tell is not None:
            told = {"round": t, "client": client, "node": str(node), "kind": kind, "detail": detail}
            self._tell(told)


def content_of(reply: Message | None) -> Message:
    """A reply that has content; an error or none is unusable."""
    if reply is None:
        raise Unusable("no-reply", "no answer within the round's timeout")
    if reply.has_error():
        kind = ERRORS.get(reply.error.code, "unavailable")
        raise Unusable(kind, cause(reply.error.reason or "") or f"error {reply.error.code}")
    return reply


def cause(reason: str) -> str:
    """What a client's code said, out of Flower's report of it: <class 'X'>:<'text'>, in a simulation with
    the traceback of the Ray actor before the text.
    """
    text = printable(reason).removesuffix("'>").rpartition("ClientAppException occurred. Message: ")[2]
    return re.sub(r"^<class '(?:\w+\.)*(\w+)'>:<'", r"\1: ", text)


def printable(text: str) -> str:
    """On one line, without what a terminal would take as a command."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def update_of(
    reply: Message, theta: Params, known: int, t: int, samples: int, *, half: bool, option: str
) -> tuple[int, list[float], Params]:
    """Identity, losses [k] (NaN for models not sent) and update of a reply to round t, checked.

    known: the one model that was sent, or -1: all k. samples: that the client said it has when it joined, as
    far as it trains on them.
    """
    try:
        found = reply.content.metric_records[REPLY]
        at, j, losses, count = (found[name] for name in ("round", "identity", "losses", "samples"))
        update = from_record(reply.content.array_records[UPDATE])
    except (KeyError, InvalidInput) as reason:
        raise Unusable("malformed", str(reason)) from reason
    k = len(next(iter(theta.values())))
    sent = k if known < 0 else 1
    if at != t:
        raise Unusable("stale", f"the reply is to round {at}, not to round {t}")
    if not isinstance(j, int) or not 0 <= j < sent:
        raise Unusable("cluster-out-of-range", f"cluster {j} of {sent}")
    if count != samples:
        raise Unusable("wrong-count", f"it trained on {count} samples, by what it said first on {samples}")
    if not isinstance(losses, list) or len(losses) != sent:
        raise Unusable("malformed", f"expected {sent} losses")
    one = select(theta, known if known >= 0 else j)
    check_like(update, one, torch.float16 if half else next(iter(one.values())).dtype)
    if not all(bool(torch.isfinite(value).all()) for value in update.values()):
        raise Unusable("not-finite", "the update has a NaN or infinite value", max(known, j))
    if not torch.isfinite(torch.tensor(float(losses[j]))):
        raise Unusable("not-finite", f"the loss of its model is {losses[j]}", max(known, j))
    table = [float(x) for x in losses]
    if known >= 0:
        table = [table[0] if c == known else torch.nan for c in range(k)]
        j = known
    if half:
        update = {n: v.to(one[n]) + (one[n] if option == "model" else 0) for n, v in update.items()}
    return j, table, {n: v.to(one[n].device) for n, v in update.items()}


def check_like(update: Params, one: Params, kind: torch.dtype) -> None:
    """An update has the names, shapes and type of a model."""
    if update.keys() != one.keys():
        raise Unusable("wrong-shape", f"parameters {sorted(update)}, expected {sorted(one)}")
    for name, value in update.items():
        if value.shape != one[name].shape or value.dtype != kind:
            got, expected = (tuple(value.shape), value.dtype), (tuple(one[name].shape), kind)
            raise Unusable("wrong-shape", f"{name}: {got[0]} {got[1]}, expected {expected[0]} {expected[1]}")


def scores_of(reply: Message, models: int, samples: int | None) -> tuple[list[float], list[float]]:
    """Loss and right predictions by model, as many as were sent.

    samples: that were judged; None: a regression, where no prediction is right or wrong.
    """
    try:
        found = reply.content.metric_records[REPLY]
        loss, correct = found["loss"], found["correct"]
    except KeyError as reason:
        raise Unusable("malformed", str(reason)) from reason
    if not (isinstance(loss, list) and isinstance(correct, list) and len(loss) == len(correct) == models):
        raise Unusable("malformed", f"expected {models} scores")
    if not any(torch.isfinite(torch.tensor([float(x) for x in loss]))):
        raise Unusable("not-finite", f"the losses of all models are {loss}")
    if samples is not None and not all(0 <= x <= samples for x in correct):
        raise Unusable("malformed", f"right predictions {correct} of {samples} samples")
    return [float(x) for x in loss], [float(x) for x in correct]


def savings_of(reply: Message, q: int, samples: int) -> tuple[int, list[float], list[float]]:
    """Samples, and for each of q other models the sum of what is lost more and of its squares.

    samples: as many as the client sets aside of those that it said it has.
    """
    try:
        found = reply.content.metric_records[REPLY]
        count, total, square = found["count"], found["total"], found["square"]
    except KeyError as reason:
        raise Unusable("malformed", str(reason)) from reason
    if count != samples:
        raise Unusable("wrong-count", f"it compared on {count} samples, by what it said first on {samples}")
    if not (isinstance(total, list) and isinstance(square, list) and len(total) == len(square) == q):
        raise Unusable("malformed", f"expected {q} comparisons")
    if not torch.isfinite(torch.tensor([*total, *square], dtype=torch.float64)).all():
        raise Unusable("not-finite", "a comparison is not a number")
    if any(b * count < a * a * (1 - 1e-9) - 1e-300 for a, b in zip(total, square, strict=True)):
        raise Unusable("malformed", "sums of squares that no differences have")
    return samples, [float(x) for x in total], [float(x) for x in square]
