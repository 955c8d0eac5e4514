"""Code in a run folder of others runs only after a clear yes; one's own is not asked about."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ifca.cli.main import main
from ifca.core.errors import InvalidInput, RunFolderWarning
from ifca.runs.config import read_config
from ifca.runs.inspect_data import inspect_path
from ifca.runs.run import resume, run
from ifca.use.assign import assign_clients
from ifca.use.continue_run import continue_run
from ifca.use.export import export_model
from ifca.use.predict import predict
from tests.test_integrity import older

MODEL = """
import os
from pathlib import Path
from torch import nn

with Path(os.environ["IFCA_TEST_LOG"]).open("a") as log:
    log.write("code was run")

def make():
    return nn.Linear(2, 1)

def load(n=4):
    import torch
    from torch.utils.data import TensorDataset
    x = torch.randn(12, 2, generator=torch.Generator().manual_seed(0))
    return {f"c{i}": (TensorDataset(x, x[:, i % 2]), None) for i in range(n)}
"""
OWN = ["k=2", "rounds=2", "device=cpu", "baselines=[]", "model.name='mine:make'"]
OWN += ["data={name='function', load='mine:load', arguments={n=5}}"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run with own code, a client's file, and a log of whether that code was run since."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IFCA_TEST_LOG", str(tmp_path / "log"))
    (tmp_path / "mine.py").write_text(MODEL)
    run(read_config(None, OWN), tmp_path / "run")
    np.savez(tmp_path / "new.npz", x=np.ones((8, 2)), y=np.ones(8))
    (tmp_path / "log").unlink()
    return tmp_path


def as_stranger(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    """From now on another user, in a process that has not seen the code yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "state of another"))
    for name in [name for name in sys.modules if name.startswith("ifca_own_") or name == "mine"]:
        monkeypatch.delitem(sys.modules, name)


def content(folder: Path) -> dict[Path, tuple[bytes, int]]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


