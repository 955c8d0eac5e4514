"""Counts of benchmarks/fuzz.py: executions by kind and by the commit that they were made at. They add up.

Execution i of a kind is decided by (kind, i) alone, and i is how many there were before it: no run repeats
what an earlier one did.
"""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.fuzz_outcomes import FAILURES, Outcome

from ifca.data.files import write_atomically

OUT = Path("results/fuzz/counts.json").resolve()


class Counts:
    """What came of all executions so far."""

    def __init__(self, file: Path = OUT) -> None:
        self.file = file
        self.kinds: dict[str, list[dict[str, Any]]] = json.loads(file.read_text()) if file.exists() else {}
        self._commit, self._versions = commit(), versions()

    def executions(self, kind: str) -> int:
        """How many there were, which is the number of the next one."""
        return sum(part["executions"] for part in self.kinds.get(kind, []))

    def part(self, kind: str) -> dict[str, Any]:
        """The counts of a kind at this commit."""
        parts = self.kinds.setdefault(kind, [])
        if not parts or parts[-1]["commit"] != self._commit:
            new = {"commit": self._commit, "versions": self._versions, "first": self.executions(kind)}
            parts.append({**new, "executions": 0, "seconds": 0.0, "outcomes": {}, "failures": {}})
        return parts[-1]

    def add(self, kind: str, outcome: Outcome) -> None:
        """Count the next execution of a kind."""
        part = self.part(kind)
        if outcome.kind in FAILURES:
            place = f"{outcome.kind}: {outcome.place}"
            found = part["failures"].setdefault(place, {"count": 0, "seed": self.executions(kind)})
            found["count"] += 1
        part["outcomes"][outcome.kind] = part["outcomes"].get(outcome.kind, 0) + 1
        part["executions"] += 1

    def write(self) -> None:
        """Replace the file."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.file, (json.dumps(self.kinds, indent=1, sort_keys=True) + "\n").encode())


def commit() -> str:
    """The commit of the code; -dirty: with changes. The counts themselves may have changed."""
    changed = _git("status", "--porcelain", "--", "src", "benchmarks")
    return _git("rev-parse", "--short", "HEAD") + ("-dirty" if changed else "")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.strip()


def versions() -> dict[str, str]:
    return {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__}
