"""The user's own source files behind the functions that a config names as module:function."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

NEVER_OWN = ("ifca", "__main__", "__future__")


@dataclass(frozen=True)
class Source:
    """One file of the user's, as it was when it was read."""

    path: str  # as modules are named: model.py, package/__init__.py
    file: str  # where it was read
    content: bytes
    beside: str  # its __file__: where it lay first, and where the data beside it are

    @property
    def sha256(self) -> str:
        """The hash of its content."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True)
class Code:
    """All files of the user's that a config needs; what is imported is imported from here."""

    sources: tuple[Source, ...] = ()

    def module(self, name: str) -> Source | None:
        """The file of a module; None: it is not the user's, or a folder without an __init__.py."""
        path = name.replace(".", "/")
        return self._by_path.get(f"{path}/__init__.py") or self._by_path.get(f"{path}.py")

    def holds(self, name: str) -> bool:
        """Whether a module, or a folder of modules, is the user's."""
        folder = name.replace(".", "/") + "/"
        return self.module(name) is not None or any(path.startswith(folder) for path in self._by_path)

    @cached_property
    def _by_path(self) -> dict[str, Source]:
        return {source.path: source for source in self.sources}

    @cached_property
    def digest(self) -> str:
        """Another one for other paths and for other contents."""
        parts = [f"{source.file}\n{source.beside}\n{source.sha256}" for source in self.sources]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def find_code(modules: Iterable[str], folders: Sequence[Path]) -> Code:
    """The files of these modules and of all that they import, as far as they lie in the folders.

    Earlier folders come first. What is not there is left to Python: installed packages.
    """
    found: dict[str, Source] = {}
    todo = list(modules)
    while todo:
        parts = todo.pop().split(".")
        places = _places(parts[0], folders)
        for end in range(1, len(parts) + 1):  # importing a.b.c imports a and a.b, too
            name = ".".join(parts[:end])
            source = next(_files(name, places), None)
            if source is not None and source.path not in found:
                found[source.path] = source
                todo += _imported(source, name)
    return Code(tuple(found[path] for path in sorted(found)))


def find_module(module: str, folders: Sequence[Path]) -> Source | None:
    """The file of one module, where it lies in the folders; None: it is left to Python."""
    return next(_files(module, _places(module.partition(".")[0], folders)), None)


def _places(top: str, folders: Sequence[Path]) -> Sequence[Path]:
    """The folders in which a top-level name means a module of the user's."""
    if top in NEVER_OWN or not top.isidentifier():
        return ()
    if top in sys.stdlib_module_names:  # a random.py in the second folder, where we stand, is not meant
        folders = folders[:1]
    if any(
        (folder / f"{top}.py").is_file() or (folder / top / "__init__.py").is_file() for folder in folders
    ):
        return folders
    # as in Python, a folder without an __init__.py is a package only where no other has its name
    return folders if any((folder / top).is_dir() for folder in folders) and not _installed(top) else ()


def _installed(top: str) -> bool:
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def _files(name: str, folders: Sequence[Path]) -> Iterator[Source]:
    path = name.replace(".", "/")
    for folder in folders:
        for inside in (f"{path}/__init__.py", f"{path}.py"):
            if (file := folder / inside).is_file():
                yield Source(inside, str(file), file.read_bytes(), str(file))


def _imported(source: Source, name: str) -> list[str]:
    """The modules that a file's import statements may mean, wherever in the file they stand."""
    try:
        tree = ast.parse(source.content)
    except (SyntaxError, ValueError):
        return []  # importing it says what is wrong
    package = name.split(".") if source.path.endswith("/__init__.py") else name.split(".")[:-1]
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = [*above, *([node.module] if node.module else [])]
            names += [".".join([*base, alias.name]) for alias in node.names]  # a module, or a name in one
    return names
