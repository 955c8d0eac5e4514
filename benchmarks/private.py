"""What does differential privacy cost plain IFCA and one model for all? Rotated MNIST, k = 4.

python -m benchmarks.private --tune [--out results/private] [--device cuda] [--setting NAMES] [--method NAMES]
python -m benchmarks.private        [--seeds 0:5] [--workers 2] [--time-limit MINUTES]

First --tune: for each row of the table the clip and the number of rounds with the lowest training loss on
seed 1000, a line each in OUT/tune/runs.jsonl. Then the table's seeds, a line each in OUT/runs.jsonl, with
what was chosen. No line is made twice: the same command goes on where it stopped. Of the lines
OUT/summary.json and OUT/table.md are made; docs/security.md shows the table. torch and numpy are enough: the
noise multipliers are written down here, and a test compares them with the accountant.

All clients take part in every round; adjacency is one client more or less, delta 1e-5. Public starts come
from PUBLIC images that no client has.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.private_table import write_table

from ifca.core.errors import InvalidInput
from ifca.core.random import shuffled
from ifca.core.recipe import Recipe
from ifca.core.types import Params
from ifca.data import Federation, read_mnist
from ifca.data.public.rotated import Images, rotated
from ifca.models import mlp
from ifca.runs.units.choice import chosen_names, chosen_seeds
from ifca.runs.units.execute import execute
from ifca.runs.units.lines import read_lines
from ifca.runs.units.time_left import main_of_units
from ifca.runs.units.unit import Line, Unit
from ifca.training import Fitted, Job, fit

NAME, SEEDS, TUNED_ON, DELTA = "private", range(5), 1000, 1e-5
ANGLES = (0, 90, 180, 270)
PUBLIC = 100  # images, of each rotation the same ones
SAMPLES = {1200: 199, 4800: 49}  # clients -> images of each
EPSILONS = (1, 4, 8, None)  # None: without privacy
CLIPS, ROUNDS, PLAIN_ROUNDS = (0.1, 0.3, 1.0), (15, 60), 60
MULTIPLIERS = {
    (1, 15): 14.4584,
    (1, 60): 28.9168,
    (4, 15): 4.1894,
    (4, 60): 8.3788,
    (8, 15): 2.3249,
    (8, 60): 4.6497,
}
"""(epsilon, rounds) -> noise multiplier."""
METHODS = {
    "global": ("global", False),
    "ifca-plain": ("ifca-plain", False),
    "global-public": ("global", True),
    "ifca-plain-public": ("ifca-plain", True),
    "public": ("ifca-plain", True),  # not trained
}
"""Row -> algorithm, whether it begins with models of the public images."""
SETTINGS = {f"m={m} epsilon={epsilon or 'none'}": (m, epsilon) for m in SAMPLES for epsilon in EPSILONS}


def job_of(setting: str, method: str, seed: int, clip: float, rounds: int) -> Job:
    """One training, on the CPU."""
    (m, epsilon), (algorithm, public) = SETTINGS[setting], METHODS[method]
    noise = None if epsilon is None else MULTIPLIERS[epsilon, rounds]
    recipe = Recipe(algorithm=algorithm, k=4, rounds=rounds, evaluate_every=0, seed=seed)
    if noise is not None:
        recipe = replace(recipe, dp_noise=noise, dp_clip=clip, dp_delta=DELTA)
    start = public_models(seed, 1 if algorithm == "global" else 4) if public else None
    return Job(federation(m, seed), recipe, model, warm_start=start)


def model() -> torch.nn.Module:
    """The paper's."""
    return mlp(784, 10, (200,))


@lru_cache(1)
def images(seed: int) -> tuple[Images, Images, Images]:
    """Public images, the clients', and those for tests."""
    train, test = read_mnist()
    order = shuffled(seed, "public", np.array([len(train.x)]), np.array([0]))[0]
    public, private = order[:PUBLIC], order[PUBLIC:]
    return Images(train.x[public], train.y[public]), Images(train.x[private], train.y[private]), test


@lru_cache(1)
def federation(m: int, seed: int) -> Federation:
    """So many clients; their true clusters are for the count at the end, not for every round."""
    _, train, test = images(seed)
    return rotated(train, test, samples=SAMPLES[m], angles=ANGLES, clients=m, seed=seed)


@lru_cache(2)
def public_models(seed: int, k: int) -> Params:
    """Models of the public images, 200 steps each: one of each rotation, or (k = 1) one of all."""
    public, _, _ = images(seed)
    found = []
    for angles in ((angle,) for angle in ANGLES) if k > 1 else (ANGLES,):
        alone = rotated(public, public, samples=PUBLIC, angles=angles, seed=seed)
        recipe = Recipe(algorithm="global", rounds=20, seed=seed + angles[0], evaluate_every=0)
        found.append(fit(Job(replace(alone, test=None), recipe, model)).state.theta)
    return {name: torch.cat([one[name] for one in found]) for name in found[0]}


