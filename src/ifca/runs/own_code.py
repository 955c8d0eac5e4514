"""Functions of the user's own, named in a config as module:function."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from ifca.core.errors import InvalidInput


def own_function(field: str, name: str, code: str | None) -> Any:
    """What module:function names; looked for where the command is given, then in the folder code.

    field: the config's key, for complaints.
    """
    module, _, function = name.partition(":")
    for folder in (code, os.getcwd()):  # noqa: PTH109
        if folder is not None and folder not in sys.path:
            sys.path.insert(0, folder)
    try:
        found = importlib.import_module(module)
        return getattr(found, function)
    except Exception as reason:
        what = f"{type(reason).__name__}: {reason}"
        raise InvalidInput(f"{field}: cannot import {name} ({what})") from reason
