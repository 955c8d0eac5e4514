"""Nodes that processes of this machine play: their state, their crashes, apps that cannot be made."""

from __future__ import annotations

import os
import time
from functools import partial

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from ifca.engines.flower.exchange import Exchange
from ifca.engines.flower.local_grid import answer, begin_task, node_context
from ifca.federation.process_grid import process_grid
from ifca.federation.simulated_nodes import made

Answer = tuple[int, int]


def counting(fails: bool) -> ClientApp:
    """Counts its messages in the node's state, and says in which process; asked to, it dies."""
    if fails:
        raise ValueError("no such app")
    app = ClientApp()

    @app.query()
    def count(message: Message, context: Context) -> Message:
        if "die" in message.content:
            os._exit(3)
        before = context.state.config_records.get("seen", ConfigRecord({"n": 0}))
        context.state["seen"] = ConfigRecord({"n": int(str(before["n"])) + 1})
        told = ConfigRecord({"n": context.state.config_records["seen"]["n"], "process": os.getpid()})
        return Message(RecordDict({"reply": told}), reply_to=message)

    return app


def asked(exchange: Exchange, *nodes: int, die: int = 0) -> dict[int, Answer | str]:
    """What nodes answer: their count and process, or an error's reason."""
    content = {node: RecordDict({"die": ConfigRecord({})} if node == die else {}) for node in nodes}
    found: dict[int, Answer | str] = {}
    for node, reply in exchange.send_and_receive("query", content).replies.items():
        if reply.has_error():
            found[node] = f"{reply.error.code}: {reply.error.reason}"
        else:
            told = reply.content.config_records["reply"]
            found[node] = int(str(told["n"])), int(str(told["process"]))
    return found


def test_nodes_keep_their_state_and_survive_a_crash() -> None:
    with process_grid(partial(counting, False), 5, most=2) as grid:
        exchange = Exchange(grid, timeout=120, poll=0.01)
        first, second = asked(exchange, 1, 2, 3, 4, 5), asked(exchange, 1, 2, 3, 4, 5)
        assert [one[0] for one in first.values()] == [1] * 5
        assert [one[0] for one in second.values()] == [2] * 5
        processes = [one[1] for _, one in sorted(first.items())]
        assert len(set(processes)) == 2
        assert [one[1] for _, one in sorted(second.items())] == processes  # each node stays where it is
        assert os.getpid() not in processes
        died = asked(exchange, 2, 3, die=2)
        assert died[2] == "8: the process of the simulated client died"
        assert died[3][0] == 3  # it lives in another process
        assert asked(exchange, 2, 3)[2][0] == 1  # the node begins anew
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(map(_lives, processes)):
        time.sleep(0.05)
    assert not any(map(_lives, processes))


def test_an_app_that_cannot_be_made_says_why() -> None:
    begin_task()
    asking = Message(RecordDict(), 1, "query")
    asking.metadata.__dict__["_message_id"] = "1"
    reply = answer(made(partial(counting, True)), asking, node_context(1, 1, {}))
    assert reply.error.reason == "ValueError: no such app"


def _lives(pid: object) -> bool:
    try:
        os.kill(int(str(pid)), 0)
    except ProcessLookupError:
        return False
    return True
