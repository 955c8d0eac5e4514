"""A damaged or exchanged file of a run is refused in one sentence, or changes nothing; never other models."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from ifca.core.callbacks import Record, Silent
from ifca.core.errors import InvalidInput, RunFolderWarning
from ifca.core.sketch import make_sketch
from ifca.runs.config import read_config
from ifca.runs.run import resume, run
from ifca.runs.summary_file import read_summary, write_summary
from ifca.training.checkpoint import FORMAT, OLDER, load_tensors, save_tensors
from ifca.use.assign import assign_clients
from tests.test_resume import assert_same_result

SETTINGS = [
    "k=2",
    "rounds=5",
    "local_steps=1",
    "device=cpu",
    "baselines=[]",
    "restarts=1",
    "model.hidden=[2]",
]


class Stop(Silent):
    """Interrupts a run after its third round."""

    def round_ended(self, record: Record) -> None:
        if record["round"] == 2:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of one config a whole run, and two that were interrupted; clients in files."""
    here = tmp_path_factory.mktemp("integrity")
    (here / "clients").mkdir()
    rng = np.random.default_rng(0)
    for i in range(4):
        x = rng.normal(size=(10, 2))
        np.savez(here / "clients" / f"c{i}.npz", x=x, y=(x[:, i % 2] > 0).astype(int))
    config = read_config(None, [*SETTINGS, f"data={{name='folder', path='{here / 'clients'}'}}"])
    run(config, here / "whole")
    for name in ("half", "other"):
        with pytest.raises(KeyboardInterrupt):
            run(config, here / name, Stop())
    return here


def content(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def refused_or_the_same(out: Path, whole: Path) -> str | None:
    """Resume: the sentence of a refusal, which changes nothing on the disk; None: it ends as it should."""
    before, said = content(out), None
    try:
        resume(out)
    except InvalidInput as reason:
        said = str(reason)
    if said is None:
        assert_same_result(whole, out)
    else:
        assert content(out) == before
        assert "\n" not in said
        assert str(out) in said
    return said


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "rounds.jsonl"])
def test_a_flipped_bit_is_refused_or_changes_nothing(name: str, here: Path, tmp_path: Path) -> None:
    whole = (here / "half" / name).read_bytes()
    places = [*range(0, min(120, len(whole)), 3), *np.linspace(0, len(whole) - 1, 160).astype(int).tolist()]
    harmless = 0
    for i, place in enumerate(places):
        out = tmp_path / f"run-{i}"
        shutil.copytree(here / "half", out)
        flipped = bytearray(whole)
        flipped[place] ^= 1 << i % 8
        (out / name).write_bytes(flipped)
        harmless += refused_or_the_same(out, here / "whole") is None
        shutil.rmtree(out)
    assert harmless < 10  # such as in the padding of a header


def test_a_flipped_bit_in_the_models_is_refused(here: Path, tmp_path: Path) -> None:
    shutil.copytree(here / "whole", tmp_path / "run")
    file = tmp_path / "run" / "models.safetensors"
    whole = file.read_bytes()
    found = assign_clients(here / "whole", here / "clients")
    for i, place in enumerate(np.linspace(0, len(whole) - 1, 100).astype(int).tolist()):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << i % 8
        file.write_bytes(flipped)
        try:
            assert assign_clients(tmp_path / "run", here / "clients") == found
        except InvalidInput as reason:
            assert "models.safetensors" in str(reason)  # noqa: PT017


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "rounds.jsonl", "run.json", "models.safetensors"])
def test_a_file_of_another_run_is_refused(name: str, here: Path, tmp_path: Path) -> None:
    """Of the same config and the same data, so that nothing else tells them apart."""
    shutil.copytree(here / ("whole" if name == "models.safetensors" else "half"), tmp_path / "run")
    shutil.copy(here / "other" / name.replace("models", "checkpoint"), tmp_path / "run" / name)
    if name == "rounds.jsonl":  # logs of such runs differ in what rounds took, which may be as long
        log = (here / "other" / name).read_text()
        (tmp_path / "run" / name).write_text(re.sub(r'"seconds": [^,}]+', '"seconds": 7.5', log, count=1))
    if name == "models.safetensors":
        with pytest.raises(InvalidInput, match=r"models\.safetensors: does not hold the models of this run"):
            assign_clients(tmp_path / "run", here / "clients")
    else:
        said = refused_or_the_same(tmp_path / "run", here / "whole")
        assert said is not None
        assert ("log that the checkpoint" if name == "rounds.jsonl" else "by another run") in said


def test_models_of_another_run_are_refused(here: Path, tmp_path: Path) -> None:
    shutil.copytree(here / "half", tmp_path / "twin")
    resume(tmp_path / "twin")
    shutil.copy(here / "whole" / "models.safetensors", tmp_path / "twin" / "models.safetensors")
    with pytest.raises(InvalidInput, match=r"models\.safetensors: does not hold the models of this run"):
        assign_clients(tmp_path / "twin", here / "clients")


