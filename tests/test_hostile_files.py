"""Files that are damaged, huge or not what they seem: one sentence, quickly, and nothing is lost."""

from __future__ import annotations

import io
import json
import shutil
import sys
import tracemalloc
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ifca.cli.main import main
from ifca.core.errors import InvalidInput, Unreadable
from ifca.data import Federation, read_client
from ifca.data.formats.json_file import parse_json
from ifca.data.formats.npz_file import read_npz
from ifca.data.formats.toml_file import DEEPEST, parse_toml
from ifca.data.formats.whole_file import read_whole
from ifca.data.sources.columns import Columns
from ifca.data.sources.leaf import leaf_clients
from ifca.runs.config import read_config
from ifca.runs.inspect_data import inspect_path
from ifca.runs.run import run

ARRAYS: dict[str, Any] = {"x": np.arange(12.0).reshape(6, 2), "y": np.arange(6) % 2, "cluster": np.array(1)}


def npz(file: Path, *, compressed: bool = False, **arrays: Any) -> bytes:
    (np.savez_compressed if compressed else np.savez)(file, **arrays)
    return file.read_bytes()


def test_a_flipped_bit_in_a_compressed_file_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "c.npz"
    whole, refused = npz(file, compressed=True, **ARRAYS), 0
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        file.write_bytes(flipped)
        try:
            found = read_npz(file)
        except Unreadable as reason:
            assert str(file) in str(reason)  # noqa: PT017
            refused += 1
        else:
            assert found.keys() == ARRAYS.keys()
            assert all(np.array_equal(found[name], ARRAYS[name]) for name in ARRAYS)
    assert refused > 0.5 * len(whole)


def test_arrays_are_read_as_numpy_reads_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    kinds = ("f2", "f4", "f8", ">f4", "i1", "u1", ">i8", "?", "c8", "U3")
    arrays: dict[str, NDArray[Any]] = {
        f"k{i}": rng.integers(0, 2, (3, 4)).astype(kind) for i, kind in enumerate(kinds)
    }
    arrays |= {
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 3)),
        "fortran": np.asfortranarray(rng.random((3, 5))),
    }
    for compressed in (False, True):
        npz(tmp_path / "a.npz", compressed=compressed, **arrays)
        found = read_npz(tmp_path / "a.npz")
        with np.load(tmp_path / "a.npz") as expected:
            assert found.keys() == set(expected.files)
            for name, value in found.items():
                assert (value.dtype, value.shape) == (expected[name].dtype, expected[name].shape)
                assert np.array_equal(value, expected[name])
                assert value.flags.writeable


def member(shape: str, kind: str = "<f8") -> bytes:
    """A .npy file with no values, whatever its header says."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (member("(4000000000, 3)"), "its header says (4000000000, 3)"),
        (member("(-1,)"), "has the shape (-1,)"),
        (member("(2,)", "|O"), "numbers are needed"),
        (b"\x93NUMPY\x01\x00\xff\xff", "not a readable .npz file"),
        (b"", "not a readable .npz file"),
    ],
)
def test_a_header_is_not_believed(content: bytes, reason: str, tmp_path: Path) -> None:
    """Nothing is allocated for what is not there."""
    with zipfile.ZipFile(tmp_path / "c.npz", "w") as file:
        file.writestr("x.npy", content)
    tracemalloc.start()
    with pytest.raises(Unreadable) as told:
        read_npz(tmp_path / "c.npz")
    assert reason in str(told.value)
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ifca.data.formats.whole_file.PLAIN", 1 << 20)  # of 1 GiB, which would take seconds
    with zipfile.ZipFile(tmp_path / "c.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x.npy", member("(1000000,)") + bytes(8_000_000))
    tracemalloc.start()
    with pytest.raises(Unreadable, match=r"unpacks to 8,000,0\d\d bytes or more, over 100 times its size"):
        read_npz(tmp_path / "c.npz")
    packer = zlib.compressobj(9, wbits=31)
    (tmp_path / "c.csv.gz").write_bytes(packer.compress(b"a,y\n" + b"1,0\n" * 2_000_000) + packer.flush())
    with pytest.raises(InvalidInput, match="over 100 times its size"):
        read_client(tmp_path / "c.csv.gz")
    assert tracemalloc.get_traced_memory()[1] < 30 << 20
    tracemalloc.stop()


def test_a_list_of_members_that_lost_one_is_refused(tmp_path: Path) -> None:
    """zipfile reads the list at a zip's end, and takes its word for what is there."""
    whole = npz(tmp_path / "c.npz", **ARRAYS)
    last = whole.rindex(b"PK\x01\x02")  # the entry of cluster.npy
    size = int.from_bytes(whole[-10:-6], "little") - (len(whole) - 22 - last)
    shorter = whole[:last] + whole[len(whole) - 22 : -10] + size.to_bytes(4, "little") + whole[-6:]
    (tmp_path / "c.npz").write_bytes(shorter)
    with np.load(tmp_path / "c.npz") as content:
        assert content.files == ["x", "y"]
    with pytest.raises(Unreadable, match="its list of arrays does not fit what it holds"):
        read_npz(tmp_path / "c.npz")


