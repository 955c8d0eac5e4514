"""The SuperLink's gate, what is private of Flower, and replies that are bounded before they are read."""

from __future__ import annotations

import ast
import asyncio
import base64
import json
import runpy
import socket
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import torch
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, Message, RecordDict

from ifca.engines.flower import private_api
from ifca.engines.flower.local_grid import begin_task
from ifca.engines.flower.private_api import PIECES, RECORDS, FlowerChanged, Piece, check, get
from ifca.engines.flower.receiver import MALFORMED, Receiver
from ifca.engines.flower.records import UPDATE, to_record
from ifca.federation.door import Door
from ifca.federation.gate import KEYS, LIMIT, SECRET, TURNED_AWAY, Gate

SOURCE = Path(private_api.__file__).parents[2]
PUBLIC = ("flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.simulation")


def test_private_flower_is_in_one_file_and_all_of_it_is_there() -> None:
    """If Flower moves, this says what, and where it was."""
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                if name.split(".")[0] == "flwr":
                    assert name.startswith(PUBLIC), f"{file}: {name} is private"
    check()


def test_a_flower_that_moved_something_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Piece("flwr.supercore.no_such_module", (), "count")
    changed = Piece("flwr.supercore.inflatable.inflatable_object", ("obj", "colour"), "count bytes")
    for piece, said in (
        (
            gone,
            r"Flower .* has no flwr.supercore.no_such_module.get_all_nested_objects any more, and ifca needs",
        ),
        (
            changed,
            r"which does not know colour, and ifca needs it to count bytes; it was tried with flwr 1.41.0",
        ),
    ):
        get.cache_clear()
        monkeypatch.setitem(PIECES, RECORDS, {"get_all_nested_objects": piece})
        with pytest.raises(FlowerChanged, match=said):
            check(RECORDS)
    get.cache_clear()


@pytest.fixture
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    kind = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(*kind)


def signed(key: ec.EllipticCurvePrivateKey, age: float = 0.0) -> list[tuple[bytes, bytes]]:
    now = (datetime.now(timezone.utc) - timedelta(seconds=age)).isoformat().encode()
    signature = key.sign(now, ec.ECDSA(hashes.SHA256()))
    names = (b"flwr-public-key", b"flwr-timestamp", b"flwr-signature")
    return list(zip(names, (base64.b64encode(pem(key)), now, base64.b64encode(signature)), strict=True))


@pytest.fixture
def gate(tmp_path: Path, key: ec.EllipticCurvePrivateKey) -> Gate:
    """Before an app that reads what it is sent and answers with its size."""
    (tmp_path / SECRET).write_bytes(b"secret")
    (tmp_path / KEYS).write_text(json.dumps({"c0": pem(key).decode()}))
    (tmp_path / LIMIT).write_text("1000")

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        message: dict[str, Any] = {"more_body": True}
        while message.get("more_body"):
            message = await receive()
        status = 200 if message["type"] == "http.request" else 499
        await send({"type": "http.response.start", "status": status, "headers": []})

    return Gate(app, tmp_path)


def ask(gate: Gate, path: str, headers: list[tuple[bytes, bytes]], client: str, chunks: int = 1) -> int:
    """The status of a request; chunks: of 1 MiB each that are sent whatever the head says."""
    left, answered = [bytes(2**20)] * (chunks - 1), list[int]()

    async def receive() -> dict[str, Any]:
        body = left.pop() if left else b""
        return {"type": "http.request", "body": body, "more_body": bool(left)}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answered.append(message["status"])

    scope = {
        "type": "http",
        "path": path,
        "headers": headers,
        "client": (client, 1),
        "server": ("10.0.0.1", 2),
    }
    asyncio.run(gate(scope, receive, send))
    return answered[0]


def sized(size: int) -> list[tuple[bytes, bytes]]:
    return [(b"content-length", str(size).encode())]


