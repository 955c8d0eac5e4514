"""What is released: one version; a wheel and an sdist that work outside of the checkout; Windows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

import ifca

ROOT = Path(__file__).parent.parent
KEPT = ("src", "docs", "examples", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")
OTHERS = ("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "constraints.txt")
POSIX = ("fcntl", "resource", "termios", "pwd", "grp", "tty", "pty", "syslog")  # not on Windows
POSIX_OS = (
    "fork",
    "getuid",
    "geteuid",
    "getpgid",
    "killpg",
    "setsid",
    "sched_getaffinity",
    "uname",
    "mkfifo",
)


def call(*command: str | Path, cwd: Path) -> str:
    """What a command prints, run where nothing of the checkout is on the path."""
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    clean["OMP_NUM_THREADS"] = "1"
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=cwd, env=clean)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_version_stands_in_one_place() -> None:
    assert 'version = {attr = "ifca.__version__"}' in (ROOT / "pyproject.toml").read_text()
    for file in (ROOT / "src").rglob("*.py"):  # nor does the code ask what is installed: it may be another
        assert 'version("ifca")' not in file.read_text(), file
    assert f"\nversion: {ifca.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## [{ifca.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist, a wheel of the checkout and a wheel of the sdist: built with the setuptools that is here."""
    pytest.importorskip("setuptools")
    out = tmp_path_factory.mktemp("dist")
    source = out / "source"
    source.mkdir()
    for name in (*KEPT, *OTHERS):  # a copy: building leaves files behind
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, source / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, source)
    build = (
        "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
    )
    sdist = out / call(sys.executable, "-c", build, "build_sdist", out, cwd=source).splitlines()[-1]
    with tarfile.open(sdist) as archive:
        archive.extractall(out / "unpacked", filter="data")
    (unpacked,) = (out / "unpacked").iterdir()
    files = {"sdist": sdist}
    for name, folder in (("wheel", source), ("wheel of the sdist", unpacked)):
        place = out / name.replace(" ", "-")
        place.mkdir()
        files[name] = (
            place / call(sys.executable, "-c", build, "build_wheel", place, cwd=folder).splitlines()[-1]
        )
    return files


@pytest.mark.xdist_group("release")
def test_both_ways_give_the_same_wheel(built: dict[str, Path]) -> None:
    direct, again = (set(ZipFile(built[name]).namelist()) for name in ("wheel", "wheel of the sdist"))
    assert direct == again
    modules = {file.relative_to(ROOT / "src").as_posix() for file in (ROOT / "src").rglob("*.py")}
    assert modules <= direct
    for needed in ("py.typed", "runs/conf/rotated-digits.toml", "runs/project/config.toml"):
        assert f"ifca/{needed}" in direct
    assert any(name.startswith("ifca/report/page/templates/") for name in direct)
    with tarfile.open(built["sdist"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"examples/own_data.py", "docs/index.md", "CHANGELOG.md", "LICENSE"} <= names


@pytest.mark.xdist_group("release")
def test_an_installed_wheel_trains_outside_of_the_checkout(built: dict[str, Path], tmp_path: Path) -> None:
    """In an environment of its own; what ifca depends on is taken from this one."""
    call(sys.executable, "-m", "venv", "--without-pip", tmp_path / "new", cwd=tmp_path)
    inside = "Scripts" if sys.platform == "win32" else "bin"
    python, ifca_command = (tmp_path / "new" / inside / name for name in ("python", "ifca"))
    install = ("install", "--quiet", "--no-index", "--no-deps", built["wheel of the sdist"])
    call(sys.executable, "-m", "pip", "--python", python, *install, cwd=tmp_path)
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(call(python, "-c", where, cwd=tmp_path).strip())
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    found = call(python, "-c", "import ifca; print(ifca.__file__)", cwd=tmp_path)
    assert Path(found.strip()) == packages / "ifca" / "__init__.py"
    assert call(ifca_command, "--version", cwd=tmp_path).startswith(f"ifca {ifca.__version__}")
    call(ifca_command, "init", "project", cwd=tmp_path)
    short = ("--set", "rounds=2", "--set", "baselines=[]", "--quiet")
    call(ifca_command, "run", "config.toml", *short, "--out", "out", cwd=tmp_path / "project")
    for file in ("summary.json", "models.safetensors", "report.html"):
        assert (tmp_path / "project" / "out" / file).is_file()


def test_every_module_is_imported_without_what_windows_lacks() -> None:
    """A first pass imports all that others make; the second imports ifca again, as Windows would."""
    code = f"""
import importlib, os, pkgutil, signal, sys
import ifca
def missing():  # module -> the optional package that it needs and does not find
    found = {{}}
    for module in pkgutil.walk_packages(ifca.__path__, "ifca."):
        try:
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            found[module.name] = error.name
    return found
before = missing()
for name in [name for name in sys.modules if name.startswith("ifca.")]:
    del sys.modules[name]
sys.platform = "win32"
for name in {POSIX}:
    sys.modules[name] = None
for name in {POSIX_OS}:
    delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGALRM", "alarm"):
    delattr(signal, name)
assert missing() == before, (missing(), before)
print(sum(name.startswith("ifca.") for name in sys.modules))
"""
    assert int(call(sys.executable, "-c", code, cwd=ROOT / "src").splitlines()[-1]) > 100
