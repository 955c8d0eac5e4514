"""Files written whole or not at all, and folders that one process at a time works in."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ifca.core.errors import InvalidInput

if sys.platform != "win32":
    import fcntl

LOCK = ".running"  # held while a process works in a folder; the system lets go of it however that ends


def write_atomically(file: Path, content: bytes) -> None:
    """The file is the old one or the new one, whatever happens in between."""
    temporary = file.with_name(f".{file.name}.tmp")
    try:
        with _alone_in(temporary) as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
            if sys.platform == "win32":
                out.close()  # an open file keeps its name there
            temporary.replace(file)
    except OSError as failure:
        temporary.unlink(missing_ok=True)
        raise OSError(failure.errno, failure.strerror, str(file)) from failure


@contextmanager
def _alone_in(file: Path) -> Iterator[BinaryIO]:
    """The file, open and empty; who else would write to it waits until it is closed."""
    while True:
        with file.open("ab") as out:
            if sys.platform != "win32":
                fcntl.flock(out.fileno(), fcntl.LOCK_EX)
                if not _is_still(file, out):
                    continue  # whoever was waited for has given it its name
            out.truncate(0)
            yield out
            return


def _is_still(file: Path, opened: BinaryIO) -> bool:
    try:
        return os.path.samestat(os.fstat(opened.fileno()), file.stat())
    except FileNotFoundError:
        return False


def refuse_to_overwrite(out: Path, option: str, *, run: Path | None = None, data: Path | None = None) -> None:
    """Refuse to write over what is read: a file of a run's folder; a client's file, or beside clients' files.

    A file beside clients' files would be taken for one more client.
    """
    here = out.resolve()
    if run is not None and here.exists() and run.resolve() in here.parents:
        raise InvalidInput(f"{option} {out}: is a file of the run {run}; choose another name")
    if data is not None and (data.resolve() == here or (data.is_dir() and data.resolve() in here.parents)):
        what = "lies among the clients' files" if data.is_dir() else "is the client's own file"
        raise InvalidInput(f"{option} {out}: {what}; choose another place")


def refuse_folders(folder: Path, names: Iterable[str]) -> None:
    """Refuse to begin where a folder lies in the place of a file that will be written."""
    for name in names:
        if (folder / name).is_dir():
            raise InvalidInput(f"{folder / name}: is a folder, where a file belongs; move it away")


@contextmanager
def working_in(folder: Path, patience: float = 2.0) -> Iterator[None]:
    """Refuse a folder that another process works in."""
    with (folder / LOCK).open("a") as lock:
        if sys.platform != "win32":
            deadline = time.monotonic() + patience  # someone may just be looking
            while not _taken(lock.fileno(), fcntl.LOCK_EX):
                if time.monotonic() > deadline:
                    raise InvalidInput(f"{folder}: another process trains in this folder")
                time.sleep(0.05)
        yield


def is_worked_in(folder: Path) -> bool:
    """Whether a process of this machine works in a folder now."""
    if sys.platform == "win32" or not (folder / LOCK).exists():
        return False
    with (folder / LOCK).open() as lock:
        return not _taken(lock.fileno(), fcntl.LOCK_SH)


def _taken(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
