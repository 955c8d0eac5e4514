"""A federation on one machine or one Ray cluster: Flower's simulation of a config's own data."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from ifca.core.callbacks import Callback
from ifca.core.errors import InvalidInput
from ifca.experiments.build import make_federation
from ifca.experiments.config import Config, with_absolute_paths
from ifca.experiments.federation.apps import client_app
from ifca.experiments.federation.greeting import is_there
from ifca.experiments.federation.processes import QUIET
from ifca.experiments.federation.serve import serve


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
    if ray_address is not None and ray_address != "auto" and not is_there(ray_address, "--ray-address"):
        raise InvalidInput(f"--ray-address: no Ray cluster answers at {ray_address}")  # Ray waits for ever
    config = with_absolute_paths(config)
    clients = len(make_federation(config).train)
    terms = replace(config.federation, clients=clients)
    config = replace(config, federation=terms)
    result: dict[str, Any] = {}

    def work(grid: Grid) -> None:
        result.update(serve(grid, config, out, callback))

    on_ray(work, client_app(config), clients, cpus=cpus, gpus=gpus, ray_address=ray_address)
    return result


def on_ray(
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
    server, failure = ServerApp(), list[BaseException]()

    @server.main()
    def main(grid: Grid, _context: Context) -> None:
        try:
            work(grid)
        except BaseException as reason:
            failure.append(reason)
            raise

    init: dict[str, Any] = {"address": ray_address} if ray_address else {"num_cpus": os.cpu_count()}
    backend: dict[str, Any] = {
        "init_args": init | {"include_dashboard": False, "log_to_driver": False},
        "client_resources": {"num_cpus": cpus, "num_gpus": gpus},
    }
    try:
        run_simulation(server, app, clients, backend_config=backend)
    except BaseException:
        if failure:  # what went wrong in the work, not that the simulation ended because of it
            raise failure[0] from None
        raise
    finally:
        _wait_for_threads()


def _wait_for_threads(seconds: float = 5.0) -> None:
    """Flower's threads look every second whether they should stop."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(seconds)
