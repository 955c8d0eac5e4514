"""What Python loads at the start of a client that lies: LIE of its environment names the lie."""

from __future__ import annotations

import importlib.abc
import os
import sys
import time
from pathlib import Path
from typing import Any

LIE = os.environ.get("LIE", "")


def lie() -> None:
    """Change what the client's app says of itself, and what it replies."""
    from flwr.app import Array, ArrayRecord

    from ifca.engines.flower import records
    from ifca.federation import clientapp

    description, take_turn = clientapp.description, clientapp.take_turn

    def described(*given: Any) -> Any:
        if LIE == "escape":
            raise ValueError("\x1b]0;owned\x07\x1b[31mred\x1b[0m text")
        told = description(*given)
        said: Any = told[records.REPLY]
        changes: dict[str, dict[str, Any]] = {
            "name": {"id": os.environ.get("AS", "c0")},
            "classes": {"classes": 100_000},
            "kind": {"input_shape": [5], "feature_moments": [0.0] * 5 + [1.0] * 5},
            "moments": {"feature_moments": [1e100] * len(said.get("feature_moments", []))},
        }
        for name, value in changes.get(LIE, {}).items():
            said[name] = value
        return told

    def turn(job: Any, content: Any) -> Any:
        reply = take_turn(job, content)
        update = records.from_record(reply.array_records[records.UPDATE])
        if LIE == "scale":
            reply[records.UPDATE] = records.to_record({name: value * 1e6 for name, value in update.items()})
        if LIE == "huge":
            much = Array("float32", (75_000_000,), "raw", os.urandom(300_000_000))
            reply["more"] = ArrayRecord({"x": much})
        return reply

    deflate = Array.deflate

    def broken(self: Array) -> bytes:
        """Give a body that is no JSON."""
        return deflate(self)[:-1] + b"["

    def bomb(self: Array) -> bytes:
        """Name one chunk a million times: whoever puts that together needs a million times the memory."""
        head, end, body = deflate(self).partition(b"\x00")
        body = body.replace(b"[0]", b"[" + b",".join([b"0"] * 1_000_000) + b"]")
        return head.rpartition(b" ")[0] + b" " + str(len(body)).encode() + end + body

    if LIE in ("bomb", "broken"):
        Array.deflate = bomb if LIE == "bomb" else broken  # type: ignore[method-assign]
    clientapp.description, clientapp.take_turn = described, turn


def note_costs() -> None:
    """Note the processor time of each process that serves a message, at its end."""
    end = os._exit

    def ended(code: int) -> None:
        with Path(os.environ["CLOCK"]).open("a") as file:
            file.write(f"{time.process_time()}\n")
        end(code)

    os._exit = ended  # type: ignore[assignment]


class Watch(importlib.abc.MetaPathFinder):
    """Lies as soon as the app is imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        """Find nothing."""
        del path, target
        if name == "ifca.federation.apps":
            sys.meta_path.remove(self)
            lie()


if LIE == "clock":
    note_costs()
elif LIE:
    sys.meta_path.insert(0, Watch())
