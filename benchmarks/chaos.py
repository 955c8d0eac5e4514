"""A soak: a real federation over TLS trains for many rounds while it is disturbed in every way we know.

    python -m benchmarks.chaos --out results/chaos/soak.json [--rounds 2000] [--every 20] [--seed 0]

Three clients, a server and its SuperLink, each a process of its own. At random rounds one of the faults of
benchmarks/chaos_faults.py happens; whatever ended is started again with the documented commands ('ifca
federate client', 'ifca resume'). A round needs all three replies and is repeated until it has them, so the
models must be those of the loop engine to the last bit. In the first half the server is not killed, so that
its memory is seen over many rounds. Needs Linux; only root can fill a disk of its own. 2,000 rounds
take about two hours on two idle cores; the table of the docs says how many were done.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import federation_lab
from benchmarks.chaos_faults import FAULTS, Soaked
from benchmarks.chaos_memory import Memory

from ifca.data.files import write_atomically
from ifca.runs.config import read_config
from ifca.runs.run import run
from ifca.runs.units.execute import PACKAGE, commit_of, versions
from ifca.training.checkpoint import load_tensors

CLIENTS = 3
SAYS = {
    "k = 2": 'k = 2\ninitial = "dealt"',
    "clients = 2": f"clients = {CLIENTS}",
    "min_clients = 1": f"min_clients = {CLIENTS}\nattempts = 1000\ngather_timeout = 600.0",
    "round_timeout = 60.0": "round_timeout = 30.0",
}
"""What the job says in place of the lab's: both models are used, and a round needs everybody."""


def main() -> None:
    """Soak, compare with the loop, print and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--every", type=int, default=20, help="rounds between two faults, on average")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # to be ended is to end what was started
    here = Path(tempfile.mkdtemp(prefix="ifca-soak-"))
    os.environ["SLOW_DISK"] = str(here / "slow")
    hurried = Path(__file__).with_name("hurried")
    path = os.pathsep.join([str(hurried), os.environ.get("PYTHONPATH", "")])
    federation_lab.ENVIRONMENT |= {"PYTHONPATH": path, "SLOW_DISK": str(here / "slow")}
    lab = federation_lab.Lab(here, CLIENTS, job(given.rounds))
    own_disk = make_disk(here / "run")
    soaked = Soaked(lab, Memory())
    try:
        found = soak(soaked, given.rounds, given.every, random.Random(given.seed), own_disk=own_disk)
        found["equal_to_the_loop"] = equal_to_the_loop(here)
    finally:
        lab.end()
        if own_disk:
            subprocess.run(["umount", str(here / "run")], check=False)
    shutil.rmtree(here)
    found |= {"seed": given.seed, "commit": commit_of(PACKAGE), "versions": versions()}
    print(json.dumps(found))
    if given.out is not None:
        write_atomically(given.out, (json.dumps(found, indent=1) + "\n").encode())


def job(rounds: int) -> str:
    """The lab's job for so many rounds, each of all clients."""
    text = federation_lab.JOB.replace("rounds = 3", f"rounds = {rounds}")
    for old, new in SAYS.items():
        assert f"\n{old}\n" in text
        text = text.replace(f"\n{old}\n", f"\n{new}\n")
    return text


def make_disk(folder: Path) -> bool:
    """A disk of 64 MB for the run, which can be filled; whether there is one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


def soak(soaked: Soaked, rounds: int, every: int, rng: random.Random, *, own_disk: bool) -> dict[str, Any]:
    """Train to the end; what happened on the way."""
    begun, happened = time.monotonic(), Counter[str]()
    soaked.start()
    due, shown = 5, -100
    while not soaked.ended():
        soaked.mend()
        done = soaked.rounds()
        soaked.memory.look(soaked, done)
        if done >= shown + 20:
            print(f"{time.monotonic() - begun:.0f} s: {done} rounds, {dict(happened)}", flush=True)
            shown = done
            if done % 100 < 20:
                print(json.dumps(soaked.memory.growth()), flush=True)
        if done >= due:
            kinds = [
                name
                for name, fault in FAULTS.items()
                if (own_disk or name != "full disk") and (done > rounds / 2 or not fault.ends_server)
            ]
            name = rng.choice(kinds)
            FAULTS[name].happens(soaked, rng)
            happened[name] += 1
            due = done + 1 + int(rng.expovariate(1 / every))
        time.sleep(0.2)
    return {
        "rounds": soaked.rounds(),
        "clients": CLIENTS,
        "seconds": round(time.monotonic() - begun),
        "faults": dict(sorted(happened.items())),
        "servers": soaked.servers,
        "memory": soaked.memory.growth(),
    }


def equal_to_the_loop(here: Path) -> bool:
    """Whether an undisturbed run in the loop gives the same models to the last bit."""
    loop = here / "loop"
    run(read_config(here / "job.toml", ['engine="loop"']), loop)
    mine, _ = load_tensors(here / "run" / "models.safetensors")
    expected, _ = load_tensors(loop / "models.safetensors")
    return set(mine) == set(expected) and all(bool((mine[name] == expected[name]).all()) for name in mine)


if __name__ == "__main__":
    main()
