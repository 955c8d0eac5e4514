"""Files written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(file: Path, content: bytes) -> None:
    """The file is the old one or the new one, whatever happens in between."""
    temporary = file.with_name(f".{file.name}.tmp")
    try:
        with temporary.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(file)
    except OSError as failure:
        temporary.unlink(missing_ok=True)
        raise OSError(failure.errno, failure.strerror, str(file)) from failure
