"""Every code block of README and docs is run, or parsed where running it would need other machines.

Blocks of Python run in their order, a page in one namespace; configs are read; commands are parsed by the
command line's own parser, and those of the pages in RUN are run. Long trainings are shortened. What would
need other machines has a line '<!-- not run: REASON -->' above it and is listed in NOT_RUN.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from ifca.cli.main import app
from ifca.methods import aggregation, registry
from ifca.runs.config import read_config

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*/*.md")),
]
FENCE = re.compile(r"(?:<!-- not run: (?P<reason>.+?) -->\n)?```(?P<kind>\w*)\n(?P<code>.*?)\n```", re.DOTALL)
pytestmark = pytest.mark.filterwarnings("ignore::ifca.training.poor_fit.PoorFitWarning")  # fewer rounds
COMMANDS = ("ifca", "pip", "make", "cd", "python", "flwr", "tensorboard", "head")
OPTIONAL = ("flwr", "flwr_datasets", "datasets", "pyarrow", "onnx")
RUN = ("README.md", "docs/index.md")  # their commands, but for pip and make
NOT_RUN = {"docs/from-flower.md": 1}
SHORT = ("--quiet", "--set", "rounds=2", "--set", "baselines=[]")  # for 'ifca run'


class Block(NamedTuple):
    page: str
    kind: str
    code: str
    reason: str | None


def blocks(page: Path) -> Iterator[Block]:
    """In order; a block without a language is commands where its first word is one, else what was printed."""
    for found in FENCE.finditer(page.read_text()):
        kind, code = found["kind"], found["code"]
        if not kind:
            kind = "bash" if code.split()[0] in COMMANDS else "text"
        yield Block(page.relative_to(ROOT).as_posix(), kind, code, found["reason"])


BLOCKS = [block for page in PAGES for block in blocks(page)]


def of_kind(kind: str) -> list[str]:
    return sorted({block.page for block in BLOCKS if block.kind == kind})


def test_the_kinds_of_blocks_are_known() -> None:
    assert {block.kind for block in BLOCKS} <= {"python", "bash", "toml", "text"}
    marked = [block.page for block in BLOCKS if block.reason]
    assert {page: marked.count(page) for page in marked} == NOT_RUN


@pytest.mark.parametrize("page", of_kind("python"))
def test_python_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_METHODS", {**registry._METHODS})  # what a page registers ends with it
    monkeypatch.setattr(aggregation, "_RULES", {**aggregation._RULES})
    names: dict[str, object] = {"__name__": page}
    for block in BLOCKS:
        if (block.page, block.kind) == (page, "python"):
            try:
                exec(compile(block.code.replace("rounds=30", "rounds=3"), page, "exec"), names)
            except ModuleNotFoundError as error:
                if error.name not in OPTIONAL:
                    raise
                pytest.skip(f"{error.name} is not installed")


@pytest.mark.parametrize("page", of_kind("toml"))
def test_configs_are_read(page: str, tmp_path: Path) -> None:
    for block in BLOCKS:
        if (block.page, block.kind) == (page, "toml"):
            (tmp_path / "job.toml").write_text(block.code)
            read_config(tmp_path / "job.toml")


@pytest.mark.parametrize("page", of_kind("bash"))
def test_commands_are_understood(page: str) -> None:
    """Verbs, options and the number of arguments are right; nothing is run."""
    for block in BLOCKS:
        if (block.page, block.kind) == (page, "bash"):
            for line in block.code.splitlines():
                words = shlex.split(line, comments=True)
                assert not words or words[0] in COMMANDS, line
                if words and words[0] == "ifca" and "--version" not in words:
                    parse(words[1:])


def parse(words: list[str]) -> None:
    """As the command line does; a wrong word raises."""
    command = get_command(app)
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    command.make_context("ifca", list(words))


@pytest.mark.parametrize("page", RUN)
def test_commands_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Line after line, from an empty folder; installing is the release's test."""
    monkeypatch.chdir(tmp_path)
    for block in BLOCKS:
        for line in block.code.splitlines() if (block.page, block.kind) == (page, "bash") else ():
            first, *words = shlex.split(line, comments=True)
            if first == "cd":
                monkeypatch.chdir(words[0])
            elif first == "ifca":
                done = CliRunner().invoke(app, [*words, *(SHORT if words[0] == "run" else ())])
                assert done.exit_code == 0, (line, done.output, done.exception)
            else:
                assert first in ("pip", "make")
    assert list(tmp_path.rglob("report.html"))
