"""Mutations for benchmarks/fuzz.py: of bytes, of lines and cells, of JSON values. A seed decides each."""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections.abc import Callable
from typing import Any

Random = random.Random

DEEP = "\u2620deep"  # written as lists in lists, 5,000 of them
ODD_NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 7, 255, 256, 2**31 - 1, 2**31, -(2**31), 2**53, 2**63 - 1, 2**63, -(2**63), 2**64),
    *(10**18, 10**30, 10**400, 1700000000, 0.5, -0.5, 1e-300, 1e38, 3.5e38, 1e300, -1e300, 1e308),
    *(float("nan"), float("inf"), float("-inf"), 1.0000000001, 5e-324, -0.0),
)
ODD_WORDS = (
    *("", " ", "x", "\x00", "\n", "a\nb", "\t", "'", '"', "\\", "../../x", "/dev/zero", "/", ".", "..", "~"),
    *(
        "nan",
        "inf",
        "-inf",
        "none",
        "null",
        "true",
        "NaN",
        "1e999",
        "0x10",
        "1_000",
        "١٢",
        "½",
        "1,5",
        "1.234,5",
    ),
    *("é", "日本", "\u202e", "\ufeff", "<script>alert(1)</script>", "{{7*7}}", "%s", "$(id)", "os:system"),
    *(
        "auto",
        "ifca",
        "global",
        "local",
        "folder",
        "function",
        "python",
        "cpu",
        "cuda",
        "model:make",
        ":",
        "a:",
    ),
    *("x" * 5000, "a.b.c", "-", "--help", "con", "\ud800", "2020-01-01", "12:30", "=1+1", "@x", "1e5", "0"),
)
ODD: tuple[Any, ...] = (
    *(None, True, False, [], {}, [[]], [None], {"": None}, {"x": 1}, [0], [1, 2], ["a"], [[1, 2], [3]], DEEP),
    *ODD_NUMBERS,
    *ODD_WORDS,
)


def mutated_bytes(rng: Random, content: bytes) -> bytes:
    """One to four changes of a file's bytes."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        content = rng.choice(BYTES)(rng, content)
    return content


def _flip(rng: Random, content: bytes) -> bytes:
    if not content:
        return b"\x00"
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(rng: Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _chunk(rng: Random, content: bytes) -> tuple[int, int]:
    start = rng.randrange(len(content) + 1)
    return start, min(len(content), start + rng.choice((1, 2, 4, 8, 64, 512)))


def _without(rng: Random, content: bytes) -> bytes:
    start, end = _chunk(rng, content)
    return content[:start] + content[end:]


def _twice(rng: Random, content: bytes) -> bytes:
    start, end = _chunk(rng, content)
    return content[:end] + content[start:end] * rng.choice((1, 1, 2, 100)) + content[end:]


def _over(rng: Random, content: bytes) -> bytes:
    start, end = _chunk(rng, content)
    fill = rng.choice((b"\x00", b"\xff", b" ", b"9", b"[", b"\n", bytes([rng.randrange(256)])))
    return content[:start] + fill * (end - start) + content[end:]


def _insert(rng: Random, content: bytes) -> bytes:
    start, _ = _chunk(rng, content)
    some = rng.choice((b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"{", b"}", b"[" * 3000, b'"', b"-1", b"1e999"))
    return content[:start] + some + content[start:]


def _number(rng: Random, content: bytes) -> bytes:
    """A 4- or 8-byte number in the file becomes another: lengths and offsets of binary formats."""
    size = rng.choice((2, 4, 8))
    start = rng.randrange(max(1, len(content) - size))
    value = rng.choice((0, 1, 2, 255, 2**15, 2**31 - 1, 2**32 - 1, 2**62, len(content), rng.randrange(2**16)))
    return content[:start] + (value % (1 << 8 * size)).to_bytes(size, "little") + content[start + size :]


def _packed(rng: Random, content: bytes) -> bytes:
    return gzip.compress(content, rng.choice((1, 9)), mtime=0)


def _empty(rng: Random, content: bytes) -> bytes:
    return (b"", b"\x00" * len(content), rng.randbytes(64))[rng.randrange(3)]


BYTES: tuple[Callable[[Random, bytes], bytes], ...] = (
    *(_flip, _flip, _flip, _flip, _cut, _cut, _without, _twice, _over, _over, _insert, _number, _number),
    *(_packed, _empty),
)


def as_json(value: Any) -> bytes:
    """JSON of mutated values, also of those that json does not write."""
    text = json.dumps(value).replace(json.dumps(DEEP), "[" * 5000 + "]" * 5000)
    return text.encode("utf-8", "surrogatepass")


def mutated_value(rng: Random, value: Any, times: tuple[int, ...] = (1, 1, 1, 2, 3)) -> Any:
    """JSON-like values with one to three places changed: deleted, renamed, replaced, repeated."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice(times)):
        places = list(_places(value))
        if not places:
            return copy.deepcopy(rng.choice(ODD))
        inside, key = rng.choice(places)
        _change(rng, inside, key)
    return value