def trained(setting: str, method: str, seed: int, clip: float, rounds: int, device: torch.device) -> Line:
    """Train and measure."""
    job = job_of(setting, method, seed, clip, rounds)
    true = job.federation.train.true_cluster
    data = replace(job.federation, train=replace(job.federation.train, true_cluster=None))
    still: dict[str, Any] = {"rounds": 1, "step_size": 1e-9} if method == "public" else {}
    fitted = fit(replace(job, federation=data, recipe=replace(job.recipe, **still), device=device))
    assert fitted.test is not None
    assert true is not None
    last = fitted.history[-1]
    return {
        "accuracy": fitted.test.accuracy(fitted.test.paper_rule),
        "train_loss": fitted.train_loss,
        "right": right(true, fitted),
        "live": len(set(fitted.labels.tolist())),
        "moved": last.get("moved"),
        "clipped": last.get("clipped"),
        "epsilon": SETTINGS[setting][1],
        "noise": job.recipe.dp_noise,
        "clip": clip,
        "rounds": rounds,
    }


def right(true: np.ndarray[Any, Any], fitted: Fitted) -> float:
    """The share of clients in the right cluster, whichever number it has."""
    labels, names = fitted.labels.numpy(), sorted(set(true.tolist()))
    numbers = itertools.permutations(range(len(names)))
    place = np.searchsorted(names, true)
    return max(float((np.array(one)[place] == labels).mean()) for one in numbers)


def run_tune(unit: Unit, device: torch.device) -> Line:
    """A line of the search; the algorithm's name has clip and rounds."""
    method, clip, rounds = unit.algorithm.split("; ")
    return trained(unit.setting, method, unit.seed, float(clip), int(rounds), device)


class Chosen:
    """Runs a row of the table with what the search has found best; a class, so that it can be sent on."""

    def __init__(self, lines: list[Line]) -> None:
        self.best: dict[tuple[str, str], Line] = {}
        for line in lines:
            place = line["setting"], line["algorithm"].split("; ")[0]
            if line.get("train_loss", np.inf) < self.best.get(place, {"train_loss": np.inf})["train_loss"]:
                self.best[place] = line

    def constants(self, setting: str, method: str) -> tuple[float, int]:
        """Clip and rounds."""
        if SETTINGS[setting][1] is None or method == "public":
            return 1.0, PLAIN_ROUNDS
        if (setting, method) not in self.best:
            raise InvalidInput(
                f"{setting}, {method}: has no constants yet; give the same command --tune first"
            )
        line = self.best[setting, method]
        return line["clip"], line["rounds"]

    def __call__(self, unit: Unit, device: torch.device) -> Line:
        """A line of the table."""
        constants = self.constants(unit.setting, unit.algorithm)
        return trained(unit.setting, unit.algorithm, unit.seed, *constants, device)


def units(settings: tuple[str, ...], methods: tuple[str, ...], seeds: range, tune: bool) -> list[Unit]:
    """Seed by seed, so that a part is a fair part."""
    for kind, names, known in (("setting", settings, SETTINGS), ("method", methods, METHODS)):
        for name in names:
            if name not in known:
                raise InvalidInput(f"unknown {kind} {name} (known: {'; '.join(known)})")
    rows = [
        (setting, method)
        for setting in settings or SETTINGS
        for method in methods or METHODS
        if method != "public" or SETTINGS[setting][1] is None
    ]
    if not tune:
        return [Unit(NAME, *row, seed) for seed in seeds for row in rows]
    return [
        Unit(f"{NAME}-tune", setting, f"{method}; {clip:g}; {rounds}", TUNED_ON)
        for clip in CLIPS
        for rounds in ROUNDS
        for setting, method in rows
        if SETTINGS[setting][1] is not None
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results", NAME))
    for name in ("--setting", "--method", "--seeds"):
        parser.add_argument(name, help="with commas between them; seeds: first:end")
    parser.add_argument("--tune", action="store_true", help="find the constants")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--time-limit", type=float, help="minutes after which no unit is begun")
    given = parser.parse_args()

    def say(line: Line, done: int, of: int) -> None:
        score = f"{100 * line['accuracy']:.1f} {line['train_loss']:.3f}" if "accuracy" in line else "diverged"
        print(done, of, line["setting"], line["algorithm"], line["seed"], score, line["seconds"], flush=True)

    with main_of_units():
        names = chosen_names(given.setting), chosen_names(given.method)
        todo = units(*names, chosen_seeds(given.seeds) or SEEDS, given.tune)
        seconds = None if given.time_limit is None else 60 * given.time_limit
        searched, where = given.out / "tune", {"device": given.device, "workers": given.workers}
        if given.tune:
            execute(todo, searched, run_tune, **where, on_line=say, seconds=seconds)
        else:
            chosen = Chosen(read_lines(searched))
            for unit in todo:  # refuse before anything is trained
                chosen.constants(unit.setting, unit.algorithm)
            execute(todo, given.out, chosen, **where, on_line=say, seconds=seconds)
            write_table(given.out, SETTINGS, METHODS, SEEDS)


if __name__ == "__main__":
    main()
