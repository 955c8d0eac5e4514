"""TOML, read with limits on its size and depth."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ifca.core.errors import Unreadable
from ifca.data.formats.whole_file import read_whole

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MOST = 4 << 20  # bytes
DEEPEST = 30  # tables and lists inside one another; a config has four


def read_toml(file: Path) -> dict[str, Any]:
    """A TOML file; a byte order mark before it is no part of it."""
    try:
        text = read_whole(file, MOST).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unreadable(f"{file}: cannot be read as a config: it is not a text file") from None
    return parse_toml(text, str(file))


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """TOML as plain values. where: to be named."""
    try:
        content = tomllib.loads(text)
    except RecursionError:
        raise Unreadable(f"{where}: not valid TOML: lists or tables are nested too deeply") from None
    except ValueError as reason:  # wrong TOML, or a number of thousands of digits
        raise Unreadable(f"{where}: not valid TOML: {' '.join(str(reason).split())[:200]}") from None
    if is_deep(content):
        raise Unreadable(f"{where}: lists or tables are nested more than {DEEPEST} times")
    return content


def is_deep(content: Any) -> bool:
    """Whether lists and tables are nested too deeply for what comes after."""
    level = [content]
    for _ in range(DEEPEST):
        inner = [part.values() if isinstance(part, dict) else part for part in level]
        level = [one for parts in inner for one in parts if isinstance(one, (dict, list))]
        if not level:
            return False
    return True
