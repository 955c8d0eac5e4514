"""A federation on one machine or one Ray cluster: Flower's simulation of a config's own data."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from ifca.core.callbacks import Callback
from ifca.core.errors import InvalidInput
from ifca.federation.apps import client_app
from ifca.federation.processes import QUIET
from ifca.federation.server_check import is_listening
from ifca.federation.serverapp import serve
from ifca.runs.config import Config, with_absolute_paths
from ifca.runs.make import make_federation
from ifca.runs.run_code import code_of


def simulate(
    config: Config,
    out: Path,
    callback: Callback | None = None,
    *,
    cpus: float = 1.0,
    gpus: float = 0.0,
    ray_address: str | None = None,
) -> dict[str, Any]:
    """Every client of the config's data as a node of its own, in Ray actors; the result is that of a run.

    cpus, gpus: what one client needs, which decides how many run at once; ray_address: an existing cluster.
    """
    if ray_address is not None and ray_address != "auto" and not is_listening(ray_address, "--ray-address"):
        raise InvalidInput(f"--ray-address: no Ray cluster answers at {ray_address}")  # Ray waits for ever
    config = with_absolute_paths(config)
    code = code_of(config)  # one version for the server and all clients
    clients = len(make_federation(config, code).train)
    terms = replace(config.federation, clients=clients)
    config = replace(config, federation=terms)
    result: dict[str, Any] = {}

    def work(grid: Grid) -> None:
        result.update(serve(grid, config, out, callback, code=code, seeded=True))

    app = client_app(config, code=code)
    run_on_ray(work, app, clients, cpus=cpus, gpus=gpus, ray_address=ray_address)
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
