"""Settings for a config, tried in a folder: a line for each training, a table, and tuned.toml."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from ifca.core.callbacks import Record, Several, Training
from ifca.core.errors import InvalidInput
from ifca.core.types import ClusterState
from ifca.data.files import working_in, write_atomically
from ifca.data.jsonl import append_jsonl, read_jsonl
from ifca.runs.choose_k import begin_study, one_deal
from ifca.runs.config import Config, config_dict, with_absolute_paths, write_config
from ifca.runs.make import make_federation, make_job
from ifca.runs.record_schema import Count, Known
from ifca.runs.run_code import code_of
from ifca.training.preflight import check
from ifca.training.privacy import refuse_search
from ifca.training.successive_halving import (
    Line,
    Settings,
    grid_of,
    steps_around,
    successive_halving,
    table_of,
    tried,
    verdict_of,
)

LINES, RESULT, TUNED = "tune.jsonl", "tune.json", "tuned.toml"


class TuneLine(TypedDict):
    """A training that is done, in tune.jsonl."""

    level: Count
    rounds: Count
    settings: dict[str, Any]
    held_out_loss: Known
    losses: list[Known] | None


Values = Mapping[str, Sequence[Any]]
"""step_size, local_steps, hidden or k -> what to try."""


def tune_run(
    config: Config, out: Path, values: Values | None = None, rounds: int = 10, callback: object = None
) -> dict[str, Any]:
    """Try settings as far as that is not done; write and return what was found. rounds: of level 1."""
    if rounds < 1:
        raise InvalidInput(f"--rounds must be at least 1, got {rounds}")
    refuse_search(config)
    config = replace(with_absolute_paths(config), baselines=())
    base, values = one_deal(config), values or default_values(config)
    candidates, code = grid_of(values), code_of(config)
    federation = make_federation(base, code)
    for one in candidates:  # refuse what cannot run before a folder is made
        check(make_job(with_settings(base, one), federation, code))
    begin_study(base, federation, out, "tune")
    done = {_key(line): line for line in read_jsonl(out / LINES, kind=TuneLine)}

    def trained(level: int, settings: Settings, most: int) -> Line:
        line = {"level": level, "rounds": most, "settings": settings}
        if _key(line) not in done:
            title = f"level {level}: " + ", ".join(f"{name} {value}" for name, value in settings.items())
            told = Several([callback])
            told.started(Training(title, most))
            job = make_job(with_settings(base, settings), federation, code)
            done[_key(line)] = line | tried(job, most, _telling(told))
            append_jsonl(out / LINES, done[_key(line)])
        return done[_key(line)]

    with working_in(out):
        table = table_of(successive_halving(candidates, rounds, trained))
        best = with_settings(config, table[0]["settings"])
        found = {
            "table": table,
            "best": table[0]["settings"],
            "because": verdict_of(table, values),
            "tried": {name: list(some) for name, some in values.items()},
            "clients": len(federation.train),
            "config": config_dict(config),
        }
        write_atomically(out / TUNED, write_config(best).encode())
        write_atomically(out / RESULT, json.dumps(found, indent=2, allow_nan=False).encode())
    return found


def default_values(config: Config) -> Values:
    """Four step sizes around the config's; twice its local steps, where it counts steps."""
    found: dict[str, Sequence[Any]] = {"step_size": steps_around(config.step_size)}
    if config.local_epochs is None and config.option == "model":
        found["local_steps"] = [config.local_steps, 2 * config.local_steps]
    return found


def with_settings(config: Config, settings: Settings) -> Config:
    """The config with other settings; hidden: the width of one hidden layer."""
    others = {name: value for name, value in settings.items() if name != "hidden"}
    if "hidden" in settings:
        others["model"] = replace(config.model, hidden=(settings["hidden"],))
    return replace(config, **others)


def _telling(told: Several) -> Any:
    def on_round(_state: ClusterState, record: Record) -> bool:
        return told.round_ended(record)

    return on_round


def _key(line: Line) -> str:
    return json.dumps([line["level"], line["rounds"], line["settings"]], sort_keys=True)
