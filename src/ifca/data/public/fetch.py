"""A public data set: whether it is here and whole, and how it gets here. The sets are in public_sets.py."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ifca.core.errors import InvalidInput
from ifca.data.public.download import Remote, Unreachable, Watcher, download
from ifca.data.public.places import data_folders

Folder = Path | str | None


@dataclass(frozen=True)
class Source:
    """One public data set."""

    name: str
    about: str
    where: Callable[[Folder], Path | None]
    """The folder that holds it, whole or not."""
    check: Callable[[Folder], str]
    """What is there, in words; InvalidInput where it is missing or damaged."""
    remotes: tuple[Remote, ...] = ()
    unpack: Callable[[Path], None] | None = None
    """From what was downloaded to what is read."""
    by_hand: str = ""
    """What to do where nothing can be downloaded ready-made."""


def get(source: Source, folder: Folder, watcher: Watcher) -> str:
    """Bring a data set into the data folder; says what is there. What is there and whole is left alone."""
    try:
        return source.check(folder)
    except InvalidInput:
        place = data_folders(folder)[0] / source.name
    if source.by_hand:
        raise InvalidInput(f"{place}: {source.name} is not there whole; {source.by_hand}")
    place.mkdir(parents=True, exist_ok=True)
    try:
        for remote in source.remotes:
            download(remote, place, watcher)
        if source.unpack is not None:
            source.unpack(place)
    except Unreachable as reason:
        names = ", ".join(remote.name for remote in source.remotes)
        again = f"'ifca data get {source.name}'"
        raise Unreachable(
            f"{reason}; try again where there is a network, or put {names} into {place} yourself: {again} "
            "takes what is there"
        ) from None
    return source.check(place.parent)


def checked(name: str, content: bytes, md5: str) -> bytes:
    """The content, if it is what it must be."""
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
        raise InvalidInput(f"{name}: its content is not that of the public data set (altered); not written")
    return content
