"""Configs fail naming the field; every shipped config parses; what is written reads back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ifca.core.errors import InvalidInput
from ifca.runs.auto_k import MOST
from ifca.runs.config import (
    DEFAULT_CONFIG,
    read_config,
    with_absolute_paths,
    write_config,
)
from ifca.runs.data_config import SyntheticData
from ifca.runs.make import make_job
from ifca.runs.own_data_config import FolderData

SHIPPED = sorted(DEFAULT_CONFIG.parent.glob("*.toml"))


@pytest.mark.parametrize("file", SHIPPED, ids=lambda f: f.stem)
def test_shipped_configs_parse_and_read_back(file: Path, tmp_path: Path) -> None:
    config = read_config(file)
    (tmp_path / "config.toml").write_text(write_config(config))
    assert read_config(tmp_path / "config.toml") == config


def test_settings_and_overrides() -> None:
    settings = ["k=3", "data.samples=20", "model.hidden=[5, 6]", "shared=['fc1']", "step_size=1"]
    config = read_config(None, settings, engine="loop", device=None)
    assert (config.k, config.engine, config.model.hidden) == (3, "loop", (5, 6))
    assert config.shared == ("fc1",)
    assert config.step_size == 1.0
    assert config.data.samples == 20  # type: ignore[union-attr]


def test_data_is_chosen_by_name() -> None:
    synthetic = "data={name='synthetic', dimension=10}"
    assert isinstance(read_config(None, [synthetic]).data, SyntheticData)
    assert isinstance(read_config(None, ["data={name='folder', path='x'}"]).data, FolderData)


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("kk=3", "unknown key kk; did you mean k?"),
        ("round=3", "unknown key round; did you mean rounds?"),
        ("hidden=[3]", "unknown key hidden; did you mean model.hidden?"),
        ("zzz=3", "unknown key zzz (known: algorithm, k, rounds, early_stopping, "),
        ("data.sampls=3", "unknown key data.sampls; did you mean data.samples?"),
        ("model.width=3", "unknown key model.width (known: name, hidden, loss, metrics)"),
        (
            "data={name='partition', deal={alph=3}}",
            "unknown key data.deal.alph; did you mean data.deal.alpha?",
        ),
        (
            "data={name='partition', populations=[{trn=3}]}",
            "data.populations[0].trn; did you mean data.populations[0].turn?",
        ),
        ("k='4'", "k must be a whole number or \"auto\", got '4'"),
        ("k=1.5", 'k must be a whole number or "auto", got 1.5'),
        ("k=0", "k must be at least 1, got 0"),
        ("rounds=true", 'rounds must be a whole number or "auto", got True'),
        ("step_size=-1", "step_size must be a positive number"),
        ("step_size=x", 'step_size must be a number, got "x"'),
        ("weighted=3", "weighted must be true or false, got 3"),
        ("shared=fc1", 'shared must be a list in brackets, got "fc1"'),
        (
            "algorithm=fedprox",
            "algorithm must be one of ifca, ifca-plain, global, local, oneshot",
        ),
        ("engine=spark", 'engine must be one of loop, vectorised, flower, got "spark"'),
        ("device=gpu", "device must be one of auto, cpu, cuda, got"),
        ("data.name=mnist", 'got "mnist"; did you mean rotated-mnist or mnist-writers?'),
        ("data={samples=3}", "data.name is missing; it says which data to train on"),
        ("data=3", "data must be a table of keys, got 3"),
        ("data={name='folder'}", "data.path is missing"),
        (
            "data={name='table', path='x', label=3}",
            "data.label must be a text in quotes or a list in brackets",
        ),
        ("data.test_share=2", "data.test_share must be less than 1, got 2"),
        ("model.hidden=[0]", "model.hidden[0] must be at least 1, got 0"),
        ("memory_budget=0", "memory_budget must be at least 1, got 0"),
        ("nonsense", "expected key=value"),
        ("k.x=3", "k is not a table"),
    ],
)
def test_wrong_settings_name_the_field(setting: str, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(complaint)) as refused:
        read_config(None, [setting])
    for word in ("input", "tag", "valid integer", "discriminator"):  # pydantic's voice
        assert word not in str(refused.value)


def test_wrong_files(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nowhere\.toml: no such config file"):
        read_config(tmp_path / "nowhere.toml")
    (tmp_path / "broken.toml").write_text("k = = 3")
    with pytest.raises(InvalidInput, match=r"broken\.toml: not valid TOML"):
        read_config(tmp_path / "broken.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match=r"bytes\.toml: cannot be read"):
        read_config(tmp_path / "bytes.toml")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (["k=auto", "algorithm=oneshot"], 'k: oneshot needs a number of clusters; "auto" is for ifca'),
        (["k=200", "algorithm=ifca-plain"], "k is 200, but the federation has only 112 clients"),
        (["model.name=transformer"], "unknown model transformer"),
        (["model.name=nowhere:make"], "cannot import nowhere:make"),
        (["model.name=logistic", "data={name='synthetic', dimension=5}"], "which classifies"),
        (["data.samples=5000"], "leaves a client empty"),
        (["data.angles=[0, 45]"], "multiples of 90"),
        (["data={name='folder', path='nowhere'}"], "nowhere: no such folder"),
        (["warm_start='nowhere'"], r"nowhere/models\.safetensors: no such file"),
    ],
)
def test_jobs_that_cannot_be_built(settings: list[str], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        make_job(read_config(None, settings))


def test_every_model_name_builds() -> None:
    for name in ("auto", "linear", "logistic", "mlp", "femnist-cnn", "cifar-cnn"):
        assert make_job(read_config(None, [f"model.name={name}"])).model() is not None


def test_data_are_looked_for_beside_the_config_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = tmp_path / "project" / "job.toml"
    (job.parent / "clients").mkdir(parents=True)
    job.write_text('[data]\nname = "folder"\npath = "clients"\n')
    monkeypatch.chdir(tmp_path)

    def path() -> Path:
        data = with_absolute_paths(read_config(Path("project/job.toml"))).data
        assert isinstance(data, FolderData)
        return Path(data.path)

    assert path() == job.parent / "clients"
    (tmp_path / "clients").mkdir()  # where the command is given comes first
    assert path() == tmp_path / "clients"


SYNTHETIC = 'device = "cpu"\n[data]\nname = "synthetic"\ndimension = 5\nclients = '


@pytest.mark.parametrize(
    ("written", "clients", "k"),
    [
        ("", 40, MOST),
        ('k = "auto"\n', 40, MOST),
        ('k = "auto"\n', 6, 6),
        ("k = 3\n", 40, 3),
        ('algorithm = "ifca-plain"\n', 40, 2),
        ('algorithm = "global"\nk = "auto"\n', 40, 2),
    ],
)
def test_the_most_clusters_where_k_is_left_out_or_auto(
    written: str, clients: int, k: int, tmp_path: Path
) -> None:
    (tmp_path / "job.toml").write_text(f"{written}{SYNTHETIC}{clients}\n")
    config = read_config(tmp_path / "job.toml")
    assert make_job(config).recipe.k == k
    (tmp_path / "again.toml").write_text(write_config(config))
    assert read_config(tmp_path / "again.toml") == config
