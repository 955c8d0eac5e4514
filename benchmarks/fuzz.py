"""A mutation fuzzer: whatever is wrong with a file, a folder or a command line, one sentence says so.

python -m benchmarks.fuzz --minutes 60            all kinds in turns
python -m benchmarks.fuzz --kind npz --minutes 5
python -m benchmarks.fuzz --kind npz --seed 4711  one execution again, with its traceback

Counts are in results/fuzz/counts.json (fuzz_counts.py); every run adds to them. The kinds: fuzz_kinds.py.
What is a failure: fuzz_outcomes.py.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import shutil
import signal
import struct
import tempfile
import time
import warnings
from contextlib import ExitStack
from pathlib import Path

import torch
from benchmarks.fuzz_counts import Counts
from benchmarks.fuzz_kinds import KINDS
from benchmarks.fuzz_outcomes import Attempt, Outcome, executed, limit_memory

DEAD = Outcome("crash", "the process ended")
TURN = 5.0  # seconds of the processor before it is another kind's turn
SHM = Path("/dev/shm")
_told_to_end: list[bool] = []  # an exception could be taken for one of the execution's


def main() -> None:
    asked = _arguments()
    if asked.seed is not None:
        _again(asked.kind[0], asked.seed)
        return
    counts, spent = Counts(), dict.fromkeys(asked.kind or KINDS, 0.0)
    with ExitStack() as scratches:
        attempts = {kind: _prepared(kind, scratches) for kind in spent}
        limit_memory()
        until = time.monotonic() + 60 * asked.minutes
        while time.monotonic() < until and not _told_to_end:
            kind = min(spent, key=lambda one: spent[one] / KINDS[one][0])
            spent[kind] += _turn(kind, attempts[kind], counts, until)
            counts.write()
    for kind in spent:
        print(f"{kind}: {counts.executions(kind):,} {counts.part(kind)['outcomes']}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int)
    return parser.parse_args()


def _prepared(kind: str, scratches: ExitStack) -> Attempt:
    base = SHM if SHM.is_dir() else None
    folder = scratches.enter_context(tempfile.TemporaryDirectory(prefix="ifca-fuzz-", dir=base))
    return KINDS[kind][1](Path(folder))


def _turn(kind: str, attempt: Attempt, counts: Counts, until: float) -> float:
    """Execute a kind for a while. Returns the seconds of the processor."""
    mark, began = _Mark(kind), time.process_time()
    deadly = mark.left()
    while time.process_time() < began + TURN and time.monotonic() < until and not _told_to_end:
        i = counts.executions(kind)
        mark.set(i)
        counts.add(kind, DEAD if i == deadly else executed(lambda: attempt(_random(kind, i))))  # noqa: B023
    mark.clear()
    seconds = time.process_time() - began
    counts.part(kind)["seconds"] = round(counts.part(kind)["seconds"] + seconds, 1)
    return seconds


def _again(kind: str, seed: int) -> None:
    with ExitStack() as scratches:
        _prepared(kind, scratches)(_random(kind, seed))
    print("accepted")


def _random(kind: str, i: int) -> random.Random:
    return random.Random(f"{kind} {i}")


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
    warnings.simplefilter("error", RuntimeWarning)  # numbers that came to nothing
    signal.signal(signal.SIGTERM, lambda *_: _told_to_end.append(True))
    main()
