"""Flower's command line and Control API: register SuperNodes, submit a run, ask for its status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import tomli_w
from flwr.cli.supernode.register import try_load_public_key
from flwr.proto.control_pb2 import RegisterNodeRequest
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

from ifca.federation.keys import CA
from ifca.federation.processes import ProcessFailed, environment
from ifca.federation.superlink import SuperLinkAddress


def write_connection(home: Path, address: SuperLinkAddress) -> None:
    """Write the SuperLink's connection into the flwr command's config."""
    link: dict[str, Any] = {"address": address.local}
    if address.tls is None:
        link["insecure"] = True
    else:
        link["root-certificates"] = str((address.tls / CA).resolve())
    content = {"superlink": {"default": "ifca", "ifca": link}}
    (home / "config.toml").write_text(tomli_w.dumps(content))


def _flwr(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    flwr = Path(sys.executable).with_name("flwr")
    return subprocess.run(
        [str(flwr), *arguments],
        capture_output=True,
        text=True,
        env=environment(home),
        timeout=120,
        check=False,
    )


def register_supernodes(address: SuperLinkAddress, work: Path) -> None:
    """Register the clients' public keys; those of an earlier time are in the SuperLink's database."""
    done = work / "registered"
    known = done.read_text().splitlines() if done.exists() else []
    new = [key for key in address.public_keys() if key.read_text().strip() not in known]
    if not new or address.tls is None:
        return
    version = RuntimeVersionHttpInterceptor(component_name="flwr CLI")
    client = ControlHttpClient.from_server_address(
        address.local, False, (address.tls / CA).read_bytes(), interceptors=[version]
    )
    try:
        for key in new:
            client.RegisterNode(RegisterNodeRequest(public_key=try_load_public_key(key)))
            with done.open("a") as file:
                file.write(key.read_text().strip() + "\n")
    except Exception as reason:
        raise ProcessFailed(f"{key}: could not be registered ({type(reason).__name__}: {reason})") from reason
    finally:
        client.close()


def submit_run(app: Path, home: Path) -> str:
    """Submit the app as a run; its run id."""
    result = _flwr(home, "run", str(app), "ifca", "--format", "json")
    try:
        told = json.loads(result.stdout[result.stdout.index("{") :])
        return str(told["run-id"])
    except (ValueError, KeyError):
        said = (result.stdout + result.stderr).strip()[-400:]
        raise ProcessFailed(f"Flower did not take the run: {said}") from None


def run_status(run: str, home: Path) -> str:
    """The status of a run: starting, running, finished:failed, …"""
    result = _flwr(home, "list", "--run-id", run, "ifca", "--format", "json")
    try:
        told = json.loads(result.stdout[result.stdout.index("{") :])
        return str(told["runs"][0]["status"])
    except (ValueError, KeyError, IndexError):
        return "unknown"
