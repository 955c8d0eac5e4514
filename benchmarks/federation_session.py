"""A long session over TLS on this machine that tries what a federation promises, and writes one table.

    python -m benchmarks.federation_session [FOLDER [PART ...]]

Every row was tried with real processes: a server, clients with their keys, and those who lie, knock, flood or
listen (benchmarks/federation_lab.py). It takes some ten minutes on two cores. Needs Linux; as root it also
tries what another user of the machine can do.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.clients import JOB as SMALL
from benchmarks.clients import rate
from benchmarks.federation_lab import (
    JOB,
    Lab,
    command_lines,
    giant_post,
    half_open,
    memory,
    still_open,
    superlink_pid,
    wait_for,
)

from ifca.core.callbacks import Record, Silent
from ifca.engines.flower.private_api import FlowerChanged
from ifca.federation.control import Control, check_gate
from ifca.federation.processes import ProcessFailed, descendants, running, wait_healthy
from ifca.federation.simulation import simulate
from ifca.federation.superlink import SuperLinkAddress
from ifca.runs.config import read_config

Row = tuple[str, str, str, bool]
"""The point, what was tried, what came out, whether that is as promised."""
ESCAPE = b"\x1b]0;owned"
NOBODY = 65534


def job(clients: int, *more: str) -> str:
    """The lab's job for so many clients, with some lines of [federation]; 6 rounds."""
    text = JOB.replace("rounds = 3", "rounds = 6").replace("clients = 2\n", f"clients = {clients}\n", 1)
    return text + "".join(f"{line}\n" for line in more)


