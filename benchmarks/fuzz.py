"""A mutation fuzzer: whatever is wrong with a file, a folder or a command line, one sentence says so.

python -m benchmarks.fuzz                         all kinds, as often as asked for, from where it stands
python -m benchmarks.fuzz --kind npz --times 1e6
python -m benchmarks.fuzz --kind npz --seed 4711  one execution again, with its traceback

Execution i of a kind is decided by (kind, i) alone. Counts are in results/fuzz/counts.json, with the commit
and the versions; a kind whose code has changed is begun again with --anew. What is a failure:
fuzz_outcomes.py.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import platform
import random
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.fuzz_commands import COMMANDS
from benchmarks.fuzz_files import FILES
from benchmarks.fuzz_outcomes import FAILURES, Outcome, executed, limit_memory
from benchmarks.fuzz_runs import RUNS

from ifca.data.files import write_atomically

OUT = Path("results/fuzz/counts.json").resolve()
KINDS: dict[str, tuple[float, Callable[[Path], Callable[[random.Random], None]]]] = {
    **FILES,
    **RUNS,
    **COMMANDS,
}
"""Kind -> how often it is asked for, and what prepares a scratch folder and gives the execution."""
DEAD = Outcome("crash", "the process ended")
EVERY = 30.0  # seconds between two writings of the counts


def main() -> None:
    asked = _arguments()
    if asked.seed is not None:
        _again(asked.kind[0], asked.seed)
        return
    counts = json.loads(OUT.read_text()) if OUT.exists() else {}
    for kind in asked.kind or KINDS:
        if asked.anew:
            counts.pop(kind, None)
        _many(kind, int(asked.times or asked.scale * KINDS[kind][0]), counts)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--times", type=float)
    parser.add_argument("--scale", type=float, default=1.0, help="of how often each kind is asked for")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--anew", action="store_true")
    return parser.parse_args()


def _many(kind: str, times: int, counts: dict[str, Any]) -> None:
    """Execute a kind from where it stands; the counts are written now and then."""
    found = counts.setdefault(kind, {"executions": 0, "outcomes": {}, "places": {}, "seconds": 0.0})
    if found["executions"] >= times:
        return
    found |= {"commit": commit(), "versions": versions()}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        attempt, mark = KINDS[kind][1](Path(scratch)), _Mark(kind)
        deadly = mark.left()
        limit_memory()
        began = time.monotonic()
        try:
            for i in range(found["executions"], times):
                mark.set(i)
                ended = i == deadly
                _count(found, i, DEAD if ended else executed(lambda: attempt(_random(kind, i))))  # noqa: B023
                found["executions"] = i + 1
                if time.monotonic() - began > EVERY or i + 1 == times:
                    found["seconds"] = round(found["seconds"] + time.monotonic() - began, 1)
                    began = time.monotonic()
                    _write(counts)
        finally:  # also when it is told to end
            mark.clear()
    print(f"{kind}: {found['executions']:,} {found['outcomes']}", flush=True)


def _count(found: dict[str, Any], seed: int, outcome: Outcome) -> None:
    found["outcomes"][outcome.kind] = found["outcomes"].get(outcome.kind, 0) + 1
    if outcome.kind in FAILURES:
        place = found["places"].setdefault(f"{outcome.kind} {outcome.place}", {"count": 0, "seed": seed})
        place["count"] += 1


def _again(kind: str, seed: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        KINDS[kind][1](Path(scratch))(_random(kind, seed))
    print("accepted")


def _random(kind: str, i: int) -> random.Random:
    return random.Random(f"{kind} {i}")


def _write(counts: dict[str, Any]) -> None:
    OUT.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(OUT, (json.dumps(counts, indent=1, sort_keys=True) + "\n").encode())


def commit() -> str:
    told = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True)
    return told.stdout.strip()


def versions() -> dict[str, str]:
    return {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__}


class _Mark:
    """Which execution is going on, in a file that survives the end of the process."""

    def __init__(self, kind: str) -> None:
        self._file = Path(tempfile.gettempdir()) / f"ifca-fuzz-{os.getuid()}-{kind}"
        if not self._file.exists():
            self._file.write_bytes(struct.pack("<q", -1))
        with self._file.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8)

    def left(self) -> int | None:
        """The execution that a process did not survive."""
        (seed,) = struct.unpack("<q", self._map[:])
        return None if seed < 0 else int(seed)

    def set(self, seed: int) -> None:
        self._map[:] = struct.pack("<q", seed)

    def clear(self) -> None:
        self.set(-1)


if __name__ == "__main__":
    if shutil.which("git") is None:
        raise SystemExit("git is needed to write down the commit")
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
