"""'ifca check' and 'ifca continue': a finished run's models and new data of its clients."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ifca.data.files import write_atomically
from ifca.data.sources.table_files import KINDS as TABLES
from ifca.data.sources.table_files import kind_of
from ifca.methods import method_of
from ifca.runs.auto_k import MOST
from ifca.runs.bands import known_clients
from ifca.runs.chosen_job import TEST_SHARE
from ifca.runs.config import Config, config_dict, config_of, with_absolute_paths, without_none
from ifca.runs.continued import CONTINUED, as_before, can_go_on, read_new
from ifca.runs.make import make_job
from ifca.runs.own_data_config import FolderData, TableData
from ifca.runs.run import go_on
from ifca.runs.run_code import FIELDS, kept_code, run_id
from ifca.runs.run_folder import check_unused, new_directory, open_directory, write_start
from ifca.training.continued_state import continued_state
from ifca.training.preflight import check
from ifca.use.drift_check import checked
from ifca.use.opened_run import open_trained
from ifca.use.trained import Trained

CALLED = tuple(field for field in FIELDS if field != "data.load")  # the new data are files


def check_run(
    directory: Path, data: Path, *, client: str | None = None, trust: bool = False
) -> dict[str, Any]:
    """New data of a run's clients against its models, all rows; nothing is trained and nothing written."""
    trained = _opened(directory, trust)
    config = replace(_config(trained, data, client), continues=str(directory))
    assert isinstance(config.data, FolderData)
    reading = replace(config, data=replace(config.data, test_share=None, test=None))
    clients, without = read_new(reading, trained.header)
    there = as_before(trained.header, clients, str(data)).train if clients or not without else None
    return checked(trained, known_clients(directory), there, without)


def continue_run(
    directory: Path,
    data: Path,
    out: Path,
    callback: object = None,
    *,
    settings: list[str] | None = None,
    client: str | None = None,
    trust: bool = False,
    told: Any = lambda _found: None,
) -> dict[str, Any]:
    """Go on with a run's models on new data, in a new folder; the run's own stays as it is.

    settings: key=value over the run's config; client: of a table the column that says whose a row is. told:
    is given what was found of the new data before training. Returns the summary of the new run.
    """
    trained = _opened(directory, trust)
    code = kept_code(directory, trained.config, trust, CALLED)
    check_unused(out)
    config = _config(trained, data, client)
    given = without_none(config_dict(replace(config, continues=str(directory))))
    config = with_absolute_paths(config_of(given, settings, {}, f"the config of {directory} with --set"))
    clients, without = read_new(config, trained.header)
    federation = as_before(trained.header, clients, str(data))
    found = checked(trained, known_clients(directory), federation.train, without)
    told(found)
    misfit = torch.tensor([row["tried"] for row in found["clients"]])
    if not any(setting.partition("=")[0].strip() == "k" for setting in settings or []):
        config = replace(config, k=places_for(trained, int(misfit.sum())))
    job = make_job(config, federation, code)
    check(job)
    losses = job.make_engine().score(trained.theta, federation.train).loss
    state = continued_state(job, losses.cpu(), misfit)
    new_directory(config, out, code)
    config = open_directory(out)
    write_atomically(out / CONTINUED, json.dumps({"run": str(directory), **found}, indent=2).encode())
    write_start(out, job, config, run_id(out), state)
    return go_on(config, federation, out, callback, code)


def _opened(directory: Path, trust: bool) -> Trained:
    """A finished run whose clients choose among models."""
    can_go_on(directory)
    return open_trained(directory, trust)


def places_for(trained: Trained, misfits: int) -> int:
    """The models there are, and places for those that misfits may need."""
    referee = method_of(trained.header["algorithm"]).referee
    return len(trained.live) + (min(misfits, MOST) if referee else 0)


def _config(trained: Trained, data: Path, client: str | None) -> Config:
    """The run's config with other data, one training, a fifth of the samples kept to compare by."""
    was, path = trained.config.data, str(data)
    table = kind_of(data) in TABLES
    if isinstance(was, TableData if table else FolderData) and (table or not isinstance(was, TableData)):
        new: FolderData | TableData = replace(was, path=path, cluster=None)
    else:
        shared = (
            {"label", "columns", "missing", "seed", "test_share"} if isinstance(was, FolderData) else set()
        )
        kept = {name: getattr(was, name) for name in shared}
        own = getattr(was, "client", None)
        new = (
            TableData(name="table", path=path, client=own, **kept)
            if table
            else FolderData(name="folder", path=path, **kept)
        )
    if client is not None and isinstance(new, TableData):
        new = replace(new, client=client)
    if new.test_share is None and getattr(new, "test", None) is None:
        new = replace(new, test_share=TEST_SHARE)
    engine = "vectorised" if trained.config.engine == "flower" else trained.config.engine
    once = replace(trained.config, data=new, warm_start=None, baselines=(), restarts=1, engine=engine)
    return replace(once, initial="random")
