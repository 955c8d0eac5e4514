"""Keys of a config that are set on the command line."""

from __future__ import annotations

import json
from typing import Any

from ifca.core.errors import InvalidInput, Unreadable
from ifca.data.formats.toml_file import parse_toml


def with_model(settings: list[str] | None, model: str | None) -> list[str] | None:
    """The settings, and --model as one of them."""
    return settings if model is None else [*(settings or []), f"model.name={json.dumps(model)}"]


def set_key(content: dict[str, Any], setting: str) -> None:
    """Put key=value of --set into a config; the value is TOML, or a bare word."""
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise InvalidInput(f"--set {setting}: expected key=value")
    try:
        value = parse_toml(f"value = {text}", f"--set {key.strip()}")["value"]
    except Unreadable:
        value = text  # a bare word is a string
    *tables, last = key.strip().split(".")
    for table in tables:
        content = content.setdefault(table, {})
        if not isinstance(content, dict):
            raise InvalidInput(f"--set {setting}: {table} is not a table")
    content[last] = value
