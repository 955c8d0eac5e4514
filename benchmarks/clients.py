"""Rounds per second of the loop, the vectorised engine and Flower's simulation, by number of clients.

    python benchmarks/clients.py 10 100 1000

Small work on purpose (20 samples of 50 numbers, a linear model): what is measured is what an engine adds.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from ifca.data.jsonl import read_jsonl
from ifca.federation.simulation import simulate
from ifca.runs.config import read_config
from ifca.runs.run import run

JOB = ["algorithm=ifca-plain", "k=2", "restarts=1", "baselines=[]", "evaluate_every=0", "device=cpu"]
JOB += ["data={name='synthetic', samples=20, dimension=50}", "model={name='linear'}", "step_size=0.01"]


def main() -> None:
    print("| clients | loop | vectorised | Flower simulation |")
    print("|---|---|---|---|")
    for m in [int(word) for word in sys.argv[1:]] or [10, 100, 1000]:
        rates = [rate(m, engine) for engine in ("loop", "vectorised", "flower")]
        print(f"| {m:,} | " + " | ".join(f"{value:.3g}" for value in rates) + " |", flush=True)


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