def test_the_gate_looks_at_heads_only(gate: Gate, key: ec.EllipticCurvePrivateKey, tmp_path: Path) -> None:
    pull, away, here = "/v1/fleet/pull-messages", "10.0.0.9", "127.0.0.1"
    assert ask(gate, pull, signed(key), away) == 200
    assert ask(gate, pull, [], away) == 401
    assert ask(gate, pull, signed(ec.generate_private_key(ec.SECP384R1())), away) == 401
    assert ask(gate, pull, signed(key, age=1000), away) == 401
    forged = [*signed(key)[:2], signed(key, 1)[2]]  # signed at another time
    assert ask(gate, pull, forged, away) == 401
    assert ask(gate, pull, [*signed(key), *signed(key)[:1]], away) == 400  # whose is it?
    assert ask(gate, pull, [*signed(key), *sized(2**30)], away) == 413
    assert ask(gate, pull, [*signed(key), *sized(2**20)], away, chunks=9) == 499  # more than it said
    assert ask(gate, "/health", [], away) == 200
    for path in ("/v1/control/list-nodes", "/docs", "/v1/fleet", "/v1//fleet/pull-messages"):
        assert ask(gate, path, [], here) == 403
        assert ask(gate, path, [(b"ifca-admin-secret", b"secret")], away) == 403
        assert ask(gate, path, [(b"ifca-admin-secret", b"secret")], here) == 200
    assert ask(gate, "/v1/runtime/get-nodes", [], away) == 403
    assert ask(gate, "/v1/runtime/get-nodes", [], here) == 200  # Flower asks for a token there
    told = [json.loads(line) for line in (tmp_path / TURNED_AWAY).read_text().splitlines()]
    assert {"from": away, "why": "no client's key of this server"} in told
    assert len(told) < 12  # the same is told once a minute


def test_a_reply_is_as_large_as_the_server_expects(gate: Gate, key: ec.EllipticCurvePrivateKey) -> None:
    """1000 bytes are allowed; a reply begins with push-messages, its parts follow."""
    begin, part = "/v1/fleet/push-messages", "/v1/fleet/push-object"
    for _ in range(2):
        assert ask(gate, begin, [*signed(key), *sized(100)], "10.0.0.9") == 200
        assert ask(gate, part, [*signed(key), *sized(600)], "10.0.0.9") == 200
        assert ask(gate, part, [*signed(key), *sized(600)], "10.0.0.9") == 413
    untold = [*signed(key), (b"transfer-encoding", b"chunked")]
    assert ask(gate, part, untold, "10.0.0.9") == 411  # its parts could not be added up


def test_the_door_holds_so_many_and_half_of_them_from_one_address() -> None:
    refused: list[str] = []
    with Door("127.0.0.1", 0, 8, lambda address, _why: refused.append(address)) as door:
        door.listen()
        visitors, inside = [], list[Any]()
        for _ in range(5):
            visitors.append(socket.create_connection(door.getsockname()))
            try:
                inside.append(door.accept()[0])
            except ConnectionAbortedError:
                assert visitors[-1].recv(1) == b""  # closed at once
        assert len(inside) == 4
        assert refused == ["127.0.0.1"]
        inside.pop().close()
        visitors.append(socket.create_connection(door.getsockname()))
        inside.append(door.accept()[0])  # there is room again
        for one in (*visitors, *inside):
            one.close()


class Objects:
    """The Runtime API of a SuperLink, as far as replies are pulled from it."""

    def __init__(self) -> None:
        self.replies: dict[str, tuple[str, dict[str, bytes], list[str]]] = {}  # id, contents, what is told

    def PullMessages(self, request: Any) -> Any:  # noqa: N802
        found = [(k, self.replies[k]) for k in request.message_ids if k in self.replies]
        told = [_fields(metadata=_fields(message_id=v[0], reply_to_message_id=k)) for k, v in found]
        return _fields(messages_list=told, message_object_trees=[v[2] for _, v in found])

    def PullObject(self, request: Any) -> Any:  # noqa: N802
        for _, contents, tree in self.replies.values():
            if request.object_id in contents:
                return _fields(
                    object_found=True, object_available=True, object_content=contents[request.object_id]
                )
            if request.object_id in tree:
                return _fields(object_found=True, object_available=False)
        return _fields(object_found=False, object_available=False)

    def ConfirmMessageReceived(self, request: Any) -> None:  # noqa: N802
        self.replies = {k: v for k, v in self.replies.items() if v[0] != request.message_object_id}


class HttpGrid:
    """A grid over that; its name is Flower's."""

    def __init__(self) -> None:
        self.client, self.node, self.run = Objects(), None, type("Run", (), {"run_id": 1})


def _fields(**found: Any) -> Any:
    return type("Fields", (), found)


@pytest.fixture
def over_http(monkeypatch: pytest.MonkeyPatch) -> tuple[HttpGrid, Receiver]:
    begin_task()
    grid = HttpGrid()
    pieces = {
        "HttpGrid": type("Real", (), {"_runtime_client": property(lambda grid: grid.client)}),
        "iterate_object_tree": lambda tree: [_fields(object_id=one) for one in tree],
        "PullObjectRequest": lambda **found: _fields(**found),
        "ConfirmMessageReceivedRequest": lambda **found: _fields(**found),
        "PullAppMessagesRequest": lambda **found: _fields(**found),
    }
    real = get
    monkeypatch.setattr("ifca.engines.flower.receiver.get", lambda part, n: pieces.get(n) or real(part, n))
    return grid, Receiver(grid)  # type: ignore[arg-type]


