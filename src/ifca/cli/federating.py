"""The verbs of 'ifca federate': the same jobs on Flower. They need the extra [flower]."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from ifca.cli.continuing import say_what_it_brought
from ifca.cli.options import ConfigFile, Out, Quiet, Settings, Track, Trust, check_there
from ifca.core.errors import Interrupted, InvalidInput

app = typer.Typer(no_args_is_help=True, help="Train a federation on Flower: simulated, or real.")


@app.callback()
def needs_flower() -> None:
    """Refuse in one sentence where Flower is not installed."""
    if importlib.util.find_spec("flwr") is None:
        raise InvalidInput("'ifca federate' needs Flower: pip install 'ifca[flower]' (Python 3.11 or newer)")


@app.command()
def simulate(
    config: ConfigFile = None,
    settings: Settings = None,
    out: Out = None,
    cpus: Annotated[float, typer.Option(help="CPU cores that one client takes.")] = 1.0,
    gpus: Annotated[float, typer.Option(help="Share of a GPU that one client takes.")] = 0.0,
    ray: Annotated[
        bool, typer.Option("--ray", help="Clients in Ray actors, as Flower simulates; always with --gpus.")
    ] = False,
    ray_address: Annotated[
        str | None, typer.Option(help="An existing Ray cluster, HOST:PORT or auto.")
    ] = None,
    quiet: Quiet = False,
    track: Track = None,
    trust: Trust = False,
) -> None:
    """Train a job with every client as a node of a Flower grid; the folder is like any other run's."""
    from ifca.federation.simulation import simulate as simulate_config
    from ifca.report.terminal.show import watched
    from ifca.runs.chosen_job import chosen_job
    from ifca.runs.run_folder import next_directory

    chosen = chosen_job(config, {}, settings=settings, trust=trust)
    folder, say = out or next_directory(chosen), None if quiet else typer.echo
    try:
        watched(
            lambda told: simulate_config(
                chosen, folder, told, cpus=cpus, gpus=gpus, ray=ray, ray_address=ray_address, say=say
            ),
            folder,
            quiet,
            track,
        )
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; the same command with '--out {folder}' goes on") from None


@app.command()
def keys(
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    clients: Annotated[int, typer.Option(help="How many clients get a key: client-0, client-1, ...")] = 4,
    name: Annotated[
        list[str] | None, typer.Option(help="A client that gets a key, by its name; repeatable.")
    ] = None,
    host: Annotated[
        list[str] | None, typer.Option(help="A name or address of the server, as clients say it; repeatable.")
    ] = None,
    days: Annotated[int, typer.Option(help="Days until the certificates end.")] = 365,
) -> None:
    """Make a CA, the server's certificate and the clients' keys, for a trial."""
    from ifca.federation.keys import make_keys

    make_keys(folder, name or clients, tuple(host or ()), days)
    typer.echo(f"{folder}: keep ca.key and server.key; give each client ca.crt and its file of clients/")


@app.command()
def server(
    config: ConfigFile = None,
    settings: Settings = None,
    port: Annotated[int, typer.Option(help="Where clients connect.")] = 18000,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0: all of them.")] = "127.0.0.1",
    tls_dir: Annotated[Path | None, typer.Option(help="A folder made by 'ifca federate keys'.")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No TLS, and everybody may join: for trials on one machine.")
    ] = False,
    out: Out = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    continues: Annotated[
        Path | None,
        typer.Option(
            "--continue", help="A finished run whose models are trained on with the clients' new data."
        ),
    ] = None,
    quiet: Quiet = False,
    track: Track = None,
    trust: Trust = False,
) -> None:
    """Serve one run to the clients that connect, then stop."""
    from ifca.federation.continued_server import config_to_continue
    from ifca.federation.resuming import begun_config
    from ifca.federation.server import run_server
    from ifca.federation.superlink import SuperLinkAddress
    from ifca.report.terminal.show import watched
    from ifca.runs.chosen_job import chosen_job
    from ifca.runs.run_folder import CONFIG, check_unused, next_directory

    if insecure == (tls_dir is not None):
        raise InvalidInput("give --tls-dir (made by 'ifca federate keys'), or say --insecure")
    if resume is not None and (config or settings or out or continues):
        raise InvalidInput("--resume takes the config and the folder of the run; give nothing else")
    if insecure:
        typer.echo(
            "warning: --insecure: nothing is encrypted, and whoever reaches the port may join", err=True
        )
    if continues is not None and config is None:
        check_there(continues)
        config = continues / CONFIG
    chosen = begun_config(resume, trust) if resume else chosen_job(config, {}, settings=settings, trust=trust)
    chosen = chosen if continues is None else config_to_continue(chosen, continues)
    folder = resume or out or next_directory(chosen)
    if resume is None:
        check_unused(folder)
    address = SuperLinkAddress(host, port, tls_dir)
    try:
        watched(
            lambda told: run_server(chosen, folder, address, told, typer.echo, trust), folder, quiet, track
        )
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; 'ifca federate server --resume {folder}' goes on, with the same port and keys"
        ) from None
    if chosen.continues is not None:
        say_what_it_brought(folder)


@app.command()
def client(
    server: Annotated[str, typer.Option(help="HOST:PORT of the server.")],
    data: Annotated[Path, typer.Option(help="The client's .npz file, or the folder that holds it.")],
    key: Annotated[Path | None, typer.Option(help="The client's private key.")] = None,
    ca: Annotated[Path | None, typer.Option(help="ca.crt; without it: that of the key's folder.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="For a server that said so, too.")] = False,
    name: Annotated[
        str | None, typer.Option(help="The client's name; without it: that of its key, or of its file.")
    ] = None,
    patience: Annotated[float, typer.Option(help="Seconds to try again when turned away.")] = 60.0,
    wait: Annotated[float, typer.Option(help="Seconds to wait for a server that is not there.")] = 86400.0,
) -> None:
    """Take part with one client's data, until interrupted. The data stay here."""
    from ifca.federation.supernode import join

    try:
        join(server, data, key, ca, insecure, patience, typer.echo, name=name, wait=wait)
    except KeyboardInterrupt:
        typer.echo("client: stopped")
