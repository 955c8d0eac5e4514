"""The ClientApp and the ServerApp of a config: what 'ifca federate' runs, and a Flower app is made of."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable
from dataclasses import fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from ifca.core.errors import IFCAError, InvalidInput
from ifca.data import Client, Federation, read_client
from ifca.data.files import write_atomically
from ifca.data.jsonl import append_jsonl
from ifca.data.problems import refuse
from ifca.data.sources.columns import Columns, rows_of
from ifca.data.sources.folder import KINDS
from ifca.data.sources.prepared_clients import statistics_of
from ifca.data.sources.table_files import KINDS as TABLES
from ifca.data.sources.table_files import kind_of, name_of, read_table
from ifca.engines.flower.faults import printable
from ifca.federation.clientapp import make_client_app, one_client, told_preparation
from ifca.federation.preparing import read_told, statistics_json
from ifca.federation.serverapp import serve
from ifca.models import as_factory
from ifca.models.task import Factory
from ifca.runs.config import Config, config_dict, parse_config, read_config
from ifca.runs.federation_config import FederationConfig
from ifca.runs.make import make_job, read_federation, scaled_alone
from ifca.runs.own_code import Code
from ifca.runs.own_data_config import FolderData
from ifca.runs.run_code import kept_code
from ifca.runs.run_folder import CONFIG, PRIVATE
from ifca.training import Job

LoadClient = Callable[[Context], Client]
# for 'ifca federate server', which waits in another process
DONE, FAILED, SAID = "done.json", "failed.json", "said.jsonl"
LEAST = 2  # a word of a table is told to the server where it stands there so often
POLL = 0.2  # seconds between two pulls of replies


def client_app(
    config: Path | Config,
    load_client: LoadClient | None = None,
    model: Factory | None = None,
    code: Code | None = None,
) -> ClientApp:
    """A node's app. Without load_client: the file of the node's own config, or its part of the config's data.

    config: a TOML file as for 'ifca run'; keys of Flower's run config with the same name go over it.
    model: a torch module or a function that makes one, in place of the config's. code: the user's modules
    that the config names; None: as they lie at the node.
    """
    kept: list[str] = []  # a config that is given is the same for all messages

    def chosen(context: Context) -> str:
        if not isinstance(config, Config):
            return json.dumps(config_dict(config_of(context, config)))
        if not kept:
            kept.append(json.dumps(config_dict(config)))
        return kept[0]

    def node_data(context: Context) -> Federation:
        if load_client is not None:
            return one_client(load_client(context), context)
        if "data" in context.node_config:
            file, told = client_file(Path(str(context.node_config["data"]))), told_preparation(context)
            name = str(context.node_config.get("name", name_of(file)))
            if kind_of(file) not in TABLES:
                return one_client(replace(read_arrays(file), id=name), context)
            return _table_of(file, file.stat().st_mtime_ns, chosen(context), told, name)
        place = int(context.node_config.get("partition-id", -1))
        return partition_of(_all_clients(chosen(context)), place)

    def job_of(context: Context, mine: Federation) -> Job:
        whole = config_of(context, config)
        alone = replace(whole, k=1, engine="loop", warm_start=None, continues=None, attack=None)
        job = make_job(alone, scaled_alone(alone, mine, own_model=model is not None), code)
        told = whole.attack  # for a rehearsal: whether this client attacks
        job = replace(job, attack=None if told is None else told.by(mine.train, whole.seed))
        return job if model is None else replace(job, model=as_factory(model))

    def node_table(context: Context) -> dict[str, Any]:
        if load_client is not None:
            return {}
        if "data" in context.node_config:
            file = client_file(Path(str(context.node_config["data"])))
            return {} if kind_of(file) not in TABLES else _statistics_of(file, chosen(context))
        made = _all_clients(chosen(context)).preparation
        return {} if made is None else {"preparation": made.to_json()}

    return make_client_app(node_data, job_of, node_table)


def server_app(config: Path | Config, model: Factory | None = None) -> ServerApp:
    """The server's app: it trains over the grid and writes a run folder (run config: out, trust)."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        out = Path(str(context.run_config.get("out", "federation-run")))
        made = None if model is None else as_factory(model)
        try:
            chosen, trust = config_of(context, config), bool(context.run_config.get("trust", False))
            begun = (out / CONFIG).exists()  # such a run goes on with the code that it keeps
            code = kept_code(out, chosen, trust) if begun else None
            say = partial(_say, out / PRIVATE / SAID)
            serve(grid, chosen, out, model=made, poll=POLL, code=code, say=say)
        except IFCAError as reason:
            _write_status(out, FAILED, {"kind": type(reason).__name__, "message": str(reason)})
            raise
        except Exception as reason:
            cause = f"{type(reason).__name__}: {reason}; 'ifca resume {out}' goes on from the checkpoint"
            _write_status(
                out, FAILED, {"kind": "IFCAError", "message": f"the server's app ended with {cause}"}
            )
            raise
        _write_status(out, DONE, {})

    return app


