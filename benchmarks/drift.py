"""Clients whose law changes and returns: walk through streams step by step, with warm starts.

python -m benchmarks.drift [--out results/drift] [--stream sine-together] [--method continue,global]
                           [--seeds 0:5] [--time-limit MINUTES]

A line of OUT/runs.jsonl for every stream, method and seed, never repeated: the same command goes on where it
stopped. Of them OUT/summary.json and OUT/table.md are made; docs/drift.md shows the table. Streams: 10
clients, 10 steps, 200 samples to train and 100 to test on at each step (ifca.data.drift_streams). Accuracy is
that of the test samples of each step after training on the step, each client with the model that its training
samples choose. Seeds from 1000 on are for trying and are in no table.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.feddrift import FedDrift

from ifca import IFCA
from ifca.core.errors import InvalidInput
from ifca.core.reidentification import reidentified
from ifca.data import Federation
from ifca.data.drift_streams import CONCEPTS, PLANS, change_points, drift_stream
from ifca.data.files import write_atomically
from ifca.runs.units.choice import chosen_names, chosen_seeds
from ifca.runs.units.execute import execute
from ifca.runs.units.lines import read_lines
from ifca.runs.units.time_left import main_of_units
from ifca.runs.units.unit import Line, Unit

NAME = "drift"
SEEDS = range(5)  # the table's
TRIED = 1000  # seeds from here on are in no table
STREAMS = {f"{name}-{plan}": (name, plan) for name in CONCEPTS for plan in PLANS}
SETTINGS: dict[str, Any] = {"rounds": 30, "step_size": 0.5, "model": "mlp", "evaluate_every": 0}
METHODS = {
    "continue": "ours: IFCA at the first step, then continue_fit",
    "ifca-plain": "plain IFCA with as many models as the stream has concepts, begun from the last step's",
    "feddrift-0.06": "FedDrift's recipe, delta 0.06",
    "feddrift-0.1": "FedDrift's recipe, delta 0.1",
    "global": "one model for all, begun from the last step's",
}
"""Name -> what it is, as the table says it."""


def walk(method: str, stream: list[Federation], concepts: int, seed: int) -> tuple[np.ndarray, list[float]]:
    """The model of each client at each step [steps, clients], and the accuracy of each step."""
    models, accuracy, front, drifting = [], list[float](), None, None
    settings = {**SETTINGS, "seed": seed}
    if method.startswith("feddrift"):
        classes = stream[0].classes
        drifting = FedDrift(float(method.partition("-")[2]), {**settings, "classes": classes})
    for federation in stream:
        if drifting is not None:
            chosen, right = drifting.step(federation)
            models.append(np.array(chosen))
            accuracy.append(right)
            continue
        front = _next(method, federation, front, concepts, settings)
        test = front.fitted_.test
        assert test is not None
        models.append(front.labels_)
        accuracy.append(float(test.accuracy(test.train_rule) or 0.0))
    return np.array(models), accuracy


def _next(
    method: str, federation: Federation, before: IFCA | None, concepts: int, settings: dict[str, Any]
) -> IFCA:
    """The models after one more step."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that fewer clusters than k have clients is what is measured
        if method == "continue":
            return IFCA(**settings).fit(federation) if before is None else before.continue_fit(federation)
        k = 1 if method == "global" else concepts
        if before is None:
            return IFCA(k, algorithm=method, **settings).fit(federation)
        if (scaling := before._use.scaling) is not None:
            federation = federation.with_features_as(scaling)
        return IFCA(k, algorithm=method, warm_start=before.models_, **settings).fit(federation)


def run(unit: Unit, _device: torch.device) -> Line:
    """Walk through one stream."""
    name, plan = STREAMS[unit.setting]
    stream = drift_stream(name, plan, seed=unit.seed)
    models, accuracy = walk(unit.algorithm, stream, CONCEPTS[name], unit.seed)
    found = reidentified(change_points(plan, CONCEPTS[name]), models)
    return {
        "accuracy": float(np.mean(accuracy)),
        "accuracies": [round(one, 6) for one in accuracy],
        "right": found.right,
        "returns": found.returns,
        "models": models.tolist(),
    }


