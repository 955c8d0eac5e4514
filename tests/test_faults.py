"""What goes wrong in a federation: the round goes on, the event is logged, nothing bad is used."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ifca.data import Client
from ifca.data.jsonl import read_jsonl
from ifca.runs.config import Config, read_config
from ifca.runs.run import run
from ifca.runs.run_folder import PRIVATE
from ifca.training.checkpoint import load_tensors

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict

from ifca.engines.flower import TooFewClients
from ifca.engines.flower.exchange import Exchange
from ifca.engines.flower.faults import cause
from ifca.engines.flower.local_grid import LocalGrid
from ifca.engines.flower.members import QUERY_TIMEOUT
from ifca.engines.flower.records import from_record, to_record
from ifca.federation.apps import client_app
from ifca.federation.serverapp import serve

SMALL = ["algorithm=ifca-plain", "k=2", "rounds=4", "data.samples=300", "model.hidden=[8]", "device=cpu"]
SMALL += [
    "evaluate_every=0",
    "restarts=1",
    "baselines=[]",
    "federation.clients=16",
    "federation.round_timeout=0.3",
]
Twist = Callable[[Message, Message], Message | None]
"""A message and its honest reply -> what comes back; None: nothing, until it is too late."""


class Federation(LocalGrid):
    """Sixteen clients of which some misbehave."""

    def __init__(self, config: Config, twist: Twist | None = None) -> None:
        super().__init__(client_app(config), 16)
        self.twist, self.withheld = twist, list[tuple[str, Message]]()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        self._replies.update(self.withheld)
        self.withheld.clear()
        keys = list(super().push_messages(messages))
        for key, message in zip(keys, messages, strict=True):
            if self.twist is not None and message.metadata.message_type == "train":
                reply = self.twist(message, self._replies.pop(key))
                if reply is not None:
                    self._replies[key] = reply
        return keys


def at(message: Message) -> tuple[int, int]:
    """Round and node."""
    return int(str(message.content.config_records["turn"]["round"])), message.metadata.dst_node_id


def reply_with(message: Message, reply: Message, **found: object) -> Message:
    metrics = MetricRecord({**reply.content.metric_records["reply"], **found})  # type: ignore[dict-item]
    return Message(RecordDict({**reply.content, "reply": metrics}), reply_to=message)


def update_with(message: Message, reply: Message, change: Callable[[torch.Tensor], torch.Tensor]) -> Message:
    update = {n: change(v) for n, v in from_record(reply.content.array_records["update"]).items()}
    return Message(RecordDict({**reply.content, "update": to_record(update)}), reply_to=message)


def named(layout: str) -> Twist:
    """The update under another name, which is where its layout stands."""

    def twist(message: Message, reply: Message) -> Message:
        array = next(iter(reply.content.array_records["update"].values()))
        update = ArrayRecord({layout: Array(array.dtype, (0,), array.stype, array.data[:0])})
        return Message(RecordDict({**reply.content, "update": update}), reply_to=message)

    return twist


KINDS: dict[str, tuple[str, Twist]] = {
    "raises": ("raised", lambda message, _: Message(Error(2, "ValueError: no"), reply_to=message)),
    "is killed": ("lost", lambda message, _: Message(Error(5, "gone"), reply_to=message)),
    "crashes": ("crashed", lambda message, _: Message(Error(8, "gone"), reply_to=message)),
    "wrong shape": ("wrong-shape", lambda m, r: update_with(m, r, lambda v: v[..., :1])),
    "wrong type": ("wrong-shape", lambda m, r: update_with(m, r, lambda v: v.double())),
    "NaN": ("not-finite", lambda m, r: update_with(m, r, lambda v: v * torch.nan)),
    "NaN loss": ("not-finite", lambda m, r: reply_with(m, r, losses=[torch.nan, torch.nan])),
    "no layout": ("malformed", named("x")),
    "layout without an end": ("malformed", named("[" * 100_000)),
    "shape that is none": ("malformed", named('{"x": {}}')),
    "shape beyond numbers": ("malformed", named('{"x": [0, 1000000000000000000000]}')),
    "strides beyond numbers": ("malformed", named('{"x": [0, 4294967296, 4294967296]}')),
    "cluster out of range": ("cluster-out-of-range", lambda m, r: reply_with(m, r, identity=2)),
    "negative cluster": ("cluster-out-of-range", lambda m, r: reply_with(m, r, identity=-1)),
    "stale round": ("stale", lambda m, r: reply_with(m, r, round=0)),
    "too few losses": ("malformed", lambda m, r: reply_with(m, r, losses=[1.0])),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_round_goes_on_without_the_client(kind: str, tmp_path: Path) -> None:
    """One client misbehaves in round 1: its update is not used, and in the next it is asked again."""
    name, twist = KINDS[kind]
    config = read_config(None, SMALL)
    grid = Federation(config, lambda m, r: twist(m, r) if at(m) == (1, 3) else r)
    summary = serve(grid, config, tmp_path / "run", poll=0.01)
    assert summary["faults"][name] == 1
    assert set(summary["faults"]) <= {name, "late"}
    faults = [json.loads(line) for line in (tmp_path / "run" / "faults.jsonl").read_text().splitlines()]
    assert [(f["round"], f["client"], f["node"]) for f in faults if f["kind"] == name] == [(1, "0-02", "3")]
    rounds = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [record["participants"] for record in rounds] == [16, 15, 16, 16]
    assert 2 not in rounds[1]["clients"]
    assert rounds[1]["bytes_down"] == rounds[0]["bytes_down"]  # it was sent its message


def test_a_late_reply_is_thrown_away_and_its_client_asked_again(tmp_path: Path) -> None:
    config = read_config(None, SMALL)
    grid = Federation(config)

    def hangs_over_two_rounds(message: Message, reply: Message) -> Message | None:
        if at(message) == (1, 3):
            grid.withheld.append((message.metadata.message_id, reply))
            return None
        return reply

    grid.twist = hangs_over_two_rounds
    summary = serve(grid, config, tmp_path / "run", poll=0.01)
    assert summary["faults"] == {"busy": 1, "late": 1, "no-reply": 1}


def test_half_a_line_in_the_log_of_faults_is_no_fault(tmp_path: Path) -> None:
    """A server that was killed while it wrote the log goes on, and its next fault is a line of its own."""
    config, out = read_config(None, SMALL), tmp_path / "run"
    grid = Federation(config, lambda m, r: KINDS["raises"][1](m, r) if at(m) == (1, 3) else r)
    serve(grid, config, out, poll=0.01)
    for name in ("summary.json", "rounds.jsonl", "checkpoint.safetensors"):
        (out / name).unlink()
    with (out / "faults.jsonl").open("a") as log:
        log.write('{"round": 2, "cli')
    assert serve(grid, config, out, poll=0.01)["faults"] == {"raised": 2}
    assert [fault["kind"] for fault in read_jsonl(out / "faults.jsonl")] == ["raised", "raised"]


def test_a_client_whose_message_was_lost_is_asked_again(tmp_path: Path) -> None:
    """Its process was killed with the message of round 1 and came back; a round needs all, and gets them."""
    config = read_config(None, [*SMALL, "federation.min_clients=16", "federation.attempts=50"])
    lost = list[int]()

    def is_lost(message: Message, reply: Message) -> Message | None:
        if at(message) == (1, 3) and not lost:
            lost.append(1)
            return None
        return reply

    summary = serve(Federation(config, is_lost), config, tmp_path / "run", poll=0.01)
    assert summary["faults"]["no-reply"] == 1
    rounds = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [record["participants"] for record in rounds] == [16, 16, 16, 16]


def test_a_node_that_is_only_slow_is_waited_for_longer_each_time() -> None:
    """Messages that it never answers: 2, 3, 5, 9, 17 timeouts between them, so that they do not pile up."""
    grid = Federation(read_config(None, SMALL), lambda _message, _reply: None)
    exchange, sent = Exchange(grid, timeout=0.02, poll=0.001), 0
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        sent += not exchange.send_and_receive("train", {3: RecordDict()}).busy
        time.sleep(0.005)
    assert 3 <= sent <= 7  # 50 timeouts: six messages take 2 + 3 + 5 + 9 + 17 = 36, the seventh 33 more


def test_a_client_that_hangs_is_waited_for_once(tmp_path: Path) -> None:
    """While it owes a reply it is not asked again; at the end its last identity stands in clients.csv."""
    config = read_config(None, [*SMALL, "federation.round_timeout=3"])
    summary = serve(
        Federation(config, lambda m, r: None if at(m) == (1, 3) else r), config, tmp_path / "run", poll=0.01
    )
    assert summary["faults"] == {"no-reply": 1, "busy": 4}  # rounds 2 and 3, the last identities, the test
    rounds = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [record["participants"] for record in rounds] == [16, 15, 15, 15]
    row = (tmp_path / "run" / "clients.csv").read_text().splitlines()[3].split(",")
    assert row[0] == "0-02"
    assert int(row[1]) == rounds[0]["identity"][2]
    assert row[4] == "nan"


def test_who_is_not_there_is_left_out_and_found_again(tmp_path: Path) -> None:
    """A node goes after round 0; the client comes back at another node before round 2."""
    config = read_config(None, SMALL)
    grid = Federation(config)

    def moves(message: Message, reply: Message) -> Message:
        t, node = at(message)
        if (t, node) == (0, 16):
            grid.connected.discard(3)
        if (t, node) == (1, 16):
            grid.connected.add(99)
            grid._contexts[99] = grid._contexts[3]
        return reply

    grid.twist = moves
    summary = serve(grid, config, tmp_path / "run", poll=0.01)
    assert summary["faults"] == {"absent": 1, "came-back": 1}
    rounds = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [record["participants"] for record in rounds] == [16, 15, 16, 16]


def test_who_was_started_again_takes_its_old_place_when_the_old_node_is_missed(tmp_path: Path) -> None:
    """Without keys a client that is started again has a new node, while the old one still counts as there."""
    config = read_config(None, SMALL)
    grid = Federation(config)

    def restarts(message: Message, reply: Message) -> Message:
        t, node = at(message)
        if (t, node) == (0, 16):
            grid.connected.add(99)
            grid._contexts[99] = grid._contexts[3]
        if (t, node) == (1, 16):
            grid.connected.discard(3)
        return Message(Error(5, "gone"), reply_to=message) if (t, node) == (1, 3) else reply

    grid.twist = restarts
    summary = serve(grid, config, tmp_path / "run", poll=0.01)
    assert summary["faults"] == {"refused": 1, "lost": 1, "came-back": 1}
    rounds = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [record["participants"] for record in rounds] == [16, 15, 16, 16]


class Slow(LocalGrid):
    """Nodes 3 to 16 reply to queries late: their replies are there at the second pull after the timeout."""

    def __init__(self, config: Config) -> None:
        super().__init__(client_app(config), 16)
        self.queries, self.held, self.pulls = 0, dict[str, Message](), 0
        self.timeout = min(QUERY_TIMEOUT, config.federation.round_timeout)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        keys = list(super().push_messages(messages))
        for key, message in zip(keys, messages, strict=True):
            self.queries += message.metadata.message_type == "query"
            if message.metadata.message_type == "query" and message.metadata.dst_node_id > 2:
                self.held[key] = self._replies.pop(key)
        self.due = time.monotonic() + self.timeout
        return keys

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        self.pulls += time.monotonic() > self.due
        if self.pulls >= 2:
            self._replies.update(self.held)
            self.held.clear()
        return super().pull_messages(message_ids)


def test_who_is_slow_to_say_who_it_is_still_joins(tmp_path: Path) -> None:
    """A busy machine: many descriptions come too late, and while the server looks who is late."""
    config = read_config(None, [*SMALL, "rounds=1", "federation.gather_timeout=5"])
    grid = Slow(config)
    summary = serve(grid, config, tmp_path / "run", poll=0.01)
    assert grid.queries == 16  # nobody is asked twice
    assert summary["clients"] == 16
    assert summary["faults"] == {"no-reply": 14}


def test_too_few_clients_end_the_gathering_with_the_reason(tmp_path: Path) -> None:
    config = read_config(None, [*SMALL, "rounds=1", "federation.clients=5", "federation.gather_timeout=0.5"])
    grid = LocalGrid(client_app(config), 16)
    grid.connected = {1, 2, 3}
    with pytest.raises(TooFewClients, match=r"^3 of 5 clients; no other node is connected; after 0.5 s w"):
        serve(grid, config, tmp_path / "run", poll=0.01)
    assert not (tmp_path / "run").exists()
    grid.connected.add(98)
    grid._contexts[98] = grid._contexts[3]
    with pytest.raises(
        TooFewClients, match=r"; 1 more connected, .*: refused \(another client has the name '0-02'"
    ):
        serve(grid, config, tmp_path / "run", poll=0.01)
    grid.connected |= {4, 5}
    summary = serve(
        grid, config, tmp_path / "run", poll=0.01
    )  # the fault log does not make the folder a used one
    assert summary["clients"] == 5
    assert summary["faults"] == {"refused": 2}


def test_when_no_node_can_join_the_first_reason_ends_the_run(tmp_path: Path) -> None:
    config = read_config(None, [*SMALL, "federation.clients=3"])

    def no_data(_context: Context) -> Client:
        raise OSError("no disk\x1b[31m here")

    grid = LocalGrid(client_app(config, no_data), 3)
    sentence = r"^none of the 3 connected nodes can join; the first: raised \(OSError: no disk \[31m here\)$"
    with pytest.raises(TooFewClients, match=sentence):
        serve(grid, config, tmp_path / "run", poll=0.01)
    faults = [json.loads(line) for line in (tmp_path / "run" / "faults.jsonl").read_text().splitlines()]
    assert [fault["node"] for fault in faults] == ["1", "2", "3"]


@pytest.mark.parametrize(
    "reason",
    [
        "ValueError: no disk",
        "<class 'ValueError'>:<'no disk'>",
        "<class 'ray.exceptions.RayTaskError(ClientAppException)'>:<'\x1b[36mray::Actor.run()\x1b[39m\n"
        '  File "x.py", line 3\nValueError: no disk\n\nflwr.ClientAppException: \n'
        "Exception ClientAppException occurred. Message: no disk'>",
    ],
)
def test_the_cause_is_found_in_flowers_report(reason: str) -> None:
    assert cause(reason).removeprefix("ValueError: ") == "no disk"


ASKED: dict[str, tuple[str, str, dict[str, object]]] = {
    "NaN scores": ("evaluate", "not-finite", {"loss": [torch.nan, torch.nan]}),
    "infinite scores": ("evaluate", "not-finite", {"loss": [1e300, torch.inf]}),
    "too many right": ("evaluate", "malformed", {"correct": [1e9, 1.0]}),
    "NaN right": ("evaluate", "malformed", {"correct": [torch.nan, 1.0]}),
    "no samples": ("query", "malformed", {"samples": 0}),
    "endless samples": ("query", "malformed", {"samples": torch.inf}),
    "negative test": ("query", "malformed", {"test_samples": -1}),
    "endless classes": ("query", "malformed", {"classes": 10_000_000}),
    "impossible shape": ("query", "malformed", {"input_shape": [2**40, 2**40]}),
    "no name": ("query", "malformed", {"id": ""}),
}


@pytest.mark.parametrize("kind", ASKED)
def test_nonsense_about_itself_or_the_models_does_not_stop_the_others(kind: str, tmp_path: Path) -> None:
    asked, name, nonsense = ASKED[kind]
    config = read_config(None, [*SMALL, "rounds=1", "federation.clients=15"])

    class Lying(LocalGrid):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            messages = list(messages)
            keys = list(super().push_messages(messages))
            for key, message in zip(keys, messages, strict=True):
                if message.metadata.message_type == asked and message.metadata.dst_node_id == 3:
                    said = self._replies[key].content["reply"]
                    lie = type(said)({**said, **nonsense})  # type: ignore[call-arg, dict-item]
                    self._replies[key] = Message(RecordDict({"reply": lie}), reply_to=message)
            return keys

    summary = serve(Lying(client_app(config), 16), config, tmp_path / "run", poll=0.01)
    assert set(summary["faults"]) == {name}
    assert summary["clients"] == (15 if asked == "query" else 16)
    assert 0 <= summary["test_accuracy"] <= 1


@pytest.mark.parametrize("algorithm", ["ifca", "ifca-plain", "global", "oneshot"])
def test_a_client_joins_late(algorithm: str, tmp_path: Path) -> None:
    config = read_config(None, [*SMALL, f"algorithm={algorithm}", "federation.clients=15"])
    grid = Federation(config)
    grid.connected.discard(16)

    def arrives(message: Message, reply: Message) -> Message:
        if at(message)[0] == 1:
            grid.connected.add(16)
        return reply

    grid.twist = arrives
    summary = serve(grid, config, tmp_path / "run", poll=0.01)
    rounds = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [record["participants"] for record in rounds][-2:] == [16, 16]
    assert summary["clients"] == 16
    assert summary["faults"] == {}


def test_a_name_is_not_given_twice(tmp_path: Path) -> None:
    """The fault is logged before the run is made, in the folder that 'ifca federate server' has made."""
    config = read_config(None, SMALL)
    (tmp_path / "run" / PRIVATE).mkdir(parents=True)
    grid = Federation(config)
    grid.connected.add(98)
    grid._contexts[98] = grid._contexts[3]
    summary = serve(grid, config, tmp_path / "run", poll=0.01)
    assert summary["faults"] == {"refused": 1}
    assert summary["clients"] == 16


def test_too_few_clients_stop_the_run_and_it_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    config = read_config(None, [*SMALL, "federation.min_clients=10", "federation.attempts=2"])
    grid = Federation(config)

    def many_fail(message: Message, reply: Message) -> Message:
        failing = at(message)[0] == 2 and at(message)[1] > 5
        return Message(Error(2, "no"), reply_to=message) if failing else reply

    grid.twist = many_fail
    with pytest.raises(TooFewClients, match="round 3 had 5 usable replies of 16 clients, min_clients is 10"):
        serve(grid, config, tmp_path / "run", poll=0.01)
    summary = serve(Federation(config), config, tmp_path / "run", poll=0.01)
    assert summary["faults"] == {"raised": 22, "repeated": 2}
    whole = serve(Federation(config), config, tmp_path / "whole", poll=0.01)
    assert whole["train_loss"] == summary["train_loss"]
    mine, other = (load_tensors(tmp_path / name / "models.safetensors")[0] for name in ("run", "whole"))
    assert all(torch.equal(value, other[name]) for name, value in mine.items())


def test_a_founding_that_nobody_answers_stops_the_run_and_it_goes_on_when_they_do(tmp_path: Path) -> None:
    config = read_config(None, [*SMALL, "algorithm=ifca"])

    def cannot_solve(message: Message, reply: Message) -> Message:
        failing = message.content.config_records["turn"]["part"] == "probe"
        return Message(Error(2, "no"), reply_to=message) if failing else reply

    grid = Federation(config, cannot_solve)
    with pytest.raises(
        TooFewClients, match=r"^the founding had no usable reply of 16 clients; faults\.jsonl"
    ):
        serve(grid, config, tmp_path / "run", poll=0.01)
    summary = serve(Federation(config), config, tmp_path / "run", poll=0.01)
    assert summary["faults"] == {"raised": 16}


def test_one_bad_client_changes_nothing_for_the_others(tmp_path: Path) -> None:
    """A client that always fails: the run equals the loop's over the other fifteen."""
    config = read_config(None, SMALL)
    grid = Federation(config, lambda m, r: Message(Error(2, "no"), reply_to=m) if at(m)[1] == 16 else r)
    serve(grid, config, tmp_path / "flower", poll=0.01)
    fifteen = read_config(None, [*SMALL, "federation.clients=15"])
    less = Federation(fifteen)
    less.connected.discard(16)
    serve(less, fifteen, tmp_path / "less", poll=0.01)
    mine, other = (load_tensors(tmp_path / name / "models.safetensors")[0] for name in ("flower", "less"))
    for name, value in mine.items():
        torch.testing.assert_close(value, other[name], rtol=1e-6, atol=1e-6)


def test_served_in_process_equals_run(tmp_path: Path) -> None:
    config = read_config(None, [*SMALL, 'baselines=["global", "local", "oneshot"]'])
    serve(Federation(config), config, tmp_path / "flower", poll=0.01)
    run(replace(config, engine="loop"), tmp_path / "loop")
    for part in (".", "baselines/global", "baselines/local", "baselines/oneshot"):
        mine, other = (
            load_tensors(tmp_path / e / part / "models.safetensors")[0] for e in ("flower", "loop")
        )
        for name, value in mine.items():
            torch.testing.assert_close(value, other[name], rtol=1e-6, atol=1e-6)
