"""Cheap targets of benchmarks/fuzz.py: mutated files of run folders, of reproduce, and messages of Flower."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.fuzz_files import Attempt, naming
from benchmarks.fuzz_mutations import Random, as_json, mutated_bytes, mutated_text, mutated_value
from benchmarks.fuzz_outcomes import Wrong
from safetensors.torch import save

from ifca.core.callbacks import Record, Silent
from ifca.report.live_run import LiveRun
from ifca.report.page import article
from ifca.report.page.build import MISSING
from ifca.runs.config import read_config
from ifca.runs.run import run
from ifca.runs.summary_file import write_summary
from ifca.training.checkpoint import FORMAT, load_state, load_tensors, save_tensors
from ifca.use.opened_run import open_trained

SETTINGS = ["k=2", "rounds=5", "local_steps=1", "device=cpu", "restarts=1", "model.hidden=[2]"]


class Stop(Silent):
    """Interrupts a run after its third round."""

    def round_ended(self, record: Record) -> None:
        """As ctrl-C does."""
        if record["round"] == 2:
            raise KeyboardInterrupt


def write_clients(folder: Path) -> None:
    """Four small clients as .npz files."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(4):
        x = rng.normal(size=(10, 2))
        y, y_test = (x[:, i % 2] > 0).astype(int), (x[:, 0] > 0).astype(int)
        np.savez(folder / f"c{i}.npz", x=x, y=y, x_test=x, y_test=y_test)


def made(folder: Path) -> Path:
    """Clients in files, a whole run, a half one, one with baselines and restarts, one of tables."""
    write_clients(folder / "clients")
    (folder / "tables").mkdir()
    for i in range(4):
        x = np.load(folder / "clients" / f"c{i}.npz")["x"]
        rows = [f"{a:.3f},{'red' if b > 0 else 'blue'},{'yes' if a > 0 else 'no'}" for a, b in x]
        (folder / "tables" / f"c{i}.csv").write_text("\n".join(["size,colour,outcome", *rows]) + "\n")
    arrays = f"data={{name='folder', path='{folder / 'clients'}'}}"
    tables = f"data={{name='folder', path='{folder / 'tables'}', label='outcome', test_share=0.2}}"
    config = read_config(None, [*SETTINGS, arrays, "baselines=[]"])
    run(config, folder / "whole")
    with contextlib.suppress(KeyboardInterrupt):
        run(config, folder / "half", Stop())
    run(
        read_config(None, [*SETTINGS, arrays, "rounds=2", "restarts=2", "baselines=['global', 'local']"]),
        folder / "compared",
    )
    run(
        read_config(None, [*SETTINGS, tables, "rounds=2", "baselines=[]", "personalise=true"]),
        folder / "tabled",
    )
    return folder


def checkpoints(folder: Path) -> Attempt:
    """A checkpoint: its bytes, or its header and tensors with a checksum that fits."""
    file = made(folder) / "half" / "checkpoint.safetensors"
    whole, (tensors, header) = file.read_bytes(), load_tensors(file)
    expected = load_state(file, torch.device("cpu"), lambda _header: None)

    def attempt(rng: Random) -> None:
        sealed = rng.random() < 0.5
        if sealed:
            _sealed(rng, file, tensors, header)
        else:
            file.write_bytes(mutated_bytes(rng, whole))
        found = naming(file, lambda: load_state(file, torch.device("cpu"), lambda _header: None))
        if not sealed and not _same(found, expected):
            raise Wrong("another state than was written")

    return attempt


