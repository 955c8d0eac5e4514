"""A run's folder while it is worked in: what there is so far, read again only where it has grown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from ifca.core.errors import InvalidInput, Unreadable
from ifca.core.recipe import Recipe
from ifca.data.files import is_worked_in
from ifca.data.formats.json_file import parse_json
from ifca.data.formats.tensor_file import tensor_shape
from ifca.data.formats.toml_file import read_toml
from ifca.data.formats.whole_file import read_whole
from ifca.data.jsonl import readable_jsonl
from ifca.methods import facts_of
from ifca.report.misfits import fitting_rounds
from ifca.report.read_run import Record, RunFolder, is_finished, read_faults, read_run
from ifca.runs.auto_rounds import rounds_of
from ifca.runs.config import Config, read_run_config
from ifca.runs.over_seeds import is_over_seeds, seed_folders, seeds_summary
from ifca.runs.record_schema import RoundRecord, ShownConfig
from ifca.runs.run_code import RUN
from ifca.runs.run_folder import CHECKPOINT, CONFIG, FAULTS, PRIVATE, ROUNDS, check_begun
from ifca.training.checked import rejected_in


class LiveRun:
    """One run, looked at again and again; of a comparison over seeds the first, with what all say."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise InvalidInput(f"{path}: no such run folder")
        self._over = path if is_over_seeds(path) else None  # seeds: that of the first is shown
        path = path if self._over is None else seed_folders(path)[0][0]
        early = (FAULTS,)  # what a federation's server writes while its clients gather
        others = [f.name for f in path.iterdir() if not f.name.startswith(".") and f.name not in early]
        if others and not (path / "config.toml").is_file():
            raise InvalidInput(f"{path}: not a run folder (it has no config.toml)")
        self.path = path
        self._log = GrowingLog()
        self._done: tuple[str, RunFolder] | None = None

    def version(self) -> str:
        """Another one whenever there is something new."""
        files = [
            self.path / "config.toml",
            self.path / "summary.json",
            self.path / FAULTS,
            _log_of(self.path),
        ]
        files += sorted(self.path.glob("baselines/*/summary.json"))
        files += [] if self._over is None else [self._over / "summary.json"]
        marks = [f"{f.stat().st_ino}.{f.stat().st_size}" for f in files if f.is_file()]
        return "-".join([*marks, self._state()])

    def read(self) -> RunFolder:
        """The run as it is now."""
        if not is_finished(self.path):
            return self._unfinished()
        version = self.version()
        if self._done is None or self._done[0] != version:
            self._done = version, self._whole()
        return self._done[1]

    def _unfinished(self, damage: tuple[str, ...] = ()) -> RunFolder:
        """What there is so far. damage: why that is not all."""
        config, log = _config(self.path), _log_of(self.path)
        rounds = self._log.read(log)
        summary = so_far(config, rounds, log.parent)
        rounds, wrong = fitting_rounds(log, rounds, self._log.damage, summary["clients"], summary["k"])
        faults, odd = read_faults(self.path)
        told = (*damage, _changed(self.path), wrong, odd)
        damage = tuple(one for one in told if one is not None)
        if self._log.damage != wrong:  # fewer rounds are shown
            summary = so_far(config, rounds, log.parent)
        planned, state = int(rounds_of({"rounds": 0, **config})["rounds"]), self._state()
        wanted = _gathering(self.path) if state == "waiting" else 0
        return RunFolder(self.path, summary, rounds, [], {}, faults, planned, state, log, wanted, damage)

    def _whole(self) -> RunFolder:
        """The finished run with its finished baselines; without a summary as far as it goes."""
        try:
            run = read_run(self.path)
        except Unreadable as reason:
            return self._unfinished((str(reason),))
        others, damage = dict(run.baselines), list(run.damage)
        for folder in sorted(self.path.glob("baselines/*")) if not others else ():
            if is_finished(folder):
                try:
                    others[folder.name] = read_run(folder)
                except Unreadable as reason:
                    damage.append(str(reason))
        together = None if self._over is None else seeds_summary(self._over)
        summary = run.summary | ({} if together is None else {"comparison": together["comparison"]})
        kept = tuple(dict.fromkeys(damage))
        return replace(run, summary=summary, baselines=others, state=self._state(), damage=kept)

    def _state(self) -> str:
        begun = _log_of(self.path).is_file()
        if self._over is not None and is_worked_in(self._over):
            return "running" if begun else "waiting"
        if is_worked_in(self.path) or not (self.path / "config.toml").is_file():
            return "running" if begun else "waiting"
        return "finished" if is_finished(self.path) and not self._missing() else "stopped"

    def _missing(self) -> bool:
        """Whether baselines, or other seeds, are still to be trained."""
        if self._over is not None and not (self._over / "summary.json").is_file():
            return True
        config = _config(self.path)
        wanted = [name for name in config.get("baselines", []) if name != config.get("algorithm")]
        return bool(wanted) and b'"baselines": {' not in read_whole(self.path / "summary.json")


