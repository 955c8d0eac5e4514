"""How often are all clusters found? Plain IFCA and ifca over many seeds: the table of docs/collapse.md.

python benchmarks/collapse.py OUT TEST [--seeds 0:40] [--algorithms ifca,global] [--workers 1] [--device auto]
python benchmarks/collapse.py OUT summary

Every run is a line of OUT/runs.jsonl and is not repeated; summary.json has a row per test. Nothing here looks
at true clusters or test data before a run has ended.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ifca.core.metrics import cluster_accuracy, distance
from ifca.core.recipe import Recipe
from ifca.data import (
    Federation,
    mixture_of_regressions,
)
from ifca.engines.memory_budget import default_budget
from ifca.engines.precision import Precision
from ifca.models.networks import linear
from ifca.paper import jobs
from ifca.training import Fitted, Job, fit
from ifca.training.job import choose_device

Verdict = Callable[[Fitted], dict[str, Any]]


@dataclass(frozen=True)
class Test:
    """A line of the table: the job of a seed, and when its run has succeeded."""

    what: str
    job: Callable[[int], Job]
    verdict: Verdict
    seeds: int
    algorithms: tuple[str, ...] = ("ifca-plain", "ifca")
    precision: Precision = "float32"  # on CUDA


def pure(fitted: Fitted) -> dict[str, Any]:
    """All clients in the right cluster, every true cluster with a model of its own."""
    true = fitted.job.federation.train.true_cluster
    assert true is not None
    accuracy = cluster_accuracy(true, fitted.labels.numpy())
    live = len(set(fitted.labels.tolist()))
    return {"success": accuracy == 1.0 and live == len(set(true.tolist())), "cluster_accuracy": accuracy}


def accurate(_fitted: Fitted) -> dict[str, Any]:
    """Only the accuracy is of interest; runs are compared with the global model's."""
    return {}


def close(fitted: Fitted) -> dict[str, Any]:
    """The paper's rule: dist <= 0.6 sigma after matching clusters one to one."""
    if fitted.train.loss.isnan().any():
        return {"success": False, "distance": None}
    star = regressions(fitted.job.recipe.seed)[1]
    found = distance(fitted.state.theta, {"fc1.weight": star[:, None, :]})
    return {"success": found <= 0.06, "distance": found}


@lru_cache(1)
def regressions(seed: int) -> tuple[Federation, torch.Tensor]:
    """One trial of panel (b): m = 400, n = 100, d = 1000, k = 4, R = 0.5, sigma = 0.1."""
    return mixture_of_regressions(clients=400, samples=100, clusters=4, separation=0.5, noise=0.1, seed=seed)


def mnist(samples: int, k: int = 4, **options: Any) -> Callable[[int], Job]:
    """The paper's recipe for Rotated MNIST, 35 rounds."""
    return lambda seed: jobs.mnist(samples, seed, k, rounds=35, **options)


def cifar(seed: int) -> Job:
    """The paper's recipe for Rotated CIFAR, 25 rounds."""
    return jobs.cifar(seed, rounds=25)


def synthetic(seed: int) -> Job:
    """One initialisation, one step."""
    recipe = Recipe(k=4, rounds=300, option="gradient", step_size=1.0, initial="bernoulli", seed=seed)
    return Job(regressions(seed)[0], replace(recipe, evaluate_every=0), lambda: linear(1000))


ALL = ("ifca-plain", "ifca", "global")
TESTS = {
    "mnist-1200": Test("Rotated MNIST, k=4, (1200,200), round 35", mnist(200), pure, 40),
    "mnist-2400": Test("Rotated MNIST, k=4, (2400,100), round 35", mnist(100), pure, 40),
    "mnist-4800": Test("Rotated MNIST, k=4, (4800,50), round 35", mnist(50), pure, 40),
    "cifar": Test("Rotated CIFAR, k=2, 10% participation, round 25", cifar, pure, 24, precision="bfloat16"),
    "digits": Test("Rotated Digits, k=4, round 60", jobs.digits, pure, 100),
    "femnist": Test(
        "LEAF FEMNIST, 395-writer subset, weight sharing, k=3", jobs.writers, accurate, 5, ALL, "tf32"
    ),
    "synthetic": Test("synthetic k=4, panel (b), sigma 0.1, R 0.5, one start and step", synthetic, close, 40),
    "k-6": Test("k=6 asked where 4 are true, Rotated MNIST (1200,200)", mnist(200, 6), pure, 20),
    "uneven": Test("populations 70/20/5/5%", mnist(200, shares=(0.7, 0.2, 0.05, 0.05)), pure, 20),
    "none": Test("no clusters at all, k=4 asked", mnist(200, angles=(0, 0, 0, 0)), accurate, 5, ALL),
}


