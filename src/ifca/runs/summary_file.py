"""summary.json: written last, with the run's id and checksums of the results beside it, and read by all."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ifca.core.errors import RunFolderWarning, Unreadable
from ifca.data.files import write_atomically
from ifca.data.formats.json_file import json_text, read_json
from ifca.runs.clients_table import CLIENTS
from ifca.runs.comparison_schema import SeedsSummary
from ifca.runs.differences import DIFFERENCES
from ifca.runs.run_code import RUN, run_id
from ifca.runs.run_folder import ROUNDS
from ifca.runs.summary_schema import Summary as SummarySchema

SUMMARY, MODELS = "summary.json", "models.safetensors"
RESULTS = (MODELS, CLIENTS, ROUNDS, DIFFERENCES)
"""The files that a summary vouches for."""
CHECKSUMS = "checksums"
Summary = dict[str, Any]


def write_summary(out: Path, summary: Summary) -> None:
    """Write the summary of a run, or of a comparison over seeds, which is complete with it."""
    summary = json.loads(json_text(summary))  # as it will be read
    files = {name: _sha256(out / name) for name in RESULTS if (out / name).is_file()}
    known = {"run": run_id(out), "files": files}
    content = {**summary, CHECKSUMS: {**known, "summary": _own(summary, known)}}
    write_atomically(out / SUMMARY, json.dumps(content, indent=2).encode())


def read_summary(out: Path) -> Summary:
    """The summary of a finished run, which is the one that was written for it."""
    return _read(out, SummarySchema)[0]


def read_seeds_summary(out: Path) -> Summary:
    """The summary of a comparison over seeds."""
    return _read(out, SeedsSummary)[0]


def finished_summary(out: Path, used: Iterable[str] = RESULTS) -> Summary | None:
    """The summary of a run that is complete; None where it is not.

    used: the files that are going to be relied on. One that is lost or not what the run wrote is refused.
    """
    if not (out / SUMMARY).exists():
        return None
    summary, known = _read(out, SummarySchema)
    for sentence in _damaged(out, known, used):
        raise Unreadable(sentence)
    if not all((out / name).exists() for name in (CLIENTS, MODELS, ROUNDS)):
        return None
    if known is None:
        told = "was made by an older version of ifca, whose results have no checksums"
        warnings.warn(f"{out}: {told}: damage may go unnoticed", RunFolderWarning, stacklevel=3)
    return summary


def damaged_results(out: Path) -> list[str]:
    """A sentence for each file of a finished run that is not what its summary vouches for."""
    return _damaged(out, _read(out, SummarySchema)[1], RESULTS)


def _damaged(out: Path, known: Summary | None, used: Iterable[str]) -> list[str]:
    found, files = [], (known or {}).get("files", {})
    for name in used:
        if name in files and not (out / name).is_file():
            found.append(f"{out / name}: is missing, but the run had written it")
        elif name in files and _sha256(out / name) != files[name]:
            found.append(f"{out / name}: is not what the run wrote; it was altered or damaged")
    return found


def _read(out: Path, kind: type) -> tuple[Summary, Summary | None]:
    """The summary, and what it vouches for; None: an older version wrote it."""
    summary: Summary = read_json(out / SUMMARY, kind)
    known: Summary | None = summary.pop(CHECKSUMS, None)
    if known is not None:
        if known.pop("summary") != _own(summary, known):
            raise Unreadable(f"{out / SUMMARY}: does not fit its checksum; it was altered or damaged")
        if known["run"] != run_id(out):
            told = f"was written by another run than this folder's (that of {RUN})"
            raise Unreadable(f"{out / SUMMARY}: {told}")
    places = summary.get("places", ())
    if len(set(places)) < len(places) or any(place >= summary["k"] for place in places):
        raise Unreadable(f"{out / SUMMARY}: places must be different numbers below k, got {places[:9]}")
    return summary, known


def _own(summary: Summary, known: Summary) -> str:
    """The SHA-256 of a summary's content and of what it vouches for."""
    return hashlib.sha256(json.dumps([summary, known], sort_keys=True).encode()).hexdigest()


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while part := content.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()
