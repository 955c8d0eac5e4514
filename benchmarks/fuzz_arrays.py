"""Arrays of benchmarks/fuzz.py: .npz files whose bytes, members, headers and values are mutated."""

from __future__ import annotations

import contextlib
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.fuzz_mutations import ODD, ODD_NUMBERS, Random, mutated_bytes
from benchmarks.fuzz_outcomes import Attempt, Wrong, naming

from ifca.data import Federation, read_client

PLAIN = ("x", "y", "x_test", "y_test", "cluster")


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
        return (array.real if np.iscomplexobj(array) else array).astype(kind)
    except (OverflowError, RuntimeError, TypeError, ValueError):
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
