"""Federations as a user starts them: Flower's simulation and its real processes, on this machine."""

from __future__ import annotations

import contextlib
import csv
import http.client
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ifca.cli.main import main
from ifca.core.callbacks import Record, Silent, Training
from ifca.core.errors import InvalidInput
from ifca.data import Client, write_client
from ifca.data.files import write_atomically
from ifca.runs.config import read_config
from ifca.runs.run import run
from ifca.training.checkpoint import load_tensors

pytest.importorskip("flwr")

from benchmarks.federation_lab import (
    ENVIRONMENT,
    Lab,
    command_lines,
    giant_post,
    half_open,
    memory,
    still_open,
    superlink_pid,
    wait_for,
)

from ifca.federation.control import Control
from ifca.federation.follow import Follower
from ifca.federation.gate import is_from_here
from ifca.federation.keys import check_private, make_keys
from ifca.federation.processes import ProcessFailed, free_port
from ifca.federation.resuming import resume
from ifca.federation.server_check import server_is_reachable
from ifca.federation.superlink import SuperLinkAddress

PATIENCE = 240  # seconds: on a busy machine a command takes one minute to import what it needs
SMALL = ["rounds=3", "data.samples=300", "model.hidden=[8]", "restarts=1", "device=cpu", "stable_after=1"]


def settings(*more: str) -> list[str]:
    return [part for setting in (*SMALL, *more) for part in ("--set", setting)]


def ifca(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ifca", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=ENVIRONMENT)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands are called in, in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [])
    return tmp_path


def called(*arguments: str) -> int:
    """The status of a command that is called in this process, without importing everything again."""
    sys.argv[:] = ["ifca", *arguments]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def resume_in_process(out: Path) -> dict[str, Any]:
    """What a run that is finished is said to have come to."""
    found: dict[str, Any] = {}

    class Hears(Silent):
        def finished(self, summary: dict[str, Any]) -> None:
            found.update(summary)

    resume(out, Hears(), lambda _sentence: None)
    return found


def clusters(run: Path) -> list[tuple[str, str, str]]:
    """Each client's cluster and accuracy, by name: who joins first is listed first."""
    with (run / "clients.csv").open() as table:
        return sorted((row["id"], row["cluster"], row["test_accuracy"]) for row in csv.DictReader(table))


def assert_same_result(mine: Path, other: Path) -> None:
    """Models to 1e-6 and the clients' clusters."""
    ours, theirs = load_tensors(mine / "models.safetensors")[0], load_tensors(other / "models.safetensors")[0]
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-6, atol=1e-6)
    assert clusters(mine) == clusters(other)


