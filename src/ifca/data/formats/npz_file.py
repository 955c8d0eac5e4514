"""The arrays of .npz files: every member's header is checked before anything is allocated for it.

numpy.load does the same reading, but takes a header's word for the size of an array, and ends in errors of
zipfile, zlib and struct where bytes are wrong.
"""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ifca.core.errors import Unreadable
from ifca.data.formats.whole_file import MOST, bomb, check_regular, largest

MEMBERS = 64  # arrays in a file, at most
KINDS = "fiubcSUV"  # of arrays that hold no objects; what numbers are is for others to say
PACKING = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ODD = (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, MemoryError, SyntaxError)
WRONG = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError, RecursionError, *_ODD)
"""What zipfile, zlib, numpy and the tokeniser raise where bytes are not what they seem."""


def read_npz(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays by name; no code in the file is run."""
    check_regular(file)
    try:
        with file.open("rb") as raw, zipfile.ZipFile(raw) as content:
            members = content.infolist()
            _check_sizes(file, members)
            _check_whole(raw, content.start_dir, members)
            return {_name(one, members): _array(content, one) for one in members}
    except Unreadable:
        raise
    except WRONG as reason:
        why = " ".join(str(reason).split())[:200] or type(reason).__name__
        raise Unreadable(f"{file}: not a readable .npz file ({why}); it may be cut off") from None


def _check_sizes(file: Path, members: list[zipfile.ZipInfo]) -> None:
    if len(members) > MEMBERS:
        raise Unreadable(f"{file}: holds {len(members)} arrays, at most {MEMBERS} are read")
    unpacked, packed = sum(one.file_size for one in members), file.stat().st_size
    if unpacked > MOST:
        raise Unreadable(f"{file}: holds {unpacked:,} bytes, at most {MOST:,} are read")
    if unpacked > largest(packed):
        raise bomb(file, unpacked)
    for one in members:
        if one.compress_type not in PACKING:
            raise Unreadable(f"{file}: {one.filename!r} is packed in a way that numpy does not use")
        if one.flag_bits & 0x1:
            raise Unreadable(f"{file}: {one.filename!r} is encrypted")


def _check_whole(raw: IO[bytes], start_dir: int, members: list[zipfile.ZipInfo]) -> None:
    """Refuse a file with parts that its list of members does not name: a damaged list loses arrays."""
    members = sorted(members, key=lambda one: one.header_offset)
    ends = [0]
    for one, following in zip(members, [*(one.header_offset for one in members[1:]), start_dir], strict=True):
        raw.seek(one.header_offset)
        name, extra = struct.unpack("<26x2H", raw.read(30))
        end = one.header_offset + 30 + name + extra + one.compress_size
        described = one.flag_bits & 0x8 and following - end in (12, 16, 20, 24)  # written to a stream
        ends.append(following if described else end)
    if ends != [*(one.header_offset for one in members), start_dir]:
        raise ValueError("its list of arrays does not fit what it holds")


def _name(member: zipfile.ZipInfo, members: list[zipfile.ZipInfo]) -> str:
    if sum(one.filename == member.filename for one in members) > 1:
        raise ValueError(f"array {member.filename!r} stands twice")
    return member.filename.removesuffix(".npy")


def _array(content: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    with content.open(member) as raw:
        shape, fortran, kind, start = _header(raw)
        count = math.prod(shape)
        if start + count * kind.itemsize != member.file_size:
            raise ValueError(
                f"{member.filename} has {member.file_size} bytes, its header says {shape} {kind}"
            )
        values = np.empty(count, kind)
        bytes_read = raw.readinto(values.view(np.uint8)) if count else 0  # type: ignore[attr-defined]
        if bytes_read != count * kind.itemsize or raw.read(1):  # at the end the checksum is compared
            raise ValueError(f"{member.filename} was cut off")
    return values.reshape(shape[::-1]).T if fortran else values.reshape(shape)


def _header(raw: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, order, type and the place of the first value."""
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    version = npy.read_magic(raw)
    if version not in read:
        raise ValueError(f"version {version} of .npy is not known")
    shape, fortran, kind = read[version](raw, max_header_size=10_000)
    if kind.hasobject or kind.kind not in KINDS or not kind.itemsize:
        raise ValueError(f"holds values of type {kind}, numbers are needed")
    if len(shape) > 32 or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"has the shape {shape}")
    return shape, fortran, kind, raw.tell()