def run(
    name: str, algorithm: str, seed: int, device: str, rounds: int | None = None, workers: int = 1
) -> dict[str, Any]:
    """One run, as a line. workers: so many share the device's memory."""
    began, test = time.perf_counter(), TESTS[name]
    job = test.job(seed)
    on = choose_device(device)
    precision: Precision = test.precision if on.type == "cuda" else "float32"
    recipe = replace(job.recipe, algorithm=algorithm, rounds=rounds or job.recipe.rounds)  # type: ignore[arg-type]
    budget = default_budget(on) // workers
    fitted = fit(replace(job, recipe=recipe, device=on, precision=precision, budget=budget))
    verdict = {} if algorithm == "global" else test.verdict(fitted)
    tested = fitted.test
    events = [{"round": h["round"], **e} for h in fitted.history for e in h.get("events", [])]
    return {
        "test": name,
        "algorithm": algorithm,
        "seed": seed,
        **verdict,
        "live": len(set(fitted.labels.tolist())),
        "sizes": torch.bincount(fitted.labels).tolist(),
        "train_loss": fitted.train_loss,
        "test_accuracy": tested.accuracy(tested.paper_rule) if tested else None,
        "test_accuracy_train_rule": tested.accuracy(tested.train_rule) if tested else None,
        "bytes": int((fitted.state.bytes_down + fitted.state.bytes_up).sum()),
        "turns": sum(h["participants"] for h in fitted.history)
        + sum(e.get("asked_again", 0) for e in events),
        "rounds": len(fitted.history),
        "events": events,
        "seconds": round(time.perf_counter() - began, 2),
        "device": on.type,
    }


def run_one(one: tuple[str, str, int, str, int | None, int]) -> dict[str, Any]:
    """The same, for a pool of processes."""
    return run(*one)


def row(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """A line of the table, from the runs of a test."""
    of = {a: {r["seed"]: r for r in runs if r["algorithm"] == a} for a in ALL}
    plain, mended, whole = of["ifca-plain"], of["ifca"], of["global"]
    both = sorted(plain.keys() & mended.keys())

    def succeeded(found: dict[int, dict[str, Any]]) -> int | None:
        if not found:
            return None
        if name == "femnist":
            rule = "test_accuracy_train_rule"
            return sum(r["live"] >= 2 and r[rule] > whole[s][rule] for s, r in found.items() if s in whole)
        if name == "none":
            rule = "test_accuracy"
            return sum(r[rule] >= whole[s][rule] - 0.003 for s, r in found.items() if s in whole)
        return sum(bool(r["success"]) for r in found.values())

    def ratio(key: str) -> float | None:
        return float(np.mean([mended[s][key] / plain[s][key] for s in both])) if both else None

    def mean(found: dict[int, dict[str, Any]], key: str) -> float | None:
        values = [r[key] for r in found.values() if r[key] is not None]
        return float(np.mean(values)) if values else None

    return {
        "test": TESTS[name].what,
        "name": name,
        "plain": succeeded(plain),
        "plain_runs": len(plain),
        "repaired": succeeded(mended),
        "runs": len(mended),
        "cost_ratio": None if ratio("bytes") is None else max(ratio("bytes") or 0, ratio("turns") or 0),
        "bytes_ratio": ratio("bytes"),
        "turns_ratio": ratio("turns"),
        "seeds": sorted(mended),
        "accuracy": {a: mean(of[a], "test_accuracy") for a in ALL},
        "accuracy_train_rule": {a: mean(of[a], "test_accuracy_train_rule") for a in ALL},
        "live": {a: sorted(r["live"] for r in of[a].values()) for a in ALL},
    }


def summarise(out: Path) -> None:
    """summary.json from runs.jsonl."""
    runs = read(out)
    rows = [row(name, [r for r in runs if r["test"] == name]) for name in TESTS]
    (out / "summary.json").write_text(json.dumps({"rows": [r for r in rows if r["runs"]]}, indent=1) + "\n")
    for r in rows:
        plain, mended = f"{r['plain']}/{r['plain_runs']}", f"{r['repaired']}/{r['runs']}"
        print(f"{r['test']:64} plain {plain}  ifca {mended}  cost {r['cost_ratio']}")


def read(out: Path) -> list[dict[str, Any]]:
    """All runs so far."""
    file = out / "runs.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def main() -> None:
    """Parse, run what is missing, append."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("test", choices=[*TESTS, "summary"])
    parser.add_argument("--seeds", default="")
    parser.add_argument("--algorithms", default="")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, help="fewer than the test's, for a trial")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.test == "summary":
        summarise(given.out)
        return
    test = TESTS[given.test]
    low, high = (int(part) for part in (given.seeds or f"0:{test.seeds}").split(":"))
    algorithms = given.algorithms.split(",") if given.algorithms else list(test.algorithms)
    done = {(r["test"], r["algorithm"], r["seed"]) for r in read(given.out)}
    how = given.device, given.rounds, given.workers
    todo = [(given.test, a, s, *how) for s in range(low, high) for a in algorithms]
    todo = [one for one in todo if one[:3] not in done]
    if given.workers > 1:
        os.environ["OMP_NUM_THREADS"] = "1"
        with get_context("spawn").Pool(given.workers) as pool:
            for line in pool.imap_unordered(run_one, todo):
                keep(given.out, line)
    else:
        for one in todo:
            keep(given.out, run(*one))


def keep(out: Path, line: dict[str, Any]) -> None:
    """Append a run."""
    with (out / "runs.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    short = {key: line.get(key) for key in ("test", "algorithm", "seed", "success", "sizes", "seconds")}
    print(json.dumps({**short, "accuracy": line["test_accuracy"]}), flush=True)


if __name__ == "__main__":
    main()
