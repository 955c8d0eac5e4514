"""Code of the user's own: the right file, in every process; a run keeps a copy and goes on with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from ifca.core.callbacks import Record, Silent
from ifca.core.errors import InvalidInput
from ifca.runs.choose_k import choose_k
from ifca.runs.config import Config, read_config
from ifca.runs.make import make_federation, make_job
from ifca.runs.own_code import find_code
from ifca.runs.own_modules import own_function
from ifca.runs.run import resume, run
from ifca.use.opened_run import open_trained
from ifca.use.predict import predict
from tests.test_resume import assert_same_result

MODEL = """
from torch import nn
import helpers

def make():
    return nn.Sequential(nn.Linear(2, helpers.WIDTH), nn.Tanh(), nn.Linear(helpers.WIDTH, 1))
"""
DATA = """
from pathlib import Path
import torch
from torch.utils.data import TensorDataset

def load():
    shift = float(Path(__file__).with_name("shift.txt").read_text())  # data beside the file
    rng = torch.Generator().manual_seed(0)
    clients = {}
    for i in range(4):
        x = torch.randn(12, 2, generator=rng)
        clients[f"c{i}"] = (TensorDataset(x, x[:, i % 2] + shift), None)
    return clients
"""
DATACLASS = """
from dataclasses import dataclass

@dataclass
class A:
    x: int = 1

def f():
    return A().x
"""


def project(folder: Path, width: int = 3) -> Path:
    """A config with a model, its helpers and its data; the model's width is in the helpers."""
    folder.mkdir()
    (folder / "model.py").write_text(MODEL)
    (folder / "helpers.py").write_text(f"WIDTH = {width}\n")
    (folder / "data.py").write_text(DATA)
    (folder / "shift.txt").write_text("0.5")
    (folder / "job.toml").write_text(
        "k = 2\nrounds = 6\nlocal_steps = 2\ndevice = 'cpu'\n[model]\nname = 'model:make'\n"
        "[data]\nname = 'function'\nload = 'data:load'\n"
    )
    return folder / "job.toml"


def width(config: Config) -> int:
    return int(next(make_job(config).model().parameters()).shape[0])


