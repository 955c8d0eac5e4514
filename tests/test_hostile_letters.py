"""Letters that no text has, and places that are no files: no terminal obeys them, nobody waits for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ifca.cli.main import main
from ifca.core.errors import InvalidInput, Unreadable, one_line
from ifca.data import Client, Federation, read_client, read_folder
from ifca.data.formats.tensor_file import read_tensors
from ifca.data.sources.columns import Columns
from ifca.report.page import write_report
from ifca.runs.config import parse_config, read_config
from ifca.runs.run import run
from ifca.runs.run_code import run_id


def test_a_sentence_is_one_line_that_a_terminal_shows() -> None:
    assert one_line("a\x1b[2J\n b\t\u202ec é 日本") == r"a\x1b[2J b \u202ec é 日本"
    assert one_line("\udcff") == r"\udcff"
    assert one_line("no such " + "x" * 5000) == "no such " + "x" * 400 + "..."


def test_a_name_of_a_file_does_not_reach_the_terminal_as_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ifca", "run", str(tmp_path / "no\x1b]0;title\x07\n.toml")])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert capsys.readouterr().err.endswith("no\\x1b]0;title\\x07 .toml: no such config file\n")


@pytest.mark.parametrize("letter", ["\0", "\x1b", "\x9b"])
def test_tables_with_letters_that_no_text_has_are_refused(letter: str, tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text(f"a,y\n1,no\n2,yes{letter}[31m\n", "utf-8")
    with pytest.raises(InvalidInput, match=r"c\.csv, line 3: is no text, it has the control character"):
        read_client(tmp_path / "c.csv")


def test_a_table_in_utf_16_without_its_mark_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_bytes("a,y\n1,0\n2,1\n".encode("utf-16-be"))
    with pytest.raises(InvalidInput, match=r"c\.csv, line 1: is no text"):
        read_client(tmp_path / "c.csv")


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2J", "\x7f", "\x9b31m"])
def test_names_of_clients_have_no_control_characters(name: str) -> None:
    with pytest.raises(InvalidInput, match="an id must not hold line breaks or control characters"):
        Federation.from_clients([Client(np.ones((2, 1)), np.array([0, 1]), id=name)])


@pytest.mark.parametrize("name", ["c.npz", "c.csv", "c.parquet"])
def test_pipes_and_devices_are_no_data(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    (tmp_path / "zero").mkdir()
    (tmp_path / "zero" / name).symlink_to("/dev/zero")
    for file in (tmp_path / name, tmp_path / "zero" / name):
        with pytest.raises(InvalidInput, match=f"{name}: is no regular file"):
            read_client(file)


def test_pipes_and_devices_are_no_files_of_a_run(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.json")
    (tmp_path / "models.safetensors").symlink_to("/dev/zero")
    with pytest.raises(Unreadable, match=r"run\.json: is no regular file"):
        run_id(tmp_path)
    with pytest.raises(Unreadable, match=r"models\.safetensors: is no regular file"):
        read_tensors(tmp_path / "models.safetensors")


def test_names_that_are_no_text(tmp_path: Path) -> None:
    """A run in a folder of such a name has its page; data there are refused, as no config can say where."""
    data, out = tmp_path / "data", tmp_path / "out\udcff"
    data.mkdir()
    for i in range(3):
        np.savez(data / f"é{i}.npz", x=np.arange(8.0).reshape(4, 2), y=np.array([0, 1, 0, 1]))
    settings = ["k=1", "rounds=1", "local_steps=1", "device=cpu", "model.hidden=[2]", "baselines=[]"]
    run(read_config(None, [*settings, f"data={{name='folder', path='{data}'}}"]), out)
    assert "out\\udcff" in write_report([out]).read_text("utf-8")
    data.rename(tmp_path / "data\udcff")
    with pytest.raises(InvalidInput, match=r"^job: '[^ \"]*/data.udcff' ends in bytes that are no UTF-8"):
        parse_config({"data": {"name": "folder", "path": str(tmp_path / "data\udcff")}}, "job")


def test_a_table_whose_name_is_no_text_is_a_client_with_its_bytes_spelled_out(tmp_path: Path) -> None:
    for name in ("a", "b\udcfc"):
        (tmp_path / f"{name}.csv").write_text("x,y\n1,0\n2,1\n3,0\n4,1\n")
    federation = read_folder(tmp_path, columns=Columns(label=("y",), test_share=0.5))
    assert federation.train.ids == ("a", "b\\xfc")


def test_a_client_has_the_same_name_in_every_locale(tmp_path: Path) -> None:
    np.savez(tmp_path / "Łódź.npz", x=np.ones((2, 1)), y=np.array([0, 1]))
    code = "import sys; from pathlib import Path; from ifca.data import read_client; "
    code += "print(ascii(read_client(next(Path(sys.argv[1]).iterdir())).id))"
    plain = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    asked = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env=plain, capture_output=True, text=True, check=True
    )
    assert asked.stdout.strip() == ascii("Łódź")
