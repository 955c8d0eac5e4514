"""What is imported when: help brings nothing heavy, training no report; every public name is there."""

from __future__ import annotations

import ast
import os
import platform
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from typer.testing import CliRunner

import ifca
import ifca.data
from ifca.bench.speed import JOBS
from ifca.cli.main import PANELS, VERBS, app
from ifca.data.public import digits
from ifca.data.public.places import VARIABLE
from ifca.paper.experiments import MODULES

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
HEAVY = {"torch", "numpy", "scipy", "sklearn", "pandas", "matplotlib", "jinja2", "pydantic", "flwr"}


def python(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported_by(code: str) -> set[str]:
    """What a new process has imported after this code, as far as it is heavy."""
    last = python("-c", f"{code}\nimport sys\nprint()\nprint(*sys.modules)").splitlines()[-1]
    return HEAVY & set(last.split())


def test_import_ifca_is_light() -> None:
    assert imported_by("import ifca; ifca.Recipe, ifca.InvalidInput, ifca.Callback, dir(ifca)") == set()


@pytest.mark.parametrize(
    "arguments", [["--version"], ["--help"], ["run", "--help"], ["run", "--list"]], ids=" ".join
)
def test_help_and_version_import_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
import sys
from ifca.cli.main import main
sys.argv = ["ifca", *{arguments}]
try:
    main()
except SystemExit as done:
    assert not done.code
"""
    assert imported_by(code) == set()


def test_the_help_of_every_verb_imports_nothing_heavy() -> None:
    """In one process: what one of them imports stays."""
    code = """
from typer.main import get_command
from ifca.cli.main import app
whole = get_command(app)
def every(group, path):
    for name, command in group.commands.items():
        assert not whole([*path, name, "--help"], prog_name="ifca", standalone_mode=False)
        if hasattr(command, "commands"):
            every(command, [*path, name])
every(whole, [])
"""
    assert imported_by(code) == set()


WRONG = (
    ["run", "nothing.toml"],
    ["run", "nothing.csv", "--label", "y"],
    ["run", "--set", "k=x"],
    ["run", "--set", "nokey=1"],
    ["run", "--device", "gpu"],
    ["run", "--preset", "nothing"],
    ["resume", "nothing"],
    ["report", "nothing"],
    ["predict", "nothing", "nothing.csv"],
    ["choose-k", "--k", "6:1"],
    ["tune", "nothing.toml"],
    ["bench", "nothing"],
    ["bench", "--shape", "nothing"],
)


def test_wrong_input_is_refused_before_torch_is_imported(tmp_path: Path) -> None:
    """In one process: what one of them imports stays."""
    code = f"""
import os, sys
from ifca.cli.main import main
os.chdir({str(tmp_path)!r})
for arguments in {WRONG}:
    sys.argv = ["ifca", *arguments]
    try:
        main()
    except SystemExit as done:
        assert done.code == 2, arguments
    assert "torch" not in sys.modules, arguments
"""
    assert imported_by(code) <= {"numpy", "pydantic"}


def test_training_begins_before_reports_are_imported(tmp_path: Path) -> None:
    """The verb itself, told of its first training by the lines that it prints."""
    code = f"""
import os, sys
from ifca.report.terminal.progress_bar import Lines
def started(self, training):
    print()
    print(*sys.modules)
    sys.stdout.flush()
    os._exit(0)
Lines.started = started
from ifca.cli.main import main
sys.argv = ["ifca", "run", "--quiet", "--device", "cpu", "--out", {str(tmp_path / "out")!r}]
main()
"""
    assert HEAVY & set(python("-c", code).splitlines()[-1].split()) == {"torch", "numpy", "pydantic"}


@pytest.mark.parametrize("file", [digits.FILE, "nowhere.csv.gz"])
def test_digits_are_those_of_scikit_learn(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read from its file, or from itself where the file is not."""
    from sklearn.datasets import load_digits

    expected = load_digits()
    monkeypatch.setattr(digits, "FILE", file)
    images, labels = digits.read_digits()
    assert np.array_equal(images, (expected.images / 16).astype(np.float32))
    assert np.array_equal(labels, expected.target)
    assert (str(images.dtype), str(labels.dtype)) == ("float32", "int64")


def test_module_and_console_script_are_the_same() -> None:
    script = "import sys; sys.argv[0] = 'ifca'; from ifca.cli.main import main; main()"  # as pip writes it
    pyproject = (Path(__file__).parent.parent / "pyproject.toml").read_text()
    assert 'ifca = "ifca.cli.main:main"' in pyproject
    for arguments in (["--help"], ["data", "--help"]):
        assert python("-m", "ifca", *arguments) == python("-c", script, *arguments)


def test_the_version_tells_torch() -> None:
    import torch

    said = python("-m", "ifca", "--version")
    assert said.startswith(f"ifca {ifca.__version__} (Python {platform.python_version()}, ")
    assert f"torch {torch.__version__.partition('+')[0]}" in said


def test_verbs_are_listed_in_a_newcomers_order() -> None:
    listed = CliRunner(env={"COLUMNS": "100"}).invoke(app, ["--help"]).stdout
    places = [listed.index(f"│ {name} ") for name in VERBS]
    assert places == sorted(places)
    assert VERBS[0] == "run"
    assert VERBS[-1] == "reproduce"
    day = ["run", "data", "report", "predict", "assign", "compare", "choose-k", "federate"]
    assert [name for name in VERBS if name in day] == day
    panels = [listed.index(f"─ {panel} ─") for panel in PANELS]
    assert panels == sorted(panels)


@pytest.mark.parametrize(
    ("verb", "names"), [("bench", JOBS), ("reproduce", MODULES), ("data list", (VARIABLE,))]
)
def test_help_names_what_there_is(verb: str, names: tuple[str, ...]) -> None:
    """Where the names are written in the help, because the module that has them is heavy."""
    said = CliRunner(env={"COLUMNS": "400"}).invoke(app, [*verb.split(), "--help"]).stdout
    assert [name for name in names if name not in said] == []


def test_every_public_name_is_there() -> None:
    for name in ifca.__all__:
        assert getattr(ifca, name).__name__ == name
        assert name in dir(ifca)
    with pytest.raises(AttributeError, match="module 'ifca' has no attribute 'nothing'"):
        _ = ifca.nothing  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        from ifca import nothing  # type: ignore[attr-defined]  # noqa: F401


@pytest.mark.parametrize("package", [ifca, ifca.data], ids=["ifca", "ifca.data"])
def test_type_checkers_read_the_same_names(package: ModuleType) -> None:
    assert package.__file__ is not None
    tree = ast.parse(Path(package.__file__).read_text())
    (typed,) = [node for node in tree.body if isinstance(node, ast.If)]
    found = {
        alias.name: node.module
        for node in typed.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert found == package._HOMES
    assert set(found) == set(package.__all__)
    assert all(getattr(package, name).__name__ == name for name in found)
