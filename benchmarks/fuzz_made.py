"""Small run folders for benchmarks/fuzz.py, and how their files are mutated."""

from __future__ import annotations

import atexit
import contextlib
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from benchmarks.fuzz_mutations import Random, as_json, mutated_bytes, mutated_text, mutated_value

from ifca.core.callbacks import Record, Silent
from ifca.runs.config import read_config
from ifca.runs.run import run
from ifca.runs.summary_file import write_summary

SETTINGS = ["k=2", "rounds=5", "local_steps=1", "device=cpu", "restarts=1", "model.hidden=[2]"]


class Stop(Silent):
    """Interrupts a run after its third round."""

    def round_ended(self, record: Record) -> None:
        """As ctrl-C does."""
        if record["round"] == 2:
            raise KeyboardInterrupt


def write_clients(folder: Path) -> None:
    """Four small clients as .npz files."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(4):
        x = rng.normal(size=(10, 2))
        y, y_test = (x[:, i % 2] > 0).astype(int), (x[:, 0] > 0).astype(int)
        np.savez(folder / f"c{i}.npz", x=x, y=y, x_test=x, y_test=y_test)


def made(folder: Path) -> Path:
    """Clients in files, a whole run, a half one, one with baselines and restarts, one of tables: a copy."""
    return Path(shutil.copytree(_made(), folder, dirs_exist_ok=True))


@cache
def _made() -> Path:
    """Made once; the data of the runs stay there."""
    folder = Path(
        tempfile.mkdtemp(prefix="ifca-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    )
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_clients(folder / "clients")
    (folder / "tables").mkdir()
    for i in range(4):
        x = np.load(folder / "clients" / f"c{i}.npz")["x"]
        rows = [f"{a:.3f},{'red' if b > 0 else 'blue'},{'yes' if a > 0 else 'no'}" for a, b in x]
        (folder / "tables" / f"c{i}.csv").write_text("\n".join(["size,colour,outcome", *rows]) + "\n")
    arrays = f"data={{name='folder', path='{folder / 'clients'}'}}"
    tables = f"data={{name='folder', path='{folder / 'tables'}', label='outcome', test_share=0.2}}"
    config = read_config(None, [*SETTINGS, arrays, "baselines=[]"])
    run(config, folder / "whole")
    with contextlib.suppress(KeyboardInterrupt):
        run(config, folder / "half", Stop())
    run(
        read_config(None, [*SETTINGS, arrays, "rounds=2", "restarts=2", "baselines=['global', 'local']"]),
        folder / "compared",
    )
    run(
        read_config(None, [*SETTINGS, tables, "rounds=2", "baselines=[]", "personalise=true"]),
        folder / "tabled",
    )
    return folder


def mutated_file(rng: Random, name: str, content: bytes) -> bytes:
    """A file of a run folder, mutated as its format suggests."""
    if name.endswith(".json") and rng.random() < 0.7:
        return as_json(mutated_value(rng, json.loads(content)))
    if name.endswith(".jsonl") and content and rng.random() < 0.7:
        lines = content.splitlines()
        i = rng.randrange(len(lines))
        lines[i] = as_json(mutated_value(rng, json.loads(lines[i])))
        return b"".join(line + b"\n" for line in lines)
    if name.endswith((".csv", ".toml")) and rng.random() < 0.7:
        return mutated_text(rng, content.decode(), "," if name.endswith(".csv") else " ")
    return mutated_bytes(rng, content)


def reseal(out: Path) -> None:
    """Checksums that fit the files as they are now; none where the summary cannot hold any."""
    try:
        content = json.loads((out / "summary.json").read_bytes())
        content.pop("checksums", None)
        write_summary(out, content)
    except (ValueError, TypeError, AttributeError, RecursionError, OSError):
        pass  # of an older version, or none