def test_a_label_of_billions_takes_no_memory(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    npz(tmp_path / "data" / "a.npz", x=np.ones((3, 2)), y=np.array([0, 1, 1700000000]))
    npz(tmp_path / "data" / "b.npz", x=np.ones((3, 2)), y=np.array([0, 1, 1]))
    tracemalloc.start()
    report = inspect_path(tmp_path / "data", {})
    assert tracemalloc.get_traced_memory()[1] < 50 << 20
    tracemalloc.stop()
    assert (
        "a.npz: y has the label 1700000000 in row 2; if that is right, give classes" in report["problems"][0]
    )
    assert (report["trainable"], report["clients"], report["classes"]) == (False, 1, 2)


def leaf(folder: Path, part: str, names: list[str], **change: Any) -> None:
    (folder / part).mkdir(parents=True, exist_ok=True)
    data = {user: {"x": [[float(i), 1.0] for i in range(4)], "y": [0, 1, 0, 1]} for user in names}
    content = {"users": names, "num_samples": [4] * len(names), "user_data": data, **change}
    (folder / part / "all.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"users": ["a", "a"]}, "users lists 'a' twice"),
        ({"users": ["a", "b"], "num_samples": [4]}, "2 names, num_samples 1 numbers"),
        ({"users": ["a"], "num_samples": [4]}, "users does not list the user 'b'"),
        ({"users": ["a", "b", ""], "num_samples": [4] * 3}, "user_data has no user ''"),
        ({"num_samples": [4, 5]}, "user 'b' has 4 samples and 4 labels instead of 5"),
        ({"num_samples": [4, "4"]}, r"num_samples.1 must be a valid integer, got '4'"),
        ({"user_data": {"a": 1, "b": 2}}, "user_data.a must be"),
    ],
)
def test_leaf_files_that_contradict_themselves(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    leaf(tmp_path, "train", ["a", "b"], **change)
    with pytest.raises(InvalidInput, match=reason):
        leaf_clients(tmp_path, Columns())


def test_words_are_no_numbers_in_leafs_files(tmp_path: Path) -> None:
    rows = {"a": {"x": [["1.5", "2"]] * 4, "y": [0, 1, 0, 1]}}
    leaf(tmp_path, "train", ["a"], user_data=rows)
    with pytest.raises(InvalidInput, match="user 'a': x must be numbers"):
        leaf_clients(tmp_path, Columns())


def test_users_that_leaf_only_tests_are_clients_too(tmp_path: Path) -> None:
    """LEAF's split by user has other users to test on."""
    leaf(tmp_path, "train", ["a", "b"])
    leaf(tmp_path, "test", ["b", "c"])
    federation = Federation.from_clients(leaf_clients(tmp_path, Columns()))
    assert federation.train.ids == ("a", "b")
    assert federation.test is not None
    assert federation.test.ids == ("b", "c")
    assert federation.test_owner.tolist() == [1, -1]
    found = inspect_path(tmp_path, {})
    assert (found["trainable"], found["clients"], found["test_clients"]) == (True, 2, 2)


def test_parquet_columns_of_lists_are_refused(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    odd = {
        "list": pa.array([[1.0, 2.0]] * 4),
        "struct": pa.array([{"p": 1}] * 4),
        "binary": pa.array([b"x"] * 4),
    }
    for name, column in odd.items():
        for place in ("a", "y"):
            table = {"a": [1.0, 2.0, 3.0, 4.0], "b": [1, 2, 3, 4], "y": [0, 1, 0, 1]} | {place: column}
            pq.write_table(pa.table(table), tmp_path / "c.parquet")
            with pytest.raises(InvalidInput, match=f"c.parquet: column {place} holds values of type {name}"):
                read_client(tmp_path / "c.parquet")


def test_a_folders_name_is_no_column_of_a_parquet_file(tmp_path: Path) -> None:
    """pyarrow takes folders like site=3 for a column."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "site=3").mkdir()
    pq.write_table(pa.table({"a": [1.0, 2.0], "y": [0, 1]}), tmp_path / "site=3" / "c.parquet")
    assert read_client(tmp_path / "site=3" / "c.parquet").features == ("a",)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    for name, reason in (
        ("pipe", "is no regular file"),
        ("", "is a folder"),
        ("none", "no such file"),
        ("a\0b", "cannot"),
    ):
        with pytest.raises(Unreadable, match=reason):
            read_whole(tmp_path / name)


def test_depth_is_limited() -> None:
    for depth in (DEEPEST + 1, 900, 100_000):
        with pytest.raises(Unreadable, match=r"job\.toml: .*nested"):
            parse_toml("a = " + "[" * depth + "]" * depth, "job.toml")
        with pytest.raises(Unreadable, match=r"a\.json: .*recursion limit"):
            parse_json("[" * 100_000 + "]" * 100_000, "a.json", list)
    with pytest.raises(InvalidInput, match="k must be"):
        read_config(None, ["k=" + "[" * 100_000])
    with pytest.raises(Unreadable, match="not valid TOML"):
        parse_toml("a = 1" + "0" * 5000, "job.toml")
    with pytest.raises(Unreadable, match="not valid JSON"):
        parse_json("NaN", "a.json", float)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clients in tables, and a run on them."""
    here = tmp_path_factory.mktemp("here")
    (here / "data").mkdir()
    rng = np.random.default_rng(0)
    for i in range(3):
        rows = [f"{a:.3f},{b:.3f},{int(a > 0)}" for a, b in rng.normal(size=(12, 2))]
        (here / "data" / f"c{i}.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    data = f"data={{name='folder', path='{here / 'data'}'}}"
    run(
        read_config(None, ["k=1", "rounds=1", "device=cpu", "baselines=[]", "model.hidden=[2]", data]),
        here / "run",
    )
    return here


def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> str:
    """The one sentence of a command that fails."""
    monkeypatch.setattr(sys, "argv", ["ifca", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr().err
    assert (end.value.code, said.count("\n")) == (2, 1)
    return said


def content(folder: Path) -> dict[Path, bytes]:
    return {
        file: file.read_bytes() for file in folder.rglob("*") if file.is_file() and file.name != ".running"
    }


def test_no_output_goes_over_what_is_read(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, one = content(here), here / "data" / "c0.csv"
    export = ("export", here / "run", "--cluster", 0, "--to")
    for arguments, reason in [
        (("predict", here / "run", one, "--out", one), "is the client's own file"),
        (("predict", here / "run", here / "data", "--out", one), "lies among the clients' files"),
        (
            ("predict", here / "run", here / "data", "--out", here / "data" / "new.csv"),
            "lies among the clients'",
        ),
        (("predict", here / "run", one, "--out", here / "run" / "clients.csv"), "is a file of the run"),
        ((*export, here / "run" / "models.safetensors"), "is a file of the run"),
        (("report", here / "run", "-o", here / "run" / "summary.json"), "a page is written as .html"),
    ]:
        assert reason in refused(capsys, monkeypatch, *arguments)
    assert content(here) == before


def test_an_export_that_fails_leaves_what_was_there(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = shutil.copytree(here / "run", tmp_path / "run")
    (damaged / "summary.json").write_text("{")
    (tmp_path / "m.pt").write_bytes(b"mine")
    before = content(tmp_path)
    assert "summary.json: not valid JSON" in refused(
        capsys, monkeypatch, "export", damaged, "--cluster", 0, "--to", tmp_path / "m.pt"
    )
    assert content(tmp_path) == before
    monkeypatch.setattr("ifca.use.export.CLOSE", -1.0)  # as if its outputs were off
    monkeypatch.setattr(
        sys, "argv", ["ifca", "export", str(here / "run"), "--cluster", "0", "--to", str(tmp_path / "m.pt")]
    )
    with pytest.raises(SystemExit):
        main()
    assert "it was not written" in capsys.readouterr().err
    assert content(tmp_path) == before


@pytest.mark.parametrize("labels", [True, False])
def test_a_model_without_an_answer_gives_none(
    labels: bool,
    here: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    head, rows = ("a,b,y", "1,2,0\n1e300,0,1") if labels else ("a,b", "1,2\n1e300,0")
    (tmp_path / "new.csv").write_text(f"{head}\n{rows}\n")
    arguments = ("predict", here / "run", tmp_path / "new.csv", "--cluster", 0, "--out", tmp_path / "out.csv")
    assert "new.csv: the model gives no finite number for sample 1" in refused(
        capsys, monkeypatch, *arguments
    )
    assert not (tmp_path / "out.csv").exists()


def test_a_terminal_without_some_letters_shows_others(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the table, the figures and the page are there all the same."""
    raw = io.BytesIO()
    shutil.copytree(here / "run", tmp_path / "run")
    for name in ("report.html", "accuracy.png"):
        (tmp_path / "run" / name).unlink(missing_ok=True)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "ascii"))
    monkeypatch.setattr(sys, "argv", ["ifca", "resume", "--quiet", str(tmp_path / "run")])
    main()
    sys.stdout.flush()
    said = raw.getvalue().decode("ascii")
    assert "report: " in said
    assert "run folder: " in said
    assert (tmp_path / "run" / "report.html").is_file()
