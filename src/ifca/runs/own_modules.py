"""Importing the user's own files, each set of them under a name of its own.

Two projects that both have a model.py, or a helpers.py that model.py imports, live side by side in one
process; so do two versions of one file.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import decode_source
from types import CodeType, ModuleType
from typing import Any

from ifca.core.errors import InvalidInput
from ifca.runs.own_code import Code, Source

PREFIX = "ifca_own_"


def own_function(field: str, name: str, code: Code) -> Any:
    """What module:function names: of the user's own files, or else of an installed package.

    field: the config's key, for complaints.
    """
    module, _, function = name.partition(":")
    try:
        own = code.holds(module)
        found = importlib.import_module(f"{_importer(code).name}.{module}" if own else module)
        return getattr(found, function)
    except Exception as reason:
        what = f"{type(reason).__name__}: {reason}"
        raise InvalidInput(f"{field}: cannot import {name} ({what})") from reason


def _importer(code: Code) -> OwnModules:
    """The importer of a set of files: the same one for the same files, so that their modules are shared."""
    name = PREFIX + code.digest[:16]
    known = [finder for finder in sys.meta_path if isinstance(finder, OwnModules) and finder.name == name]
    if not known:
        known = [OwnModules(name, code)]
        sys.meta_path += known
    return known[0]


class OwnModules(MetaPathFinder, InspectLoader):
    """Finds and loads the modules of one set of files, below a package of the given name."""

    def __init__(self, name: str, code: Code) -> None:
        self.name, self.code = name, code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where Python asks for a module: None, unless it is one of these."""
        del path, target  # the name says it all
        source = self._source(fullname)
        if source is not None:
            package = source.path.endswith("/__init__.py")  # its modules are found here, not in its folder
            spec = ModuleSpec(fullname, self, origin=source.beside, is_package=package)
            spec.has_location = True  # the origin becomes __file__
            return spec
        inner = fullname.removeprefix(f"{self.name}.")
        folder = fullname == self.name or (inner != fullname and self.code.holds(inner))
        return ModuleSpec(fullname, self, is_package=True) if folder else None

    def exec_module(self, module: ModuleType) -> None:
        """Run a file, in which 'import' means the files of this set first."""
        if (code := self.get_code(module.__name__)) is not None:
            vars(module)["__builtins__"] = {**vars(builtins), "__import__": self._import}
            exec(code, vars(module))

    def get_code(self, fullname: str) -> CodeType | None:
        """The compiled file; its name is where it was read, for tracebacks."""
        source = self._source(fullname)
        return None if source is None else compile(source.content, source.file, "exec", dont_inherit=True)

    def get_source(self, fullname: str) -> str | None:
        """The text of the file."""
        source = self._source(fullname)
        return None if source is None else decode_source(source.content)

    def _source(self, fullname: str) -> Source | None:
        inner = fullname.removeprefix(f"{self.name}.")
        return None if inner == fullname else self.code.module(inner)

    def _import(
        self,
        name: str,
        given: Mapping[str, object] | None = None,
        local: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """What an import statement of one of these files does, also of one inside a function."""
        top = name.partition(".")[0]
        if level or not self.code.holds(top):
            return builtins.__import__(name, given, local, fromlist or (), level)
        found = builtins.__import__(f"{self.name}.{name}", given, local, fromlist or (), 0)
        return found if fromlist else sys.modules[f"{self.name}.{top}"]
