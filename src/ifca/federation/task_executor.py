"""Flower's SuperExec with one difference: every message is served by a copy of a process that is ready.

Flower starts a Python process for each message, which imports torch before it does anything, and gives it
the message's token on its command line, where every user of the machine can read it. Started as a module,
this is flower-superexec with the same options, beside a process that imports once and then copies itself
(fork) for each message: the copy begins at once, its token comes through a pipe, and what a message does to
its process is gone with it.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from queue import Queue
from typing import IO, Any

from ifca.engines.flower.private_api import TASKS, check, get

TASK_SECRET = "tasks.secret"  # who knows it may take tasks from the SuperLink or the SuperNode
PRELOAD = "IFCA_PRELOAD"  # environment: a client's file, to be read once
SERVES = {"flwr-clientapp": "run_clientapp", "flwr-serverapp": "run_serverapp"}


def executor_command(address: str, ca: Path | None, secret: Path) -> list[str]:
    """The command of this module. address: of the SuperLink or the SuperNode; ca: None, plain text."""
    trust = ["--insecure"] if ca is None else ["--root-certificates", str(ca)]
    command = [sys.executable, "-m", "ifca.federation.task_executor", "--runtime-api-address", address]
    return [*command, *trust, "--superexec-auth-secret-file", str(secret)]


class Executor:
    """Begins tasks, in place of Flower's SubprocessExecutor; there is no limit to them."""

    def get_eligible_capacity(self, supported: Any, **_options: Any) -> tuple[Any, set[str]]:
        """A SuperNode has one message at a time."""
        return supported, set()

    def wait_for_capacity(self, *_arguments: Any, **_options: Any) -> None:
        """Nobody waits."""

    def launch(self, spec: Any) -> Any:
        """Begin a task: let the process that is ready copy itself."""
        if str(spec.task_type) not in SERVES:
            return get(TASKS, "LaunchResult").failed(f"ifca serves no task of type {spec.task_type}")
        self.begin(spec)
        return get(TASKS, "LaunchResult").accepted()

    def begin(self, spec: Any) -> None:
        """Begin a task in a process of its own, which reads its token."""
        trust = ["--insecure"] if spec.insecure else ["--root-certificates", str(spec.root_certificates_path)]
        command = [str(spec.task_type), "--runtime-api-address", spec.runtime_api_address, "--token-stdin"]
        process = subprocess.Popen(
            [*command, *trust, "--parent-pid", str(os.getpid())], stdin=subprocess.PIPE
        )
        assert process.stdin is not None
        process.stdin.write(f"{spec.token}\n".encode())
        process.stdin.close()

    def reconcile(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Tasks end by themselves when this process has ended."""


class ForkingExecutor(Executor):
    """Tells each task to a process that copies itself."""

    def __init__(self, pipe: IO[str]) -> None:
        self._pipe = pipe

    def begin(self, spec: Any) -> None:
        """One line for each task."""
        words = ("task_type", "runtime_api_address", "token", "insecure", "root_certificates_path")
        print(json.dumps({word: getattr(spec, word) for word in words}), file=self._pipe, flush=True)


def import_all() -> Any:
    """What every message needs, imported before there are copies; the module of the apps."""
    importlib.import_module("torch._dynamo")  # which torch imports with the first gradient, for seconds
    return importlib.import_module("ifca.federation.apps")


def copy_for_each(tasks: IO[str]) -> None:
    """Serve each task of a pipe in a copy of this process, until the pipe is closed."""
    apps, file = import_all(), os.environ.get(PRELOAD)
    if file is not None:
        apps.read_arrays(Path(file))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a copy ended
    while line := tasks.readline():
        if os.fork() == 0:
            serve_task(json.loads(line))


def serve_task(task: dict[str, Any]) -> None:
    """In the copy: serve one task and end, whatever happens."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        name, file = SERVES[task.pop("task_type")], task.pop("root_certificates_path")
        given = task | {"certificates": None if file is None else Path(file).read_bytes()}
        if name == "run_serverapp":
            given["log_queue"] = Queue()
        get(TASKS, name)(**given, parent_pid=os.getppid())
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Start the SuperExec; where a process cannot copy itself safely, each task has a new one."""
    check(TASKS)
    executor = Executor()
    if sys.platform == "linux":
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.close(writing)
            with os.fdopen(reading) as tasks:
                copy_for_each(tasks)
            os._exit(0)
        os.close(reading)
        executor = ForkingExecutor(os.fdopen(writing, "w"))
    module = sys.modules[get(TASKS, "get_executor").__module__]
    module.SubprocessExecutor = lambda: executor  # type: ignore[attr-defined]
    get(TASKS, "flower_superexec")()


if __name__ == "__main__":
    main()
