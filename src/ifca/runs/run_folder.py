"""A run's folder: what is written while it trains, so that nothing is lost, and read to go on."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from ifca.core.callbacks import Callback, Record, Training, wants_to_stop
from ifca.core.errors import Diverged, InvalidInput
from ifca.core.types import ClusterState
from ifca.data.files import refuse_folders, write_atomically
from ifca.data.jsonl import read_jsonl
from ifca.runs.config import Config, config_dict, read_run_config, write_config
from ifca.runs.own_code import Code
from ifca.runs.record_schema import RoundRecord
from ifca.runs.round_log import RoundLog
from ifca.runs.run_code import RUN, begin_run, begun_config, code_of, named_functions
from ifca.training import Fitted, Job, fit
from ifca.training.checkpoint import load_state, save_state
from ifca.training.early_stopping import asked_to_stop

CHECKPOINT, ROUNDS, CONFIG = "checkpoint.safetensors", "rounds.jsonl", "config.toml"
SERVED = "checkpoint-served.safetensors"  # the one before, whose models served in the round after it
SEEDS = "seeds.json"  # of a comparison, which has a run folder for each seed
PRIVATE = ".flower"  # a federation's own files: Flower's state and logs
FAULTS = "faults.jsonl"  # what went wrong in a federation, also while its clients gathered


def check_unused(
    out: Path, first: str = CONFIG, advice: str = ", or 'ifca resume {out}'", option: str = "--out"
) -> None:
    """Refuse a folder that holds something else than what a federation keeps there before its run.

    first: the first file that is written there, which may have been cut off; option: what to choose anew.
    """
    ours = (f".{first}.tmp", PRIVATE, FAULTS)
    if out.exists() and (not out.is_dir() or any(file.name not in ours for file in out.iterdir())):
        raise InvalidInput(
            f"{out}: already holds something; choose another {option}{advice.replace('{out}', str(out))}"
        )


def new_directory(config: Config, out: Path, code: Code | None = None) -> None:
    """Make the folder of a new run: its config, the user's code, its id; a folder in use is not touched."""
    code = code_of(config) if code is None else code
    check_unused(out)
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / CONFIG, write_config(config).encode())
    begun = open_directory(out)
    begin_run(out, begun, code, _deciding(begun))


def begin_again(out: Path, config: Config, code: Code | None = None) -> None:
    """A folder that was cut off before its run had an id: nothing was trained there yet.

    code: the user's, where it is known to be the user's.
    """
    if is_run_folder(out):
        return
    if code is None and named_functions(config):
        raise InvalidInput(f"{out}: was cut off before it began; delete it, and give the command again")
    begin_run(out, config, code or Code(), _deciding(config))


def next_directory(config: Config, base: Path = Path("runs"), verb: str | None = None) -> Path:
    """A folder that is not there yet: runs/NAME-ALGORITHM-001, -002, ...; or named by a verb."""
    taken, name = 1, f"{config.data.name}-{verb or config.algorithm.rpartition(':')[2]}"
    while (base / f"{name}-{taken:03d}").exists():
        taken += 1
    return base / f"{name}-{taken:03d}"


def open_directory(out: Path) -> Config:
    """The config of a run that was begun."""
    if not out.is_dir():
        raise InvalidInput(f"{out}: no such run folder")
    if (out / SEEDS).is_file():
        raise InvalidInput(
            f"{out}: is a comparison over seeds; each of its folders, seed-0 and so on, is a run"
        )
    if not (out / CONFIG).is_file():
        raise InvalidInput(f"{out}: not a run folder (it has no {CONFIG})")
    return read_run_config(out / CONFIG)


def is_run_folder(folder: Path) -> bool:
    """Whether a run, or a comparison over seeds, was begun in a folder, by this version or an older one."""
    left = (RUN, CHECKPOINT, ROUNDS, "restarts")
    begun = (folder / CONFIG).is_file() and any((folder / name).exists() for name in left)
    return begun or (folder / SEEDS).is_file()


