"""What was made by this user on this machine: signed with a key that only the user can read."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

KEY, SIZE = "run-key", 32


def sign(content: dict[str, Any]) -> str | None:
    """A signature; None where no key can be kept, such as in a home that cannot be written to."""
    with suppress(OSError):
        if not (file := _key_file()).exists():
            _make_key(file)
    key = _key()
    return None if key is None else _signature(key, content)


def is_signed(content: dict[str, Any], signature: object) -> bool:
    """Whether this user signed it."""
    key = _key()
    if key is None or not isinstance(signature, str):
        return False
    return hmac.compare_digest(_signature(key, content).encode(), signature.encode())


def _signature(key: bytes, content: dict[str, Any]) -> str:
    return hmac.new(key, json.dumps(content, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _key_file() -> Path:
    """In the user's state folder, not in the cache, which may be emptied."""
    try:
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    except RuntimeError as reason:  # nobody's home
        raise OSError(str(reason)) from reason
    return state / "ifca" / KEY


def _key() -> bytes | None:
    try:
        key = _key_file().read_bytes()
    except OSError:
        return None
    return key if len(key) == SIZE else None


def _make_key(file: Path) -> None:
    """Whole or not at all, and never over another one: two first runs may begin at once."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = tempfile.mkstemp(dir=file.parent)  # readable by the user only
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(secrets.token_bytes(SIZE))
            out.flush()
            os.fsync(out.fileno())
        with suppress(FileExistsError):
            os.link(name, file)
    finally:
        Path(name).unlink()
