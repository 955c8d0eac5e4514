"""Flower's own processes: started with the right switches, watched, and ended with all they started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from ifca.core.errors import IFCAError, InvalidInput
from ifca.engines.flower.faults import printable

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "PYTHONUNBUFFERED": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",  # seconds
}


COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class ProcessFailed(IFCAError):
    """One of Flower's processes did not start or ended by itself; what it said last."""


def environment(home: Path) -> dict[str, str]:
    """For Flower's processes: quiet, a home of their own, and its commands on the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, **QUIET, "FLWR_HOME": str(home), "PATH": path}


@contextlib.contextmanager
def running(
    command: list[str], log: Path, home: Path, *, more: Mapping[str, str] | None = None, private: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, its output in a log; it and its children end with the block.

    more: of its environment; private: nobody else may read the files that it makes.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment(home) | dict(more or {}),
            umask=0o077 if private else -1,
            start_new_session=True,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
    before = signal.signal(signal.SIGTERM, _interrupted)
    try:
        yield process
    finally:
        signal.signal(signal.SIGTERM, before)
        stop(process)


def _interrupted(_signal: int, _frame: object) -> None:
    """To be terminated is to be interrupted: what was started is ended first."""
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    """Ask Linux to end this process when its parent is killed without a chance to clean up."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def stop(process: subprocess.Popen[bytes], patience: float = 8.0) -> None:
    """Ask a process to end, then make it; its children, which Flower detaches, too."""
    pids = [process.pid, *descendants(process.pid)]
    for sent, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, patience)):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, sent)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            process.poll()
            pids = [pid for pid in pids if _alive(pid)]
            if not pids:
                process.wait()
                return
            time.sleep(0.1)


def descendants(pid: int) -> list[int]:
    """All processes that a process started, and that they started, as ps knows them."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False)
    children: dict[int, list[int]] = {}
    for line in listed.stdout.splitlines():
        child, parent = (int(part) for part in line.split())
        children.setdefault(parent, []).append(child)
    found, todo = [], [pid]
    while todo:
        todo += children.get(todo[0], [])
        found.append(todo.pop(0))
    return found[1:]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    try:  # a zombie is ended; only its parent has not heard of it yet
        return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_healthy(
    process: subprocess.Popen[bytes], url: str, ca: Path | None, log: Path, seconds: float
) -> None:
    """Until a process answers, or a sentence about why it does not."""
    context = ssl.create_default_context(cafile=str(ca)) if ca else None
    deadline = time.monotonic() + seconds
    reason = "no answer"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ProcessFailed(f"Flower's process ended at once: {why_ended(process, log)}")
        try:
            with urllib.request.urlopen(url, timeout=2, context=context):
                return
        except (urllib.error.URLError, OSError) as failure:
            reason = str(failure)
        time.sleep(0.1)
    raise ProcessFailed(f"{url} did not answer within {seconds:.0f} s ({reason}); see {log}")


def why_ended(process: subprocess.Popen[bytes], log: Path) -> str:
    """By which signal a process was ended, or what it said last."""
    if process.returncode is not None and process.returncode < 0:
        return f"it was ended from outside, by {signal.Signals(-process.returncode).name}"
    return last_lines(log)


def last_lines(log: Path, lines: int = 3) -> str:
    """The end of a log, on one line and without its colours."""
    text = COLOURS.sub("", log.read_text(errors="replace")).splitlines() if log.exists() else []
    return printable(" | ".join([line.strip() for line in text if line.strip()][-lines:])[-600:])


def new_secret(file: Path) -> bytes:
    """A secret in a file that nobody else may read."""
    secret = secrets.token_hex(32).encode()
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(secret)
    return secret


def free_port() -> int:
    """A port that nobody uses on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def check_port(host: str, port: int) -> None:
    """Refuse a port that is in use, before anything is started."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as reason:
            raise InvalidInput(f"--port {port}: cannot be used on {host} ({reason.strerror})") from reason
