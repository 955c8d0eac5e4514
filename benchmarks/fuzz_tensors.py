"""Tensors of benchmarks/fuzz.py: checkpoints, models, and messages of Flower."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from benchmarks.fuzz_made import made, reseal
from benchmarks.fuzz_mutations import Random, as_json, mutated_bytes, mutated_value
from benchmarks.fuzz_outcomes import Attempt, Wrong, naming
from safetensors.torch import save

from ifca.training.checkpoint import FORMAT, load_state, load_tensors, save_tensors
from ifca.use.opened_run import open_trained


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
            reseal(out)
        trained = naming(out, lambda: open_trained(out))
        naming(
            out, lambda: (trained.task, trained.preparation, trained.scaling, trained.model(trained.live[0]))
        )
        if not sealed and not all(torch.equal(trained.theta[name], value) for name, value in tensors.items()):
            raise Wrong("other models than were written")

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
