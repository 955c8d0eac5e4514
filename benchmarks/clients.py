"""Rounds per second of the loop, the vectorised engine and a simulated federation, by number of clients.

    python -m benchmarks.clients 10 200 1000

Small work on purpose (20 samples of 50 numbers, a linear model): what is measured is what an engine adds.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import tempfile
from pathlib import Path

import ifca
from ifca.data.jsonl import read_jsonl
from ifca.federation.simulation import simulate
from ifca.runs.config import read_config
from ifca.runs.run import run
from ifca.runs.units.execute import commit_of, versions

JOB = ["algorithm=ifca-plain", "k=2", "restarts=1", "baselines=[]", "evaluate_every=0", "device=cpu"]
JOB += ["data={name='synthetic', samples=20, dimension=50}", "model={name='linear'}", "step_size=0.01"]
ENGINES = ("loop", "vectorised", "flower")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("clients", type=int, nargs="*", default=[10, 200, 1000])
    given = parser.parse_args()
    print("| clients | loop | vectorised | Flower simulation |\n|---|---|---|---|")
    for m in given.clients:
        rates = [rate(m, engine) for engine in ENGINES]
        print(f"| {m:,} | " + " | ".join(f"{value:.3g}" for value in rates) + " |", flush=True)


def made_with() -> dict[str, object]:
    """What decides the numbers: code, versions, the machine."""
    return {
        "commit": commit_of(Path(ifca.__file__).parent),
        "versions": versions() | {"flwr": importlib.metadata.version("flwr")},
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


def rate(m: int, engine: str) -> float:
    """Rounds per second, by the best round."""
    settings = [*JOB, f"data.clients={m}", f"rounds={4 if engine == 'flower' else 20}"]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        if engine == "flower":
            simulate(read_config(None, settings), out)
        else:
            run(read_config(None, [*settings, f"engine={engine}"]), out)
        rounds = read_jsonl(out / "rounds.jsonl")
    return 1 / max(1e-4, min(record["seconds"] for record in rounds[1:-1]))


if __name__ == "__main__":
    main()