def test_restarts_are_not_exchanged(here: Path, tmp_path: Path) -> None:
    data = f"data={{name='folder', path='{here / 'clients'}'}}"
    run(read_config(None, [*SETTINGS, data, "restarts=2"]), tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    first, second = (tmp_path / "run" / "restarts" / part for part in "01")
    for name, words in (("rounds.jsonl", "log that the checkpoint"), ("checkpoint.safetensors", "restart 1")):
        mine = (first / name).read_bytes()
        shutil.copy(second / name, first / name)
        with pytest.raises(InvalidInput, match=words):
            resume(tmp_path / "run")
        (first / name).write_bytes(mine)
    resume(tmp_path / "run")


def test_an_earlier_checkpoint_of_the_same_run_goes_on_to_the_same_bits(here: Path, tmp_path: Path) -> None:
    shutil.copytree(here / "half", tmp_path / "run")
    resume(tmp_path / "run")
    for name in ("summary.json", "checkpoint.safetensors"):
        (tmp_path / "run" / name).unlink()
    shutil.copy(here / "half" / "checkpoint.safetensors", tmp_path / "run")
    assert refused_or_the_same(tmp_path / "run", here / "whole") is None


def older(folder: Path) -> None:
    """A folder as it was before runs had an id and files a checksum."""
    (folder / "run.json").unlink()
    for file in folder.rglob("summary.json"):
        content = json.loads(file.read_text())
        del content["checksums"]
        file.write_text(json.dumps(content, indent=2))
    for file in folder.rglob("*.safetensors"):
        tensors, header = load_tensors(file)
        header = {name: value for name, value in header.items() if name not in ("run", "log")}
        if "config" in header:
            del header["config"]["memory_budget"]
        save_file(tensors, file, {OLDER: json.dumps(header)})


@pytest.mark.parametrize("budget", [None, 64])
def test_a_folder_of_an_older_version_still_opens(budget: int | None, here: Path, tmp_path: Path) -> None:
    data = f"data={{name='folder', path='{here / 'clients'}'}}"
    settings = [*SETTINGS, data, *([] if budget is None else [f"memory_budget={budget}"])]
    with pytest.raises(KeyboardInterrupt):
        run(read_config(None, settings), tmp_path / "run", Stop())
    older(tmp_path / "run")
    resume(tmp_path / "run")
    mine, whole = (
        load_tensors(path / "models.safetensors")[0] for path in (tmp_path / "run", here / "whole")
    )
    torch.testing.assert_close(mine, whole, rtol=0, atol=0, equal_nan=True)
    older_finished = tmp_path / "finished"
    shutil.copytree(here / "whole", older_finished)
    older(older_finished)
    with pytest.warns(RunFolderWarning, match="older version of ifca, whose results have no checksums"):
        found = assign_clients(older_finished, here / "clients")
    assert found == assign_clients(here / "whole", here / "clients")


@pytest.mark.parametrize(("was", "now"), [(None, 64), (64, None), (64, 65)])
def test_the_memory_budget_does_not_change(
    was: int | None, now: int | None, here: Path, tmp_path: Path
) -> None:
    """It decides which clients are summed together, and so the last bits of the fast path."""
    data = f"data={{name='folder', path='{here / 'clients'}'}}"
    with pytest.raises(KeyboardInterrupt):
        run(read_config(None, [*SETTINGS, data, *_budget(was)]), tmp_path / "run", Stop())
    config = tmp_path / "run" / "config.toml"
    lines = [line for line in config.read_text().splitlines() if not line.startswith("memory_budget")]
    config.write_text("\n".join([*_budget(now), *lines]))
    said = refused_or_the_same(tmp_path / "run", here / "whole")
    assert said is not None
    assert f"memory_budget was {json.dumps(was)}, config.toml says {json.dumps(now)}" in said


def _budget(value: int | None) -> list[str]:
    return [] if value is None else [f"memory_budget={value}"]


def test_the_log_is_on_the_disk_before_the_checkpoint_that_counts_on_it(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    data = f"data={{name='folder', path='{here / 'clients'}'}}"
    run(read_config(None, [*SETTINGS, data, "checkpoint_every=2"]), tmp_path / "run")
    order = [name for name in synced if name in ("rounds.jsonl", ".checkpoint.safetensors.tmp")]
    assert order == ["rounds.jsonl", ".checkpoint.safetensors.tmp"] * 3  # after rounds 2, 4 and 5
    with safe_open(tmp_path / "run" / "checkpoint.safetensors", "pt") as file:
        mark: dict[str, Any] = json.loads(file.metadata()[FORMAT])["log"]
    assert mark["bytes"] == (tmp_path / "run" / "rounds.jsonl").stat().st_size


def test_tensors_of_every_kind_have_a_checksum(tmp_path: Path) -> None:
    tensors = {
        "scalar": torch.tensor(1.5),
        "empty": torch.zeros(0, 3),
        "flags": torch.tensor([True, False]),
        "half": torch.ones(2, 2, dtype=torch.bfloat16),
        "turned": torch.arange(6.0).reshape(2, 3).T,
    }
    save_tensors(tmp_path / "file", tensors, {"n": 1})
    found, header = load_tensors(tmp_path / "file")
    assert header == {"n": 1}
    assert all(torch.equal(found[name], value) for name, value in tensors.items())


def test_the_order_of_parameters_in_a_file_decides_no_bit_of_a_sketch() -> None:
    """safetensors keeps another order than the model: sums in that order would be off by a last bit."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"b": (5,), "a": (7, 3), "d": (40,), "c": (9, 11)}
    update = {name: torch.randn(4, *shape, generator=generator) for name, shape in shapes.items()}
    other = dict(sorted(update.items()))
    assert [*other] != [*update]
    assert torch.equal(make_sketch(update, 0).of(update), make_sketch(other, 0).of(other))


@pytest.mark.parametrize("places", [[0, 0], [5, 0]])
def test_places_are_different_numbers_below_k(places: list[int], here: Path, tmp_path: Path) -> None:
    """Found by the fuzzer: a page of a summary whose checksum fits what was altered."""
    folder = shutil.copytree(here / "whole", tmp_path / "run")
    write_summary(folder, {**read_summary(folder), "places": places})
    with pytest.raises(InvalidInput, match=r"summary\.json: places must be different numbers below k"):
        read_summary(folder)