class GrowingLog:
    """The records of a log; only what was added is read, unless the file was replaced.

    damage: what is wrong with the line after them; None: nothing.
    """

    def __init__(self) -> None:
        self._file: tuple[Path, int] | None = None
        self._at = 0
        self._records: list[Record] = []
        self.damage: str | None = None

    def read(self, file: Path) -> list[Record]:
        """All whole lines so far."""
        self.damage = None
        if not file.is_file():
            return []
        with file.open("rb") as log:
            status = file.stat()
            if self._file != (file, status.st_ino) or status.st_size < self._at:
                self._file, self._at, self._records = (file, status.st_ino), 0, []
            log.seek(self._at)
            new = log.read()
        whole = new[: new.rfind(b"\n") + 1]
        found, self.damage = readable_jsonl(file, whole, self._at, kind=RoundRecord)
        if self.damage is None:
            self._records, self._at = self._records + found, self._at + len(whole)
            return self._records
        return self._records + found


def so_far(config: dict[str, Any], rounds: list[Record], folder: Path) -> dict[str, Any]:
    """What a summary can say before the end; what it cannot is None."""
    algorithm = config.get("algorithm", Recipe.algorithm)
    facts, k = facts_of(algorithm), config.get("k")
    last: Record = rounds[-1] if rounds else {}
    if not facts["clustered"]:
        k = 1
    elif not isinstance(k, int):  # auto, or left out: as many as there are places
        k = len(last.get("cluster_sizes") or [])
    tested = next((record for record in reversed(rounds) if record.get("test_loss") is not None), {})
    return {
        "algorithm": algorithm,
        "engine": config.get("engine", Config.engine),
        "device": None,
        "seed": config.get("seed", 0),
        "method": facts,
        "k": k,
        "models": k,
        "rounds": len(rounds),
        "clients": _clients(rounds, folder),
        "test_clients": None,
        "test_accuracy": tested.get("test_accuracy"),
        "test_accuracy_train_rule": tested.get("test_accuracy_train_rule"),
        "test_loss": tested.get("test_loss"),
        "test_loss_train_rule": None,
        "train_loss": last.get("train_loss"),
        "live_clusters": last.get("live_clusters"),
        "cluster_accuracy": last.get("cluster_accuracy"),
        "clusters": None,
        "true_clusters": None,
        "bytes_down": sum(record["bytes_down"] for record in rounds),
        "bytes_up": sum(record["bytes_up"] for record in rounds),
        "seconds": sum(record["seconds"] for record in rounds),
        "events": [{"round": r["round"], **event} for r in rounds for event in r.get("events") or []],
        "rejected": rejected_in(rounds),
        "config": config,
    }


def _clients(rounds: list[Record], folder: Path) -> int:
    """How many clients there are, from the checkpoint or from a round in which all took part."""
    if not rounds:
        return 0
    counts = [
        r["participants"] if r["clients"] is None else max(r["clients"], default=-1) + 1 for r in rounds
    ]
    shape = tensor_shape(folder / CHECKPOINT, "identity")  # None: there is no checkpoint yet
    return max([*counts, *(shape or ())[:1]])


def _gathering(path: Path) -> int:
    """How many clients a federation's server waits for; 0: it does not wait, or there is none."""
    if (path / "roster.json").is_file():
        return 0
    terms = _config(path / PRIVATE / "ifca-federation").get("federation", {})
    return int(terms.get("clients") or terms.get("min_clients") or 0)


def _log_of(path: Path) -> Path:
    """The log of the run, or of the restart that was worked on last."""
    if (path / ROUNDS).is_file():
        return path / ROUNDS
    restarts = [log for log in path.glob(f"restarts/*/{ROUNDS}") if log.is_file()]
    return max(restarts, key=lambda log: log.stat().st_mtime, default=path / ROUNDS)


def _changed(path: Path) -> str | None:
    """What is wrong with the config of a run: it is another one than the run began with."""
    try:
        if (path / RUN).is_file():
            check_begun(path, read_run_config(path / CONFIG))
    except InvalidInput as reason:
        return str(reason)
    return None


def _config(path: Path) -> dict[str, Any]:
    """What is shown of a config, as it stands there: an older version may have had other keys."""
    file = path / CONFIG
    content = read_toml(file) if file.exists() else {}
    parse_json(json.dumps(content, default=str), str(file), ShownConfig)
    return content
