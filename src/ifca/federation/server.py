"""'ifca federate server': a SuperLink, the clients' keys, one run of a config, and nothing left behind."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import tomli_w

from ifca import __version__
from ifca.core.callbacks import Callback
from ifca.core.errors import Diverged, IFCAError, InvalidInput
from ifca.engines.flower import TooFewClients
from ifca.federation.apps import DONE, FAILED
from ifca.federation.flwr_command import register_supernodes, run_status, submit_run, write_connection
from ifca.federation.follow import Follower
from ifca.federation.keys import CA
from ifca.federation.processes import ProcessFailed, last_lines, running, wait_healthy
from ifca.federation.superlink import SuperLinkAddress
from ifca.runs.config import Config, with_absolute_paths, write_config
from ifca.runs.run_code import kept_code
from ifca.runs.run_folder import CONFIG, PRIVATE, open_directory

APP = '''"""Made by ifca federate server: the config beside this file, on Flower."""

from pathlib import Path

from ifca.federation import client_app, server_app

CONFIG = Path(__file__).with_name("config.toml")
client = client_app(CONFIG)
server = server_app(CONFIG)
'''
KINDS = {kind.__name__: kind for kind in (InvalidInput, Diverged, TooFewClients)}


def run_server(
    config: Config,
    out: Path,
    address: SuperLinkAddress,
    callback: Callback,
    say: Callable[[str], None],
    trust: bool = False,
) -> None:
    """Serve one run to its end; an interruption leaves its checkpoint, to go on from with --resume.

    trust: go on with code that the folder keeps also where it was not made by this user here.
    """
    address.check()
    config = replace(with_absolute_paths(config), engine="flower")
    work = (out / PRIVATE).resolve()
    work.mkdir(parents=True, exist_ok=True)
    for note in (DONE, FAILED):
        (work / note).unlink(missing_ok=True)
    log, home = work / "superlink.log", work / "home"
    with running(address.command(work), log, home) as superlink:
        scheme = "http" if address.tls is None else "https"
        ca = None if address.tls is None else address.tls / CA
        wait_healthy(superlink, f"{scheme}://{address.local}/health", ca, log, 90)
        write_connection(home, address)
        register_supernodes(address, work)
        run = submit_run(_write_app(config, out, work, trust), home)
        terms = config.federation
        say(
            f"open at {address.host}:{address.port}; waiting for {terms.clients or terms.min_clients} clients"
        )
        follower = Follower(out, config, callback, say)
        while not (work / DONE).exists():
            follower.read_new()
            _check_alive(superlink, work, home, run, log, follower)
            time.sleep(0.2)
        follower.read_new()
        follower.finish()


def resumed(out: Path, trust: bool = False) -> Config:
    """The config of a federation's run that was begun."""
    config = open_directory(out)
    kept_code(out, config, trust)  # refuse it before anything is started
    if config.engine != "flower":
        raise InvalidInput(f"{out}: was not begun by 'ifca federate'; 'ifca resume {out}' goes on with it")
    return config


def _check_alive(
    superlink: subprocess.Popen[bytes], work: Path, home: Path, run: str, log: Path, follower: Follower
) -> None:
    """Raise what the ServerApp reported, or that the SuperLink or the run has ended."""
    if (work / FAILED).exists():
        told = json.loads((work / FAILED).read_text())
        raise KINDS.get(told["kind"], IFCAError)(told["message"])
    if superlink.poll() is not None:
        raise ProcessFailed(f"the SuperLink ended: {last_lines(log)}; --resume goes on from the checkpoint")
    if follower.seconds_without_round() > 30:
        follower.restart_clock()
        said = run_status(run, home)
        if said.startswith("finished") and not (work / DONE).exists() and not (work / FAILED).exists():
            raise ProcessFailed(f"the run ended ({said}); see {log}; --resume goes on from the checkpoint")


def _write_app(config: Config, out: Path, work: Path, trust: bool) -> Path:
    """A Flower app of two short files and the config."""
    folder = work / "ifca-federation"
    folder.mkdir(exist_ok=True)
    (folder / "ifca_app.py").write_text(APP)
    (folder / CONFIG).write_text(write_config(config))
    components = {"serverapp": "ifca_app:server", "clientapp": "ifca_app:client"}
    project = {
        "name": "ifca-federation",
        "version": __version__,
        "license": "Apache-2.0",
        "dependencies": [],
    }
    terms = {"out": str(out.resolve()), "trust": trust}
    flower = {"publisher": "ifca", "components": components, "config": terms}
    (folder / "pyproject.toml").write_text(
        tomli_w.dumps({"project": project, "tool": {"flwr": {"app": flower}}})
    )
    return folder
