"""Nothing lost: runs that are really killed go on, and end with the same bits as runs that were not."""

from __future__ import annotations

import csv
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from ifca.core.callbacks import Record, Training
from ifca.core.errors import InvalidInput, RunFolderWarning
from ifca.core.recipe import Recipe
from ifca.core.types import ClusterState
from ifca.data import rotated_digits
from ifca.runs.config import config_dict, read_config
from ifca.runs.run import resume, run
from ifca.runs.run_folder import same_config
from ifca.training import Job, fit
from ifca.training.checkpoint import load_state, load_tensors, models_of, save_state, save_tensors
from ifca.training.start import start as started
from tests.conftest import groups, make_job

SMALL = ["rounds=12", "data.samples=150", "model.hidden=[8]", "device=cpu"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def settings(*more: str) -> list[str]:
    return [part for setting in (*SMALL, *more) for part in ("--set", setting)]


def start(out: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ifca", "run", "--quiet", "--out", str(out), *settings(*more)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )


def assert_same_result(a: Path, b: Path) -> None:
    """Models to the last bit, clients, rounds and summary but for the seconds."""
    mine, other = load_tensors(a / "models.safetensors")[0], load_tensors(b / "models.safetensors")[0]
    for name, value in mine.items():
        torch.testing.assert_close(value, other[name], rtol=0, atol=0)
    assert (a / "clients.csv").read_bytes() == (b / "clients.csv").read_bytes()
    for file in ("rounds.jsonl", "summary.json"):
        assert _without_seconds(a / file) == _without_seconds(b / file)


def _without_seconds(file: Path) -> object:
    def clean(value: object) -> object:
        if isinstance(value, dict):
            other = ("seconds", "checksums")  # of files with other seconds, and of another run
            return {k: clean(v) for k, v in value.items() if not k.startswith(other)}
        return [clean(v) for v in value] if isinstance(value, list) else value

    if file.suffix == ".jsonl":
        return [clean(json.loads(line)) for line in file.read_text().splitlines()]
    return clean(json.loads(file.read_text()))


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(("restarts=1", "baselines=[]"), id="plain", marks=pytest.mark.slow),
        pytest.param(("restarts=2", "baselines=['oneshot', 'local']"), id="restarts and baselines"),
        pytest.param(
            ("restarts=1", "baselines=[]", "batch_size=10", "participation=0.5", "checkpoint_every=3"),
            id="stochastic, sparse checkpoints",
        ),
        pytest.param(
            ("restarts=1", "baselines=[]", "option=gradient", "engine=loop", "stable_after=1"),
            id="loop, saving",
            marks=pytest.mark.slow,
        ),
        pytest.param(("restarts=1", "baselines=['oneshot']", "k=auto"), id="k auto", marks=pytest.mark.slow),
    ],
)
def test_killed_again_and_again_ends_with_the_same_bits(more: tuple[str, ...], tmp_path: Path) -> None:
    run(read_config(None, [*SMALL, *more]), tmp_path / "whole")
    out, kills = tmp_path / "killed", 0
    process = start(out, *more)
    for _ in range(200):
        logs = list(out.rglob("rounds.jsonl"))
        before = sum(log.stat().st_size for log in logs)
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:  # let it do something new, then kill
            if sum(log.stat().st_size for log in out.rglob("rounds.jsonl")) > before and kills < 4:
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.001)
        _, errors = process.communicate()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, errors
        process = subprocess.Popen(
            [sys.executable, "-m", "ifca", "resume", "--quiet", str(out)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
    assert kills >= 3
    assert_same_result(tmp_path / "whole", out)


def test_every_torn_state_of_the_folder_resumes(tmp_path: Path) -> None:
    """The log may be ahead of the checkpoint by rounds or by half a line; a temporary file may lie around."""
    config = read_config(None, [*SMALL, "restarts=1", "baselines=[]"])
    run(config, tmp_path / "whole")
    out = tmp_path / "torn"

    class StopAt:
        def started(self, training: Training) -> None: ...

        def round_ended(self, record: Record) -> None:
            if record["round"] == 5:
                raise KeyboardInterrupt

        def finished(self, summary: dict[str, object]) -> None: ...

    with pytest.raises(KeyboardInterrupt):
        run(config, out, StopAt())
    with (out / "rounds.jsonl").open("a") as log:
        log.write('{"round": 6, "nonsense": 1}\n{"round": 7, "cut')
    (out / ".checkpoint.safetensors.tmp").write_bytes(b"half a checkpoint")
    resume(out)
    assert_same_result(tmp_path / "whole", out)


def test_a_finished_run_is_left_as_it_is(tmp_path: Path) -> None:
    run(read_config(None, [*SMALL, "restarts=1", "baselines=[]"]), tmp_path / "done")
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "done").iterdir()}
    resume(tmp_path / "done")
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "done").iterdir()} == before


