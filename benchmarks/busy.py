"""How much longer does the default job take while other programs keep all cores busy?

python -m benchmarks.busy --out results/bench/busy.json [--repeats 3] [--set rounds=20]

'ifca run' alone and beside one busy loop per core take turns. Its threads wait as ifca lets them (they turn
in circles for microseconds, then sleep); --others adds runs in which they sleep at once, and in which they
turn in circles, which is what torch does by itself. What is measured is added to OUT. An idle machine is
needed, or both are busy.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from ifca.data.files import write_atomically
from ifca.runs.units.execute import PACKAGE, commit_of, versions

BUSY = "while True: pass"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], help="key=value of the config")
    parser.add_argument("--others", action="store_true")
    given = parser.parse_args()
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    found: dict[str, list[float]] = {}
    policies = ("own", *(["passive", "active"] if given.others else []))
    for policy in policies:
        for _ in range(given.repeats):
            for loops in (0, cores):
                spent = run_seconds(loops, policy, given.set)
                found.setdefault(f"{policy}, {loops} busy loops", []).append(spent)
                print(f"{policy}, {loops} busy loops: {spent:.1f} s", flush=True)
    ratios = {
        policy: median(found[f"{policy}, {cores} busy loops"]) / median(found[f"{policy}, 0 busy loops"])
        for policy in policies
    }
    told = {"load_before": load, "cores": cores, "commit": commit_of(PACKAGE), "versions": versions()}
    content = {"seconds": found, "times_as_long": ratios, "settings": given.set, **told}
    before = json.loads(given.out.read_text()) if given.out.exists() else []
    write_atomically(given.out, (json.dumps([*before, content], indent=1) + "\n").encode())
    print(*(f"{policy}: {ratio:.2f} times as long" for policy, ratio in ratios.items()), sep="\n")


def run_seconds(loops: int, policy: str, settings: list[str]) -> float:
    """Of the default job, beside so many busy loops."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(loops)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "ifca", "run", "--quiet", "--out", f"{folder}/run"]
            command += [part for setting in settings for part in ("--set", setting)]
            environment = dict(os.environ) | ({} if policy == "own" else {"OMP_WAIT_POLICY": policy})
            before = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
            return time.perf_counter() - before
    finally:
        for other in others:
            other.kill()
            other.wait()


if __name__ == "__main__":
    main()