def _places(value: Any) -> Any:
    stack = [value]
    while stack:
        inside = stack.pop()
        keys: Any = inside if isinstance(inside, dict) else range(len(inside))
        for key in list(keys):
            yield inside, key
            if isinstance(inside[key], (dict, list)) and inside[key]:
                stack.append(inside[key])


def _change(rng: Random, inside: Any, key: Any) -> None:
    what = rng.randrange(10)
    if what == 0:
        del inside[key]
    elif what == 1 and isinstance(inside, dict):
        inside[rng.choice((f"{key}x", str(key).upper(), "", "x", *map(str, inside)))] = inside.pop(key)
    elif what == 1:
        inside.extend(copy.deepcopy(inside[key]) for _ in range(rng.choice((1, 2, 300))))
    elif what == 2 and isinstance(inside, list):
        other = rng.randrange(len(inside))
        inside[key], inside[other] = inside[other], inside[key]
    elif what == 3 and isinstance(inside[key], (int, float)) and not isinstance(inside[key], bool):
        inside[key] = rng.choice(
            (
                inside[key] + 1,
                -inside[key],
                inside[key] * 1.0 if abs(inside[key]) < 1e9 else 0.5,
                str(inside[key]),
            )
        )
    elif what == 4:
        inside[key] = [inside[key]]
    else:
        inside[key] = copy.deepcopy(rng.choice(ODD))


def mutated_text(rng: Random, text: str, separator: str = ",") -> bytes:
    """Lines and cells changed, then perhaps the encoding, then perhaps bytes."""
    lines = text.splitlines()
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        lines = _lines(rng, lines, separator)
    end = rng.choice(("\n", "\n", "\n", "\r\n", "\r", "\n\n"))
    changed = end.join(lines) + rng.choice((end, end, ""))
    coding = rng.choice(("utf-8",) * 8 + ("utf-8-sig", "utf-16", "latin-1", "utf-16-le"))
    content = changed.encode(coding, "replace")
    return mutated_bytes(rng, content) if rng.random() < 0.15 else content


def _lines(rng: Random, lines: list[str], separator: str) -> list[str]:
    what, lines = rng.randrange(9), list(lines) or [""]
    i = rng.randrange(len(lines))
    cells = lines[i].split(separator)
    j = rng.randrange(len(cells))
    if what == 0:
        del lines[i]
    elif what == 1:
        lines.insert(i, lines[rng.randrange(len(lines))])
    elif what == 2:
        del cells[j]
    elif what == 3:
        cells.insert(j, cells[rng.randrange(len(cells))])
    elif what == 4:
        separator = rng.choice(";\t|, ")
    elif what == 5:
        cells[j] = '"' * rng.choice((1, 2, 3)) + cells[j] + '"' * rng.choice((0, 1, 2))
    else:
        cells[j] = str(rng.choice(ODD_WORDS if rng.random() < 0.6 else ODD_NUMBERS))
    if what > 1:
        lines[i] = separator.join(cells)
    return lines
