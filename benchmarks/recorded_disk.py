"""What a program does to the disk, in its order, and what a power cut in the midst of it leaves."""

from __future__ import annotations

import hashlib
import os
import pathlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

UNNAMED = 8  # places at which the write of a file is cut that is renamed when it is whole
WAYS = ("kept", "lost", "zeros")  # what becomes of bytes that were written and not synced


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
    """The folders that a power cut can leave, each once. every: only each so many-th byte of a write.

    Of what is written to a file that has not its name yet, which nothing reads, only some places.
    """
    disk, seen = Disk(), set[str]()
    for event in events:
        size = len(event.content) if event.kind == "write" else 0
        step = max(every, -(-size // UNNAMED)) if Path(event.path).match(".*.tmp") else every
        for cut in range(0, size, step) if size else (None,):
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
