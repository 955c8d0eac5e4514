"""Tables of benchmarks/fuzz.py: .csv, .parquet and LEAF's JSON, and names of clients.

What is accepted is compared with a plain reading of the same bytes.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.fuzz_mutations import (
    ODD_WORDS,
    Random,
    as_json,
    mutated_bytes,
    mutated_text,
    mutated_value,
)
from benchmarks.fuzz_outcomes import Attempt, Wrong, naming

from ifca.data import Client, Federation, read_client
from ifca.data.sources.columns import Columns
from ifca.data.sources.leaf import leaf_clients


def tables(folder: Path) -> Attempt:
    """.csv files: lines, cells, encodings, bytes."""
    made = np.random.default_rng(0)
    rows = [",".join([*(f"{v:.3f}" for v in made.normal(size=3)), str(i % 2)]) for i in range(10)]
    words = [
        f"{i},{'red' if i % 3 else 'blue'},{'' if i == 4 else i * 1.5},{'yes' if i % 2 else 'no'}"
        for i in range(10)
    ]
    seeds = ["\n".join(["a,b,c,y", *rows]) + "\n", "\n".join(["n,colour,size,y", *words]) + "\n"]
    file = folder / "client.csv"

    def attempt(rng: Random) -> None:
        content = mutated_text(rng, rng.choice(seeds))
        file.write_bytes(content)
        client = naming(file, lambda: read_client(file, Columns()))
        naming(file, lambda: Federation.from_clients([client]))
        _as_csv_says(client, content)

    return attempt


def _as_csv_says(client: Client, content: bytes) -> None:
    """A table of plain numbers is read as Python's csv module and float read it."""
    try:
        lines = [row for row in csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")) if row]
        table = np.array([[float(cell) for cell in row] for row in lines[1:]])
    except (ValueError, UnicodeDecodeError, csv.Error):
        return
    names = [name.strip() for name in lines[0]]
    assert client.features is not None
    if not all(name in names for name in client.features) or "y" not in names:
        return
    expected = table[:, [names.index(name) for name in client.features]]
    if np.isfinite(table).all() and not np.array_equal(np.asarray(client.x), expected):
        raise Wrong(f"x is {np.asarray(client.x)!r:.100}, the file says {expected!r:.100}")


def parquets(folder: Path) -> Attempt:
    """.parquet files: bytes, and columns of every kind."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = np.random.default_rng(0)
    plain = {"a": made.normal(size=8), "b": np.arange(8), "y": np.arange(8) % 2}
    out = io.BytesIO()
    pq.write_table(pa.table(plain), out)
    seed, file = out.getvalue(), folder / "client.parquet"
    odd: list[Callable[[], Any]] = [
        lambda: pa.array([[1.0, 2.0]] * 8),
        lambda: pa.array([{"p": 1}] * 8),
        lambda: pa.array([b"x"] * 8),
        lambda: pa.array([None] * 8),
        lambda: pa.array([1.5, None] * 4),
        lambda: pa.array([True, None] * 4),
        lambda: pa.array(["u", "v"] * 4).dictionary_encode(),
        lambda: pa.array([1, 2] * 4, pa.decimal128(5, 2)),
        lambda: pa.array([1, 2] * 4, pa.timestamp("s")),
        lambda: pa.array([1, 2] * 4, pa.duration("s")),
        lambda: pa.array([1, 2] * 4, pa.time32("s")),
        lambda: pa.array([float("nan"), 1.0] * 4),
        lambda: pa.array([1e300, float("inf")] * 4),
        lambda: pa.array([2**63, 1] * 4, pa.uint64()),
        lambda: pa.array([np.float16(1.0)] * 8, pa.float16()),
        lambda: pa.array([[1, 2]] * 8, pa.list_(pa.int64(), 2)),
        lambda: pa.array([1700000000, 0] * 4),
        lambda: pa.array([("k", 1)] * 0 + [[("k", 1)]] * 8, pa.map_(pa.string(), pa.int64())),
    ]

    def attempt(rng: Random) -> None:
        if rng.random() < 0.7:
            file.write_bytes(mutated_bytes(rng, seed))
            naming(file, lambda: Federation.from_clients([read_client(file)]))
            return
        columns: dict[str, Any] = {**plain, rng.choice(("a", "b", "y", "z")): rng.choice(odd)()}
        pq.write_table(pa.table(columns), file)
        client = naming(file, lambda: read_client(file))
        naming(file, lambda: Federation.from_clients([client]))
        if np.asarray(client.y).ndim > 1 or np.asarray(client.x).shape[0] > 8:
            raise Wrong(f"one label column was read as {np.asarray(client.y).shape}")

    return attempt


def leaf(folder: Path) -> Attempt:
    """LEAF's JSON, in a train and a test part."""
    users = [f"u{i}" for i in range(3)]
    data = {
        u: {"x": [[0.5 * i, 1.0, j] for j in range(4)], "y": [j % 2 for j in range(4)]}
        for i, u in enumerate(users)
    }
    seed = {"users": users, "num_samples": [4] * 3, "user_data": data}
    for part in ("train", "test"):
        (folder / part).mkdir()
        (folder / part / "all.json").write_bytes(as_json(seed))
    whole = as_json(seed)

    def attempt(rng: Random) -> None:
        part = rng.choice(("train", "train", "test"))
        value: Any = mutated_value(rng, seed)
        content = as_json(value) if rng.random() < 0.7 else mutated_bytes(rng, whole)
        (folder / part / "all.json").write_bytes(content)
        (folder / ("test" if part == "train" else "train") / "all.json").write_bytes(whole)
        clients = leaf_clients(folder, Columns())
        Federation.from_clients(clients)
        try:
            said = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
        except ValueError:
            raise Wrong("what is no JSON was read") from None
        if len(clients) != len(set(said["users"]) | set(users)) or len(said["users"]) != len(
            set(said["users"])
        ):
            raise Wrong(f"{len(clients)} clients of {said['users']} and {users}")
        for client in clients if part == "train" else ():
            mine = said["user_data"][client.id]
            if not np.array_equal(np.asarray(client.x), np.asarray(mine["x"], np.float32)):
                raise Wrong(f"{client.id}: {mine['x']!r:.100} was read as {client.x!r:.100}")

    return attempt


def ids(_folder: Path) -> Attempt:
    """Names of clients."""

    def attempt(rng: Random) -> None:
        names = [
            rng.choice(
                (f"c{i}", rng.choice(ODD_WORDS), str(rng.choice(ODD_WORDS)) + chr(rng.randrange(0x10FFFF)))
            )
            for i in range(3)
        ]
        clients = [Client(np.ones((3, 2)), np.arange(3) % 2, id=name) for name in names]
        federation = Federation.from_clients(clients)
        told = federation.train.ids
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([name] for name in told)
        again = [row[0] for row in csv.reader(io.StringIO(out.getvalue().encode().decode(), newline=""))]
        if len(set(told)) != 3 or again != list(told):
            raise Wrong(f"{names!r} became {told!r}")

    return attempt