def _sealed(rng: Random, file: Path, tensors: dict[str, torch.Tensor], header: dict[str, Any]) -> None:
    """Mutated tensors and header in a file whose checksum fits."""
    some = dict(tensors)
    head: Any = dict(header)
    if rng.random() < 0.5:
        head = mutated_value(rng, head)
    else:
        name = rng.choice([*some])
        what = rng.randrange(5)
        if what == 0:
            del some[name]
        elif what == 1:
            some[name] = some[name].reshape(-1)[: rng.choice((0, 1, 3))]
        elif what == 2:
            some[name] = some[name].to(rng.choice((torch.int8, torch.float64, torch.bool, torch.float16)))
        elif what == 3:
            some[rng.choice(("x", "theta.x", "kept.identity", name.upper()))] = some.pop(name)
        else:
            some[name] = torch.full_like(some[name].double(), rng.choice((float("nan"), -1.0, 1e300)))
    if not isinstance(head, dict):
        head = {"header": head}
    try:
        save_tensors(file, some, head)
    except (ValueError, TypeError, RecursionError, UnicodeEncodeError):
        file.write_bytes(save(some, {FORMAT: as_json(head).decode("utf-8", "replace")}))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.numpy().tobytes() == b.numpy().tobytes()
        )
    if hasattr(a, "__dataclass_fields__"):
        return all(_same(getattr(a, name), getattr(b, name)) for name in a.__dataclass_fields__)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[name], b[name]) for name in a)
    return bool(a == b)


def models(folder: Path) -> Attempt:
    """models.safetensors, opened to be used."""
    out = made(folder) / "tabled"
    file = out / "models.safetensors"
    whole, (tensors, header) = file.read_bytes(), load_tensors(file)

    def attempt(rng: Random) -> None:
        sealed = rng.random() < 0.6
        if sealed:
            _sealed(rng, file, tensors, header)
        else:
            file.write_bytes(mutated_bytes(rng, whole))
        if sealed:
            _reseal(out)
        trained = naming(out, lambda: open_trained(out))
        naming(
            out, lambda: (trained.task, trained.preparation, trained.scaling, trained.model(trained.live[0]))
        )
        if not sealed and not all(torch.equal(trained.theta[name], value) for name, value in tensors.items()):
            raise Wrong("other models than were written")

    return attempt


NAMES = ("summary.json", "rounds.jsonl", "clients.csv", "config.toml", "run.json", "differences.json")
"""The files that report and watch read."""


def seen(folder: Path) -> Attempt:
    """Finished and unfinished runs as report and watch read them; half of them with checksums that fit."""
    return _looked_at(folder, shown=False)


def pages(folder: Path) -> Attempt:
    """The same, and the page that is made of them."""
    return _looked_at(folder, shown=True)


def _looked_at(folder: Path, *, shown: bool) -> Attempt:
    home = made(folder / "made")
    runs = [home / name for name in ("whole", "half", "compared", "tabled")]
    files = [file for out in runs for file in sorted(out.rglob("*")) if file.name in NAMES]
    whole = {file: file.read_bytes() for file in files}
    expected = {out: _told(out) for out in runs}

    def attempt(rng: Random) -> None:
        file = rng.choice(files)
        out = next(out for out in runs if out in file.parents)
        sealed = rng.random() < 0.5 and (file.parent / "summary.json").exists()
        try:
            changed = mutated_file(rng, file.name, whole[file])
            file.write_bytes(changed)
            if sealed:
                _reseal(file.parent)
            found = naming(out, lambda: _told(out))
            same = changed == whole[file] or _shown(found) == _shown(expected[out])
            news = out.name == "half" and file.name == "rounds.jsonl"  # a log may have got longer
            if not sealed and not news and not same and not found.damage:
                raise Wrong(f"{file.relative_to(home)}: what is shown changed without a word")
            if shown and MISSING in article([found]) and not found.damage:
                raise Wrong(f"{file.relative_to(home)}: a part of the page is missing: {_missing(found)}")
        finally:
            for one in {file, file.parent / "summary.json"} & whole.keys():
                one.write_bytes(whole[one])

    return attempt


def _told(out: Path) -> Any:
    return LiveRun(out).read()


def _shown(found: Any) -> tuple[Any, ...]:
    summary = {name: value for name, value in found.summary.items() if name != "config"}  # some may change
    return summary, found.rounds, found.clients


def _missing(found: Any) -> str:
    text = article([found])
    start = text.index(MISSING) + len(MISSING)
    return text[start : start + 100]