def test_lost_result_files_are_made_again(tmp_path: Path) -> None:
    out = tmp_path / "done"
    run(read_config(None, [*SMALL, "restarts=1", "baselines=[]"]), out)
    before = {name: (out / name).read_bytes() for name in ("models.safetensors", "clients.csv")}
    for name, content in before.items():
        (out / name).unlink()
        with pytest.warns(RunFolderWarning, match="is missing, but the run had written it; the results are"):
            resume(out)
        assert (out / name).read_bytes() == content
    whole = (out / "summary.json").read_bytes()
    (out / "summary.json").write_text("{")
    with pytest.warns(RunFolderWarning, match="not valid JSON.*made again from the checkpoint"):
        assert resume(out)["rounds"] == 12
    assert (out / "summary.json").read_bytes() == whole


def test_the_config_of_a_finished_run_is_not_edited(tmp_path: Path) -> None:
    out = tmp_path / "done"
    run(read_config(None, [*SMALL, "restarts=1", "baselines=[]"]), out)
    before = {file: file.read_bytes() for file in out.iterdir()}
    for was, now in (("seed = 0", "seed = 1"), ("restarts = 1", "restarts = 2")):
        text = before[out / "config.toml"].decode().replace(was, now)
        (out / "config.toml").write_text(text)
        with pytest.raises(InvalidInput, match=f"another config: {was.replace('=', 'was')}"):
            resume(out)
        (out / "config.toml").write_bytes(before[out / "config.toml"])
        assert {file: file.read_bytes() for file in out.iterdir()} == before


