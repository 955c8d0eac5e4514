"""Files written whole or not at all, by several at once, too."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ifca.data.files import write_atomically


def test_several_that_write_one_file_at_once_leave_the_whole_content_of_one(tmp_path: Path) -> None:
    """As two 'ifca report' of one run do; nobody fails, and nothing is left beside it."""
    file, contents = tmp_path / "page", [bytes([65 + i]) * 50_000 for i in range(4)]

    def write(content: bytes) -> None:
        for _ in range(25):
            write_atomically(file, content)
            assert file.read_bytes() in contents

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, contents))
    assert list(tmp_path.iterdir()) == [file]


def test_what_a_killed_process_left_beside_a_file_is_written_over(tmp_path: Path) -> None:
    (tmp_path / ".page.tmp").write_bytes(b"half of something longer")
    write_atomically(tmp_path / "page", b"new")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"page": b"new"}
