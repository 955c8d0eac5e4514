"""Logs and tables of a run as they are read: what was cut off, what is damaged, names in any alphabet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ifca.core.errors import InvalidInput, Unreadable
from ifca.data.jsonl import append_jsonl, parse_jsonl, read_jsonl
from ifca.report.live_run import GrowingLog
from ifca.runs.clients_table import COLUMNS, read_clients

RECORD = {"round": 0, "participants": 1, "clients": None, "identity": [0], "train_loss": 0.5}
RECORD |= {"cluster_sizes": [1], "bytes_down": 8, "bytes_up": 8, "seconds": 0.1}
WHOLE = b'{"round": 0}\n{"round": 1}\n'


@pytest.mark.parametrize(
    ("content", "rounds"),
    [
        (b"", []),
        (WHOLE, [0, 1]),
        (WHOLE + b'{"rou', [0, 1]),
        (WHOLE + b"12", [0, 1]),  # half of 123 is a number, but never an object
        (WHOLE + b'{"client": "\xc3', [0, 1]),  # cut off in the middle of a letter
        (WHOLE + b'{"round": 2}', [0, 1, 2]),  # as some editors leave it
        (WHOLE.replace(b"\n", b"\r\n"), [0, 1]),
    ],
)
def test_the_whole_lines_of_a_log(content: bytes, rounds: list[int], tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    assert read_jsonl(log) == []  # there is none
    log.write_bytes(content)
    assert [line["round"] for line in read_jsonl(log)] == rounds
    assert log.read_bytes() == content  # looking changes nothing
    append_jsonl(log, {"round": 9})
    assert [line["round"] for line in read_jsonl(log)] == [*rounds, 9]
    assert log.read_bytes().endswith(b"\n")


@pytest.mark.parametrize(
    "damage", [b"nonsense", b"", b"123", b"[]", b"\xff\xfe", b'{"round": 1}{"round": 2}']
)
def test_a_damaged_line_is_named(damage: bytes, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(WHOLE + damage + b"\n" + WHOLE)
    with pytest.raises(InvalidInput, match=r"log\.jsonl: line 3 is no JSON object \(.+\); it is so$"):
        read_jsonl(log, "it is so")
    start = len(b'{"round": 0}\n')
    with pytest.raises(InvalidInput, match="line 3"):
        parse_jsonl(log, log.read_bytes()[start:], start)


def test_a_log_that_grows_is_read_from_where_it_was(tmp_path: Path) -> None:
    log, growing = tmp_path / "log.jsonl", GrowingLog()
    whole = b"".join(json.dumps(RECORD | {"round": t}).encode() + b"\n" for t in range(3))
    two = whole[: whole.rindex(b"{")]
    log.write_bytes(two + b'{"round"')
    assert [line["round"] for line in growing.read(log)] == [0, 1]
    log.write_bytes(whole)
    assert [line["round"] for line in growing.read(log)] == [0, 1, 2]
    assert growing.damage is None
    log.write_bytes(whole + b"nonsense\n")
    for _ in range(2):  # it is said again whenever it is read
        assert [line["round"] for line in growing.read(log)] == [0, 1, 2]
        assert "line 4 is damaged (not valid JSON" in str(growing.damage)
    log.write_bytes(whole + json.dumps(RECORD | {"seconds": "long"}).encode() + b"\n")
    assert [line["round"] for line in growing.read(log)] == [0, 1, 2]
    assert "line 4 is damaged (seconds must be a valid number, got 'long')" in str(growing.damage)


def test_names_of_clients_are_utf_8_whatever_the_locale_is(tmp_path: Path) -> None:
    row = ["Зоя, Łódź", *["0"] * (len(COLUMNS) - 1)]
    table = ",".join(COLUMNS) + "\n" + f'"{row[0]}",' + ",".join(row[1:]) + "\n"
    (tmp_path / "clients.csv").write_bytes(table.encode("utf-8"))
    assert read_clients(tmp_path) == [dict(zip(COLUMNS, row, strict=True))]
    code = "from pathlib import Path; from ifca.runs.clients_table import read_clients; "
    code += "import sys; print(ascii(read_clients(Path(sys.argv[1]))[0]['id']))"
    plain = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    asked = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env=plain, capture_output=True, text=True, check=True
    )
    assert asked.stdout.strip() == ascii(row[0])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "has no clients.csv; 'ifca resume"),
        (b"\xff\xfe", "not a readable .csv file"),
        (b"", "has no column id"),
        (b"id,cluster\n1,2\n", "has no column true_cluster; the file was altered"),
    ],
)
def test_a_table_of_clients_that_is_none(content: bytes | None, reason: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "clients.csv").write_bytes(content)
    with pytest.raises(InvalidInput, match=reason):
        read_clients(tmp_path)


def test_an_accuracy_in_clients_csv_is_a_share(tmp_path: Path) -> None:
    """Found by the fuzzer: one of 1e308 was shown in percent."""
    cells = dict.fromkeys(COLUMNS, "1") | {"id": "a", "test_accuracy": "1e308"}
    (tmp_path / "clients.csv").write_text(f"{','.join(cells)}\n{','.join(cells.values())}\n")
    with pytest.raises(Unreadable, match=r"line 2: test_accuracy must be a number from 0 to 1, got '1e308'"):
        read_clients(tmp_path)
    cells["test_accuracy"] = "nan"
    (tmp_path / "clients.csv").write_text(f"{','.join(cells)}\n{','.join(cells.values())}\n")
    assert read_clients(tmp_path)[0]["test_accuracy"] == "nan"