def units(streams: tuple[str, ...], methods: tuple[str, ...], seeds: range | None) -> list[Unit]:
    """Seed by seed, so that a part is a fair part."""
    for kind, names, allowed in (("stream", streams, STREAMS), ("method", methods, METHODS)):
        for name in names:
            if name not in allowed:
                raise InvalidInput(f"unknown {kind} {name} (known: {', '.join(allowed)})")
    return [
        Unit(NAME, stream, method, seed)
        for seed in (SEEDS if seeds is None else seeds)
        for stream in streams or STREAMS
        for method in methods or METHODS
    ]


def summary(lines: list[Line]) -> dict[str, Any]:
    """A row for each stream and method, over the seeds that all methods of the stream have."""
    rows = []
    for stream in STREAMS:
        by: dict[str, dict[int, Line]] = {}
        for line in lines:
            if line["setting"] == stream and "accuracy" in line:
                by.setdefault(line["algorithm"], {})[line["seed"]] = line
        seeds = sorted(set.intersection(*(set(of) for of in by.values()))) if by else []
        for method in (name for name in METHODS if name in by and seeds):
            mine = [by[method][seed] for seed in seeds]
            accuracy = 100 * np.array([line["accuracy"] for line in mine])
            returns = sum(line["returns"] for line in mine)
            rows.append(
                {
                    "stream": stream,
                    "method": method,
                    "accuracy": round(float(accuracy.mean()), 3),
                    "accuracy_std": round(float(accuracy.std(ddof=1)), 3) if len(seeds) > 1 else None,
                    "reidentified": round(sum(line["right"] for line in mine) / returns, 4),
                    "returns": returns,
                    "by_step": np.mean([line["accuracies"] for line in mine], 0).round(4).tolist(),
                    "seeds": seeds,
                }
            )
    return {
        "rows": rows,
        "methods": METHODS,
        "commit": sorted({str(line.get("commit")) for line in lines}),
        "versions": [dict(each) for each in sorted({tuple(line["versions"].items()) for line in lines})],
        "device": sorted({line["device"] for line in lines}),
        "seconds": round(sum(line["seconds"] for line in lines), 1),
        "command": "python -m benchmarks.drift",
    }


def table(found: dict[str, Any]) -> str:
    """Accuracy and re-identification, a row per stream."""
    by = {(row["stream"], row["method"]): row for row in found["rows"]}
    methods = [name for name in METHODS if any(row["method"] == name for row in found["rows"])]
    head = f"| stream | {' | '.join(methods)} |\n|---|{'---|' * len(methods)}\n"
    lines = []
    for stream in STREAMS:
        cells = [by.get((stream, method)) for method in methods]
        if any(cells):
            told = [
                f"{row['accuracy']:.1f} / {100 * row['reidentified']:.0f}" if row else "" for row in cells
            ]
            lines.append(f"| {stream} | {' | '.join(told)} |\n")
    return head + "".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results", NAME))
    for name in ("--stream", "--method", "--seeds"):
        parser.add_argument(name)
    parser.add_argument("--time-limit", type=float, help="minutes after which no unit is begun")
    given = parser.parse_args()

    def say(line: Line, done: int, of: int) -> None:
        score = (
            f"{100 * line['accuracy']:.1f} {line['right']}/{line['returns']}"
            if "right" in line
            else "diverged"
        )
        print(done, of, line["setting"], line["algorithm"], line["seed"], score, line["seconds"], flush=True)

    with main_of_units():
        todo = units(chosen_names(given.stream), chosen_names(given.method), chosen_seeds(given.seeds))
        seconds = None if given.time_limit is None else 60 * given.time_limit
        execute(todo, given.out, run, device="cpu", on_line=say, seconds=seconds)
        lines = [line for line in read_lines(given.out) if line["seed"] < TRIED]
        if lines:
            found = summary(lines)
            text = json.dumps(found, indent=1, allow_nan=False) + "\n"
            write_atomically(given.out / "summary.json", text.encode())
            write_atomically(given.out / "table.md", table(found).encode())


if __name__ == "__main__":
    main()
