"""Configs fail naming the field; every shipped config parses; what is written reads back."""

from __future__ import annotations

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
        ("kk=3", "unknown key kk"),
        ("data.sampls=3", r"unknown key data\.sampls"),
        ("model.width=3", r"unknown key model\.width"),
        ("k='4'", "k must be a whole number or \"auto\", got '4'"),
        ("k=1.5", 'k must be a whole number or "auto", got 1.5'),
        ("k=0", "k must be at least 1, got 0"),
        ("rounds=true", "rounds must be a whole number"),
        ("step_size=-1", "step_size must be a positive number"),
        (
            "algorithm=fedprox",
            "algorithm must be one of ifca, ifca-plain, global, local, oneshot",
        ),
        ("engine=spark", "engine: input should be"),
        ("device=tpu", "device: input should be"),
        ("data.name=mnits", "data: input tag 'mnits'"),
        ("model.hidden=[0]", r"model\.hidden\.0"),
        ("memory_budget=0", "memory_budget"),
        ("nonsense", "expected key=value"),
        ("k.x=3", "k is not a table"),
    ],
)
def test_wrong_settings_name_the_field(setting: str, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        read_config(None, [setting])


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