def main() -> None:
    """Try everything, or some parts, and print the table of all parts that were tried in the folder."""
    here = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="ifca-session-"))
    parts = (gathering, faults_while_gathering, hostile_replies, going_on, full_disk, gate, cost)
    for part in parts:
        folder = here / part.__name__
        if part.__name__ in (sys.argv[2:] or [one.__name__ for one in parts]):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            begun = time.monotonic()
            (here / f"{part.__name__}.json").write_text(json.dumps(part(folder)))
            print(f"{part.__name__}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    print("| point | tried | came out | |\n|---|---|---|---|")
    for file in (here / f"{part.__name__}.json" for part in parts):
        for point, tried, outcome, good in json.loads(file.read_text()) if file.exists() else ():
            print(f"| {point} | {tried} | {outcome} | {'as promised' if good else '**not as promised**'} |")


def gathering(here: Path) -> list[Row]:
    """Who gets in while clients gather: liars first, then honest clients, strangers all the time."""
    lab, rows = Lab(here, 9, job(4, "gather_timeout = 300")), list[Row]()
    for name in ("c0", "c1"):
        (here / name / f"{name}.npz").rename(here / name / "data.npz")
    server = lab.server("job.toml", "--out", "run", before=["prlimit", "--nofile=1024:1024"])
    try:
        wait_for(lambda: "open at" in lab.said(server), server)
        lies = {"c4": "kind", "c5": "name", "c6": "classes", "c7": "escape"}
        liars = {name: lab.liar(name, lie) for name, lie in lies.items()}
        wait_for(lambda: all("connected" in lab.said(one) for one in liars.values()), server)
        wait_for(lambda: " joined: " in lab.said(server), server)
        twin_of = lab.client("c0")
        wait_for(lambda: "connected" in lab.said(twin_of), server)
        rows += strangers(lab, server) + on_the_host(lab)
        twin = lab.client("c0", "--key", "tls/clients/c0", "--patience", "0")
        for name in ("c1", "c2", "c3"):
            lab.client(name)
        assert server.wait(400) == 0, lab.said(server)
        twin.wait(60)
        said, summary = lab.said(server), json.loads((here / "run" / "summary.json").read_text())
        rows.append(
            (
                "1",
                "two clients whose file is data.npz",
                f"run of {summary['clients']} clients",
                summary["clients"] == 4,
            )
        )
        rows.append(
            (
                "2",
                "a client of another kind comes first",
                _line(said, "refused: client c4"),
                "refused: client c4" in said,
            )
        )
        rows.append(
            (
                "4",
                "c5 says that it is c0",
                _line(said, "its key is that of"),
                "its key is that of 'c5'" in said,
            )
        )
        rows.append(
            (
                "4",
                "a client claims 100,000 classes",
                _line(said, "100000"),
                "100000 classes, and no other" in said,
            )
        )
        rows.append(
            (
                "5",
                "an exception with escape sequences",
                "none on the terminal or in the logs",
                not any(ESCAPE in file.read_bytes() for file in _written(here)),
            )
        )
        rows.append(
            (
                "6",
                "a second process with a key in use",
                _line(lab.said(twin), "in use"),
                "its key is in use" in lab.said(twin),
            )
        )
        rows.append(
            (
                "6",
                "joins and strangers on the server's terminal",
                _line(said, "joined"),
                "turned away: " in said and " joined: " in said,
            )
        )
        return rows
    finally:
        lab.end()


def strangers(lab: Lab, server: subprocess.Popen[str]) -> list[Row]:
    """Connections that say little, bodies that are large."""
    begun, before = time.monotonic(), memory(superlink_pid(lab))
    with half_open(lab, 400) as half, half_open(lab, 590, shake_hands=False) as silent:
        count = len(half) + len(silent)
        wait_for(lambda: still_open([*half, *silent]) == 0, server, 120)
        closed = time.monotonic() - begun
    between = memory(superlink_pid(lab))
    status, taken = giant_post(lab, "/v1/fleet/pull-messages", 1000)
    more = memory(superlink_pid(lab)) - between
    return [
        (
            "3",
            f"{count} half-open connections, 1,024 descriptors",
            f"all closed {closed:.0f} s after the first came; {between - before:.0f} MB of memory",
            closed < 100,
        ),
        (
            "3",
            "a POST of 1,000 MB without a key",
            f"status {status or 'none'}, {taken} MB taken off the wire, {max(0, more):.0f} MB more memory",
            taken < 50 and more < 100,
        ),
    ]


def on_the_host(lab: Lab) -> list[Row]:
    """What another user of the machine can do."""
    address = SuperLinkAddress("127.0.0.1", lab.port, lab.here / "tls")
    try:
        Control(address, b"guessed").register()
        refused = "let in"
    except ProcessFailed as reason:
        refused = "403" if "403" in str(reason) else str(reason)[:60]
    work = lab.here / "run" / ".flower"
    modes = f"{work.stat().st_mode & 0o777:o}, {(work / 'state.db').stat().st_mode & 0o777:o}"
    secrets = [(work / name).read_text() for name in ("admin.secret", "tasks.secret")]
    shown = "--token" in command_lines() or any(secret in command_lines() for secret in secrets)
    rows = [
        ("5", "administration from this machine, without the secret", refused, refused == "403"),
        ("5", "modes of Flower's folder and database", modes, modes == "700, 600"),
        ("5", "tokens and secrets in the list of processes", "some" if shown else "none", not shown),
    ]
    if os.getuid() == 0:
        tried = subprocess.run(
            ["cat", str(work / "admin.secret")], user=NOBODY, capture_output=True, check=False
        )
        rows.append(("5", "another user reads the secret", "permission denied", tried.returncode != 0))
    return rows


def faults_while_gathering(here: Path) -> list[Row]:
    """A client is missing: the command ends by its deadline, and all three ways go on."""
    lab, rows = Lab(here, 3, job(2, "gather_timeout = 5")), list[Row]()
    try:
        lab.liar("c2", "name")
        lab.client("c0")
        ways: dict[str, Callable[[], subprocess.Popen[str]]] = {
            "the first command": lambda: lab.server("job.toml", "--out", "run"),
            "the same command": lambda: lab.server("job.toml", "--out", "run"),
            "--resume": lambda: lab.server("--resume", "run"),
            "ifca resume": lambda: lab.start("resume", "--quiet", "run"),
        }
        for way, start in ways.items():
            if way == "ifca resume":
                lab.client("c1")
                text = (here / "run" / ".flower" / "config.toml").read_text()
                (here / "run" / ".flower" / "config.toml").write_text(
                    text.replace("gather_timeout = 5.0", "gather_timeout = 120.0")
                )
            server = start()
            code, said = server.wait(400), lab.said(server)
            good = code == 0 if way == "ifca resume" else "given up (federation.gather_timeout)" in said
            rows.append(
                (
                    "1",
                    f"{way}, after a fault while clients gathered",
                    _line(said, "given up (") if code else "trained to its end",
                    good,
                )
            )
        return rows
    finally:
        lab.end()


def hostile_replies(here: Path) -> list[Row]:
    """Insiders that send too much, nonsense, poison, or nothing; four honest clients train to the end."""
    lab = Lab(here, 9, job(9))
    server = lab.server("job.toml", "--out", "run")
    try:
        wait_for(lambda: "open at" in lab.said(server), server)
        lies = {"c4": "huge", "c5": "bomb", "c6": "broken", "c7": "scale", "c8": "moments"}
        for name in lab.names:
            _ = lab.liar(name, lies[name]) if name in lies else lab.client(name)
        most = 0.0
        while server.poll() is None:
            most = max(most, *(memory_of(pid) for pid in _apps(here)), 0.0)
            time.sleep(0.5)
        summary = json.loads((here / "run" / "summary.json").read_text())
        faults = [json.loads(line) for line in (here / "run" / "faults.jsonl").read_text().splitlines()]
        kinds = {name: sorted({f["kind"] for f in faults if f["client"] == name} - {"busy"}) for name in lies}
        done, left = lab.rounds("run") == 6, summary["rejected"]["left_out"]
        return [
            (
                "4",
                "a reply of 300 MB against a model of 0.5 kB",
                f"{', '.join(kinds['c4'])}; the server's app had {most:.0f} MB at most",
                done and most < 1500,
            ),
            (
                "4",
                "an update that names its chunk a million times",
                ", ".join(kinds["c5"]),
                done and "malformed" in kinds["c5"],
            ),
            (
                "4",
                "a reply that cannot be put together",
                ", ".join(kinds["c6"]),
                done and "malformed" in kinds["c6"],
            ),
            (
                "4",
                "updates x1e6",
                f"{', '.join(kinds['c7'])}; left out: {', '.join(left)}",
                done and "c7" in str(left),
            ),
            (
                "4",
                "means and variances of 1e100 on joining",
                f"the run ended with loss {summary['train_loss']:.2f}",
                done and summary["train_loss"] < 2,
            ),
        ]
    finally:
        lab.end()


def going_on(here: Path) -> list[Row]:
    """A client joins late while the server follows its log; it is revoked, and the run goes on without it."""
    lab = Lab(here, 3, JOB.replace("rounds = 3", "rounds = 14\ncheckpoint_every = 50"))
    server = lab.server("job.toml", "--out", "run")
    try:
        lab.client("c0"), lab.client("c1")
        wait_for(lambda: lab.rounds("run") >= 2, server)
        lab.client("c2")
        log = here / "run" / "rounds.jsonl"
        wait_for(lambda: log.exists() and '"participants": 3' in log.read_text(), server)
        late = "JSONDecodeError" not in lab.said(server)
        server.send_signal(signal.SIGINT)
        server.wait(60)
        (here / "tls" / "clients" / "c2.pub").unlink()
        begun = lab.rounds("run")
        again = lab.start("resume", "--quiet", "run")
        code = again.wait(600)
        records = [json.loads(line) for line in log.read_text().splitlines()]
        with_it = [r["round"] for r in records[begun:] if 2 in r["clients"]]
        return [
            (
                "19",
                "a late joiner while the server follows its log, checkpoint_every = 50",
                "the log is followed to its end",
                late and code == 0,
            ),
            (
                "4",
                "a revoked key after a resume",
                _line(lab.said(again), "shut out") + f"; in {len(with_it)} later rounds",
                not with_it,
            ),
        ]
    finally:
        lab.end()


def full_disk(here: Path) -> list[Row]:
    """The disk of the run becomes full in round 2; what is free again, the run goes on."""
    lab = Lab(here, 2, job(2))
    (here / "run").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(here / "run")]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        return []  # only root can
    server = lab.server("job.toml", "--out", "run")
    try:
        for name in lab.names:
            lab.client(name)
        wait_for(lambda: lab.rounds("run") >= 1, server)
        with contextlib.suppress(OSError), (here / "run" / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        code = server.wait(300)
        said = lab.said(server).splitlines()[-1]
        (here / "run" / "filler").unlink()
        again = lab.start("resume", "--quiet", "run")
        good = code != 0 and "o space" in said and again.wait(400) == 0
        return [("6", "the disk becomes full; it is made free, and the run resumed", said[:220], good)]
    finally:
        lab.end()
        subprocess.run(["umount", str(here / "run")], check=False)


def gate(here: Path) -> list[Row]:
    """Flower's SuperLink as it is, without the gate."""
    lab = Lab(here)
    address = SuperLinkAddress("127.0.0.1", lab.port, here / "tls")
    command = [
        str(Path(sys.executable).with_name("flower-superlink")),
        "--host",
        "127.0.0.1",
        "--port",
        str(lab.port),
    ]
    for name, file in (("ca-certfile", "ca.crt"), ("certfile", "server.crt"), ("keyfile", "server.key")):
        command += [f"--ssl-{name}", str(here / "tls" / file)]
    with running([*command, "--enable-supernode-auth"], here / "log", here / "home") as process:
        wait_healthy(process, f"https://{address.local}/health", here / "tls" / "ca.crt", here / "log", 90)
        try:
            check_gate(address, b"secret")
            outcome, good = "started", False
        except FlowerChanged as reason:
            outcome, good = str(reason), True
    return [("7", "Flower does not call the gate", outcome, good)]


def cost(here: Path) -> list[Row]:
    """Processor seconds of a message; rounds of a simulation beside those of the loop."""
    lab, clock = Lab(here, 2), here / "clock.txt"
    server = lab.server("job.toml", "--out", "run")
    try:
        for name in lab.names:
            lab.liar(name, "clock", CLOCK=str(clock))
        assert server.wait(400) == 0, lab.said(server)
    finally:
        lab.end()
    seconds = sorted(float(line) for line in clock.read_text().splitlines())
    rows: list[Row] = [
        (
            "8",
            f"processor time of a client's message, {len(seconds)} messages",
            f"{statistics.median(seconds):.2f} s (at most {seconds[-1]:.2f})",
            statistics.median(seconds) < 1,
        )
    ]
    loop, simulated = rate(200, "loop"), rate(200, "flower")
    wall, processor = thousand(here / "thousand")
    busy = f"; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    rows += [
        (
            "8",
            "a round of 200 small clients, simulated and in the loop",
            f"{1 / simulated:.2f} s and {1 / loop:.2f} s{busy}",
            loop / simulated <= 3,
        ),
        (
            "8",
            "a round of 1,000 small clients, simulated",
            f"{wall:.1f} s, {processor:.1f} s of processor time in three processes{busy}",
            wall < 10,
        ),
    ]
    return rows


