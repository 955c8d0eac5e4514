"""'ifca federate server': a SuperLink, the clients' keys, one run of a config, and nothing left behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import tomli_w

from ifca import __version__
from ifca.core.callbacks import Callback
from ifca.core.errors import Diverged, IFCAError, InvalidInput
from ifca.data.files import write_atomically
from ifca.engines.flower import TooFewClients
from ifca.engines.flower.faults import printable
from ifca.engines.flower.receiver import LARGEST
from ifca.federation.apps import DONE, FAILED
from ifca.federation.control import Control, check_gate, public_keys
from ifca.federation.follow import Follower
from ifca.federation.gate import FOLDER, KEYS, LIMIT, SECRET
from ifca.federation.keys import CA
from ifca.federation.processes import ProcessFailed, new_secret, running, wait_healthy, why_ended
from ifca.federation.resuming import remember
from ifca.federation.superlink import SuperLinkAddress
from ifca.federation.task_executor import TASK_SECRET
from ifca.runs.config import Config, with_absolute_paths, write_config
from ifca.runs.run_folder import CONFIG

APP = '''"""Made by ifca federate server: the config beside this file, on Flower."""

from pathlib import Path

from ifca.federation import client_app, server_app

CONFIG = Path(__file__).with_name("config.toml")
client = client_app(CONFIG)
server = server_app(CONFIG)
'''
GOES_ON = "--resume goes on from the checkpoint"
SPARE = 2**20  # bytes; a disk with less is full
STATUS_EVERY = 5.0  # seconds between two looks at how the run stands
UNANSWERED = 120.0  # seconds after which a SuperLink that does not answer is given up
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
    work = remember(out, config, address)
    for note in (DONE, FAILED):  # of an earlier part
        (work / note).unlink(missing_ok=True)
    secret, log, home = _write_gate(work, address), work / "superlink.log", work / "home"
    gate = {FOLDER: str(work)}
    with (
        running(address.command(work), log, home, more=gate, private=True) as superlink,
        running(address.executor(work), work / "serverapp.log", home) as executor,
    ):
        scheme = "http" if address.tls is None else "https"
        ca = None if address.tls is None else address.tls / CA
        wait_healthy(superlink, f"{scheme}://{address.local}/health", ca, log, 90)
        check_gate(address, secret)
        control, follower = Control(address, secret), Follower(out, config, callback, say)
        if address.tls is not None and (revoked := control.register()):
            say(f"keys that are gone, and shut out: {', '.join(revoked)}")
        run, terms = control.submit(_write_app(config, out, work, trust)), config.federation
        say(
            f"open at {address.host}:{address.port}; waiting for {terms.clients or terms.min_clients} clients"
        )
        processes = {"SuperLink": (superlink, log), "server's app": (executor, work / "serverapp.log")}
        looked = answered = time.monotonic()
        while not (work / DONE).exists():
            follower.read_new()
            _check_alive(processes, work)
            if time.monotonic() > looked + STATUS_EVERY:
                left = answered + UNANSWERED - time.monotonic()
                answered = time.monotonic() if _check_run(control, work, run, left, say) else answered
                looked = time.monotonic()
            time.sleep(0.2)
        follower.read_new()
        follower.finish()


def _write_gate(work: Path, address: SuperLinkAddress) -> bytes:
    """What the gate asks for; the secret of administration."""
    new_secret(work / TASK_SECRET)
    write_atomically(work / LIMIT, str(LARGEST).encode())
    (work / KEYS).unlink(missing_ok=True)
    if address.tls is not None:
        known = {name: key.decode() for name, key in public_keys(address).items()}
        write_atomically(work / KEYS, json.dumps(known).encode())
    return new_secret(work / SECRET)


def _check_alive(processes: dict[str, tuple[subprocess.Popen[bytes], Path]], work: Path) -> None:
    """Raise what the ServerApp reported, or that a process has ended, and why."""
    if (work / FAILED).exists():
        told = json.loads((work / FAILED).read_text())
        raise KINDS.get(told["kind"], IFCAError)(printable(told["message"]))
    for name, (process, log) in processes.items():
        if process.poll() is not None:
            raise ProcessFailed(f"the {name} ended: {_full(work)}{why_ended(process, log)}; {GOES_ON}")


def _check_run(control: Control, work: Path, run: int, left: float, say: Callable[[str], None]) -> bool:
    """Raise that the run has ended where its app could not say so itself; whether the SuperLink answered.

    left: seconds in which it need not; somebody may hold all connections for a while.
    """
    try:
        said, why = control.status(run)
    except ProcessFailed as reason:
        if left < 0:
            raise ProcessFailed(f"{_full(work)}{reason}; {GOES_ON}") from reason
        say(f"{reason}; given up in {left:.0f} s")
        return False
    if said == "finished" and not (work / DONE).exists() and not (work / FAILED).exists():
        raise ProcessFailed(f"the run ended: {_full(work)}{printable(why)}; {GOES_ON}")
    return True


def _full(work: Path) -> str:
    """The cause that a full disk keeps others from writing down."""
    return "no space is left on the disk of the run; " if shutil.disk_usage(work).free < SPARE else ""


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
