"""A power cut at every byte that a short run writes: what is left on the disk must be gone on with.

python -m benchmarks.power_cuts [--every N]      writes results/fuzz/power_cuts.json

All writes of a run are recorded. For each prefix of them, a byte more each time (an eighth more of a file
that is renamed when it is whole, and read by nothing before), the folder is put together as the disk would
have it, in three ways: everything written is there; what was not synced is lost; it is zeros. Then 'resume'
must end with the models, the table of clients and the log of the undisturbed run, to the last bit. Where not
even the config was whole, nothing had begun: the same 'run' goes on in that folder.

Renames, links and new folders are taken to reach the disk in their order, as journals of file systems keep
it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import warnings
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from benchmarks.fuzz_counts import commit, versions
from benchmarks.fuzz_made import write_clients
from benchmarks.recorded_disk import Disk, Event, cuts, recording

from ifca.data.files import write_atomically
from ifca.runs.config import Config, read_config
from ifca.runs.run import resume, run
from ifca.training.checkpoint import load_tensors

OUT = Path("results/fuzz/power_cuts.json")
SETTINGS = ["k=2", "rounds=2", "local_steps=1", "device=cpu", "model.hidden=[2]"]
PLAIN, MORE = "plain", "two restarts and a baseline, a checkpoint every second round"
JOBS = {
    PLAIN: (1, ["restarts=1", "baselines=[]"]),
    MORE: (29, ["restarts=2", "rounds=3", "baselines=['global']", "checkpoint_every=2"]),
}
"""Jobs, each with its settings; only each so many-th byte of a write is cut at."""


def recorded(config: Config, out: Path) -> list[Event]:
    """The events of a whole run; they come to the folder that it leaves."""
    with recording(out) as events:
        run(config, out)
    disk = Disk()
    for event in events:
        disk.do(event)
    there = {str(file.relative_to(out)): file.read_bytes() for file in out.rglob("*") if file.is_file()}
    if disk.files != there:
        raise RuntimeError(f"not all writes were recorded: {sorted(disk.files.keys() ^ there.keys())}")
    return events


def gone_on(config: Config, out: Path, files: dict[str, bytes], folders: set[str]) -> str:
    """Put a folder together and go on in it: by which command."""
    shutil.rmtree(out, ignore_errors=True)
    for name in sorted(folders):
        (out / name).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(content)
    if "config.toml" not in files:
        run(config, out)
        return "run"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is damaged
        resume(out)
    return "resume"


def same(a: Path, b: Path) -> bool:
    """Models, clients and the log, but for the seconds."""
    for file in sorted(a.rglob("models.safetensors")):
        mine, other = (load_tensors(one)[0] for one in (file, b / file.relative_to(a)))
        if not all(torch.equal(mine[name], other[name]) for name in mine):
            return False
    for file in sorted(a.rglob("clients.csv")):
        if file.read_bytes() != (b / file.relative_to(a)).read_bytes():
            return False
    return all(_log(file) == _log(b / file.relative_to(a)) for file in a.rglob("rounds.jsonl"))


def _log(file: Path) -> list[Any]:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def tried(folder: Path, more: list[str], every: int, each: int = 1) -> Counter[str]:
    """How the folders that a power cut can leave were gone on in; each: only each so many-th of them."""
    write_clients(folder / "clients")
    data = f"data={{name='folder', path='{folder / 'clients'}'}}"
    config = read_config(None, [*SETTINGS, data, *more])
    events, found = recorded(config, folder / "whole"), Counter[str]()
    for files, folders in islice(cuts(events, every), 0, None, each):
        try:
            how = gone_on(config, folder / "cut", files, folders)
            found[how if same(folder / "whole", folder / "cut") else "other results"] += 1
        except Exception as reason:
            found[f"{type(reason).__name__}: {str(reason).replace(str(folder), '')[:150]}"] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="so many times coarser")
    coarser = parser.parse_args().every
    results: dict[str, Any] = {"commit": commit(), "versions": versions()}
    for name, (every, more) in JOBS.items():
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
            found = tried(Path(folder), more, coarser * every)
        results[name] = {"every": coarser * every, "folders": sum(found.values()), "gone_on_by": dict(found)}
        print(name, results[name], flush=True)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(OUT, (json.dumps(results, indent=1) + "\n").encode())


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
