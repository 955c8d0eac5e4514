"""What is tried with a key: clients that lie, send too much or nonsense, come late, are revoked.

Parts of benchmarks/federation_session.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

from benchmarks.federation_lab import JOB, Lab, Row, job, line_with, memory, superlink_pid, wait_for

ESCAPE = b"\x1b]0;owned"


def names_and_claims(here: Path) -> list[Row]:
    """Liars come first, then honest clients; two of these have files of one name, one a path with quotes."""
    lab = Lab(here, 8, job(4, "gather_timeout = 300"))
    for name in ("c0", "c1"):
        (here / name / f"{name}.npz").rename(here / name / "data.npz")
    quoted = 'c2\'s "own" data'
    (here / "c2").rename(here / quoted)
    server = lab.server("job.toml", "--out", "run")
    try:
        wait_for(lambda: "open at" in lab.said(server), server)
        lies = {"c4": "kind", "c5": "name", "c6": "classes", "c7": "escape"}
        liars = {name: lab.liar(name, lie) for name, lie in lies.items()}
        wait_for(lambda: all("connected" in lab.said(one) for one in liars.values()), server)
        wait_for(lambda: " joined: " in lab.said(server), server)  # the first of another kind did
        for name in ("c0", "c1", "c2", "c3"):
            lab.client(name, data=quoted if name == "c2" else "")
        assert server.wait(400) == 0, lab.said(server)
        said, summary = lab.said(server), json.loads((here / "run" / "summary.json").read_text())
        trained, told = f"trained with {summary['clients']} clients", lab.said(liars["c4"])
        clean = not any(ESCAPE in file.read_bytes() for file in _written(here))
        return [
            Row("1", "two clients whose file is data.npz", trained, summary["clients"] == 4),
            Row("6", "a client's folder with ' and \" in its name", trained, summary["clients"] == 4),
            _said("2", "a client of another kind of data comes first", said, "refused: client c4"),
            _said("6", "it is told why on its own terminal", told, "refused by the server:"),
            _said("4", "c5 says that it is c0", said, "its key is that of 'c5'"),
            _said("4", "a client claims 100,000 classes", said, "100000 classes, and no other"),
            Row("5", "an exception with escape sequences", "none on the terminal or in the logs", clean),
        ]
    finally:
        lab.end()


def hostile_replies(here: Path) -> list[Row]:
    """Insiders that send too much, nonsense or poison; four honest clients train to the end."""
    lab = Lab(here, 9, job(9))
    server = lab.server("job.toml", "--out", "run")
    try:
        wait_for(lambda: "open at" in lab.said(server), server)
        lies = {"c4": "huge", "c5": "bomb", "c6": "broken", "c7": "scale", "c8": "moments"}
        for name in lab.names:
            _ = lab.liar(name, lies[name]) if name in lies else lab.client(name)
        most = 0.0
        while server.poll() is None:
            most = max(most, *(_memory_of(pid) for pid in _apps(here)), 0.0)
            time.sleep(0.5)
        assert server.returncode == 0, lab.said(server)
        summary = json.loads((here / "run" / "summary.json").read_text())
        faults = [json.loads(line) for line in (here / "run" / "faults.jsonl").read_text().splitlines()]
        kinds = {name: {f["kind"] for f in faults if f["client"] == name} - {"busy"} for name in lies}
        listed = {name: ", ".join(sorted(found)) or "nothing" for name, found in kinds.items()}
        done, left, loss = lab.rounds("run") == 6, summary["rejected"]["left_out"], summary["train_loss"]
        huge = f"{listed['c4']}; the server's app had {most:.0f} MB at most"
        scaled = f"{listed['c7']}; left out: {', '.join(left)}"
        return [
            Row("4", "a reply of 300 MB against a model of 0.5 kB", huge, done and most < 1500),
            Row(
                "4",
                "an update that names its chunk a million times",
                listed["c5"],
                "malformed" in kinds["c5"],
            ),
            Row("4", "a reply that cannot be put together", listed["c6"], "malformed" in kinds["c6"]),
            Row("4", "updates x1e6", scaled, done and "c7" in left),
            Row("4", "means and variances of 1e100", f"trained to a loss of {loss:.2f}", done and loss < 2),
        ]
    finally:
        lab.end()


def going_on(here: Path) -> list[Row]:
    """A client joins late while the server follows its log; the SuperLink is killed; a key is revoked."""
    lab = Lab(here, 3, JOB.replace("rounds = 3", "rounds = 14\ncheckpoint_every = 5"))
    server = lab.server("job.toml", "--out", "run")
    try:
        clients = [lab.client("c0"), lab.client("c1")]
        wait_for(lambda: lab.rounds("run") >= 2, server)
        clients.append(lab.client("c2"))
        log = here / "run" / "rounds.jsonl"
        wait_for(lambda: log.exists() and '"participants": 3' in log.read_text(), server)
        late = "JSONDecodeError" not in lab.said(server)
        os.kill(superlink_pid(lab), signal.SIGKILL)
        server.wait(60)
        killed = _said("6", "the SuperLink is killed", lab.said(server), "ended from outside, by SIGKILL")
        wait_for(lambda: "does not answer" in lab.said(clients[0]), clients[0])
        alone = _said("2", "its clients say what they wait for", lab.said(clients[0]), "does not answer")
        (here / "tls" / "clients" / "c2.pub").unlink()
        again = lab.start("resume", "--quiet", "run")
        wait_for(lambda: "open at" in lab.said(again), again)
        begun, code = lab.rounds("run"), again.wait(600)
        records = [json.loads(line) for line in log.read_text().splitlines()]
        after = [record for record in records[begun:] if 2 in record["clients"]]
        shut = line_with(lab.said(again), "shut out")
        out = f"{shut}; in {len(after)} of {len(records) - begun} later rounds"
        followed = "it joins, and the log is followed to its end"
        return [
            Row("2", "a client comes while the server follows its log", followed, late and code == 0),
            killed,
            alone,
            Row("4", "a revoked key after a resume", out, not after and code == 0),
        ]
    finally:
        lab.end()


def _said(point: str, tried: str, text: str, words: str) -> Row:
    """A row whose outcome is a line that must be there."""
    return Row(point, tried, line_with(text, words), words in text)


def _written(here: Path) -> list[Path]:
    """What the server printed and wrote; its database holds messages as they came."""
    found = [here / "0.log", *(here / "run").rglob("*")]
    return [file for file in found if file.is_file() and not file.name.startswith("state.db")]


def _apps(here: Path) -> list[int]:
    """Processes of the server's app, and of those who make it."""
    command = ["ps", "-A", "-ww", "-o", "pid=,args="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    known = str(here / "run" / ".flower" / "tasks.secret")
    return [int(line.split()[0]) for line in listed.splitlines() if known in line and "task_executor" in line]


def _memory_of(pid: int) -> float:
    """Megabytes of a process; 0: it has ended."""
    try:
        return memory(pid)
    except (OSError, ValueError):
        return 0.0