def thousand(out: Path) -> tuple[float, float]:
    """Seconds of a round of 1,000 small clients, the best of three, and of processor time in it."""
    seen: list[tuple[float, float]] = []

    class Looks(Silent):
        """Looks at the clocks after every round."""

        def round_ended(self, record: Record) -> None:
            """Note the time and what was computed."""
            del record
            pids = [os.getpid(), *descendants(os.getpid())]
            stats = [Path(f"/proc/{pid}/stat") for pid in pids]
            parts = [file.read_text().rpartition(")")[2].split() for file in stats if file.exists()]
            ticks = sum(int(part[11]) + int(part[12]) for part in parts)
            seen.append((time.monotonic(), ticks / os.sysconf("SC_CLK_TCK")))

    simulate(read_config(None, [*SMALL, "data.clients=1000", "rounds=5"]), out, Looks())
    spent = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(seen)][:3]
    return min(spent)


def _written(here: Path) -> list[Path]:
    """What the server printed and wrote; its database holds messages as they came."""
    found = [here / "0.log", *(here / "run").rglob("*")]
    return [file for file in found if file.is_file() and not file.name.startswith("state.db")]


def _apps(here: Path) -> list[int]:
    """Processes of the server's app, and of those who make it."""
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,args="], capture_output=True, text=True, check=True
    ).stdout
    known = str(here / "run" / ".flower" / "tasks.secret")
    return [int(line.split()[0]) for line in listed.splitlines() if known in line and "task_executor" in line]


def memory_of(pid: int) -> float:
    """Megabytes of a process; 0: it has ended."""
    try:
        return memory(pid)
    except (OSError, ValueError):
        return 0.0


def _line(text: str, word: str) -> str:
    """The first line with a word."""
    return next((line.strip() for line in text.splitlines() if word in line), "nothing said").replace(
        "|", "/"
    )[:220]


if __name__ == "__main__":
    main()