class TestRefusals:
    @pytest.fixture
    def half(self, tmp_path: Path) -> Path:
        """A run whose checkpoint is there and whose summary is not."""
        out = tmp_path / "half"
        run(read_config(None, [*SMALL, "restarts=1", "baselines=[]"]), out)
        (out / "summary.json").unlink()
        return out

    @pytest.mark.parametrize("name", ["checkpoint-served.safetensors", "models.safetensors", "clients.csv"])
    def test_a_folder_in_the_place_of_a_file(self, name: str, half: Path) -> None:
        (half / name).unlink(missing_ok=True)
        (half / name).mkdir()
        before = {file: file.read_bytes() for file in half.iterdir() if file.is_file()}
        with pytest.raises(InvalidInput, match=f"{name}: is a folder, where a file belongs"):
            resume(half)
        assert {file: file.read_bytes() for file in half.iterdir() if file.is_file()} == before

    def test_a_checkpoint_of_another_config(self, half: Path) -> None:
        text = (half / "config.toml").read_text()
        (half / "config.toml").write_text(text.replace("step_size = 0.1", "step_size = 0.2"))
        before = (half / "checkpoint.safetensors").read_bytes()
        with pytest.raises(InvalidInput, match=r"another config: step_size was 0\.1, config\.toml says 0\.2"):
            resume(half)
        assert (half / "checkpoint.safetensors").read_bytes() == before

    def test_a_checkpoint_cut_off_or_of_another_kind(self, half: Path) -> None:
        file = half / "checkpoint.safetensors"
        whole = file.read_bytes()
        for content in (whole[:5], whole[:500], whole[:-3], b"PK\x03\x04 not a checkpoint"):
            file.write_bytes(content)
            with pytest.raises(InvalidInput, match=r"checkpoint\.safetensors: not a readable"):
                resume(half)
        from safetensors.torch import save_file

        save_file({"x": torch.zeros(1)}, file)
        with pytest.raises(InvalidInput, match="was not written by this version"):
            resume(half)

    def test_data_that_changed(self, half: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ifca.runs.run.make_federation", lambda *_: rotated_digits(seed=99))
        with pytest.raises(InvalidInput, match=r"checkpoint\.safetensors: is of other data"):
            resume(half)

    def test_a_log_that_lost_rounds(self, half: Path) -> None:
        (half / "rounds.jsonl").write_text("")
        with pytest.raises(InvalidInput, match="has 0 rounds but the checkpoint has 12"):
            resume(half)

    def test_a_log_with_a_damaged_line(self, half: Path) -> None:
        lines = (half / "rounds.jsonl").read_text().splitlines(keepends=True)
        (half / "rounds.jsonl").write_text("".join([*lines[:4], "{nonsense}\n", *lines[5:]]))
        with pytest.raises(InvalidInput, match=r"rounds\.jsonl: line 5 is damaged"):
            resume(half)

    def test_a_folder_in_use_is_not_touched(self, half: Path) -> None:
        before = sorted(file.name for file in half.iterdir())
        with pytest.raises(InvalidInput, match="already holds something"):
            run(read_config(None, SMALL), half)
        assert sorted(file.name for file in half.iterdir()) == before

    def test_not_a_run(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput, match="no such run folder"):
            resume(tmp_path / "nowhere")
        with pytest.raises(InvalidInput, match=r"has no config\.toml"):
            resume(tmp_path)


def test_a_full_disk_is_one_sentence_and_loses_nothing(tmp_path: Path) -> None:
    """A limit on file sizes stands in for the disk: the first write beyond it fails as on a full one."""
    out = tmp_path / "full"
    limited = subprocess.run(
        [sys.executable, "-m", "ifca", "run", "--out", str(out), *settings("restarts=1", "baselines=[]")],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000)),
    )
    assert limited.returncode == 1
    assert limited.stderr.startswith("error: ")
    assert "Traceback" not in limited.stderr
    assert limited.stderr.count("\n") == 1
    resume(out)
    run(read_config(None, [*SMALL, "restarts=1", "baselines=[]"]), tmp_path / "whole")
    assert_same_result(tmp_path / "whole", out)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.safetensors"
    save_tensors(file, {"a": torch.zeros(2)}, {"n": 1})

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*x\.safetensors"):
        save_tensors(file, {"a": torch.ones(2)}, {"n": 2})
    assert load_tensors(file)[1] == {"n": 1}
    assert [f.name for f in tmp_path.iterdir()] == ["x.safetensors"]


CUBIC = """
import torch
from torch import nn
from torch import nn


class Cubic(nn.Module):  # y = sum of w^3 x: from w = 3 every step is longer than the last
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((5,), 0.3 if torch.rand(1) < 0.5 else 3.0))

    def forward(self, x):
        return (x * self.weight**3).sum(1, keepdim=True)
"""


def test_the_bytes_of_a_diverged_restart_are_counted(tmp_path: Path) -> None:
    """Four clients, a model of five numbers: 20 bytes down, 28 up in each round, also in the last one."""
    (tmp_path / "cubic.py").write_text(CUBIC)
    settings = ["algorithm=ifca-plain", "k=1", "rounds=4", "restarts=2", "step_size=0.02", "local_steps=1"]
    settings += ["on_divergence=stop"]
    settings += ["model.name=cubic:Cubic", "baselines=[]", f"code={tmp_path}", "device=cpu"]
    settings += ["data={name='synthetic', clients=4, samples=20, dimension=5, clusters=1}"]
    summary = run(read_config(None, settings), tmp_path / "run")
    diverged, good = summary["restarts"]
    assert "training diverged: in round 3" in diverged["error"]
    assert (good["bytes_down"], good["bytes_up"]) == (4 * 4 * 20, 4 * 4 * 28)
    assert (diverged["bytes_down"], diverged["bytes_up"]) == (3 * 4 * 20, 3 * 4 * 28)
    assert diverged["seconds"] > 0
    assert summary["bytes_down"] == 7 * 4 * 20