def train_in(
    folder: Path, job: Job, config: Config, restart: int, run: str | None, title: str, callback: Callback
) -> Fitted:
    """Train one start of a job inside a folder, from its checkpoint where there is one. run: the run's id."""
    refuse_folders(folder, (CHECKPOINT, SERVED, ROUNDS))
    file, log = folder / CHECKPOINT, RoundLog(folder / ROUNDS)
    expected = _expected(job, config, restart, run)
    found: dict[str, Any] = {}

    def same(header: dict[str, Any]) -> None:
        _same_run(file, header, expected)
        found.update(header)

    state = load_state(file, job.device, same) if file.exists() else None
    if state is None:
        _check_none_is_missing(file, log.file, config)
    history = log.begin(0 if state is None else state.round, found.get("log"))
    folder.mkdir(parents=True, exist_ok=True)
    callback.started(Training(title, job.recipe.rounds, history, config_dict(config)))
    done = written = 0 if state is None else state.round  # rounds; those of the checkpoint

    def on_round(state: ClusterState, record: Record) -> bool:
        nonlocal done, written
        done, last = state.round, state.round == job.recipe.rounds or state.progress.stopped is not None
        due = last or state.round % config.checkpoint_every == 0
        log.append(record, sync=due)  # before the checkpoint that counts on it
        if due:
            _keep_served(file)
            written = done
            save_state(file, state, {**expected, "log": log.mark()})
        stop = wants_to_stop(callback.round_ended, record) and not last
        if stop:  # resuming must not go on with what was to end
            save_state(file, asked_to_stop(state), {**expected, "log": log.mark()})
        return stop

    try:
        fitted = fit(job, restart=restart, resume=state, on_round=on_round, history=history)
    except Diverged as reason:
        if done == written and (folder / SERVED).exists():
            (folder / SERVED).replace(file)
            if job.engine == "flower":
                advice = "to resume goes back to the last models that served the clients"
                raise Diverged(f"{reason}; {advice}") from reason
        raise
    (folder / SERVED).unlink(missing_ok=True)
    return fitted


def _check_none_is_missing(file: Path, log: Path, config: Config) -> None:
    """A log with more rounds than come before a first checkpoint says that there was one."""
    done = len(read_jsonl(log))
    if done > config.checkpoint_every:
        raise InvalidInput(
            f"{file}: is missing, but {log.name} has {done} rounds; to begin again from the start, delete "
            f"{log}"
        )


def _keep_served(file: Path) -> None:
    """Clients have answered the models of the last checkpoint: it is kept beside the one that follows it."""
    if file.exists():
        beside = file.with_name(f".{SERVED}.tmp")
        beside.unlink(missing_ok=True)
        try:
            os.link(file, beside)
        except OSError:  # a file system without links
            shutil.copyfile(file, beside)
        beside.replace(file.with_name(SERVED))


def write_start(folder: Path, job: Job, config: Config, run: str | None, state: ClusterState) -> None:
    """The state before round 0, where it is not the method's own: train_in goes on from it."""
    expected = _expected(job, config, 0, run)
    save_state(folder / CHECKPOINT, state, {**expected, "log": RoundLog(folder / ROUNDS).mark()})


def _expected(job: Job, config: Config, restart: int, run: str | None) -> dict[str, Any]:
    """What a checkpoint must say to be gone on with."""
    data = job.federation.fingerprint
    return {"run": run, "config": _deciding(config), "restart": restart, "data": data}


def read_rounds(folder: Path) -> list[Record]:
    """The records of the rounds that were finished in a folder; none where the first was not."""
    return read_jsonl(folder / ROUNDS, kind=RoundRecord)


def check_begun(out: Path, config: Config) -> None:
    """Refuse to go on under another config than the run began with."""
    if (was := begun_config(out)) is not None:
        same_config(out / RUN, was, config)


def check_finished(out: Path, config: Config, summary: dict[str, Any]) -> None:
    """A finished run whose config was edited does not say what was run."""
    same_config(out / "summary.json", summary.get("config", {}), config)


def same_config(
    file: Path, was: dict[str, Any], now: Config | dict[str, Any], source: str = "config.toml"
) -> None:
    """Refuse to go on under another config than a file was written with, naming the first difference."""
    now = _deciding(now) if isinstance(now, Config) else now
    was = {**config_dict(Config()), **was}  # keys that an older version did not know had their defaults
    for name in sorted(now):
        if was.get(name) != now.get(name):
            raise InvalidInput(
                f"{file}: is of another config: {name} was {json.dumps(was.get(name))}, "
                f"{source} says {json.dumps(now.get(name))}"
            )


def _deciding(config: Config) -> dict[str, Any]:
    """What may not change between two parts of one run (when to write checkpoints may).

    The memory budget decides which clients are summed together, and so the last bits.
    """
    free = ("checkpoint_every", "baselines", "federation", "code")
    deciding = {name: value for name, value in config_dict(config).items() if name not in free}
    if config.federation.half_precision:
        deciding["half_precision"] = True
    return deciding


def _same_run(file: Path, found: dict[str, Any], expected: dict[str, Any]) -> None:
    if found.get("run") != expected["run"]:
        raise InvalidInput(f"{file}: was written by another run than this folder's")
    if found.get("restart") != expected["restart"]:
        raise InvalidInput(f"{file}: belongs to restart {found.get('restart')}, not {expected['restart']}")
    if found.get("data") != expected["data"]:
        raise InvalidInput(f"{file}: is of other data: the clients' files have changed since it was written")
    now = expected["config"]
    older = {"memory_budget": now["memory_budget"]}  # which older versions did not write down
    same_config(file, older | found.get("config", {}), now)
