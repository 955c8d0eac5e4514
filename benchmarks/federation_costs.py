"""What a federation costs beside the loop: processor time of a message, seconds of a simulated round.

Parts of benchmarks/federation_session.py.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from pathlib import Path

from benchmarks.clients import JOB, rate
from benchmarks.federation_lab import Lab, Row

from ifca.core.callbacks import Record, Silent
from ifca.federation.processes import descendants
from ifca.federation.simulation import simulate
from ifca.runs.config import read_config


def cost(here: Path) -> list[Row]:
    """Processor seconds of a client's message over TLS."""
    lab, clock = Lab(here, 2), here / "clock.txt"
    server = lab.server("job.toml", "--out", "run")
    try:
        for name in lab.names:
            lab.liar(name, "clock", CLOCK=str(clock))
        assert server.wait(400) == 0, lab.said(server)
    finally:
        lab.end()
    seconds = sorted(float(line) for line in clock.read_text().splitlines())
    tried = f"processor time of a client's message, {len(seconds)} messages"
    outcome = f"{statistics.median(seconds):.2f} s (at most {seconds[-1]:.2f})"
    return [Row("8", tried, outcome, statistics.median(seconds) < 1)]


def simulated(here: Path) -> list[Row]:
    """Rounds of small clients beside those of the loop."""
    loop, flower = rate(200, "loop"), rate(200, "flower")
    wall, processor = thousand(here / "thousand")
    busy = f"; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    both = f"{1 / flower:.2f} s and {1 / loop:.2f} s ({loop / flower:.1f} times){busy}"
    many = f"{wall:.1f} s, {processor:.1f} s of processor time in three processes{busy}"
    return [
        Row("8", "a round of 200 small clients, simulated and in the loop", both, loop / flower <= 3),
        Row("8", "a round of 1,000 small clients, simulated", many, wall < 10),
    ]


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

    simulate(read_config(None, [*JOB, "data.clients=1000", "rounds=5"]), out, Looks())
    return min((b[0] - a[0], b[1] - a[1]) for a, b in itertools.islice(itertools.pairwise(seen), 3))