def interrupted(command: list[str], log: Path) -> int:
    """Interrupt a command after its first round; how many were done."""
    begun = subprocess.Popen(
        command,
        cwd=log.parents[1],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(log.exists, begun)
        begun.send_signal(signal.SIGINT)
        _, errors = begun.communicate(timeout=120)
    finally:
        begun.kill()
    assert begun.returncode == 130
    assert "Traceback" not in errors
    assert "error: interrupted; the same command with '--out run' goes on" in errors
    return len(log.read_text().splitlines())


@pytest.mark.xdist_group("processes")
def test_a_simulation_that_was_interrupted_goes_on_and_equals_the_loop(tmp_path: Path) -> None:
    baselines, rounds = 'baselines=["oneshot"]', 12
    given = ("federate", "simulate", "--out", "run", *settings(baselines, f"rounds={rounds}"))
    done = interrupted([sys.executable, "-m", "ifca", *given], tmp_path / "run" / "rounds.jsonl")
    assert 0 < done < rounds
    again = ifca(*given, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert f"round {rounds}/{rounds}, loss" in again.stdout
    assert "Traceback" not in again.stderr
    loop = tmp_path / "loop"
    run(read_config(None, [*SMALL, baselines, f"rounds={rounds}", "engine=loop"]), loop)
    for part in (".", "baselines/oneshot"):
        assert_same_result(tmp_path / "run" / part, loop / part)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["engine"] == "flower"
    assert summary["faults"] == {}
    assert resume_in_process(tmp_path / "run")["train_loss"] == summary["train_loss"]  # nothing is left to do


@pytest.mark.xdist_group("processes")
def test_a_simulation_in_ray_finds_k_and_goes_on_without_ray(tmp_path: Path) -> None:
    """The bound is the server's, who knows how many clients there are; a client has one of its own data."""
    small = settings("k=auto", "rounds=6", "baselines=[]", "data.angles=[0, 90]", "data.samples=500")
    given = ("federate", "simulate", "--quiet", "--out", "run", *small, "--set", "evaluate_every=0")
    log = tmp_path / "run" / "rounds.jsonl"
    assert 0 < interrupted([sys.executable, "-m", "ifca", *given, "--ray"], log) < 6
    again = ifca(*given, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert [json.loads(line)["round"] for line in log.read_text().splitlines()] == list(range(6))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["config"]["k"] == "auto"
    assert summary["k"] == summary["clients"] < 10


OWN = """
import os

import numpy as np

from ifca.data import Client


def clients(m, shift):
    rng = np.random.default_rng(0)
    rules = rng.normal(size=(2, 6, 3))
    found = []
    for i in range(m):
        x = rng.normal(size=(30, 6)).astype(np.float32) + shift
        y = (x @ rules[i % 2]).argmax(1)
        found.append(Client(x[:20], y[:20], x[20:], y[20:], f"c{i}", i % 2))
    return found


def clients_on_a_disk(**arguments):
    first = os.environ.setdefault("FIRST_PROCESS", str(os.getpid()))
    if first != str(os.getpid()) and not os.path.exists("disk"):
        raise FileNotFoundError("no such disk")
    return clients(**arguments)
"""
OWN_JOB = """
algorithm = "ifca-plain"
k = 2
rounds = 2
device = "cpu"
data = { name = "function", load = "own_module:clients_on_a_disk", arguments = {m = 4, shift = 0.5} }
model = { name = "mlp", hidden = [8] }
"""


@pytest.mark.xdist_group("processes")
def test_a_simulation_of_a_function_of_the_users(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it fails at every node, the run ends with the reason; mended, it is gone on with by its folder
    alone, and equals the run without Flower.
    """
    (here / "own_module.py").write_text(OWN)
    (here / "job.toml").write_text(OWN_JOB)
    failed = ifca("federate", "simulate", "job.toml", "--out", "flower", cwd=here)
    assert failed.returncode == 2
    last = failed.stderr.splitlines()[-1]
    assert last.startswith("error: none of the 4 connected nodes can join; the first: raised (InvalidInput: ")
    assert "FileNotFoundError: no such disk" in last
    (here / "disk").touch()
    monkeypatch.setenv("FIRST_PROCESS", "0")  # the disk is there for all
    done = ifca("resume", "flower", cwd=here)
    assert done.returncode == 0, done.stderr
    assert called("run", "job.toml", "--out", "loop", "--engine", "loop") == 0
    assert_same_result(here / "flower", here / "loop")


def test_flower_is_not_for_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("run", "--out", "out", "--engine", "flower") == 2
    assert capsys.readouterr().err.startswith("error: engine flower needs a federation")
    assert not (here / "out").exists()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, 3)
    yield made
    made.end()


def speak_plainly(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", "/health")
    connection.getresponse()


def left_behind(here: Path) -> list[str]:
    """Processes that still know this folder."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "stat=,args="], capture_output=True, text=True, check=True
    ).stdout
    return [line for line in listed.splitlines() if str(here) in line and not line.startswith("Z")]


def strangers_are_turned_away(lab: Lab, server: subprocess.Popen[str]) -> None:
    """One without a key of the server's, one without TLS, one who asks for another server; then who only
    knocks, who sends what nobody asked for, and who would administer.
    """
    stranger = lab.client("c0", "--key", "stranger", "--ca", "tls/ca.crt", "--patience", "0")
    plain = lab.client("c1", "--insecure")
    make_keys(lab.here / "foreign", 1)
    foreign = lab.client("c1", "--key", "tls/clients/c1", "--ca", "foreign/ca.crt")
    with half_open(lab, 40) as half, half_open(lab, 40, shake_hands=False) as silent:
        status, taken = giant_post(lab, "/v1/fleet/pull-messages", 40)
        assert status in (0, 401)
        assert taken < 20
        before = memory(superlink_pid(lab))
        with pytest.raises((http.client.HTTPException, OSError)):  # the server itself answers no plain text
            speak_plainly(lab.port)
        there = SuperLinkAddress("127.0.0.1", lab.port, lab.here / "tls")
        with pytest.raises(ProcessFailed, match=r"refused ListNodes .*403"):
            Control(there, b"guessed").register()
        wait_for(lambda: still_open([*half, *silent]) == 0, server, 60)
        assert memory(superlink_pid(lab)) < before + 30
    assert plain.wait(PATIENCE) == 2
    assert f"error: 127.0.0.1:{lab.port}: asks for TLS" in lab.said(plain)
    assert foreign.wait(PATIENCE) == 2
    assert "its certificate is not accepted by foreign/ca.crt (unable to get local" in lab.said(foreign)
    assert stranger.wait(PATIENCE) != 0
    assert "turned away" in lab.said(stranger)
    assert "connected" not in lab.said(stranger) + lab.said(plain) + lab.said(foreign)
    wait_for(lambda: "turned away: 127.0.0.1 (no client's key of this server)" in lab.said(server), server)


def nothing_is_told_to_other_users(lab: Lab) -> None:
    work = lab.here / "run" / ".flower"
    assert stat.S_IMODE(work.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in work.glob("state.db*"))
    assert "--token" not in "".join(line for line in command_lines().splitlines() if str(lab.here) in line)
    assert (work / "admin.secret").read_text() not in command_lines()


@pytest.mark.xdist_group("processes")
def test_deployment_over_tls_survives_strangers_a_liar_and_a_killed_superlink(lab: Lab) -> None:
    """Two clients with keys, whose files have the same name in folders with quotes; strangers; one whose key
    is another's, and is revoked. The SuperLink is killed, the run goes on, and equals the loop.
    """
    data = {name: f'{name}\'s "own" data' for name in ("c0", "c1")}
    for name, folder in data.items():
        (lab.here / name).rename(lab.here / folder)
        (lab.here / folder / f"{name}.npz").rename(lab.here / folder / "data.npz")
        (lab.here / name).symlink_to(folder)
    server = lab.server("job.toml", "--out", "run")
    clients = [lab.client("c0", data=data["c0"])]
    wait_for(lambda: "open at" in lab.said(server), server)
    liar = lab.liar("c2", "name", AS="c1")
    wait_for(lambda: "connected" in lab.said(clients[0]), server)
    twin = lab.client("c0", "--key", "tls/clients/c0", "--patience", "0")
    strangers_are_turned_away(lab, server)
    nothing_is_told_to_other_users(lab)
    assert twin.wait(PATIENCE) != 0
    assert "its key is in use: by another process" in lab.said(twin)
    wait_for(lambda: "its key is that of 'c2', and it says that it is 'c1'" in lab.said(server), server)
    clients.append(lab.client("c1", data=data["c1"]))
    wait_for(lambda: lab.rounds("run") >= 1, server)
    os.kill(superlink_pid(lab), signal.SIGKILL)
    assert server.wait(PATIENCE) != 0
    assert "the SuperLink ended: it was ended from outside, by SIGKILL; --resume goes on" in lab.said(server)
    assert "c1 joined: 2 of 2 clients" in lab.said(server)
    assert all("connected, waiting for a turn" in lab.said(client) for client in clients)
    (lab.here / "tls" / "clients" / "c2.pub").unlink()
    again = lab.start("resume", "--quiet", "run")
    wait_for(lambda: (lab.here / "run" / "summary.json").exists(), again)
    assert again.wait(PATIENCE) == 0, lab.said(again)
    assert "keys that are gone, and shut out: c2" in lab.said(again)
    (lab.here / "all" / "c2.npz").unlink()
    run(read_config(lab.here / "job.toml", [f"data.path={lab.here}/all", "engine=loop"]), lab.here / "loop")
    assert_same_result(lab.here / "run", lab.here / "loop")
    assert all(client.poll() is None for client in clients)
    assert liar.poll() is None or "turned away" in lab.said(liar)
    lab.end()
    assert left_behind(lab.here) == []


def test_private_keys_are_private_and_never_written_over(here: Path) -> None:
    assert called("federate", "keys", "tls", "--clients", "2", "--host", "lab.example") == 0
    for name in ("ca.key", "server.key", "clients/client-0", "clients/client-1"):
        assert stat.S_IMODE((here / "tls" / name).stat().st_mode) == 0o600
    assert called("federate", "keys", "tls") == 2


def test_bad_keys_are_refused_before_anything_is_started(tmp_path: Path) -> None:
    make_keys(tmp_path / "tls", 1)
    address, tls = SuperLinkAddress("127.0.0.1", free_port(), tmp_path / "tls"), tmp_path / "tls"
    good = (tls / "server.key").read_bytes()
    for bad in (b"\xff no key", (tls / "ca.key").read_bytes()):
        (tls / "server.key").write_bytes(bad)
        with pytest.raises(InvalidInput, match=r"server.key: is not the private key of server.crt"):
            address.check()
    (tls / "server.key").write_bytes(good)
    client = tls / "clients" / "client-0"
    check_private(client)
    for file, why in ((tls / "nowhere", "no such key file"), (tls / "server.crt", "is not a private key")):
        with pytest.raises(InvalidInput, match=why):
            check_private(file)
    (tls / "clients" / "other.pub").write_bytes(b"\xff no key")
    with pytest.raises(InvalidInput, match=r"other.pub: is not a public key"):
        address.check()


@contextlib.contextmanager
def listening(keys: Path | None) -> Iterator[str]:
    """A server that shakes hands with the keys of a folder, or speaks plain text; its address."""
    with socket.create_server(("127.0.0.1", 0)) as address, ThreadPoolExecutor() as pool:
        address.settimeout(0.1)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                with contextlib.suppress(OSError):
                    visitor, _ = address.accept()
                    with visitor:
                        visitor.settimeout(5)
                        if keys is None:
                            visitor.recv(100)
                            visitor.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                        else:
                            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                            context.load_cert_chain(keys / "server.crt", keys / "server.key")
                            context.wrap_socket(visitor, server_side=True).close()

        pool.submit(serve)
        yield f"127.0.0.1:{address.getsockname()[1]}"
        over.set()


def test_expired_and_foreign_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_keys(tmp_path / "good", 1, days=1)
    make_keys(tmp_path / "foreign", 1)

    class LongAgo(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> LongAgo:
            return cls(2020, 1, 1, tzinfo=tz)

    with monkeypatch.context() as then:
        then.setattr("ifca.federation.keys.datetime", LongAgo)
        make_keys(tmp_path / "old", 1)
    good, foreign, old = (tmp_path / name / "ca.crt" for name in ("good", "foreign", "old"))
    with listening(tmp_path / "good") as there:
        assert server_is_reachable(there, good)
        for ca, why in ((foreign, "unable to get local issuer"), (None, "asks for TLS")):
            with pytest.raises(InvalidInput, match=why):
                server_is_reachable(there, ca)
    with listening(tmp_path / "old") as there, pytest.raises(InvalidInput, match="certificate has expired"):
        server_is_reachable(there, old)
    with listening(None) as there:
        assert server_is_reachable(there, None)
        with pytest.raises(InvalidInput, match="does not speak TLS"):
            server_is_reachable(there, good)
    assert not server_is_reachable(there, good)  # nobody is there any more
    with pytest.raises(InvalidInput, match="expired on 2020-12-31"):
        SuperLinkAddress("127.0.0.1", free_port(), tmp_path / "old").check()
    SuperLinkAddress("127.0.0.1", free_port(), tmp_path / "good").check()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["server"], "give --tls-dir (made by 'ifca federate keys'), or say --insecure"),
        (["server", "--tls-dir", "nowhere"], "nowhere: has no ca.crt"),
        (["server", "--insecure", "--resume", "nowhere"], "nowhere: no such run folder"),
        (["client", "--server", "x:1", "--data", "nowhere"], "a client's folder must hold one .npz file"),
        (["client", "--server", "x", "--data", "c.npz", "--insecure"], "--server must be HOST:PORT, got x"),
        (["simulate", "nowhere.toml"], "nowhere.toml: no such config file"),
        (["simulate", "--ray-address", "127.0.0.1:1"], "no Ray cluster answers at 127.0.0.1:1"),
        (["simulate", "--ray-address", "here"], "--ray-address must be HOST:PORT, got here"),
    ],
)
def test_wrong_input_is_one_sentence(
    arguments: list[str], sentence: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_client(here / "c.npz", Client(np.zeros((2, 1), np.float32), np.zeros(2, np.int64)))
    assert called("federate", *arguments) == 2
    assert sentence in capsys.readouterr().err


class Told:
    """Remembers what it was told: rounds, and how many were done before them."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def started(self, training: Training) -> None:
        self.events.append(f"after {len(training.history)}")

    def round_ended(self, record: Record) -> None:
        self.events.append(f"{record['round']}{record['part']}")

    def finished(self, summary: dict[str, Any]) -> None:
        self.events.append(f"finished {summary}")


def log_lines(rounds: range, part: str) -> str:
    return "".join(json.dumps({"round": t, "part": part, "loss": [0.5] * t}) + "\n" for t in rounds)


def test_a_log_that_was_shortened_is_followed_from_its_new_end(tmp_path: Path) -> None:
    """Going on from a checkpoint cuts rounds off the log; they are done again and told as new, none twice."""
    log, told = tmp_path / "rounds.jsonl", Told()
    log.write_text(log_lines(range(6), "a"))
    follower = Follower(tmp_path, read_config(None), told, lambda _sentence: None)
    write_atomically(log, log_lines(range(4), "a").encode())
    follower.read_new()
    assert told.events == []
    with log.open("a") as file:
        file.write(log_lines(range(4, 6), "b") + '{"round": 6, "pa')
    follower.read_new()
    assert told.events == ["after 4", "4b", "5b"]
    with log.open("a") as file:
        file.write('rt": "b"}\n')
    follower.read_new()
    assert told.events[3:] == ["6b"]
    longer = log_lines(range(4), "a") + log_lines(range(4, 5), "b") + log_lines(range(5, 9), "c")
    write_atomically(log, longer.encode())  # shortened and longer than before, between two looks
    follower.read_new()
    assert told.events[4:] == ["after 5", "5c", "6c", "7c", "8c"]
    with log.open("r+b") as cut:
        cut.truncate(10)  # in place, in the middle of a line
    follower.read_new()
    with log.open("r+b") as cut:
        cut.truncate(0)
    log.write_text(log_lines(range(1), "d"))
    follower.read_new()
    assert told.events[9:] == ["after 0", "0d"]


def test_administration_is_for_the_servers_own_machine() -> None:
    assert is_from_here({"client": ("127.0.0.1", 1), "server": ("10.0.0.1", 2)})
    assert is_from_here({"client": ("::ffff:127.0.0.1", 1), "server": ("::", 2)})
    assert is_from_here({"client": ("10.0.0.1", 1), "server": ("10.0.0.1", 2)})
    assert not is_from_here({"client": ("10.0.0.2", 1), "server": ("10.0.0.1", 2)})
    assert not is_from_here({"client": None, "server": ("10.0.0.1", 2)})