class StopAt(Silent):
    """Interrupts a run after so many rounds."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def round_ended(self, record: Record) -> None:
        if record["round"] + 1 == self.rounds:
            raise KeyboardInterrupt


def test_projects_with_files_of_the_same_names_do_not_share_them(tmp_path: Path) -> None:
    first, second = project(tmp_path / "a", 3), project(tmp_path / "b", 5)
    assert [width(read_config(file)) for file in (first, second, first)] == [3, 5, 3]


def test_what_lies_beside_the_config_comes_before_where_we_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = project(tmp_path / "here", 3), project(tmp_path / "there", 5)
    monkeypatch.chdir(here.parent)
    assert width(read_config(there)) == 5
    (there.parent / "helpers.py").unlink()  # now it is found where we stand
    assert width(read_config(there)) == 3


def test_a_file_that_was_edited_is_read_again_in_the_same_process(tmp_path: Path) -> None:
    file = project(tmp_path / "a", 3)
    assert width(read_config(file)) == 3
    (tmp_path / "a" / "helpers.py").write_text("WIDTH = 4\n")
    assert width(read_config(file)) == 4


def test_modules_of_one_project_are_one(tmp_path: Path) -> None:
    file = project(tmp_path / "a", 3)
    text = "import helpers\n" + DATA.replace("    return", "    helpers.WIDTH = 7\n    return")
    (tmp_path / "a" / "data.py").write_text(text)
    assert width(read_config(file)) == 7  # what load() sets, the model sees


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"m.py": "def f():\n    import late\n    return late.X\n", "late.py": "X = 1\n"}, "m:f"),
        ({"m.py": "from other import X as f\n", "other.py": "def X():\n    return 1\n"}, "m:f"),
        ({"m.py": "import pack.inner as i\nf = lambda: i.X\n", "pack/inner.py": "X = 1\n"}, "m:f"),
        (
            {
                "pack/__init__.py": "from .inner import *\n",
                "pack/inner.py": "from . import deep\nf = lambda: deep.X()\n",
                "pack/deep/__init__.py": "from ..other import one as X\n",
                "pack/other.py": "from pack.last import one\n",
                "pack/last.py": "one = lambda: 1\n",
            },
            "pack:f",
        ),
        ({"pack/m.py": "import pack.n\nf = lambda: pack.n.X\n", "pack/n.py": "X = 1\n"}, "pack.m:f"),
        ({"folder/m.py": DATACLASS}, "folder.m:f"),
        ({"signal.py": "f = lambda: 1\n"}, "signal:f"),
    ],
    ids=["late", "from", "folder", "package", "absolute", "dataclass", "name of the standard library"],
)
def test_what_a_file_imports_from_its_folder_is_found_and_kept(
    files: dict[str, str], name: str, tmp_path: Path
) -> None:
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    code = find_code([name.partition(":")[0]], [tmp_path])
    assert sorted(source.path for source in code.sources) == sorted(files)
    before = set(sys.path), {*sys.modules} & {"m", "pack", "folder", "late", "other"}
    assert own_function("model.name", name, code)() == 1
    assert (set(sys.path), {*sys.modules} & {"m", "pack", "folder", "late", "other"}) == before


def test_installed_packages_are_imported_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "torch").mkdir()  # a folder of files is no package where there is a real one
    (tmp_path / "torch" / "notes.txt").write_text("")
    code = find_code(["torch.nn"], [tmp_path])
    assert code.sources == ()
    assert own_function("model.name", "torch.nn:Identity", code) is torch.nn.Identity
    with pytest.raises(InvalidInput, match=r"model\.loss: cannot import torch\.nn:nothing \(AttributeError"):
        own_function("model.loss", "torch.nn:nothing", code)


def test_a_run_goes_on_with_the_code_it_began_with(tmp_path: Path) -> None:
    file = project(tmp_path / "a", 3)
    run(read_config(file), tmp_path / "whole")
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(read_config(file, ["baselines=['global']"]), out, StopAt(3))
    assert sorted(kept.name for kept in (out / "code").iterdir()) == ["data.py", "helpers.py", "model.py"]
    (tmp_path / "a" / "helpers.py").write_text("WIDTH = 9\n")
    (tmp_path / "a" / "data.py").write_text("load = None\n")
    summary = resume(out)
    assert summary.pop("baselines")["global"]["rounds"] == 6
    models, whole = (open_trained(folder).theta for folder in (out, tmp_path / "whole"))
    torch.testing.assert_close(models, whole, rtol=0, atol=0, equal_nan=True)
    assert open_trained(out / "baselines" / "global").module[0].weight.shape == (3, 2)  # type: ignore[index]


def test_a_resumed_run_of_ones_own_code_ends_with_the_same_bits(tmp_path: Path) -> None:
    file = project(tmp_path / "a")
    run(read_config(file), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(read_config(file), tmp_path / "run", StopAt(3))
    resume(tmp_path / "run")
    assert_same_result(tmp_path / "whole", tmp_path / "run")


def test_a_run_is_used_with_its_own_model_beside_another(tmp_path: Path) -> None:
    run(read_config(project(tmp_path / "a", 3)), tmp_path / "run")
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "new.npz", x=rng.normal(size=(8, 2)), y=rng.normal(size=8))
    expected = predict(tmp_path / "run", tmp_path / "new.npz").table()
    project(tmp_path / "b", 3)
    for folder in ("a", "b"):
        (tmp_path / folder / "model.py").write_text(MODEL.replace("Tanh", "ReLU"))  # fits the same tensors
    command = [sys.executable, "-m", "ifca", "predict", "../run", "../new.npz", "--out", "found.csv"]
    done = subprocess.run(command, cwd=tmp_path / "b", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "b" / "found.csv").read_text() == expected


@pytest.mark.parametrize("change", ["edited", "gone"])
def test_a_copy_that_is_not_what_the_run_began_with_is_refused(change: str, tmp_path: Path) -> None:
    run(read_config(project(tmp_path / "a")), tmp_path / "run")
    kept = tmp_path / "run" / "code" / "helpers.py"
    if change == "edited":
        kept.write_text("WIDTH = 3  # the same, one might think\n")
    else:
        kept.unlink()
    for trust in (False, True):
        with pytest.raises(InvalidInput, match=r"code/helpers\.py: is (not the file|missing)"):
            open_trained(tmp_path / "run", trust)
        with pytest.raises(InvalidInput, match=r"code/helpers\.py: is (not the file|missing)"):
            resume(tmp_path / "run", trust=trust)


def test_a_choice_of_k_does_not_mix_two_versions_of_a_file(tmp_path: Path) -> None:
    file = project(tmp_path / "a")
    choose_k(read_config(file), range(1, 2), 1, tmp_path / "out")
    (tmp_path / "a" / "helpers.py").write_text("WIDTH = 4\n")
    with pytest.raises(InvalidInput, match=r"k-1/seed-0: was begun with another helpers\.py"):
        choose_k(read_config(file), range(1, 3), 1, tmp_path / "out")


def test_what_is_edited_while_a_run_trains_is_for_later_runs(tmp_path: Path) -> None:
    file = project(tmp_path / "a", 3)

    class Edit(Silent):
        def round_ended(self, record: Record) -> None:
            (tmp_path / "a" / "helpers.py").write_text("WIDTH = 8\n")

    run(read_config(file, ["baselines=['global']"]), tmp_path / "run", Edit())
    for folder in ("run", "run/baselines/global"):
        assert open_trained(tmp_path / folder).module[0].weight.shape == (3, 2)  # type: ignore[index]
    assert (tmp_path / "run" / "code" / "helpers.py").read_text() == "WIDTH = 3\n"
    assert make_federation(read_config(file)).train.ids == ("c0", "c1", "c2", "c3")


RULES = """
from dataclasses import replace
from ifca.methods import Aggregation, method_of

def middle(blocks, weight):
    for values in blocks():
        yield values.median(0).values

MIDDLE = Aggregation("middle", "The lower median.", middle)
MINE = replace(method_of("ifca-plain"), name="mine", title="mine of a file")
"""


def test_a_method_and_a_rule_of_the_user_s_own(tmp_path: Path) -> None:
    """Named in the config, kept with the run, and used by a resume after the file is gone."""
    (tmp_path / "rules.py").write_text(RULES)
    (tmp_path / "config.toml").write_text(
        'algorithm = "rules:MINE"\naggregation = "rules:MIDDLE"\nk = 2\nrounds = 3\nbaselines = ["global"]\n'
        '[data]\nname = "rotated-digits"\nangles = [0, 180]\n'
    )
    summary = run(read_config(tmp_path / "config.toml"), tmp_path / "run")
    assert summary["method"]["title"] == "mine of a file"
    assert (tmp_path / "run" / "code" / "rules.py").read_text() == RULES
    (tmp_path / "rules.py").unlink()
    (tmp_path / "run" / "summary.json").unlink()
    assert resume(tmp_path / "run")["train_loss"] == summary["train_loss"]
    (tmp_path / "rules.py").write_text("MINE = 3\n")
    with pytest.raises(InvalidInput, match="algorithm: rules:MINE must be of type Method, got int"):
        run(read_config(tmp_path / "config.toml"), tmp_path / "other")
