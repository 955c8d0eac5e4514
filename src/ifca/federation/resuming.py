"""How a federation was started, kept beside its run, so that it goes on with the folder alone."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ifca.core.callbacks import Callback
from ifca.core.errors import InvalidInput
from ifca.data.files import write_atomically
from ifca.federation.superlink import SuperLinkAddress
from ifca.runs.config import Config, read_config, with_absolute_paths, write_config
from ifca.runs.run_code import kept_code
from ifca.runs.run_folder import CONFIG, PRIVATE, open_directory
from ifca.runs.summary_file import finished_summary

STARTED = "started.json"


def make_work_folder(out: Path) -> Path:
    """The folder of Flower's own files and of ours, which nobody else may read."""
    work = (out / PRIVATE).resolve()
    out.mkdir(parents=True, exist_ok=True)
    work.mkdir(mode=0o700, exist_ok=True)
    for file in (work, *work.glob("state.db*"), *work.glob("*.log")):  # an earlier version was careless
        file.chmod(0o700 if file.is_dir() else 0o600)
    return work


def remember(out: Path, config: Config, how: SuperLinkAddress | dict[str, Any]) -> Path:
    """Keep what a federation was started with, also before its run begins; the folder for Flower's files.

    how: where its SuperLink is, or the options of its simulation.
    """
    work = make_work_folder(out)
    if isinstance(how, SuperLinkAddress):
        tls = None if how.tls is None else str(how.tls.resolve())
        how = {"verb": "server", "host": how.host, "port": how.port, "tls": tls}
    write_atomically(work / CONFIG, write_config(with_absolute_paths(config)).encode())
    write_atomically(work / STARTED, json.dumps(how).encode())
    return work


@contextlib.contextmanager
def forgotten_if_refused(out: Path) -> Iterator[None]:
    """A job that is refused before its run begins leaves no folder behind."""
    try:
        yield
    except InvalidInput:
        if {file.name for file in out.iterdir()} == {PRIVATE}:
            shutil.rmtree(out)
        raise


def was_started(out: Path) -> bool:
    """Whether a folder is that of a federation which was started, and knows how."""
    return (out / PRIVATE / STARTED).is_file()


def begun_config(out: Path, trust: bool = False) -> Config:
    """The config of a federation: that of its run, or with which its clients are waited for."""
    if not (out / CONFIG).exists() and (out / PRIVATE / CONFIG).exists():
        return read_config(out / PRIVATE / CONFIG)
    config = open_directory(out)
    kept_code(out, config, trust)  # refuse it before anything is started
    if config.engine != "flower":
        raise InvalidInput(f"{out}: was not begun by 'ifca federate'; 'ifca resume {out}' goes on with it")
    return config


def resume(out: Path, callback: Callback, say: Callable[[str], None], trust: bool = False) -> None:
    """Go on with a federation as it was started: the same address and keys, or the same simulation."""
    if (summary := finished_summary(out)) is not None:
        callback.finished(summary)
        return
    how, config = json.loads((out / PRIVATE / STARTED).read_text()), begun_config(out, trust)
    if how.pop("verb") == "server":
        from ifca.federation.server import run_server

        if how["tls"] is None:  # a folder of somebody else must not open a port in plain text
            raise InvalidInput(
                f"{out}: was started without keys; 'ifca federate server --insecure --resume {out}' goes on"
            )
        address = SuperLinkAddress(how["host"], how["port"], Path(how["tls"]))
        run_server(config, out, address, callback, say, trust)
    else:
        from ifca.federation.simulation import simulate

        simulate(config, out, callback, say=say, **how)
