"""A long session over TLS on this machine that tries what a federation promises: one table of what came out.

    python -m benchmarks.federation_session [--part NAME ...] [--out results/federation/session.jsonl]

Every row is tried with real processes: a server, clients with their keys, and those who lie, knock, flood or
listen (benchmarks/federation_lab.py). It takes some fifteen minutes on two cores. Needs Linux; as root it
also tries what another user of the machine can do. What came out of a part is one more line of OUT; the table
of docs/federation.md is made from the last line of each part (tools/docs_federation.py).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.clients import made_with
from benchmarks.federation_costs import cost, simulated
from benchmarks.federation_insiders import going_on, hostile_replies, names_and_claims
from benchmarks.federation_lab import Row
from benchmarks.federation_outsiders import faults_while_gathering, full_disk, no_gate, outsiders

from ifca.data.jsonl import append_jsonl

PARTS: tuple[Callable[[Path], list[Row]], ...] = (
    faults_while_gathering,
    names_and_claims,
    outsiders,
    hostile_replies,
    going_on,
    full_disk,
    no_gate,
    cost,
    simulated,
)


def main() -> None:
    """Try all parts, or some, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--part", action="append", choices=[part.__name__ for part in PARTS])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = list[Row]()
    for part in PARTS:
        if given.part is None or part.__name__ in given.part:
            begun, now = time.monotonic(), tried(part)
            rows += now
            if given.out is not None:
                given.out.parent.mkdir(parents=True, exist_ok=True)
                seconds, found = round(time.monotonic() - begun), [row._asdict() for row in now]
                line = {"part": part.__name__, **made_with(), "seconds": seconds, "rows": found}
                append_jsonl(given.out, line)
    missed = sum(not row.kept for row in rows)
    print(f"{len(rows)} tried, {missed} not as promised")
    sys.exit(missed > 0)


def tried(part: Callable[[Path], list[Row]]) -> list[Row]:
    """What came out of one part, in a folder of its own; one that ends early is a row that says so."""
    here, begun = Path(tempfile.mkdtemp(prefix=f"ifca-{part.__name__}-")), time.monotonic()
    try:
        rows = [row._replace(outcome=row.outcome.replace(f"{here}/", "")) for row in part(here)]
        shutil.rmtree(here)
    except (AssertionError, OSError) as reason:
        rows = [Row("", part.__name__, f"ended early: {str(reason)[-300:]}; see {here}", False)]
    for row in rows:
        print(f"{'ok' if row.kept else 'NOT AS PROMISED'}: {row.tried}: {row.outcome}", flush=True)
    print(f"{part.__name__}: {time.monotonic() - begun:.0f} s", flush=True)
    return rows


if __name__ == "__main__":
    main()
