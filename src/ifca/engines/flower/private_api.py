"""All that is used of Flower beyond its public API, in one place, each piece checked before it is used.

Public are flwr.app, flwr.clientapp, flwr.serverapp and flwr.simulation. What else this project needs is in
PIECES: where it was found, what is given to it, what for. If Flower moves one, the sentence of FlowerChanged
says which, and nothing is started.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from ifca.core.errors import IFCAError

READ_IN = ("1.41.0", "1.42.0")  # versions of Flower in which the pieces were read


class Piece(NamedTuple):
    """Something private of Flower: its module and name, what we give to it or ask of it, what for."""

    where: str
    takes: tuple[str, ...]  # parameters of a function; attributes of a class or a module
    serves: str


RECORDS, GRID, SUPERLINK, CONTROL, TASKS = "records", "grid", "superlink", "control", "tasks"
PIECES: Mapping[str, Mapping[str, Piece]] = {
    RECORDS: {
        "get_all_nested_objects": Piece(
            "flwr.supercore.inflatable.inflatable_object", ("obj",), "count the bytes of a message"
        ),
        "no_object_id_recompute": Piece(
            "flwr.supercore.inflatable.inflatable_object", (), "count the bytes of a message"
        ),
        "TaskIdentity": Piece(
            "flwr.supercore.task_identity", ("run_id", "task_id", "node_id"), "serve clients in this process"
        ),
    },
    GRID: {
        "HttpGrid": Piece("flwr.superlink.grid", ("_runtime_client", "run", "node"), "receive replies"),
        "RuntimeHttpClient": Piece(
            "flwr.supercore.runtime",
            ("PullMessages", "PullObject", "ConfirmMessageReceived"),
            "receive replies",
        ),
        "PullAppMessagesRequest": Piece("flwr.proto.runtime_pb2", ("message_ids",), "receive replies"),
        "ConfirmMessageReceivedRequest": Piece(
            "flwr.proto.message_pb2", ("node", "run_id", "message_object_id"), "receive replies"
        ),
        "iterate_object_tree": Piece(
            "flwr.supercore.inflatable.inflatable_object", ("tree",), "receive replies"
        ),
        "get_object_head_values_from_object_content": Piece(
            "flwr.supercore.inflatable.inflatable_object", ("object_content",), "measure replies"
        ),
        "get_object_body": Piece(
            "flwr.supercore.inflatable.inflatable_object", ("object_content", "cls"), "measure replies"
        ),
        "PullObjectRequest": Piece(
            "flwr.proto.message_pb2", ("node", "run_id", "object_id"), "receive replies"
        ),
        "PullObjectResponse": Piece(
            "flwr.proto.message_pb2",
            ("object_found", "object_available", "object_content"),
            "receive replies",
        ),
        "inflate_object_from_contents": Piece(
            "flwr.supercore.inflatable.inflatable_utils", ("object_id", "object_contents"), "read replies"
        ),
        "make_message": Piece("flwr.app.message", ("metadata", "error"), "report a reply that is none"),
    },
    SUPERLINK: {
        "flower_superlink": Piece("flwr.superlink.cli.flower_superlink", (), "start the SuperLink"),
        "FLEET_HTTP_PUBLIC_KEY_HEADER": Piece("flwr.supercore.constant", (), "tell clients by keys"),
        "FLEET_HTTP_SIGNATURE_HEADER": Piece("flwr.supercore.constant", (), "tell clients by keys"),
        "PROTOBUF_REQUEST_TYPES": Piece("flwr.supercore.protobuf.translation", (), "bound replies"),
        "uvicorn": Piece("flwr.superlink.cli.flower_superlink", ("run",), "put the gate before it"),
    },
    CONTROL: {
        "ControlHttpClient": Piece(
            "flwr.supercore.control.control_http_client",
            ("from_server_address", "RegisterNode", "UnregisterNode", "ListNodes", "StartRun", "ListRuns"),
            "administer the SuperLink",
        ),
        "RuntimeVersionHttpInterceptor": Piece(
            "flwr.supercore.interceptors", ("intercept",), "administer the SuperLink"
        ),
        "RegisterNodeRequest": Piece("flwr.proto.control_pb2", ("public_key", "name"), "register a key"),
        "UnregisterNodeRequest": Piece("flwr.proto.control_pb2", ("node_id",), "revoke a key"),
        "ListNodesRequest": Piece("flwr.proto.control_pb2", (), "find keys to revoke"),
        "NodeInfo": Piece("flwr.proto.node_pb2", ("node_id", "public_key", "name"), "tell clients by keys"),
        "StartRunRequest": Piece("flwr.proto.control_pb2", ("fab",), "start the run"),
        "ListRunsRequest": Piece("flwr.proto.control_pb2", ("run_id",), "see how the run stands"),
        "Fab": Piece("flwr.proto.fab_pb2", ("hash_str", "content"), "start the run"),
        "build_fab_from_disk": Piece("flwr.cli.build", ("app",), "pack the app"),
    },
    TASKS: {
        "flower_superexec": Piece("flwr.supercore.cli.flower_superexec", (), "serve messages"),
        "get_executor": Piece(
            "flwr.supercore.superexec.executor.factory", ("executor_type",), "serve messages"
        ),
        "SubprocessExecutor": Piece(
            "flwr.supercore.superexec.executor.factory",
            ("get_eligible_capacity", "wait_for_capacity", "launch", "reconcile", "close"),
            "serve messages",
        ),
        "LaunchResult": Piece(
            "flwr.supercore.superexec.executor.types", ("accepted", "failed"), "serve messages"
        ),
        "run_clientapp": Piece(
            "flwr.supernode.runtime.run_clientapp",
            ("runtime_api_address", "token", "insecure", "certificates", "parent_pid"),
            "serve messages",
        ),
        "run_serverapp": Piece(
            "flwr.superlink.runtime.run_serverapp",
            ("runtime_api_address", "log_queue", "token", "insecure", "certificates", "parent_pid"),
            "run the server's app",
        ),
    },
}


class FlowerChanged(IFCAError):
    """The Flower that is installed lacks something that this version of ifca needs."""


def check(*parts: str) -> None:
    """Refuse a Flower that lacks a piece of some parts, naming the first; without parts: of all."""
    for part in parts or PIECES:
        for name in PIECES[part]:
            get(part, name)


@cache
def get(part: str, name: str) -> Any:
    """A piece, checked once."""
    piece = PIECES[part][name]
    try:
        found = getattr(importlib.import_module(piece.where), name)
    except (ImportError, AttributeError) as reason:
        raise _changed(piece, f"has no {piece.where}.{name} any more") from reason
    if missing := [word for word in piece.takes if not _knows(found, word)]:
        raise _changed(piece, f"changed {piece.where}.{name}, which does not know {', '.join(missing)}")
    return found


def _knows(found: Any, word: str) -> bool:
    """Whether a function has a parameter, a message a field, a class or a module an attribute of a name."""
    if descriptor := getattr(found, "DESCRIPTOR", None):
        return word in descriptor.fields_by_name
    if not inspect.isclass(found) and not inspect.ismodule(found):
        return word in inspect.signature(inspect.unwrap(found)).parameters
    kinds = [*found.__mro__, *type(found).__mro__] if inspect.isclass(found) else [found]
    return any(word in vars(kind) for kind in kinds) or _sets(found, word)


def _sets(found: Any, word: str) -> bool:
    """Whether a constructor sets an attribute of that name."""
    return word in getattr(getattr(found, "__init__", None), "__code__", compile("", "", "exec")).co_names


def _changed(piece: Piece, what: str) -> FlowerChanged:
    version = importlib.metadata.version("flwr")
    return FlowerChanged(
        f"Flower {version} {what}, and ifca needs it to {piece.serves}; "
        f"it was tried with flwr {' and '.join(READ_IN)}: pip install 'flwr[simulation]=={READ_IN[0]}'"
    )
