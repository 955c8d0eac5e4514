"""One execution of benchmarks/fuzz.py, and what came of it: refused, accepted, or one of six failures."""

from __future__ import annotations

import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from ifca.core.errors import IFCAError, InvalidInput

Attempt = Callable[[random.Random], None]
"""An execution, which the random numbers decide."""
REFUSED, ACCEPTED = "refused", "accepted"
FAILURES = ("traceback", "hang", "wrong", "changed", "memory", "unnamed", "crash")
"""A traceback; longer than the limit; a wrong result without a word; a file changed on failure; more memory
than the limit; a refusal that names nothing; the end of the whole process."""
LONGEST = 5.0  # seconds of processor time that an execution may take
MOST = 3 << 30  # bytes of addresses that an execution may add


class Outcome(NamedTuple):
    """What came of an execution; place: of a failure, where."""

    kind: str
    place: str = ""


class Wrong(Exception):
    """A result that is not what the input says."""


class Changed(Exception):
    """A file that was changed although the command failed."""


class Unnamed(Exception):
    """A refusal that does not say what it is about."""


class _Hang(BaseException):
    pass


def limit_memory() -> None:
    """From now on the process cannot have much more than it has."""
    pages = int(open("/proc/self/statm").read().split()[0])  # noqa: SIM115, PTH123
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MOST, resource.RLIM_INFINITY))


def executed(attempt: Callable[[], None]) -> Outcome:
    """Run it; attempt raises what it finds."""
    signal.signal(signal.SIGPROF, _ring)
    began = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        attempt()
        found = Outcome(ACCEPTED)
    except IFCAError as reason:
        found = _refusal(str(reason))
    except _Hang:
        found = Outcome("hang", _place())
    except MemoryError:
        found = Outcome("memory", _place())
    except (Wrong, Changed, Unnamed) as reason:
        found = Outcome(type(reason).__name__.lower(), str(reason)[:300])
    except Exception as reason:
        found = Outcome("traceback", f"{type(reason).__name__} {_place()}")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if found.kind in (REFUSED, ACCEPTED) and time.process_time() - began > LONGEST:
        return Outcome("hang", "in a library")
    return found


def naming(file: Path, call: Callable[[], Any]) -> Any:
    """Call; a refusal must name the file."""
    try:
        return call()
    except InvalidInput as reason:
        if file.name not in str(reason):
            raise Unnamed(f"{type(reason).__name__}: {reason}") from None
        raise


def _refusal(sentence: str) -> Outcome:
    odd = len(sentence.split()) < 3 or "Traceback" in sentence  # the command line joins its lines
    return Outcome("unnamed", sentence[:200]) if odd else Outcome(REFUSED)


def _ring(_signal: int, _frame: FrameType | None) -> None:
    raise _Hang


def _place() -> str:
    """The innermost line of ifca's, or of the fuzzer's own."""
    frames = traceback.extract_tb(sys.exc_info()[2])
    for room in ("ifca", "benchmarks"):
        if ours := [frame for frame in frames if f"/{room}/" in frame.filename]:
            return f"{ours[-1].filename.rpartition(f'/{room}/')[2]}:{ours[-1].lineno}"
    return "?"
