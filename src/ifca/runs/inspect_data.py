"""Look at a user's data as training would: the same readers, the same sentences, all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ifca.core.errors import InvalidInput
from ifca.data import Client, Federation
from ifca.data.problems import Findings
from ifca.data.sources.data_report import inspect_clients
from ifca.data.sources.leaf import leaf_files
from ifca.data.sources.table_files import KINDS as TABLES
from ifca.runs.config import Config, parse_config, read_config
from ifca.runs.make import make_federation
from ifca.runs.own_data_config import OwnFiles
from ifca.runs.run_code import code_of, kept_code
from ifca.runs.run_folder import is_run_folder


def inspect_path(path: Path, options: dict[str, Any], most: int = 50, trust: bool = False) -> dict[str, Any]:
    """A report as plain JSON values; options: keys of [data], for a path that is no config.

    trust: call the function that the config of a run folder names also where others made the folder.
    """
    config = read_config(path) if path.suffix == ".toml" else config_of_path(path, options)
    kept = path.suffix == ".toml" and is_run_folder(path.parent)
    code = kept_code(path.parent, config, trust, ("data.load",)) if kept else code_of(config)
    problems, data = Findings(most), config.data
    clients: list[Client] = []
    try:
        if isinstance(data, OwnFiles):
            clients = data.clients(config.seed, problems)
        else:
            clients = _clients(make_federation(config, code))
    except InvalidInput as reason:
        problems(str(reason))
    classes, standardise = getattr(data, "classes", None), getattr(data, "standardise", False)
    report = inspect_clients(clients, classes, problems, standardise=standardise)
    features = clients[0].features if clients else None
    return {
        "path": str(path),
        "kind": data.name,
        "features": None if features is None else list(features),
        **report,
    }


def config_of_path(path: Path, options: dict[str, Any]) -> Config:
    """The config that a user would write for this path."""
    given = {name: value for name, value in options.items() if value is not None}
    if path.suffix in TABLES:
        kind, known = "table", {"label", "features", "test", "cluster", "client"}
    elif any(leaf_files(path).values()):
        kind, known = "leaf", set()
    elif (path / "dataset_info.json").is_file() or (path / "dataset_dict.json").is_file():
        kind, known = "hugging-face", {"label", "features", "client"}
        given["label"] = given["label"][0] if len(given.get("label", [])) == 1 else given.get("label")
    elif path.exists() and not path.is_dir():
        raise InvalidInput(f"{path}: a folder, a .csv or .parquet table, or a .toml config is needed")
    else:
        kind, known = "folder", {"label", "features", "test", "cluster"}
    for name in given:
        if name not in known | {"task", "classes"}:
            raise InvalidInput(f"--{name}: means nothing for {path}, which was understood as {kind}")
    data = {"name": kind, "path": str(path), **{k: v for k, v in given.items() if v is not None}}
    return parse_config({"data": data}, f"{path}")


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