def config_of(context: Context, config: Path | Config) -> Config:
    """The config with the keys of Flower's run config over it."""
    if isinstance(config, Config):
        return config
    given = {key.replace("-", "_"): value for key, value in context.run_config.items()}
    known, terms = ({f.name for f in fields(kind)} for kind in (Config, FederationConfig))
    settings = [f"federation.{key}={json.dumps(value)}" for key, value in given.items() if key in terms]
    return read_config(config, settings, **{key: value for key, value in given.items() if key in known})


@lru_cache(maxsize=1)
def _all_clients(config: str) -> Federation:
    """The data of a config (as JSON, since a Config may hold a table), once in a process of many clients."""
    return read_federation(parse_config(json.loads(config), "config"))


def _reading(config: str) -> Columns:
    """How a config (as JSON) reads tables."""
    parsed = parse_config(json.loads(config), "config")
    given = parsed.data
    return given.reading(parsed.seed) if isinstance(given, FolderData) else Columns()


def _statistics_of(file: Path, config: str) -> dict[str, Any]:
    """What a node tells of its table: nothing of the columns that are left out."""
    table, columns = read_table(file, refuse), _reading(config)
    assert table is not None
    (rows,) = rows_of(table, columns, name_of(file))
    told = statistics_of(rows, LEAST)
    kept = {name: one for name, one in told.items() if columns.taken_as.get(name) != "leave out"}
    return statistics_json(kept, rows.label)


def read_arrays(file: Path) -> Client:
    """A client's .npz file, read once in a process as long as it does not change."""
    return _arrays_of(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _arrays_of(file: Path, _changed: int) -> Client:
    return read_client(file)


@lru_cache(maxsize=1)
def _table_of(file: Path, _changed: int, config: str, told: str, name: str) -> Federation:
    """A node's table as its client, prepared as the server told; it is read again where it changed."""
    made = read_told(told)
    client = read_client(file, replace(_reading(config), preparation=made))
    known = client.preparation
    if made is None and known is not None and not (known.plain and known.class_names is None):
        raise InvalidInput(
            f"{file}: has words, holes or classes by name, which all clients must prepare alike; "
            'the server\'s config needs [data] with name = "folder"'
        )
    return Federation.from_clients([replace(client, id=name, source=None, test_source=None)])


def partition_of(whole: Federation, place: int) -> Federation:
    """The client at a place of a federation, with its test part."""
    if not 0 <= place < len(whole.train):
        raise InvalidInput(f"partition-id is {place}, but the data has {len(whole.train)} clients")
    mine = np.flatnonzero(np.asarray(whole.test_owner) == place).tolist()
    test = whole.test.subset(mine) if whole.test is not None and mine else None
    return replace(whole, train=whole.train.subset([place]), test=test)


def _say(file: Path, sentence: str) -> None:
    """For whoever runs the server, which is another process."""
    logging.getLogger("ifca.federation").info("%s", sentence)
    if file.parent.is_dir():
        append_jsonl(file, {"said": printable(sentence)})


def _write_status(out: Path, name: str, content: dict[str, str]) -> None:
    with contextlib.suppress(OSError):  # a full disk; who waits finds that the run has ended, and why
        if (out / PRIVATE).is_dir():
            write_atomically(out / PRIVATE / name, json.dumps(content).encode())


def client_file(path: Path) -> Path:
    """The one file of a client's folder (or the file itself): .npz, or a table."""
    if path.is_file():
        return path
    files = sorted(file for file in path.iterdir() if kind_of(file) in KINDS) if path.is_dir() else []
    if len(files) != 1:
        found = f"found {len(files)}"
        raise InvalidInput(f"{path}: a client's folder must hold one .npz file or table, {found}")
    return files[0]
