"""A federation on one machine or one Ray cluster: a simulation of a config's own data."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from ifca.core.callbacks import Callback
from ifca.core.errors import InvalidInput
from ifca.federation.apps import client_app
from ifca.federation.process_grid import process_grid
from ifca.federation.processes import QUIET
from ifca.federation.resuming import forgotten_if_refused, remember
from ifca.federation.server_check import is_listening
from ifca.federation.serverapp import serve
from ifca.runs.config import Config, with_absolute_paths
from ifca.runs.make import make_federation
from ifca.runs.run_code import code_of

POLL = 0.02  # seconds between two pulls of replies, which cost nothing here


def simulate(
    config: Config,
    out: Path,
    callback: Callback | None = None,
    *,
    cpus: float = 1.0,
    gpus: float = 0.0,
    ray: bool = False,
    ray_address: str | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Every client of the config's data as a node of its own, played by processes of this machine.

    cpus, gpus: what one client needs, which decides how many run at once. ray: by the actors of Flower's own
    simulation, in Ray, which alone deals GPUs out; ray_address: of an existing cluster.
    """
    if ray_address is not None and ray_address != "auto" and not is_listening(ray_address, "--ray-address"):
        raise InvalidInput(f"--ray-address: no Ray cluster answers at {ray_address}")  # Ray waits for ever
    if config.continues is not None:
        raise InvalidInput(
            "continues: is for 'ifca federate server --continue', and 'ifca continue' where all data are here"
        )
    config = with_absolute_paths(config)
    code = code_of(config)  # one version for the server and all clients
    clients = len(make_federation(config, code).train)
    config = replace(config, federation=replace(config.federation, clients=clients))
    options = {"verb": "simulate", "cpus": cpus, "gpus": gpus, "ray": ray, "ray_address": ray_address}
    remember(out, config, options)
    result: dict[str, Any] = {}

    def work(grid: Grid) -> None:
        result.update(serve(grid, config, out, callback, poll=POLL, code=code, seeded=True, say=say))

    make_app = partial(client_app, config, code=code)
    with forgotten_if_refused(out):
        if ray or gpus or ray_address is not None:
            run_on_ray(work, make_app(), clients, cpus=cpus, gpus=gpus, ray_address=ray_address)
        else:
            with process_grid(make_app, clients, cpus) as grid:
                work(grid)
    return result


def run_on_ray(
    work: Callable[[Grid], None],
    app: ClientApp,
    clients: int,
    *,
    cpus: float = 1.0,
    gpus: float = 0.0,
    ray_address: str | None = None,
) -> None:
    """Do some work over a grid whose nodes are Ray actors; Ray is started and stopped, or only joined."""
    os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
    logging.getLogger("flwr").setLevel(logging.CRITICAL)  # faults have a log of their own
    server, failure, interrupted = ServerApp(), list[BaseException](), threading.Event()

    @server.main()
    def main(grid: Grid, _context: Context) -> None:
        try:
            work(cast(Grid, _InterruptibleGrid(grid, interrupted)))
        except BaseException as reason:
            failure.append(reason)
            if interrupted.is_set():
                raise SystemExit from None  # of a thread: of all others Python prints a traceback
            raise

    init: dict[str, Any] = {"address": ray_address} if ray_address else {"num_cpus": os.cpu_count()}
    backend: dict[str, Any] = {
        "init_args": init | {"include_dashboard": False, "log_to_driver": False},
        "client_resources": {"num_cpus": cpus, "num_gpus": gpus},
    }
    try:
        with _interruptible(interrupted):
            run_simulation(server, app, clients, backend_config=backend)
    except BaseException:
        if failure:  # what went wrong in the work, not that the simulation ended because of it
            raise failure[0] from None
        raise
    finally:
        _wait_for_threads()


@contextlib.contextmanager
def _interruptible(interrupted: threading.Event) -> Iterator[None]:
    """Let ctrl-C end the work: Flower would wait for its thread, and that for the clients."""

    def interrupt(_signal: int, _frame: object) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield
        return
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _InterruptibleGrid:
    """A grid whose calls raise KeyboardInterrupt once the simulation was interrupted."""

    def __init__(self, grid: Grid, interrupted: threading.Event) -> None:
        self._grid, self._interrupted = grid, interrupted

    def __getattr__(self, name: str) -> Any:
        if self._interrupted.is_set():
            raise KeyboardInterrupt
        return getattr(self._grid, name)


def _wait_for_threads(seconds: float = 5.0) -> None:
    """Flower's threads look every second whether they should stop."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(seconds)
