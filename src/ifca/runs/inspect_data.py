"""Look at a user's data as training would: the same readers, the same sentences, all of them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import tomli_w

from ifca.core.errors import InvalidInput
from ifca.data import Client, Federation
from ifca.data.files import write_atomically
from ifca.data.problems import Findings, refuse
from ifca.data.sources.column_report import column_report
from ifca.data.sources.columns import Rows
from ifca.data.sources.data_report import inspect_clients
from ifca.data.sources.folder import has_tables
from ifca.data.sources.leaf import leaf_files
from ifca.data.sources.prepared_clients import clients_of
from ifca.data.sources.table_files import KINDS as TABLES
from ifca.data.sources.table_files import check_no_spreadsheet, kind_of
from ifca.runs.config import Config, parse_config, read_config
from ifca.runs.given_code import check_given_code
from ifca.runs.make import read_federation
from ifca.runs.own_data_config import FolderData, OwnFiles
from ifca.runs.run_code import code_of, kept_code
from ifca.runs.run_folder import is_run_folder


def inspect_path(path: Path, options: dict[str, Any], most: int = 50, trust: bool = False) -> dict[str, Any]:
    """A report as plain JSON values; options: keys of [data], for a path that is no config.

    trust: call the function that a config names also where others made its run folder, or where it does not
    lie beside it.
    """
    config = read_config(path) if path.suffix == ".toml" else config_of_path(path, options)
    kept = path.suffix == ".toml" and is_run_folder(path.parent)
    if path.suffix == ".toml" and not kept:
        check_given_code(config, path, (), trust=trust)
    code = kept_code(path.parent, config, trust, ("data.load",)) if kept else code_of(config)
    problems, data = Findings(most), config.data
    clients, rows = list[Client](), list[Rows]()
    try:
        if isinstance(data, FolderData) and has_tables(Path(data.path)):
            rows = data.rows(config.seed, problems)
            clients = clients_of(rows, data.reading(config.seed), problems)
        elif isinstance(data, OwnFiles):
            clients = data.clients(config.seed, problems)
        else:
            clients = _clients(read_federation(config, code))
    except InvalidInput as reason:
        problems(str(reason))
    classes, standardise = getattr(data, "classes", None), getattr(data, "standardise", False) is not False
    report = inspect_clients(clients, classes, problems, standardise=standardise)
    features = clients[0].features if clients else None
    known = clients[0].preparation if clients else None
    tables = {} if known is None else column_report(rows, known)
    return {
        "path": str(path),
        "kind": data.name,
        "features": None if features is None else list(features),
        **report,
        **tables,
        "command": _command(path, options, [] if known is None else list(known.label)),
    }


def _command(path: Path, options: dict[str, Any], label: list[str]) -> str:
    """What trains on this path without a config."""
    named = [("label", name) for name in options.get("label") or label]
    named += [("client", options["client"])] if options.get("client") else []
    return shlex.join(
        ["ifca", "run", str(path), *[word for key, value in named for word in (f"--{key}", value)]]
    )


def write_starter_config(path: Path, options: dict[str, Any], file: Path) -> None:
    """A config that trains on data which can be trained on; options: as of inspect_path."""
    if path.suffix == ".toml" or file.exists():
        what = "is a config already" if path.suffix == ".toml" else "exists; choose another name"
        raise InvalidInput(f"{path if path.suffix == '.toml' else file}: {what}")
    data = _data(path, options)
    if len(data.get("label", [])) == 1:
        data["label"] = data["label"][0]
    if "test" not in data:
        data["test_share"] = 0.2
    content = tomli_w.dumps({"baselines": ["global", "local"], "data": data})
    write_atomically(file, content.encode())


def config_of_path(path: Path, options: dict[str, Any]) -> Config:
    """The config that a user would write for this path."""
    return parse_config({"data": _data(path, options)}, f"{path}")


def _data(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Its part on data."""
    given = {name: value for name, value in options.items() if value is not None}
    if kind_of(path) in TABLES:
        kind, known = "table", {"label", "features", "test", "cluster", "client", "missing"}
    elif any(leaf_files(path).values()):
        kind, known = "leaf", set()
    elif (path / "dataset_info.json").is_file() or (path / "dataset_dict.json").is_file():
        kind, known = "hugging-face", {"label", "features", "client"}
        given["label"] = given["label"][0] if len(given.get("label", [])) == 1 else given.get("label")
    elif path.exists() and not path.is_dir():
        check_no_spreadsheet(path, refuse)
        raise InvalidInput(f"{path}: a folder, a .csv or .parquet table, or a .toml config is needed")
    else:
        kind, known = "folder", {"label", "features", "test", "cluster", "missing"}
    for name in given:
        if name not in known | {"task", "classes"}:
            raise InvalidInput(f"--{name}: means nothing for {path}, which was understood as {kind}")
    usual = {"task": "auto", "label": []}
    said = {k: v for k, v in given.items() if v is not None and v != usual.get(k)}
    return {"name": kind, "path": str(path), **said}


def _clients(federation: Federation) -> list[Client]:
    """A federation that was made elsewhere, client by client again."""
    place = {int(i): place for place, i in enumerate(federation.test_owner)}
    clients = []
    for i, name in enumerate(federation.train.ids):
        x, y = federation.train.arrays(i)
        tested = federation.test is not None and i in place
        x_test, y_test = federation.test.arrays(place[i]) if federation.test and tested else (None, None)
        clients.append(Client(x, y, x_test, y_test, name))
    return clients
