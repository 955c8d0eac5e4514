"""Every shape of users' data, timed as 'ifca bench' does, a process each; then the table of the docs.

python -m benchmarks.users_shapes --out results/bench/users-cpu.json [--scale 0.1] [--rounds 5]
                                  [--shape uneven,float] [--device cuda] [--contestants ifca-plain,ifca]

What is measured replaces the rows of the same shapes in OUT; docs/performance.md is written anew from it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from ifca.bench.users import bench_shape
from ifca.data.files import write_atomically
from ifca.training.devices import choose_device

SHAPES = (
    *("paper", "uneven", "float", "table", "partial", "deep", "tiny", "minibatch", "momentum", "local"),
    "images",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/bench/users.json"))
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shape", default=",".join(SHAPES))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--contestants", help="only these: loop, ifca-plain, ifca, local")
    parser.add_argument("--one", action="store_true", help="measure one shape in this process and print it")
    given = parser.parse_args()
    if given.one:
        some = tuple(given.contestants.split(",")) if given.contestants else ()
        how = {"scale": given.scale, "rounds": given.rounds, "contestants": some}
        print(json.dumps(bench_shape(given.shape, device=choose_device(given.device), **how)))
        return
    if os.getloadavg()[0] > 0.5:
        print(f"the load is {os.getloadavg()[0]:.1f}: ratios will be noisier than on an idle machine")
    for shape in given.shape.split(","):
        rows = timed(shape, given.scale, given.rounds, given.device, given.contestants)
        before = json.loads(given.out.read_text()) if given.out.exists() else []
        kept = [row for row in before if row["shape"] != shape]
        write_atomically(given.out, (json.dumps(in_order([*kept, *rows]), indent=1) + "\n").encode())
        for row in rows:
            ratio = row["ratio_to_loop"]
            times = "" if ratio is None else f", {ratio:.2f} times the loop's speed"
            print(
                f"{shape}, {row['contestant']}: {row['seconds_per_round']:.4f} s a round{times}", flush=True
            )


def timed(
    shape: str, scale: float, rounds: int, device: str, contestants: str | None
) -> list[dict[str, object]]:
    """The rows of one shape, measured by a process of its own so that its peak memory is its own."""
    command = [sys.executable, "-m", "benchmarks.users_shapes", "--one", "--shape", shape]
    command += ["--scale", str(scale), "--rounds", str(rounds), "--device", device]
    command += ["--contestants", contestants] if contestants else []
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    rows: list[dict[str, object]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def in_order(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda row: SHAPES.index(str(row["shape"])))


if __name__ == "__main__":
    main()