def _reseal(out: Path) -> None:
    """Checksums that fit the files as they are now; none where the summary cannot hold any."""
    try:
        content = json.loads((out / "summary.json").read_bytes())
        content.pop("checksums", None)
        write_summary(out, content)
    except (ValueError, TypeError, AttributeError, RecursionError, OSError):
        pass  # of an older version, or none


def mutated_file(rng: Random, name: str, content: bytes) -> bytes:
    """A file of a run folder, mutated as its format suggests."""
    if name.endswith(".json") and rng.random() < 0.7:
        return as_json(mutated_value(rng, json.loads(content)))
    if name.endswith(".jsonl") and content and rng.random() < 0.7:
        lines = content.splitlines()
        i = rng.randrange(len(lines))
        lines[i] = as_json(mutated_value(rng, json.loads(lines[i])))
        return b"".join(line + b"\n" for line in lines)
    if name.endswith((".csv", ".toml")) and rng.random() < 0.7:
        return mutated_text(rng, content.decode(), "," if name.endswith(".csv") else " ")
    return mutated_bytes(rng, content)


def reproduced(folder: Path) -> Attempt:
    """runs.jsonl and summary.json of an experiment."""
    from ifca.paper.experiments import MODULES
    from ifca.paper.experiments import experiment as experiment_of
    from ifca.paper.summary import write_summary
    from ifca.report.paper.results_page import results_page

    source = Path("results") / "rotated-mnist"
    for name in ("runs.jsonl", "summary.json"):
        (folder / "rotated-mnist").mkdir(exist_ok=True)
        shutil.copy(source / name, folder / "rotated-mnist" / name)
    experiments = {name: experiment_of(name) for name in MODULES}
    experiment, file = experiments["rotated-mnist"], folder / "rotated-mnist" / "runs.jsonl"
    lines = file.read_bytes().splitlines()[:12]
    table = folder / "rotated-mnist" / "summary.json"
    whole = table.read_bytes()

    def attempt(rng: Random) -> None:
        if rng.random() < 0.6:
            content = b"\n".join(lines) + b"\n"
            file.write_bytes(mutated_file(rng, file.name, content))
            naming(file, lambda: write_summary(experiment, file.parent, quick=False))
        else:
            table.write_bytes(mutated_file(rng, table.name, whole))
            naming(table, lambda: results_page(folder, "", experiments))

    return attempt


def messages(_folder: Path) -> Attempt:
    """Records of a Flower message: layouts, types, bytes."""
    from flwr.app import Array, ArrayRecord, RecordDict

    from ifca.engines.flower.records import CLUSTERED, from_record, pack, to_record, unpack

    theta = {"weight": torch.arange(12.0).reshape(2, 3, 2), "bias": torch.ones(2, 2)}
    ((layout, array),) = to_record(theta).items()

    def attempt(rng: Random) -> None:
        shapes = json.loads(layout)
        name = (
            as_json(mutated_value(rng, shapes)).decode("utf-8", "replace") if rng.random() < 0.6 else layout
        )
        kind = rng.choice((array.dtype, array.dtype, "float64", "float16", "int8", "object", "O", ""))
        stype = rng.choice((array.stype, array.stype, array.stype, "numpy.ndarray", ""))
        data = array.data if rng.random() < 0.6 else mutated_bytes(rng, array.data)
        record = ArrayRecord({name: Array(kind, rng.choice((array.shape, (1,), (-1,), ())), stype, data)})
        if rng.random() < 0.5:
            found = from_record(record)
            if sum(value.numel() * value.element_size() for value in found.values()) != len(data):
                raise Wrong(f"{len(data)} bytes became {found}")
        else:
            unpack(
                RecordDict(
                    {
                        CLUSTERED: record,
                        **(
                            {}
                            if rng.random() < 0.5
                            else {"shared": rng.choice((record, *pack(theta, frozenset()).values()))}
                        ),
                    }
                )
            )

    return attempt


RUNS: dict[str, tuple[float, Callable[[Path], Attempt]]] = {
    "checkpoint": (5e5, checkpoints),
    "models": (5e5, models),
    "run folder": (1e6, seen),
    "page": (2e4, pages),
    "reproduce": (5e5, reproduced),
    "flower": (5e5, messages),
}