VERBS: dict[str, Callable[[Path, bool], Any]] = {
    "resume": lambda here, trust: resume(here / "run", trust=trust),
    "assign": lambda here, trust: assign_clients(here / "run", here / "new.npz", trust),
    "predict": lambda here, trust: predict(here / "run", here / "new.npz", trust=trust),
    "export": lambda here, trust: export_model(here / "run", 0, here / "m.pt", trust),
    "inspect": lambda here, trust: inspect_path(here / "run" / "config.toml", {}, trust=trust),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_strangers_run_is_refused_and_its_code_is_not_run(
    verb: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    VERBS[verb](here, False)  # one's own is not asked about
    as_stranger(monkeypatch, here)
    (here / "log").unlink(missing_ok=True)
    before = content(here / "run")
    named = r"data\.load = mine:load" if verb == "inspect" else r"model\.name = mine:make"
    with pytest.raises(InvalidInput, match=rf"not made by you.*{named} \(.*code/mine\.py\).*--trust"):
        VERBS[verb](here, False)
    assert content(here / "run") == before
    assert not (here / "log").exists()
    VERBS[verb](here, True)
    assert (here / "log").read_text() == "code was run"


def test_the_command_line_hands_the_yes_over(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    as_stranger(monkeypatch, here)
    for arguments in (
        ["resume", "run"],
        ["assign", "run", "new.npz"],
        ["predict", "run", "new.npz"],
        ["export", "run", "--cluster", "0", "--to", "m.pt"],
        ["data", "inspect", "run/config.toml"],
    ):
        (here / "log").unlink(missing_ok=True)
        monkeypatch.setattr(sys, "argv", ["ifca", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr().err
        assert (ended.value.code, said.count("\n")) == (2, 1)
        assert "was not made by you on this machine" in said
        assert not (here / "log").exists()
        monkeypatch.setattr(sys, "argv", ["ifca", *arguments, "--trust"])
        main()


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ('load = "mine:load"', 'load = "os:system"'),
        ("n = 5", "n = 6"),
        ('name = "mine:make"', 'name = "os:system"'),
        ("metrics = []", 'metrics = ["antigravity:geohash"]'),
    ],
)
def test_ones_own_run_that_others_changed_is_asked_about(was: str, now: str, here: Path) -> None:
    text = (here / "run" / "config.toml").read_text()
    assert was in text
    (here / "run" / "config.toml").write_text(text.replace(was, now))
    with pytest.raises(InvalidInput, match="not made by you"):
        resume(here / "run")


def test_a_copy_that_others_changed_with_its_hash_is_asked_about(here: Path) -> None:
    changed = here / "run" / "code" / "mine.py"
    changed.write_text(changed.read_text() + "\n")
    record = json.loads((here / "run" / "run.json").read_text())
    record["code"]["mine.py"]["sha256"] = hashlib.sha256(changed.read_bytes()).hexdigest()
    (here / "run" / "run.json").write_text(json.dumps(record))
    with pytest.raises(InvalidInput, match="not made by you"):
        resume(here / "run")


def test_functions_of_installed_packages_count_as_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's folder that only names what is installed anyway: os.system is."""
    run(read_config(None, ["k=1", "rounds=1", "restarts=1", "device=cpu", "baselines=[]"]), tmp_path / "run")
    text = (tmp_path / "run" / "config.toml").read_text()
    start = text.index("[data]")
    end = text.index("\n[", start)
    evil = (
        f'[data]\nname = "function"\nload = "os:system"\n[data.arguments]\ncommand = "touch {tmp_path}/ran"\n'
    )
    (tmp_path / "run" / "config.toml").write_text(text[:start] + evil + text[end:])
    for call in (resume, lambda out: inspect_path(out / "config.toml", {})):
        with pytest.raises(InvalidInput, match=r"opening it runs code: data\.load = os:system;"):
            call(tmp_path / "run")
    assert not (tmp_path / "ran").exists()


def test_runs_without_code_need_no_trust_and_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    settings = ["k=1", "rounds=1", "restarts=1", "device=cpu", "baselines=[]", "model.hidden=[4]"]
    run(read_config(None, settings), tmp_path / "run")
    resume(tmp_path / "run")
    np.savez(tmp_path / "new.npz", x=np.zeros((4, 8, 8)), y=np.arange(4))
    assign_clients(tmp_path / "run", tmp_path / "new.npz")
    assert not (tmp_path / "state").exists()


def test_an_older_folder_with_code_is_asked_about(here: Path) -> None:
    older(here / "run")
    shutil.rmtree(here / "run" / "code")
    for verb in ("resume", "inspect"):
        with pytest.raises(InvalidInput, match="not made by you"):
            VERBS[verb](here, False)
        with pytest.warns(RunFolderWarning) if verb == "resume" else nullcontext():
            VERBS[verb](here, True)


def test_a_config_given_directly_is_ones_own_command(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_stranger(monkeypatch, here)
    (here / "job.toml").write_text("[data]\nname = 'function'\nload = 'mine:load'\n")
    assert inspect_path(here / "job.toml", {})["clients"] == 4


def test_the_key_is_the_users_alone_and_not_needed_to_run(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "state"))
    run(read_config(None, OWN), here / "first")
    (key,) = (here / "state" / "ifca").iterdir()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before = key.read_bytes()
    run(read_config(None, OWN), here / "second")
    assert key.read_bytes() == before
    resume(here / "first")
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "mine.py"))  # a file: nothing can be kept there
    run(read_config(None, OWN), here / "third")
    with pytest.raises(InvalidInput, match="not made by you"):
        resume(here / "third")


def test_a_federation_goes_on_with_code_of_ones_own_only(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flwr")
    from ifca.federation.resuming import begun_config

    text = (here / "run" / "config.toml").read_text()
    (here / "run" / "config.toml").write_text(text.replace('engine = "vectorised"', 'engine = "flower"'))
    assert begun_config(here / "run").engine == "flower"
    as_stranger(monkeypatch, here)
    with pytest.raises(InvalidInput, match="not made by you"):
        begun_config(here / "run")
    assert begun_config(here / "run", trust=True).engine == "flower"


def ended(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """The exit code of a command."""
    monkeypatch.setattr(sys, "argv", ["ifca", *arguments])
    try:
        main()
    except SystemExit as end:
        return end.code
    return 0


def sent(folder: Path, before: str = "") -> None:
    """A config that somebody sent."""
    job = '[data]\nname = "function"\nload = "os:system"\n[data.arguments]\n'
    (folder / "sent").mkdir()
    (folder / "sent" / "job.toml").write_text(f'{before}{job}command = "touch {folder}/ran"\n')


@pytest.mark.parametrize(
    "verb",
    [["run"], ["compare"], ["data", "inspect"], ["choose-k"], ["tune"], ["attack", "--attack", "sign-flip"]],
    ids=lambda verb: verb[-1],
)
def test_a_config_does_not_call_what_is_installed_without_a_yes(
    verb: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sent(tmp_path)
    assert ended(monkeypatch, *verb, "sent/job.toml") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "sent/job.toml: names code that does not lie beside it: data.load = os:system; if that" in said
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "runs").exists()
    assert ended(monkeypatch, *verb, "sent/job.toml", "--trust") == 2  # it runs, and gives no federation
    assert (tmp_path / "ran").exists()


def test_a_config_does_not_choose_where_the_users_code_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as in Python's own library."""
    monkeypatch.chdir(tmp_path)
    sent(tmp_path, f"code = {str(Path(os.__file__).parent)!r}\n")
    assert ended(monkeypatch, "run", "sent/job.toml") == 2
    assert "names code that does not lie beside it: data.load = os:system" in capsys.readouterr().err


def test_what_is_typed_is_a_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text("rounds = 1\nk = 1\ndevice = 'cpu'\n")
    assert ended(monkeypatch, "run", "job.toml", "--quiet", "--out", "run", "--model", "torch.nn:Linear") == 2
    assert "making it failed" in capsys.readouterr().err  # it was called


def test_a_run_says_whose_code_it_runs(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "job.toml").write_text(
        "k = 1\nrounds = 1\ndevice = 'cpu'\n[data]\nname='function'\nload='mine:load'\n"
    )
    assert ended(monkeypatch, "run", "job.toml", "--quiet", "--out", "again") == 0
    assert "your code: mine.py" in capsys.readouterr().err


def test_a_strangers_metrics_are_not_imported_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What assigning does not need, continuing calls: the folder is asked about all of it."""
    (tmp_path / "data").mkdir()
    rng = np.random.default_rng(0)
    for i in range(3):
        x = rng.normal(size=(12, 2))
        np.savez(tmp_path / "data" / f"c{i}.npz", x=x, y=(x[:, 0] > 0).astype(int))
    data = f"data={{name='folder', path='{tmp_path / 'data'}'}}"
    settings = ["k=1", "rounds=1", "device=cpu", "baselines=[]", "model.hidden=[2]", data]
    run(read_config(None, settings), tmp_path / "run")
    text = (tmp_path / "run" / "config.toml").read_text()
    (tmp_path / "run" / "config.toml").write_text(
        text.replace("metrics = []", 'metrics = ["antigravity:geohash"]')
    )
    monkeypatch.delitem(sys.modules, "antigravity", raising=False)
    with pytest.raises(InvalidInput, match=r"opening it runs code: model\.metrics = antigravity:geohash"):
        continue_run(tmp_path / "run", tmp_path / "data", tmp_path / "new")
    assert "antigravity" not in sys.modules
    assert not (tmp_path / "new").exists()
