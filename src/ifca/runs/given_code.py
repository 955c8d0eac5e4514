"""Code that a config file names: one's own files lie beside it, anything else needs a clear yes.

A config is text, and whoever opens one that somebody sent expects no program in it. Files of Python beside it
are seen; a function of an installed package, such as os:system, is not, nor is a file somewhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ifca.core.errors import InvalidInput
from ifca.runs.config import Config
from ifca.runs.own_code import find_module
from ifca.runs.run_code import code_folders, code_of, named_functions


def check_given_code(config: Config, file: Path | None, said: Sequence[str], *, trust: bool) -> None:
    """Refuse a config whose code is neither beside it nor where the command is given, unless trust says yes.

    file: the config, None: ifca's own. said: what the user wrote on the command line, which is a yes to what
    it names.
    """
    named = [(field, name) for field, name in named_functions(config) if not any(name in one for one in said)]
    if trust or file is None or not named:
        return
    beside = [file.resolve().parent, Path.cwd(), *_folder_said(said)]
    hidden = [f"{field} = {name}" for field, name in named if not _is_seen(config, name, beside)]
    if hidden:
        told = f"names code that does not lie beside it: {', '.join(hidden)}"
        raise InvalidInput(f"{file}: {told}; if that is meant, say --trust")


def code_sentence(config: Config) -> str | None:
    """Which files of the user's a config runs; None: none."""
    files = [source.path for source in code_of(config).sources]
    return f"your code: {', '.join(files)}" if files else None


def _is_seen(config: Config, name: str, folders: Sequence[Path]) -> bool:
    """Whether a function is of a file in one of the folders."""
    source = find_module(name.partition(":")[0], code_folders(config))
    return source is not None and any(one in Path(source.file).resolve().parents for one in folders)


def _folder_said(said: Sequence[str]) -> list[Path]:
    """The folder of code, where the command line names it."""
    given = [one.partition("=")[2].strip("\"' ") for one in said if one.partition("=")[0].strip() == "code"]
    return [Path(one).resolve() for one in given if one]
