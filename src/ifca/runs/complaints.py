"""What is wrong with a config, in our own words: the key, what it must be, and what was probably meant."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import ValidationError

from ifca.core.method_settings import MethodSettings
from ifca.core.privacy_settings import PrivacySettings

TYPES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text in quotes",
    "tuple_type": "a list in brackets",
    "list_type": "a list in brackets",
    "dataclass_type": "a table of keys",
    "dataclass_exact_type": "a table of keys",
    "dict_type": "a table of keys",
    "model_attributes_type": "a table of keys",
    "finite_number": "a finite number",
}
"""pydantic's name of an error -> what the value must be."""
BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}
HIDDEN = ("python",)  # names of data that no config is written with


def complaints(errors: ValidationError, root: type) -> str:
    """All of them, joined; root: the dataclass that the config was read as."""
    said: dict[str, tuple[list[str], str]] = {}  # place -> what it must be, what it is
    whole: list[str] = []
    for error in errors.errors():
        place, kinds = _place(error["loc"], root)
        if error["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            whole.append(_unknown(place, kinds, root))
        elif error["type"] == "value_error":  # from our own checks, which name the field themselves
            whole.append(str(error["ctx"]["error"]))
        elif error["type"].startswith("missing"):
            whole.append(f"{place} is missing")
        elif error["type"] == "union_tag_not_found":
            whole.append(f"{place}.name is missing; it says which data to train on")
        elif error["type"] == "union_tag_invalid":
            names = [name.strip("' ") for name in error["ctx"]["expected_tags"].split(",")]
            names = [name for name in names if name not in HIDDEN]
            whole.append(f"{place}.name must be {_one_of(names, error['ctx']['tag'])}")
        else:
            wanted, got = _wanted(error)
            said.setdefault(place, ([], got))[0].append(wanted)
    for place, (every, got) in said.items():
        whole.append(f"{place} must be {' or '.join(dict.fromkeys(every))}{got}")
    return "; ".join(dict.fromkeys(whole))


def did_you_mean(word: str, known: list[str]) -> str:
    """A question where a known word is like this one, else nothing."""
    near = [name for name in known if word in name.split("-")] or get_close_matches(word, known, 1)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _wanted(error: Any) -> tuple[str, str]:
    """What a value must be, and what it is."""
    kind, context, value = error["type"], error.get("ctx", {}), error["input"]
    got = "" if isinstance(value, dict) else f", got {json.dumps(value, default=str)}"
    if kind == "literal_error":
        names = [name.strip("'") for name in context["expected"].replace(" or ", ", ").split(", ")]
        return (_one_of(names, value), "") if len(names) > 1 else (f'"{names[0]}"', got)
    if kind in BOUNDS:
        words, name = BOUNDS[kind]
        return f"{words} {context[name]:g}", got
    return TYPES.get(kind, error["msg"].removeprefix("Input should be ")), got


def _one_of(names: list[str], got: Any) -> str:
    return f"one of {', '.join(names)}, got {json.dumps(got, default=str)}{did_you_mean(str(got), names)}"


def _unknown(place: str, kinds: list[type], root: type) -> str:
    """An unknown key; it may be one of a table, or of another one."""
    table, _, key = place.rpartition(".")
    known = [field.name for kind in kinds for field in fields(kind)]
    if near := get_close_matches(key, known, 1):
        return f"unknown key {place}; did you mean {f'{table}.' if table else ''}{near[0]}?"
    for name in () if table else _tables(root):
        if any(key == field.name for kind in _tables(root)[name] for field in fields(kind)):
            return f"unknown key {place}; did you mean {name}.{key}?"
    single = {field.name for part in (MethodSettings, PrivacySettings) for field in fields(part)}  # come last
    return f"unknown key {place} (known: {', '.join(sorted(dict.fromkeys(known), key=single.__contains__))})"


def _place(loc: tuple[int | str, ...], root: type) -> tuple[str, list[type]]:
    """A place as a user writes it, and the dataclasses of the table that it is in.

    pydantic names also which member of a union it has tried; those names are left out.
    """
    words: list[str] = []
    kinds, inner = [root], [root]
    keyed = False  # whether the user chose the names in this table
    for i, part in enumerate(loc):
        last = i == len(loc) - 1
        tagged = [kind for kind in inner if part in get_args(_hints(kind).get("name"))]
        if tagged and words:
            kinds = inner = tagged
            continue
        if isinstance(part, int):
            words[-1:] = [f"{words[-1]}[{part}]"] if words else []
            continue
        hints = [_hints(kind)[part] for kind in inner if part in _hints(kind)]
        if not hints and not last and not keyed:
            continue
        if not hints and words and not inner and not keyed:
            continue
        words.append(part)
        keyed = any(get_origin(hint) in (dict, Mapping) for hint in hints)
        kinds, inner = inner, [kind for hint in hints for kind in _dataclasses(hint)]
    return ".".join(words), kinds


def _tables(root: type) -> dict[str, list[type]]:
    """The tables of a config and their dataclasses."""
    found = {name: _dataclasses(hint) for name, hint in _hints(root).items()}
    return {name: kinds for name, kinds in found.items() if kinds}


def _dataclasses(hint: Any) -> list[type]:
    """The dataclasses that a type is made of."""
    if isinstance(hint, type) and is_dataclass(hint):
        return [hint]
    return [kind for part in get_args(hint) for kind in _dataclasses(part)]


@cache
def _hints(kind: type) -> dict[str, Any]:
    """The types of a dataclass's fields; to work them out takes milliseconds."""
    return get_type_hints(kind)
