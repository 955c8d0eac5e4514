"""A run watched while it goes on: in a real browser, on the terminal, killed and resumed."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
from rich.console import Console

from ifca.cli.main import main
from ifca.core.errors import InvalidInput
from ifca.data.files import is_worked_in, working_in
from ifca.report.live_run import LiveRun
from ifca.report.page_server import Handler, PageServer
from ifca.report.terminal.live_terminal import sparkline, view, watch_terminal
from ifca.report.terminal.status import status
from ifca.runs.config import read_config, write_config
from ifca.runs.run import run
from tests.browser import browsing, needs_browser

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
SMALL = ["rounds=6", "data.samples=150", "model.hidden=[8]", "device=cpu", "baselines=[]"]
LONG = ["rounds=3000", "data.samples=150", "model.hidden=[8]", "device=cpu", "baselines=[]"]
LIVE = "document.getElementById('live').textContent"
pytestmark = pytest.mark.xdist_group("report")


@contextmanager
def ifca(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process of its own, ended at the latest at the end."""
    command = [sys.executable, "-m", "ifca", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        try:
            yield process
        finally:
            process.kill()


def new_run(out: Path) -> list[str]:
    return ["run", "--quiet", "--out", str(out), *[part for one in LONG for part in ("--set", one)]]


@contextmanager
def serving(folder: Path) -> Iterator[PageServer]:
    with PageServer(folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@needs_browser
def test_a_page_follows_a_run_that_is_killed_and_resumed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    with ifca("watch", str(out)) as watch, browsing(tmp_path) as browser:
        assert watch.stdout is not None
        address = next(
            word for word in watch.stdout.readline().split() if word.startswith("http://127.0.0.1:")
        )
        browser.open(address)
        browser.wait("document.body.dataset.state === 'waiting'")
        assert browser.evaluate(LIVE) == "Waiting for the first round."
        browser.evaluate("window.same = 1")  # gone if the page were loaded again
        with ifca(*new_run(out)) as training:
            browser.wait(
                "document.body.dataset.state === 'running' && document.getElementById('learning')", 60
            )
            browser.evaluate("document.querySelector('details').open = true")
            before = browser.evaluate("document.body.dataset.version")
            browser.wait(f"document.body.dataset.version !== '{before}'")
            assert browser.evaluate("document.querySelector('details').open")
            training.send_signal(signal.SIGKILL)
            training.wait()
        browser.wait("document.body.dataset.state === 'stopped'")
        done = len((out / "rounds.jsonl").read_text().splitlines())
        browser.wait(f"{LIVE}.startsWith('Round {done} of 3000: stopped.')")
        tile = (
            "[...document.querySelectorAll('.tiles div')].find((one) => one.innerText.startsWith('rounds'))"
        )
        browser.wait(f"{tile}.querySelector('dd').firstChild.data.trim() === '{done:,}'")
        with ifca("resume", "--quiet", str(out)):
            browser.wait("document.body.dataset.state === 'running'", 60)
            browser.wait(f"parseInt({LIVE}.split(' ')[1]) > {done}", 60)
        assert browser.evaluate("window.same") == 1
        assert not browser.complaints
        assert all(one.startswith((address, "data:", "about:")) for one in browser.requests)
        watch.send_signal(signal.SIGINT)
        assert watch.wait(20) == 0
        browser.wait("document.body.dataset.state === 'gone'")


def test_only_this_machine_is_served(tmp_path: Path) -> None:
    run(read_config(None, SMALL), tmp_path / "run")
    with serving(tmp_path / "run") as server:
        host, port = server.server_address[:2]
        assert host == "127.0.0.1"

        def asked(path: str, name: str) -> tuple[int, str]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("GET", path, headers={"Host": name})
            answer = connection.getresponse()
            text = answer.read().decode()
            connection.close()
            return answer.status, text

        for name in (f"127.0.0.1:{port}", f"localhost:{port}"):
            assert asked("/", name)[0] == 200
        for name in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{int(port) + 1}", ""):
            assert asked("/state", name)[0] == 403
        assert asked("/../config.toml", f"localhost:{port}")[0] == 404
        told = json.loads(asked("/state", f"localhost:{port}")[1])
        assert (told["state"], told["text"]) == ("finished", "Finished after 6 rounds.")
        (tmp_path / "run" / "summary.json").write_text("{")
        status, text = asked("/content", f"localhost:{port}")  # as far as it goes
        assert status == 200
        assert "<b>Damaged.</b> summary.json: not valid JSON" in text
        (tmp_path / "run" / "config.toml").write_text("{")
        assert asked("/content", f"localhost:{port}")[0] == 503


def test_a_port_in_use_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path) as server:
        port = str(server.server_address[1])
        monkeypatch.setattr(sys, "argv", ["ifca", "watch", str(tmp_path), "--port", port])
        with pytest.raises(SystemExit) as end:
            main()
    assert end.value.code == 2
    assert f"--port {port}: cannot be used" in capsys.readouterr().err


def test_the_terminal_follows_to_the_end(tmp_path: Path) -> None:
    """Plain lines where there is no terminal: before the first round, the rounds, the end."""
    out = tmp_path / "run"
    out.mkdir()
    with ifca("watch", str(out), "--terminal") as watch:
        assert watch.stdout is not None
        assert watch.stdout.readline() == "Waiting for the first round.\n"
        run(read_config(None, SMALL), out)
        lines, _ = watch.communicate(timeout=30)
        assert watch.returncode == 0
    assert lines.splitlines()[-1].startswith("Finished after 6 rounds.")


def test_the_live_view_shows_the_run(tmp_path: Path) -> None:
    run(read_config(None, [*SMALL, "rounds=8"]), tmp_path / "run")
    console = Console(record=True, force_terminal=True, width=100, file=(tmp_path / "screen").open("w"))
    with console.file:
        watch_terminal(console, tmp_path / "run")
        text = console.export_text()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert "Finished after 8 rounds." in text
    assert f"{100 * summary['test_accuracy']:.2f} %" in text
    for j in range(summary["k"]):
        assert f"cluster {j}" in text
    assert sparkline([0, 1, 7]) == "▁▂█"


def test_states_of_a_folder(tmp_path: Path) -> None:
    """Nothing there, worked in, left alone in the middle, finished."""
    out = tmp_path / "run"
    out.mkdir()
    watched = LiveRun(out)
    assert watched.read().state == "waiting"
    assert view(watched.read()).renderables
    with ifca(*new_run(out)) as training:
        deadline = time.monotonic() + 60
        while watched.read().state != "running":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert is_worked_in(out)
        with pytest.raises(InvalidInput, match="another process trains in this folder"), working_in(out, 0.2):
            pass
        training.kill()
        training.wait()
    assert not is_worked_in(out)
    found = watched.read()
    assert found.state == "stopped"
    assert status(found).endswith(f"stopped. 'ifca resume {out}' goes on.")
    run(read_config(None, SMALL), tmp_path / "done")
    assert LiveRun(tmp_path / "done").read().state == "finished"


def test_a_run_that_goes_on_tells_its_rate_the_time_left_and_bytes(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(read_config(None, SMALL), out)
    (out / "summary.json").unlink()
    rounds = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    for seconds, rate, left in ((0.25, "4 rounds a second", "1.0 s"), (30.0, "30.0 s a round", "2 min 0 s")):
        few = [{**record, "seconds": seconds, "bytes_up": 500_000} for record in rounds[:2]]
        (out / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in few))
        with working_in(out):
            said = status(LiveRun(out).read())
        assert said.startswith(f"Round 2 of 6, {rate}, about {left} left, ")
        assert said.endswith("B sent to clients, 1 MB by them.")


def test_the_folder_of_a_server_is_watched_while_its_clients_gather(tmp_path: Path) -> None:
    """There are Flower's files then, and faults of clients that were turned away; no run yet."""
    app = tmp_path / ".flower" / "ifca-federation"
    app.mkdir(parents=True)
    (app / "config.toml").write_text(write_config(read_config(None, ["federation.clients=4"])))
    fault = {"client": "x", "kind": "refused", "detail": "its data are of another shape", "round": None}
    (tmp_path / "faults.jsonl").write_text(json.dumps(fault) + "\n")
    found = LiveRun(tmp_path).read()
    assert (found.state, status(found)) == ("waiting", "Waiting for 4 clients to join.")
    assert view(found).renderables
    with serving(tmp_path) as server:
        assert "Waiting for 4 clients to join." in str(server.state())
        assert "Nothing to see yet" in server.content()


def test_restarts_are_followed_one_after_the_other(tmp_path: Path) -> None:
    """Before its end a run with restarts shows the one that was worked on last."""
    out = tmp_path / "run"
    run(read_config(None, [*SMALL, "algorithm=ifca-plain", "restarts=2"]), out)
    for name in ("summary.json", "rounds.jsonl"):
        (out / name).unlink()
    found = LiveRun(out).read()
    assert found.log == out / "restarts" / "1" / "rounds.jsonl"
    assert status(found).startswith("Round 6 of 6 of restart 2/2: stopped.")


def test_a_second_host_name_is_refused(tmp_path: Path) -> None:
    """Somebody in between may look at the other one."""
    with serving(tmp_path) as server:
        port = server.server_address[1]
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            names = f"Host: 127.0.0.1:{port}\r\nHost: evil.example"
            connection.sendall(f"GET /state HTTP/1.1\r\n{names}\r\n\r\n".encode())
            assert b"403 Forbidden" in connection.recv(1000)


def test_connections_that_ask_nothing_are_few_and_do_not_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "timeout", 2.0)
    with serving(tmp_path) as server:
        port, before = server.server_address[1], threading.active_count()
        with ExitStack() as opened:
            for _ in range(40):
                one = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
                with suppress(OSError):  # those that are too many are let go at once
                    one.sendall(b"GET / HT")  # and no more
            assert before < threading.active_count() <= before + server.most
            deadline = time.monotonic() + 20
            while threading.active_count() > before and time.monotonic() < deadline:
                time.sleep(0.05)
            assert threading.active_count() == before  # all were let go
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
                connection.request("GET", "/state")
                assert connection.getresponse().status == 200