def test_clients_csv_agrees_with_the_ledger(tmp_path: Path) -> None:
    summary = run(read_config(None, [*SMALL, "restarts=1", "baselines=[]"]), tmp_path / "run")
    with (tmp_path / "run" / "clients.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert sum(int(row["bytes_down"]) for row in rows) == summary["bytes_down"]
    assert all(float(row["train_loss"]) == min(float(row[f"loss_{j}"]) for j in range(4)) for row in rows)


def test_a_checkpoint_of_an_older_version_still_opens(tmp_path: Path) -> None:
    """It had NaN at places without a model, and the server's memory in fields of its own."""
    none = torch.zeros(3, dtype=torch.long)
    tensors = {"theta.w": torch.tensor([[1.0, 2.0], [torch.nan, torch.nan]]), "watch.seen": none - 1}
    tensors |= {"identity": none, "asked": none + 4, "bytes_down": none + 7, "bytes_up": none + 8}
    counts = {"round": 5, "unchanged": 2, "checked": 4, "changed": 1, "tried": -1, "pace": 0.5}
    save_tensors(tmp_path / "old", tensors, {"state": counts})
    state = load_state(tmp_path / "old", torch.device("cpu"), lambda _header: None)
    assert state.live.tolist() == [True, False]
    assert state.theta["w"].tolist() == [[1.0, 2.0], [0.0, 0.0]]
    assert (state.round, state.bytes_up.tolist()) == (5, [8, 8, 8])
    assert state.memory["seen"].tolist() == [-1, -1, -1]
    assert (state.memory["tried"].item(), state.memory["pace"].item()) == (-1, 0.5)
    save_tensors(tmp_path / "models", {"w": tensors["theta.w"]}, {"algorithm": "ifca"})
    theta, header = models_of(tmp_path / "models")
    assert (theta["w"].tolist(), header["clusters"]) == ([[1.0, 2.0]], [0])


def test_a_config_of_an_older_version_had_the_defaults_of_keys_it_did_not_know(tmp_path: Path) -> None:
    config = read_config(None, SMALL)
    was = config_dict(config)
    del was["aggregation"]
    same_config(tmp_path / "summary.json", was, config)
    with pytest.raises(InvalidInput, match=r'aggregation was "mean", config\.toml says "median"'):
        same_config(tmp_path / "summary.json", was, replace(config, aggregation="median"))


def test_a_method_s_memory_may_share_its_tensors(tmp_path: Path) -> None:
    """Whatever a method keeps, a checkpoint holds: the state's own tensors once more, and other types."""
    job = make_job(groups((5, 6, 7)), Recipe("ifca-plain", k=2))
    state = started(job)
    memory = {"again": state.identity, "flags": torch.tensor([True, False]), "whole": torch.tensor(3)}
    save_state(tmp_path / "c", replace(state, memory=memory), {})
    found = load_state(tmp_path / "c", torch.device("cpu"), lambda _header: None).memory
    assert {name: value.tolist() for name, value in found.items()} == {
        name: value.tolist() for name, value in memory.items()
    }
    assert found["flags"].dtype == torch.bool


@pytest.mark.parametrize("name", ["fedrep", "apfl", "ditto"])
def test_a_checkpoint_gives_back_the_order_of_the_layers(name: str, tmp_path: Path) -> None:
    """A file has its tensors by name: the head, which is the last layer, may come first there."""
    layers = {"z": nn.Linear(6, 5), "r": nn.ReLU(), "a": nn.Linear(5, 3)}
    recipe = Recipe(algorithm=name, rounds=4)
    job = Job(groups((12, 7, 9)), recipe, lambda: nn.Sequential(OrderedDict(layers)), precision="float64")
    states: list[ClusterState] = []
    whole = fit(job, on_round=lambda state, _record: states.append(state))
    save_state(tmp_path / "state", states[1], {})
    again = fit(job, resume=load_state(tmp_path / "state", torch.device("cpu"), lambda _header: None))
    for key, value in whole.state.theta.items():
        assert torch.equal(value, again.state.theta[key]), key
