"""Cheap targets of benchmarks/fuzz.py: a mutated config or data file, read as training would read it.

What is accepted is compared with a plain reading of the same bytes, or with the file before the mutation
where the format has checksums.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from benchmarks.fuzz_mutations import (
    ODD,
    ODD_NUMBERS,
    ODD_WORDS,
    Random,
    as_json,
    mutated_bytes,
    mutated_text,
    mutated_value,
)
from benchmarks.fuzz_outcomes import Unnamed, Wrong

from ifca.core.errors import InvalidInput
from ifca.data import Client, Federation, read_client
from ifca.data.sources.columns import Columns
from ifca.data.sources.leaf import leaf_clients
from ifca.runs.config import Config, config_dict, read_config, write_config
from ifca.runs.presets import PRESETS

Attempt = Callable[[Random], None]
PLAIN = ("x", "y", "x_test", "y_test", "cluster")


def naming(file: Path, call: Callable[[], Any]) -> Any:
    """Call; a refusal must name the file."""
    try:
        return call()
    except InvalidInput as reason:
        if file.name not in str(reason):
            raise Unnamed(f"{type(reason).__name__}: {reason}") from None
        raise


def configs(folder: Path) -> Attempt:
    """TOML of a config, its values or its text mutated."""
    import tomllib

    seeds = [file.read_text() for file in sorted(PRESETS.glob("*.toml"))]
    seeds += [write_config(Config()), write_config(read_config(None, ["k=3", "model.hidden=[4]"]))]
    parsed, file = [tomllib.loads(text) for text in seeds], folder / "job.toml"
    keys = [*config_dict(Config())]

    def attempt(rng: Random) -> None:
        i = rng.randrange(len(seeds))
        if rng.random() < 0.6:
            value = mutated_value(
                rng, {**parsed[i], **({rng.choice(keys): rng.choice(ODD)} if rng.random() < 0.5 else {})}
            )
            content = as_toml(rng, value)
        else:
            content = mutated_text(rng, seeds[i], rng.choice('=,."'))
        file.write_bytes(content)
        config = naming(file, lambda: read_config(file))
        _same_as_written(config, tomllib.loads(content.decode("utf-8-sig")))
        file.write_bytes(write_config(config).encode())
        if read_config(file) != config:
            raise Wrong(f"a config is not read back as it was written: {config}")

    return attempt


def as_toml(rng: Random, value: Any) -> bytes:
    """TOML of mutated values; what TOML cannot say is left out."""
    try:
        text = tomli_w.dumps(value)
    except (TypeError, ValueError, AttributeError):
        text = "\n".join(f"{json.dumps(key)} = {_inline(one)}" for key, one in value.items())
    deep = rng.choice((50, 500, 5000, 100000))
    return text.replace('"\u2620deep"', "[" * deep + "]" * deep).encode("utf-8", "surrogatepass")


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {_inline(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return '""' if value is None else json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")


def _same_as_written(config: Config, content: dict[str, Any]) -> None:
    """What stands in the file is what the config says."""
    found = config_dict(config)
    for name, value in content.items():
        mine = found.get(name)
        if (
            name not in ("data", "model", "federation", "attack", "code")
            and mine != value
            and mine != _as_float(value)
        ):
            raise Wrong(f"{name} = {value!r} was read as {mine!r}")


def _as_float(value: Any) -> Any:
    """A whole number where any number will do."""
    return float(value) if type(value) is int and abs(value) < 1e300 else value


def settings(_folder: Path) -> Attempt:
    """key=value of --set."""
    keys = [
        *config_dict(Config()),
        "data.name",
        "data.samples",
        "data.angles",
        "model.hidden",
        "model.name",
        "x",
        "",
        "data",
        "k.x",
    ]

    def attempt(rng: Random) -> None:
        given = []
        for _ in range(rng.choice((1, 1, 2, 4))):
            value = rng.choice(ODD)
            text = rng.choice((str(value), json.dumps(value), _inline(value)))
            key = rng.choice(keys)
            key = rng.choice((key, key, key, f"{key}.x", key.upper(), f" {key}", key + rng.choice(ODD_WORDS)))
            given.append(f"{key}={text}" if rng.random() < 0.95 else key + text)
        config = read_config(None, given)
        if read_config(None, given) != config:
            raise Wrong(f"{given} read twice differ")

    return attempt


def arrays(folder: Path) -> Attempt:
    """.npz files: bytes, members, headers and values mutated."""
    made = np.random.default_rng(0)
    plain: dict[str, Any] = {
        "x": made.normal(size=(12, 3)).astype(np.float32),
        "y": np.arange(12) % 2,
        "x_test": made.normal(size=(4, 3)).astype(np.float32),
        "y_test": np.arange(4) % 2,
        "cluster": np.array(1),
    }
    seeds = [(_npz(plain), plain), (_npz(plain, compressed=True), plain)]
    target = {**plain, "y": made.normal(size=12), "y_test": made.normal(size=4)}
    seeds += [(_npz(target), target), (_npz(target, compressed=True), target)]
    file = folder / "client.npz"

    def attempt(rng: Random) -> None:
        content, expected = rng.choice(seeds)
        if rng.random() < 0.6:
            content = mutated_bytes(rng, content)
        else:
            expected = _odd_arrays(rng, expected)
            content = _npz(expected, compressed=rng.random() < 0.5, rng=rng)
        file.write_bytes(content)
        client = naming(file, lambda: read_client(file))
        federation = naming(file, lambda: Federation.from_clients([client]))
        if (federation.classes or 0) > 100_000:
            raise Wrong(f"{federation.classes} classes")
        for name in PLAIN:
            mine, was = getattr(client, name), expected.get(name)
            if (mine is None) != (was is None) or not _equal(mine, was):
                raise Wrong(f"{name} was read as {mine!r:.100}, the file has {was!r:.100}")

    return attempt


def _equal(mine: Any, was: Any) -> bool:
    """The same values; what holds one number may have any shape."""
    mine, was = np.asarray(mine), np.asarray(was)
    return (
        was.size == mine.size
        and np.array_equal(mine.ravel(), was.ravel().astype(mine.dtype))
        and (mine.shape == was.shape or mine.size == 1)
    )


def _odd_arrays(rng: Random, given: dict[str, Any]) -> dict[str, Any]:
    changed = dict(given)
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice([*changed, "z", "x"])
        array = np.asarray(changed.get(name, changed.get("x", np.zeros(3))))
        kinds = (
            "f2",
            "f4",
            "f8",
            "f16",
            "i1",
            "i8",
            "u8",
            "?",
            "c8",
            "U3",
            "M8[D]",
            ">f4",
            ">i8",
            "O",
            "V3",
            "S2",
        )
        what = rng.randrange(7)
        with np.errstate(all="ignore"):
            if what == 0 and name in changed:
                del changed[name]
            elif what == 1:
                changed[name] = _cast(array, rng.choice(kinds))
            elif what == 2 and array.size:
                odd = np.array(array)
                value = rng.choice(ODD_NUMBERS)
                with contextlib.suppress(OverflowError, ValueError, TypeError):
                    odd.flat[rng.randrange(odd.size)] = value
                changed[name] = odd
            elif what == 3:
                changed[name] = array.reshape(rng.choice(((-1,), (1, -1), (-1, 1), (1, 1, -1))))
            elif what == 4:
                changed[name] = (
                    array[: rng.choice((0, 1, -1))] if array.ndim else np.zeros(rng.choice((0, 2)))
                )
            elif what == 5:
                changed[name] = np.asfortranarray(
                    np.repeat(array, rng.choice((0, 1, 3)), axis=-1) if array.ndim else array
                )
            else:
                changed[name] = (
                    np.array(rng.choice(ODD), dtype=object) if rng.random() < 0.3 else array[..., None]
                )
    return changed


def _cast(array: Any, kind: str) -> Any:
    try:
        return array.astype(kind)
    except (TypeError, ValueError):
        return array


def _npz(content: dict[str, Any], *, compressed: bool = False, rng: Random | None = None) -> bytes:
    """The arrays as np.savez writes them; rng: or with other headers, members and kinds of compression."""
    out = io.BytesIO()
    kinds = (
        (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
        if rng and rng.random() < 0.2
        else (zipfile.ZIP_DEFLATED,)
    )
    with zipfile.ZipFile(
        out, "w", (rng.choice(kinds) if rng else kinds[0]) if compressed else zipfile.ZIP_STORED
    ) as file:
        for name, array in content.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asarray(array), allow_pickle=True)
            raw = member.getvalue()
            if rng is not None and rng.random() < 0.1:
                shape = rng.choice(
                    (
                        "(4000000000, 3)",
                        "(2, 3)",
                        "(-1,)",
                        "()",
                        "(10**3,)",
                        "(1" + ",1" * 70 + ")",
                        "[3]",
                        "((1,),)",
                    )
                )
                raw = _with_shape(raw, shape)
            if rng is not None and rng.random() < 0.0005:
                raw += b"\x00" * (50 << 20)  # a zip bomb
            file.writestr(f"{name}.npy", raw)
            if rng is not None and rng.random() < 0.02:
                file.writestr(rng.choice(("x", "../x.npy", "x.npy/", "note.txt")), b"1")
    return out.getvalue()


def _with_shape(raw: bytes, shape: str) -> bytes:
    start = raw.index(b"'shape': ") + 9
    end = raw.index(b"), ", start) + 1 if b"), " in raw[start:200] else start + 1
    header = raw[10:start] + shape.encode() + raw[end : raw.index(b"\n", end) + 1]
    return raw[:8] + len(header).to_bytes(2, "little") + header + raw[raw.index(b"\n", end) + 1 :]


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


FILES: dict[str, tuple[float, Callable[[Path], Attempt]]] = {
    "config": (1e6, configs),
    "--set": (1e6, settings),
    "npz": (2e6, arrays),
    "csv": (1e6, tables),
    "parquet": (5e5, parquets),
    "leaf": (1e6, leaf),
    "ids": (5e5, ids),
}