def replied(grid: HttpGrid, key: str, update: ArrayRecord) -> dict[str, bytes]:
    """Put a reply to a message there; its parts."""
    asked = Message(RecordDict(), 1, "train")
    asked.metadata.__dict__["_message_id"] = key
    reply = Message(RecordDict({UPDATE: update}), reply_to=asked)
    parts = get(RECORDS, "get_all_nested_objects")(reply)
    contents = {name: part.deflate() for name, part in parts.items()}
    grid.client.replies[key] = reply.object_id, contents, list(contents)
    return contents


def test_replies_are_taken_one_by_one(over_http: tuple[HttpGrid, Receiver]) -> None:
    grid, receiver = over_http
    good = {"w": torch.arange(6.0)}
    replied(grid, "good", to_record(good))
    late = replied(grid, "late", to_record({"w": torch.ones(3)}))
    part, content = late.popitem()
    broken = replied(grid, "broken", to_record({"w": torch.zeros(2)}))
    broken[next(name for name, one in broken.items() if one.startswith(b"Array "))] = b"Array x 1\x00["
    names = ["good", "late", "broken", "never"]
    found = {one.metadata.reply_to_message_id: one for one in receiver.pull(names)}
    assert found.keys() == {"good", "broken"}
    assert found["good"].content[UPDATE] == to_record(good)
    assert found["broken"].error.code == MALFORMED
    assert receiver.pull(names) == []  # nobody waits for the missing part
    late[part] = content
    assert [one.metadata.reply_to_message_id for one in receiver.pull(names)] == ["late"]


def test_no_reply_takes_more_than_it_may(over_http: tuple[HttpGrid, Receiver]) -> None:
    """Too many bytes; and few bytes that name one chunk of 1 MB a hundred times."""
    grid, receiver = over_http
    receiver.largest = 3_000_000
    replied(grid, "large", ArrayRecord({"{}": Array("float32", (1,), "raw", bytes(4_000_000))}))
    contents = replied(grid, "bomb", ArrayRecord({"{}": Array("float32", (1,), "raw", bytes(1_000_000))}))
    name = next(name for name, one in contents.items() if one.startswith(b"Array "))
    head, _, body = contents[name].partition(b"\x00")
    body = body.replace(b"[0]", b"[" + b",".join([b"0"] * 100) + b"]")
    contents[name] = head.rpartition(b" ")[0] + f" {len(body)}".encode() + b"\x00" + body
    found = {one.metadata.reply_to_message_id: one.error for one in receiver.pull(["large", "bomb"])}
    assert found["large"].reason == "TooLarge: its parts have more than 3000000 bytes"
    assert str(found["bomb"].reason).startswith("TooLarge: its arrays have 1000")


def test_many_small_parts_hold_nobody_up(
    over_http: tuple[HttpGrid, Receiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply gets a share of the time at each look; one whose parts cannot be named is none."""
    grid, receiver = over_http
    parts = {f"w{i}": Array("float32", (1,), "raw", bytes([i] * 4)) for i in range(20)}
    replied(grid, "slow", ArrayRecord(parts))
    replied(grid, "quick", to_record({"w": torch.ones(1)}))
    pull = grid.client.PullObject

    def pulled(request: Any) -> Any:
        time.sleep(0.01)
        return pull(request)

    monkeypatch.setattr(grid.client, "PullObject", pulled)
    monkeypatch.setattr("ifca.engines.flower.receiver.SHARE", 0.12)
    names, found, looks = ["slow", "quick"], list[str](), 0
    while len(found) < 2:
        found += [one.metadata.reply_to_message_id for one in receiver.pull(names)]
        looks += 1
    assert found == ["quick", "slow"]
    assert looks > 2
    replied(grid, "deep", to_record({"w": torch.ones(1)}))
    grid.client.replies["deep"] = (*grid.client.replies["deep"][:2], None)  # type: ignore[assignment]
    assert [one.error.code for one in receiver.pull(["deep"])] == [MALFORMED]


def test_the_table_of_the_docs_is_made_from_what_was_tried() -> None:
    made = runpy.run_path(str(SOURCE.parents[1] / "tools" / "docs_federation.py"))
    page = (SOURCE.parents[1] / "docs" / "federation.md").read_text()
    assert made["TABLE"].search(page)
    assert made["with_tables"](page) == page
