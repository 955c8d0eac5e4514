"""Files from public mirrors: resumed where they stopped, checked, and put in their place only when whole."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ifca.core.errors import InvalidInput

TIMEOUT = 20.0  # seconds without a byte
BLOCK = 1 << 18
TRIES = 5  # at one mirror, as long as each brings bytes


class Watcher(Protocol):
    """Who is told how it goes."""

    def say(self, line: str) -> None:
        """Something worth a line."""

    def bytes(self, name: str, done: int, total: int | None) -> None:
        """So much of a file is here."""


@dataclass(frozen=True)
class Remote:
    """A file with its mirrors."""

    name: str
    md5: str
    urls: tuple[str, ...]


class Unreachable(InvalidInput):
    """No mirror gave the file."""


def download(remote: Remote, folder: Path, watcher: Watcher, *, timeout: float = TIMEOUT) -> Path:
    """Bring a file into a folder from the first mirror that has it; what is there and right is kept."""
    target, part = folder / remote.name, folder / f".{remote.name}.part"
    if target.exists() and md5_of(target) == remote.md5:
        return target
    reasons: list[str] = []
    for url in remote.urls:
        reason = _whole(url, remote, part, watcher, timeout)
        if reason is None:
            part.replace(target)
            return target
        reasons.append(f"{url.split('/')[2]}: {reason}")
    kept = f"; what is here is kept in {part} and resumed" if part.exists() else ""
    raise Unreachable(f"{target}: no mirror gave it ({'; '.join(reasons)}){kept}")


def md5_of(file: Path) -> str:
    """The md5 of a file of any size."""
    digest = hashlib.md5(usedforsecurity=False)
    with file.open("rb") as content:
        while block := content.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _whole(url: str, remote: Remote, part: Path, watcher: Watcher, timeout: float) -> str | None:
    """Try one mirror until the part is the whole file (None), or say why not."""
    reason = ""
    for _ in range(TRIES):
        before = _size(part)
        try:
            _fetch(url, remote.name, part, watcher, timeout)
        except (OSError, http.client.HTTPException) as failure:
            inner = failure.reason if type(failure) is urllib.error.URLError else failure
            reason = str(inner) or type(failure).__name__
            if _size(part) <= before:
                return reason  # not a byte more: another mirror
            continue
        if md5_of(part) == remote.md5:
            return None
        part.unlink()
        reason = "its content is not that of the public data set (altered)"
        if not before:
            return reason
    return reason


def _fetch(url: str, name: str, part: Path, watcher: Watcher, timeout: float) -> None:
    """Go on with a part where it stops; begin again where the mirror cannot."""
    have = _size(part)
    headers = {"User-Agent": "ifca"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as refusal:
        refusal.close()
        if refusal.code == 416 and have:  # there is nothing after what is here
            return
        raise
    with answer:
        resumed = answer.status == 206
        done = have if resumed else 0
        length = answer.headers.get("Content-Length")
        total = None if length is None else done + int(length)
        with _writing(part):
            out = part.open("ab" if resumed else "wb", buffering=0)
        with out:
            while block := answer.read(BLOCK):
                rest = memoryview(block)
                while rest:
                    with _writing(part):
                        rest = rest[out.write(rest) :]
                done += len(block)
                watcher.bytes(name, done, total)
    if total is not None and done < total:
        raise ConnectionError(f"cut off after {done} of {total} bytes")


@contextmanager
def _writing(file: Path) -> Iterator[None]:
    """A disk that is full is no matter of mirrors."""
    try:
        yield
    except OSError as failure:
        raise InvalidInput(
            f"{file}: cannot be written ({failure.strerror}); what is here is kept and resumed"
        ) from failure


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
