"""Files that somebody hands over are opened by one reader per format, in data/formats/, and nowhere else."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "ifca"
READERS = "data/formats/"
OPENING = {
    *("open", "read_text", "read_bytes", "read", "load", "loads", "loadtxt", "genfromtxt", "fromfile"),
    *("memmap", "load_file", "safe_open", "ZipFile", "GzipFile", "ParquetFile", "Unpickler", "reader"),
    *("DictReader", "read_table", "read_csv", "read_parquet", "read_json"),
}
OURS = {"load", "loads", "read", "reader", "read_table", "read_csv", "read_parquet", "read_json"}
"""Names that are also of functions of ifca: these count where they are called of a library."""
LIBRARIES = {
    *(
        "json",
        "tomllib",
        "csv",
        "gzip",
        "zipfile",
        "tarfile",
        "pickle",
        "numpy",
        "np",
        "torch",
        "safetensors",
    ),
    *("pyarrow", "pandas", "pq", "pd", "os", "io"),
}
WHY = {
    "what was just made, or text of one's own": {
        "runs/config.py": {"json.loads"},
        "runs/summary_file.py": {"json.loads", "open"},
        "use/export.py": {"torch.load", "load_file"},
        "use/card.py": {"read_bytes"},
    },
    "files of the package, or of another one that is installed": {
        "report/page/build.py": {"read_text"},
        "runs/presets.py": {"read_text"},
        "runs/new_project.py": {"read_bytes"},
        "data/public/digits.py": {"np.loadtxt"},
    },
    "files of public data, which are known by their hashes": {
        "data/public/cifar.py": {"read_bytes"},
        "data/public/femnist.py": {"read_bytes"},
        "data/public/download.py": {"open"},
        "data/public/public_sets.py": {"tarfile.open"},
    },
    "appended to, or locked": {
        "data/files.py": {"open"},
        "data/jsonl.py": {"open"},
        "runs/round_log.py": {"open"},
        "runs/units/lines.py": {"open"},
    },
    "read as it grows, line by line through data/jsonl.py": {
        "report/live_run.py": {"open"},
    },
    "a key and code of the user's own": {
        "runs/signature.py": {"read_bytes"},
        "runs/own_code.py": {"read_bytes"},
    },
    "the state of a sibling process, over torch.distributed": {
        "training/dealt_clients.py": {"torch.load"},
    },
    "text of a command on this repository": {
        "report/paper/results_page.py": {"read_text"},
    },
    "a layout or a list of parts in a message, checked there": {
        "engines/flower/records.py": {"json.loads"},
        "engines/flower/receiver.py": {"json.loads"},
    },
}
"""Why a module opens a file or parses a text by itself -> the modules, with what they call for it."""
OTHERS = "federation/"  # keys, logs of processes and messages of Flower


@cache
def nodes(file: Path) -> list[ast.Call | ast.Import | ast.ImportFrom]:
    """Calls and imports of a module."""
    found = ast.walk(ast.parse(file.read_text()))
    return [node for node in found if isinstance(node, ast.Call | ast.Import | ast.ImportFrom)]


def opened(file: Path) -> set[str]:
    """The calls of a module that open a file or parse a text."""
    found = set()
    for node in nodes(file):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in OPENING - OURS:
            found.add(called.id)
        elif isinstance(called, ast.Attribute) and called.attr in OPENING:
            of = called.value.id if isinstance(called.value, ast.Name) else ""
            if of in LIBRARIES:
                found.add(f"{of}.{called.attr}")
            elif called.attr in {"open", "read_text", "read_bytes"} and of != "webbrowser":
                found.add(called.attr)
    return found


def test_only_readers_open_files_that_are_handed_over() -> None:
    found = {}
    for file in sorted(SOURCE.rglob("*.py")):
        name = str(file.relative_to(SOURCE))
        if not name.startswith((READERS, OTHERS)) and (calls := opened(file)):
            found[name] = calls
    assert found == {name: calls for some in WHY.values() for name, calls in some.items()}


def test_one_module_reads_pickles_and_it_makes_nothing_but_arrays() -> None:
    """CIFAR-10 is published as pickles; what they may call is listed there."""
    using = [file.name for file in sorted(SOURCE.rglob("*.py")) if {"pickle", "shelve"} & imported(file)]
    assert using == ["pickles.py"]


def imported(file: Path) -> set[str]:
    names = {alias.name for node in nodes(file) if isinstance(node, ast.Import) for alias in node.names}
    return names | {str(node.module) for node in nodes(file) if isinstance(node, ast.ImportFrom)}
