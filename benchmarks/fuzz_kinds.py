"""What benchmarks/fuzz.py executes: kinds of input, with the share of the time that each is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.fuzz_arrays import arrays
from benchmarks.fuzz_commands import folders, lines, trainings
from benchmarks.fuzz_configs import configs, settings
from benchmarks.fuzz_outcomes import Attempt
from benchmarks.fuzz_pages import pages, reproduced, seen
from benchmarks.fuzz_tables import ids, leaf, parquets, tables
from benchmarks.fuzz_tensors import checkpoints, messages, models

KINDS: dict[str, tuple[float, Callable[[Path], Attempt]]] = {
    "config": (6, configs),
    "--set": (6, settings),
    "npz": (10, arrays),
    "csv": (8, tables),
    "parquet": (5, parquets),
    "leaf": (8, leaf),
    "ids": (6, ids),
    "checkpoint": (4, checkpoints),
    "models": (3, models),
    "flower": (12, messages),
    "run folder": (4, seen),
    "reproduce": (3, reproduced),
    "page": (1, pages),
    "resume": (2, folders("resume", "half", "--quiet")),
    "resume finished": (2, folders("resume", "whole", "--quiet")),
    "report": (2, folders("report", "tabled")),
    "watch": (2, folders("watch", "half")),
    "assign": (2, folders("assign", "tabled", "{home}/tables")),
    "predict": (2, folders("predict", "tabled", "{home}/tables/c1.csv")),
    "export": (2, folders("export", "whole", "--cluster", "0", "--to", "{folder}/new.pt")),
    "check": (2, folders("check", "whole", "--data", "{home}/clients")),
    "continue": (
        2,
        folders("continue", "whole", "--data", "{home}/clients", "--out", "{folder}/new", "--quiet"),
    ),
    "run": (2, trainings),
    "command line": (6, lines),
}
"""Kind -> its share of the time, and what prepares a scratch folder and gives the execution."""
