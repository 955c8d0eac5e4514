"""What the server checks before it uses a reply: by hand, and one liar in a federation in one process."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import Tensor

from ifca.core.checks import behind, capped_savings, capped_weights, unusable, within_others
from ifca.core.errors import Diverged, TooFewClients
from ifca.core.replies import Savings
from ifca.data import rotated_digits
from ifca.data.jsonl import read_jsonl
from ifca.report.ending_words import ending_sentences
from ifca.runs.config import Config, read_config
from ifca.runs.make import make_job
from ifca.training import fit
from ifca.training.checkpoint import load_state

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from ifca.engines.flower.local_grid import LocalGrid
from ifca.engines.flower.records import from_record, to_record, unpack
from ifca.federation.apps import client_app
from ifca.federation.serverapp import serve

LIAR, HUGE = "0-02", 2**31 - 1  # the client at node 3; a number of samples
SMALL = ["k=2", "data.samples=200", "data.angles=[0,90]", "model.name=logistic", "device=cpu", "rounds=5"]
SMALL += ["local_steps=5", "evaluate_every=0", "restarts=1", "baselines=[]", "federation.clients=14"]
SMALL += ["step_size=0.5", "federation.attempts=3"]
Lie = Callable[[Message, Message], Message]
"""A message and its honest reply -> what comes back."""


def rejected(length: Sequence[float], own: list[int], losses: Tensor, steps: list[int] | None = None) -> Any:
    theta = {"w": torch.zeros(2, 1)}
    p = len(length)
    found = unusable(
        theta,
        torch.tensor(length, dtype=torch.float64),
        torch.tensor(own),
        losses,
        torch.ones(p, dtype=torch.bool),
        torch.tensor(steps or [1] * p),
    )
    return [(one.row, one.kind) for one in found]


class TestByHand:
    def test_a_change_is_held_against_the_median(self) -> None:
        """The median of 1, 1, 2, 3, 11 is 2, ten times which is 20."""
        fine = torch.tensor([[1.0, 2.0]] * 5)
        assert rejected([1, 1, 2, 3, 20], [0] * 5, fine) == []
        assert rejected([1, 1, 2, 3, 21], [0] * 5, fine) == [(4, "too-large")]

    def test_a_cluster_of_three_has_a_median_of_its_own(self) -> None:
        """Four clients move by 1 and three by 50: the three are usual in their own cluster."""
        losses = torch.tensor([[1.0, 2.0]] * 4 + [[2.0, 1.0]] * 3)
        assert rejected([1] * 4 + [50] * 3, [0] * 4 + [1] * 3, losses) == []
        assert rejected([1] * 5 + [50] * 2, [0] * 5 + [1] * 2, losses.flip(0)[[3, 4, 5, 6, 3, 0, 1]]) == [
            (5, "too-large"),
            (6, "too-large"),
        ]

    def test_who_takes_more_steps_may_go_farther(self) -> None:
        fine = torch.tensor([[1.0, 2.0]] * 5)
        assert rejected([1, 1, 1, 1, 15], [0] * 5, fine, [1, 1, 1, 1, 2]) == []

    def test_who_loses_more_may_go_farther(self) -> None:
        """Clients that began a model anew: losses 0 to 2, the median 1; 3 times as far at most, and nobody's
        word counts beyond that of another.
        """
        own = [0] * 7
        losses = [[loss, 9.0] for loss in (0.0, 0.5, 1.0, 1.0, 1.0, 2.0, 2.0)]
        assert rejected([1] * 5 + [20, 20], own, torch.tensor(losses)) == []
        shifted = torch.tensor(losses) * 7 - 40
        assert rejected([1] * 5 + [20, 21], own, shifted) == [(6, "too-large")]
        alone = [*losses[:5], [1.0, 9.0], [8.0, 9.0]]
        assert rejected([1] * 6 + [11], own, torch.tensor(alone)) == [(6, "too-large")]
        assert behind(torch.tensor([0.0, 0.0, 0.0, 5.0, 5.0])).tolist() == [1, 1, 1, 3, 3]
        assert behind(torch.ones(4)).tolist() == [1] * 4

    def test_two_finite_replies_do_not_judge_each_other(self) -> None:
        losses = torch.tensor([[1.0, 2.0]] * 3)
        assert rejected([1, 30, torch.nan], [0] * 3, losses) == [(2, "not-finite")]

    def test_an_identity_has_the_lowest_loss_but_for_rounding(self) -> None:
        losses = torch.tensor([[1.0, 2.0], [1.00001, 1.0], [2.0, 1.0], [torch.nan, 1.0]])
        found = rejected([1, 1, 1, 1], [0, 0, 0, 0], losses)
        assert found == [(2, "contradicts-losses"), (3, "not-finite")]

    def test_nobody_weighs_more_than_the_others_of_its_cluster(self) -> None:
        """3, 5 and 100: 100 becomes 8. Of two clients nobody can say who lies."""
        weight = torch.tensor([3.0, 5.0, HUGE, 7.0, 70.0])
        assert capped_weights(weight, torch.tensor([0, 0, 0, 1, 1])).tolist() == [3, 5, 8, 7, 70]

    def test_words_stay_within_three_widths_of_the_others(self) -> None:
        """The others say 0 to 1, so 4 is the most that counts and -3 the least."""
        others = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 1.0]
        for said, counts in ((3.9, 3.9), (1e30, 4.0), (-1e30, -3.0), (0.7, 0.7)):
            assert within_others(torch.tensor([*others, said])).tolist() == pytest.approx([*others, counts])
        assert within_others(torch.tensor([1.0, 2.0, 1e30])).tolist()[2] == pytest.approx(1e30)

    def test_one_comparison_decides_nothing(self) -> None:
        """Seven clients lose 1 a sample on ten samples each; the eighth says -1000 on as many as it likes."""
        samples = torch.tensor([10] * 7 + [10**6])
        total = torch.tensor([[10.0]] * 7 + [[-1e9]], dtype=torch.float64)
        square = torch.tensor([[10.0 + i] for i in range(7)] + [[1e12]], dtype=torch.float64)
        found = capped_savings(Savings(samples, total, square))
        assert found.samples.tolist() == [10] * 7 + [70]
        assert found.total[:, 0].tolist() == [10.0] * 7 + [70.0]
        honest = Savings(samples[:7].repeat(2), total[:7].repeat(2, 1), square[:7].repeat(2, 1))
        assert capped_savings(honest) is honest


def part_of(message: Message) -> str:
    turn = message.content.config_records.get("turn")
    return "" if turn is None else str(turn.get("part", ""))


def changed(factor: float) -> Lie:
    """The change of the model, or the gradient, times a factor."""

    def lie(message: Message, reply: Message) -> Message:
        if message.metadata.message_type != "train" or part_of(message) == "probe":
            return reply
        update, theta = from_record(reply.content.array_records["update"]), unpack(message.content)
        j = int(reply.content.metric_records["reply"]["identity"])  # type: ignore[arg-type]
        twisted = {n: (theta[n][j] + factor * (v - theta[n][j])).float() for n, v in update.items()}
        return Message(RecordDict({**reply.content, "update": to_record(twisted)}), reply_to=message)

    return lie


def says(message: Message, reply: Message, **told: Any) -> Message:
    metrics = MetricRecord({**reply.content.metric_records["reply"], **told})
    return Message(RecordDict({**reply.content, "reply": metrics}), reply_to=message)


def turns(change: Callable[[list[float], int], dict[str, Any]]) -> Lie:
    """Losses and round of a turn -> what is said instead."""

    def lie(message: Message, reply: Message) -> Message:
        if message.metadata.message_type != "train" or part_of(message) == "probe":
            return reply
        found: Any = reply.content.metric_records["reply"]
        return says(message, reply, **change(list(found["losses"]), int(found["round"])))

    return lie


def worst(losses: list[float], _round: int) -> dict[str, Any]:
    return {"identity": losses.index(max(losses)) if len(losses) > 1 else 0}


def lies_in_all(message: Message, reply: Message) -> Message:
    """In its solution of the probe, in its losses, and in every comparison."""
    kind, part = message.metadata.message_type, part_of(message)
    if part == "probe" and kind == "train":
        found = from_record(reply.content.array_records["update"])
        return Message(RecordDict({"update": to_record({"w": -8 * found["w"]})}), reply_to=message)
    if kind == "train":
        return turns(
            lambda losses, _: {"losses": [1e6] * (len(losses) - 1) + [0.0], "identity": len(losses) - 1}
        )(message, reply)
    if kind == "evaluate" and part in ("aside", "probe"):
        told: Any = reply.content.metric_records["reply"]
        count, q = told["count"], len(told["total"])
        return says(message, reply, total=[-1e6 * count] * q, square=[4e12 * count] * q)
    return reply


def claims_many(message: Message, reply: Message) -> Message:
    """It joins with 2^31 - 1 samples, and says so ever after."""
    kind, part, aside = message.metadata.message_type, part_of(message), HUGE // 5
    if kind == "query":
        told = {**reply.content.config_records["reply"], "samples": HUGE}
        return Message(RecordDict({"reply": ConfigRecord(told)}), reply_to=message)
    if kind == "train" and part != "probe":
        return says(message, reply, samples=HUGE - aside if part == "kept" else HUGE)
    return says(message, reply, count=aside) if part in ("aside", "probe") and kind == "evaluate" else reply


LIES: dict[str, tuple[Lie, str | None]] = {
    "x100": (changed(100), "too-large"),
    "x1e6": (changed(1e6), "too-large"),
    "1e38": (changed(1e38), "too-large"),
    "NaN": (changed(float("nan")), "not-finite"),
    "many samples": (claims_many, None),
    "another count": (turns(lambda _l, _t: {"samples": HUGE}), "wrong-count"),
    "losses all zero": (turns(lambda losses, _: {"losses": [0.0] * len(losses), "identity": 0}), None),
    "contradicts": (turns(worst), "contradicts-losses"),
    "stale": (turns(lambda _l, t: {"round": t - 1}), "stale"),
    "lies in all": (lies_in_all, None),
}


class Grid(LocalGrid):
    """Fourteen clients, of whom some lie."""

    def __init__(self, config: Config, lie: Lie | None, liars: tuple[int, ...] = (3,)) -> None:
        super().__init__(client_app(config), 14)
        self.lie, self.liars = lie, liars

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        keys = list(super().push_messages(messages))
        for key, message in zip(keys, messages, strict=True):
            if self.lie is not None and message.metadata.dst_node_id in self.liars:
                self._replies[key] = self.lie(message, self._replies[key])
        return keys


def honest_accuracy(out: Path) -> float:
    with (out / "clients.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["id"] != LIAR]
    return sum(float(row["test_accuracy"]) for row in rows) / len(rows)


@lru_cache
def without_lies(settings: tuple[str, ...]) -> float:
    config = read_config(None, [*SMALL, *settings])
    with TemporaryDirectory() as folder:
        serve(Grid(config, None), config, Path(folder, "run"), poll=0.001)
        return honest_accuracy(Path(folder, "run"))


PLAIN, DEFAULT = ("algorithm=ifca-plain",), ("algorithm=ifca",)
SHARED = (*DEFAULT, "model.name=mlp", "model.hidden=[8]", 'shared=["fc1"]')
GRADIENT = ("option=gradient", "step_size=2.0")
CASES: list[tuple[str, tuple[str, ...]]] = [
    (lie, PLAIN) for lie in ("x100", "NaN", "another count", "contradicts")
]
CASES += [(lie, DEFAULT) for lie in ("1e38", "lies in all", "losses all zero")]
CASES += [("many samples", (*PLAIN, "weighted=true")), ("x1e6", SHARED)]
CASES += [("x1e6", (*PLAIN, *GRADIENT)), ("stale", (*DEFAULT, *GRADIENT))]


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_one_liar_costs_the_others_nothing(name: str, settings: tuple[str, ...], tmp_path: Path) -> None:
    lie, why = LIES[name]
    config, out = read_config(None, [*SMALL, *settings]), tmp_path / "run"
    grid = Grid(config, lie)
    summary = serve(grid, config, out, poll=0.001)
    assert summary["rounds"] == 5
    assert (
        honest_accuracy(out) > without_lies(settings) - 0.03
    )  # a client less; docs/security.md has all of 28
    if why is None:
        assert summary["rejected"]["replies"] == 0
        return
    assert summary["rejected"] == {
        "replies": 3,
        "clients": {LIAR: 3},
        "why": {why: 3},
        "left_out": {LIAR: 3},
    }
    assert summary["faults"] == {why: 3, "left-out": 1}
    asked = [m for m in grid.sent if m.metadata.dst_node_id == 3 and part_of(m) in ("train", "kept")]
    assert len(asked) == 3
    assert f"Client {LIAR} was rejected three times in a row" in " ".join(ending_sentences(summary))


def test_a_run_goes_on_without_whom_it_left_out(tmp_path: Path) -> None:
    """It stops after four rounds; when it goes on, the liar is honest again, and is not asked."""
    config, out = read_config(None, [*SMALL, *PLAIN]), tmp_path / "run"

    class Stop:
        def round_ended(self, record: dict[str, Any]) -> None:
            if record["round"] == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve(Grid(config, changed(100)), config, out, Stop(), poll=0.001)  # type: ignore[arg-type]
    state = load_state(out / "checkpoint.safetensors", torch.device("cpu"), lambda _: None)
    assert state.checks["in_a_row"].tolist() == [0, 0, 3] + [0] * 11
    grid = Grid(config, None)
    summary = serve(grid, config, out, poll=0.001)
    assert [part_of(m) for m in grid.sent if m.metadata.dst_node_id == 3] == [""]  # who it is, and no more
    assert summary["rejected"]["left_out"] == {LIAR: 3}
    assert summary["faults"] == {"too-large": 3, "left-out": 1}


def test_one_liar_cannot_end_a_federation_that_wants_all(tmp_path: Path) -> None:
    """Every attempt of the first round is a reply that is rejected: then it is left out."""
    terms = ["federation.min_clients=14", "federation.round_timeout=0.3"]
    config = read_config(None, [*SMALL, *PLAIN, *terms, "rounds=2"])
    summary = serve(Grid(config, changed(1e6)), config, tmp_path / "run", poll=0.001)
    assert summary["rejected"]["left_out"] == {LIAR: 1}
    assert summary["faults"] == {"left-out": 1, "repeated": 2, "too-large": 3}


def test_a_poisoned_run_goes_on_from_the_last_models_that_served(tmp_path: Path) -> None:
    """In round 3 nine of fourteen send models of 1e38, against which no check helps; then all are honest."""
    settings = ("algorithm=global", "on_divergence=stop")
    config, out = read_config(None, [*SMALL, *settings]), tmp_path / "run"

    def poison(message: Message, reply: Message) -> Message:
        turn = message.content.config_records.get("turn")
        return changed(1e38)(message, reply) if turn is not None and turn.get("round") == 2 else reply

    nine = Grid(config, poison, tuple(range(1, 10)))
    with pytest.raises(Diverged, match="goes back to the last models that served"):
        serve(nine, config, out, poll=0.001)
    assert load_state(out / "checkpoint.safetensors", torch.device("cpu"), lambda _: None).round == 2
    summary = serve(Grid(config, None), config, out, poll=0.001)
    assert summary["rounds"] == 5
    assert honest_accuracy(out) == pytest.approx(without_lies(settings))
    assert not (out / "checkpoint-served.safetensors").exists()


@pytest.mark.parametrize("factor", [1e6, 1e38])
def test_of_two_clients_one_liar_leaves_the_best_models_that_were(factor: float, tmp_path: Path) -> None:
    """Nobody can say which of two lies in the last round, but that their models serve nobody after it."""
    config = read_config(None, [*SMALL, "algorithm=global", "federation.clients=2", "rounds=3"])

    def last(message: Message, reply: Message) -> Message:
        turn = message.content.config_records.get("turn")
        return changed(factor)(message, reply) if turn is not None and turn.get("round") == 2 else reply

    grid = Grid(config, last)
    grid.connected = {1, 3}
    summary = serve(grid, config, tmp_path / "run", poll=0.001)
    assert summary["rounds"] == 3
    first = read_jsonl(tmp_path / "run" / "rounds.jsonl")[0]
    assert summary["train_loss"] <= first["train_loss"]
    assert "training diverged: after " in summary["halved"][0]["because"]


def test_when_nobody_scores_the_run_stops_and_can_go_on(tmp_path: Path) -> None:
    """All clients are gone after the last round: it is said, and the run is finished when they are back."""
    config, out = read_config(None, [*SMALL, *PLAIN, "rounds=2"]), tmp_path / "run"

    class Leaving(Grid):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            messages = list(messages)
            if any(message.metadata.message_type == "evaluate" for message in messages):
                self.connected = set()
                return [""] * len(messages)
            return super().push_messages(messages)

    with pytest.raises(
        TooFewClients, match="none of 14 clients told how well the models do on its test data"
    ):
        serve(Leaving(config, None), config, out, poll=0.001)
    assert serve(Grid(config, None), config, out, poll=0.001)["rounds"] == 2


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
@pytest.mark.parametrize("weighted", [False, True])
def test_checking_changes_nothing_for_honest_clients(engine: str, weighted: bool) -> None:
    federation = rotated_digits(samples=200, angles=(0, 90))
    settings = [*SMALL, f"engine={engine}", f"weighted={str(weighted).lower()}", "rounds=3"]
    plain = make_job(read_config(None, [*settings, *DEFAULT]), federation)
    checked = replace(plain, recipe=replace(plain.recipe, check_updates=True))
    a, b = fit(plain), fit(checked)
    tolerance = 0.0 if engine == "loop" else 1e-5
    for name, value in a.state.theta.items():
        torch.testing.assert_close(value, b.state.theta[name], rtol=0, atol=tolerance)
    assert not b.state.checks
