"""A power cut at every byte that a short run writes: what is left on the disk must be gone on with.

python -m benchmarks.power_cuts [--every N]      writes results/fuzz/power_cuts.json

All writes of a run are recorded. For each prefix of them, a byte more each time, the folder is put together
as the disk would have it, in three ways: everything written is there; what was not synced is lost; it is
zeros. Then 'resume' must end with the models, the table of clients and the log of the undisturbed run, to
the last bit. Where not even the config was whole, nothing had begun: the same 'run' goes on in that folder.

Renames, links and new folders are taken to reach the disk in their order, as journals of file systems keep
it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from benchmarks.fuzz_counts import commit, versions
from benchmarks.fuzz_made import write_clients

from ifca.data.files import write_atomically
from ifca.runs.config import Config, read_config
from ifca.runs.run import resume, run
from ifca.training.checkpoint import load_tensors

OUT = Path("results/fuzz/power_cuts.json")
WAYS = ("kept", "lost", "zeros")  # what becomes of bytes that were written and not synced
SETTINGS = ["k=2", "rounds=2", "local_steps=1", "device=cpu", "model.hidden=[2]"]
PLAIN, MORE = "plain", "two restarts and a baseline, a checkpoint every second round"
JOBS = {
    PLAIN: (1, ["restarts=1", "baselines=[]"]),
    MORE: (29, ["restarts=2", "rounds=3", "baselines=['global']", "checkpoint_every=2"]),
}
"""Jobs, each with its settings; only each so many-th byte of a write is cut at."""


class Event(NamedTuple):
    """Something that was done to the disk."""

    kind: str  # mkdir, empty, write, sync, replace, link, unlink
    path: str
    content: Any = None  # what was written; to where it was renamed or linked


@contextmanager
def recording(folder: Path) -> Iterator[list[Event]]:
    """All that is done in a folder, in its order."""
    events: list[Event] = []
    opened, replaced, unlinked, made = (
        getattr(pathlib.Path, name) for name in ("open", "replace", "unlink", "mkdir")
    )
    synced, linked, names = os.fsync, os.link, dict[int, str]()

    def note(kind: str, path: Any, content: Any = None) -> None:
        if folder in (Path(path), *Path(path).parents):
            events.append(Event(kind, str(Path(path).relative_to(folder)), content))

    def open_(self: Path, mode: str = "r", *more: Any, **named: Any) -> Any:
        new = not self.exists()
        file = opened(self, mode, *more, **named)
        if "w" in mode or ("a" in mode and new):
            note("empty", self)
        if set(mode) & {"w", "a", "+"} and "b" in mode and folder in self.parents:
            names[file.fileno()] = str(self)
            return _Noted(file, lambda content: note("write", self, bytes(content)))
        return file

    def replace(self: Path, target: Any) -> Any:
        note("replace", self, str(Path(target).relative_to(folder)))
        return replaced(self, target)

    def unlink(self: Path, missing_ok: bool = False) -> None:
        if self.exists():
            note("unlink", self)
        unlinked(self, missing_ok)

    def mkdir(self: Path, *more: Any, **named: Any) -> None:
        made(self, *more, **named)
        note("mkdir", self)

    def fsync(descriptor: int) -> None:
        synced(descriptor)
        if descriptor in names:
            note("sync", names[descriptor])

    def link(a: Any, b: Any) -> None:
        note("link", a, str(Path(b).relative_to(folder)))
        linked(a, b)

    mine: dict[str, Any] = {"open": open_, "replace": replace, "unlink": unlink, "mkdir": mkdir}
    with patch.multiple(pathlib.Path, **mine), patch.multiple(os, fsync=fsync, link=link):
        yield events


class _Noted:
    """A file whose writes are told; without a buffer, so that their order is that of the disk."""

    def __init__(self, file: Any, told: Callable[[bytes], None]) -> None:
        self._file, self._told = file, told

    def write(self, content: bytes) -> int:
        self._told(content)
        return int(self._file.write(content))

    def __enter__(self) -> _Noted:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Disk:
    """What the events so far have left: files, how much of each is synced, and folders."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.synced: dict[str, int] = {}
        self.folders: set[str] = set()

    def do(self, event: Event, cut: int | None = None) -> None:
        """cut: of a write only so many bytes."""
        path = event.path
        if event.kind == "mkdir":
            self.folders.add(path)
        elif event.kind == "empty":
            self.files[path], self.synced[path] = b"", 0
        elif event.kind == "write":
            self.files[path] += event.content[:cut]
        elif event.kind == "sync":
            self.synced[path] = len(self.files[path])
        elif event.kind == "link":
            self.files[event.content], self.synced[event.content] = self.files[path], self.synced[path]
        elif event.kind == "replace":
            self.files[event.content], self.synced[event.content] = (
                self.files.pop(path),
                self.synced.pop(path),
            )
        else:
            del self.files[path], self.synced[path]

    def left(self, way: str) -> dict[str, bytes]:
        """The files after the power is back."""
        if way == "kept":
            return dict(self.files)
        found = {name: content[: self.synced[name]] for name, content in self.files.items()}
        zeros = {name: b"\0" * (len(self.files[name]) - len(content)) for name, content in found.items()}
        return found if way == "lost" else {name: found[name] + zeros[name] for name in found}


def cuts(events: list[Event], every: int = 1) -> Iterator[tuple[dict[str, bytes], set[str]]]:
    """All folders that a power cut can leave, each once. every: only each so many-th byte of a write."""
    disk, seen = Disk(), set[str]()
    for event in events:
        size = len(event.content) if event.kind == "write" else 0
        for cut in range(0, size, every) if size else (None,):
            after = _copy(disk)
            if cut is not None:
                after.do(event, cut)
            for way in WAYS:
                files = after.left(way)
                mark = hashlib.sha256(
                    repr((sorted(files.items()), sorted(after.folders))).encode()
                ).hexdigest()
                if mark not in seen:
                    seen.add(mark)
                    yield files, after.folders
        disk.do(event)
    yield disk.left("kept"), disk.folders


def _copy(disk: Disk) -> Disk:
    other = Disk()
    other.files, other.synced, other.folders = dict(disk.files), dict(disk.synced), set(disk.folders)
    return other


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
