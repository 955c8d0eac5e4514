"""The job that a command names: a config, a preset, a table, a folder of tables, or nothing (the default)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ifca.core.errors import InvalidInput
from ifca.data.problems import refuse
from ifca.data.sources.table_files import KINDS as TABLES
from ifca.data.sources.table_files import check_no_spreadsheet, kind_of
from ifca.runs.complaints import did_you_mean
from ifca.runs.config import Config, config_dict, config_of, read_config, without_none
from ifca.runs.given_code import check_given_code
from ifca.runs.own_data_config import OwnFiles
from ifca.runs.presets import PRESETS, presets

DATA_FILES = (*TABLES, ".npz", ".json")
BASELINES = ("global", "local")
"""Trained beside a job that nobody has written a config for: are clusters of any use here?"""
TEST_SHARE = 0.2  # of such a job


def chosen_job(
    what: Path | None,
    columns: dict[str, Any],
    preset: str | None = None,
    settings: list[str] | None = None,
    *,
    trust: bool = False,
    **overrides: Any,
) -> Config:
    """The config. columns: label and client of a table or of a folder of tables, where they are given.

    trust: it may name code that does not lie beside it.
    """
    columns = {name: value for name, value in columns.items() if value}
    if preset is not None:
        if what is not None:
            raise InvalidInput(f"give {what} or --preset {preset}, not both")
        what = _preset_file(preset)
    if what is not None and kind_of(what) in TABLES and not what.exists():
        raise InvalidInput(f"{what}: no such file or folder")
    if what is not None and (what.is_dir() or kind_of(what) in TABLES):
        return _of_data(what, columns, settings, overrides)
    if what is not None:
        check_no_spreadsheet(what, refuse)
    if columns and what is not None and what.suffix != ".toml" and not what.exists():
        raise InvalidInput(f"{what}: no such file or folder")
    if columns:
        name = next(iter(columns))
        raise InvalidInput(f"--{name}: is for a table or a folder of tables; in a config it is data.{name}")
    if what is not None and not what.exists() and what.name in presets():
        raise InvalidInput(f"{what}: no such config file; did you mean --preset {what.name}?")
    config = read_config(what, settings, **overrides)
    check_given_code(config, what, settings or [], trust=trust)
    return config


def _preset_file(name: str) -> Path:
    known = presets()
    if name not in known:
        near = did_you_mean(name, list(known)) or f" (known: {', '.join(known)})"
        raise InvalidInput(f"--preset {name}: there is no such preset{near}")
    return PRESETS / f"{name}.toml"


def _of_data(
    path: Path, columns: dict[str, Any], settings: list[str] | None, overrides: dict[str, Any]
) -> Config:
    """What 'ifca data inspect' advises for a table or a folder, with two baselines to compare with."""
    from ifca.runs.inspect_data import config_of_path

    _check_folder(path)
    _check_columns(path, columns, settings or [])
    config = config_of_path(path, columns)
    assert isinstance(config.data, OwnFiles)
    data: Any = replace(config.data, test_share=TEST_SHARE)
    content = {
        "baselines": list(BASELINES),
        "data": without_none(config_dict(replace(config, data=data))["data"]),
    }
    return config_of(content, settings, overrides, str(path))


def _check_folder(path: Path) -> None:
    """Refuse a folder that is not one of data, and say what it is for."""
    from ifca.runs.run_folder import CONFIG, is_run_folder

    if not path.is_dir():
        return
    if is_run_folder(path):
        raise InvalidInput(
            f"{path}: is the folder of a run; 'ifca resume {path}' goes on with it, "
            f"'ifca report {path}' shows it"
        )
    if (path / CONFIG).is_file():
        raise InvalidInput(f"{path}: is a folder; 'ifca run {path / CONFIG}' runs the job in it")
    files = [file for folder in (path, path / "train") if folder.is_dir() for file in folder.iterdir()]
    if not any(file.suffix in DATA_FILES for file in files):
        kinds = ", ".join(DATA_FILES)
        raise InvalidInput(f"{path}: is a folder without a {CONFIG} and without files of data ({kinds})")


def _check_columns(path: Path, columns: dict[str, Any], settings: list[str]) -> None:
    """A table does not say by itself what to predict, and whose its rows are."""
    set_ = {setting.partition("=")[0].strip() for setting in settings}
    files = [path] if path.is_file() else sorted(file for file in path.iterdir() if file.suffix in TABLES)
    needed = {"label": "to predict", **({"client": "that says whose a row is"} if path.is_file() else {})}
    missing = [name for name in needed if name not in columns and f"data.{name}" not in set_]
    if files and missing:
        options = " ".join(f"--{name} COLUMN" for name in needed)
        raise InvalidInput(
            f"{path}: --{missing[0]} is missing, the column {needed[missing[0]]}: "
            f"'ifca run {path} {options}'; 'ifca data inspect {path}' shows what is there"
        )
