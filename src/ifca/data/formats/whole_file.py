"""The bytes of a file, as far as they can be taken: a real file, not too large, unpacked where it is .gz."""

from __future__ import annotations

import gzip
import io
import stat
import zlib
from pathlib import Path

from ifca.core.errors import Unreadable

MOST = 8 << 30  # bytes of a file that is read whole
PLAIN, RATIO = 1 << 30, 100  # packed data may unpack to so many bytes, or to so many times their size
PACKED = b"\x1f\x8b"  # how a .gz file begins


def read_whole(file: Path, most: int = MOST) -> bytes:
    """The bytes of a regular file; what is missing, is no file or has more than most bytes is refused."""
    try:
        if (size := check_regular(file)) > most:
            raise Unreadable(f"{file}: has {size:,} bytes, at most {most:,} are read")
        return file.read_bytes()
    except (OSError, ValueError) as reason:
        if isinstance(reason, Unreadable):
            raise
        raise Unreadable(f"{file}: cannot be read ({getattr(reason, 'strerror', None) or reason})") from None


def check_regular(file: Path) -> int:
    """The size of a file; what is missing or is no file is refused."""
    try:
        status = file.stat()
        if stat.S_ISDIR(status.st_mode):
            raise Unreadable(f"{file}: is a folder, a file is needed")
        if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for, a device read for ever
            raise Unreadable(f"{file}: is no regular file")
        return status.st_size
    except FileNotFoundError:
        raise Unreadable(f"{file}: no such file") from None
    except (OSError, ValueError) as reason:  # ValueError: a name with a null character
        if isinstance(reason, Unreadable):
            raise
        why = getattr(reason, "strerror", None) or reason
        raise Unreadable(f"{str(file)!r}: cannot be read ({why})") from None


def unpacked(file: Path, content: bytes) -> bytes:
    """The bytes inside, where they are packed by gzip; file: to be named."""
    if content[:2] != PACKED:
        return content
    most = largest(len(content))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            found = packed.read(most + 1)
    except (EOFError, zlib.error, OSError) as reason:
        raise Unreadable(f"{file}: not a whole .gz file ({reason}); cut off or altered") from None
    if len(found) > most:
        raise bomb(file, most)
    return found


def largest(packed: int) -> int:
    """To how many bytes packed ones may unpack."""
    return max(PLAIN, RATIO * packed)


def bomb(file: Path, unpacks_to: int) -> Unreadable:
    """The complaint about a small file that fills the memory."""
    return Unreadable(
        f"{file}: unpacks to {unpacks_to:,} bytes or more, over {RATIO} times its size, as no data do; "
        "if it is right, save it without compression"
    )
