"""Which k? Trainings with each k and seed, each in a run folder, and what the referee says of the largest."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from typing_extensions import TypedDict

from ifca.core.callbacks import Callback, Several
from ifca.core.errors import Diverged, InvalidInput
from ifca.data import Federation
from ifca.data.files import write_atomically
from ifca.data.formats.json_file import read_json
from ifca.methods import method_of
from ifca.methods.ifca import IFCA
from ifca.runs.by_workers import OnDone, silent, train_folders
from ifca.runs.clients_table import read_clients
from ifca.runs.config import Config, config_dict, with_absolute_paths
from ifca.runs.make import make_federation, make_job, register_own
from ifca.runs.own_code import Code
from ifca.runs.run import go_on
from ifca.runs.run_code import code_of
from ifca.runs.run_folder import CONFIG, check_unused, new_directory, same_config
from ifca.runs.supported_k import Ended, loss_silhouette, stability, supported
from ifca.runs.titled import Titled
from ifca.runs.units.pool import workers_of
from ifca.training.preflight import check
from ifca.training.privacy import refuse_search

BEGUN, RESULT, REFEREE = "begun.json", "choose-k.json", "referee"
TESTED = ("test_accuracy", "test_accuracy_train_rule", "test_loss", "test_loss_train_rule")

Row = dict[str, Any]


class Begun(TypedDict):
    """What begun.json holds."""

    config: dict[str, Any]
    data: str


def choose_k(
    config: Config,
    ks: range,
    seeds: int,
    out: Path,
    callback: object = None,
    workers: int | None = 1,
    on_done: OnDone = silent,
) -> dict[str, Any]:
    """Train every k from every seed, as far as it is not done; write and return what was found.

    workers: processes that train, each on a GPU of its own in turn; None: one per GPU. on_done: told what
    they have trained.
    """
    if seeds < 1:
        raise InvalidInput(f"--seeds must be at least 1, got {seeds}")
    config = _base(config)
    code = code_of(config)  # one version for all trainings
    federation = make_federation(config, code)
    jobs = _jobs(config, ks, seeds)
    for one in jobs:  # refuse what cannot run before a folder is made
        if one.config.seed == config.seed and one.config.k in (ks[0], ks[-1]):
            check(make_job(one.config, federation, code))
    begin_study(config, federation, out, "choose-k")
    if (count := workers_of(workers, config.device)) > 1:
        folders = [_begun(one, out, code) for one in jobs]
        train_folders(folders, count, config.device, on_done)
    rows = []
    for done, one in enumerate(jobs, 1):
        title = f"{one.title} ({done} of {len(jobs)})"
        told = Titled(Several([callback]), title, alone=config.restarts == 1)
        rows.append(_one(one, federation, out, told, code))
    result = _result(config, ks, rows) | {"clients": len(federation.train)}
    write_atomically(out / RESULT, json.dumps(result, indent=2, allow_nan=False).encode())
    return result


@dataclass(frozen=True)
class _Planned:
    """One of the trainings."""

    config: Config
    folder: str

    @property
    def title(self) -> str:
        """Which one it is."""
        beside = f"{self.config.algorithm}, " if self.folder.startswith(REFEREE) else ""
        return f"{beside}k {self.config.k}, seed {self.config.seed}"


def _base(config: Config) -> Config:
    """The config of all trainings: one deal of the data, whatever the seed; no baselines."""
    refuse_search(config)
    register_own(config, code_of(config))
    if not method_of(config.algorithm).clustered:
        raise InvalidInput(f"algorithm is {config.algorithm}, which has no k to choose")
    return one_deal(replace(with_absolute_paths(config), baselines=(), k=1))


def one_deal(config: Config) -> Config:
    """The config with the seed of its data fixed: all trainings have the same, whatever their seed."""
    data: Any = config.data
    if any(field.name == "seed" for field in fields(data)) and data.seed is None:
        config = replace(config, data=replace(data, seed=config.seed))
    return config


def begin_study(config: Config, federation: Federation, out: Path, verb: str) -> None:
    """Begin in a new folder, or go on in one that was begun with the same config and data.

    verb: of the command that trains there.
    """
    file, data = out / BEGUN, federation.fingerprint
    if not file.is_file():
        begun = {"config": config_dict(config), "data": data}
        check_unused(out, BEGUN, "")
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(begun, indent=2).encode())
        return
    found = read_json(file, Begun, f"it is not what 'ifca {verb}' wrote")
    same_config(file, found["config"], config, "this command")
    if found["data"] != data:
        raise InvalidInput(f"{file}: is of other data: the clients' files have changed since it was written")


def _jobs(config: Config, ks: range, seeds: int) -> list[_Planned]:
    """Every k from every seed; then ifca with the largest k, where the method has no referee itself."""
    by_seed = [replace(config, seed=seed) for seed in range(config.seed, config.seed + seeds)]
    found = [_Planned(replace(one, k=k), f"k-{k}") for k in ks for one in by_seed]
    if not method_of(config.algorithm).referee:
        judged = [replace(one, algorithm=IFCA.name, k=ks[-1]) for one in by_seed]
        found += [_Planned(one, f"{REFEREE}/k-{ks[-1]}") for one in judged]
    return found


def _begun(one: _Planned, out: Path, code: Code) -> Path:
    """The folder of a training; made where there is none yet."""
    folder = out / one.folder / f"seed-{one.config.seed}"
    if not (folder / CONFIG).exists():
        new_directory(one.config, folder, code)
    return folder


def _one(one: _Planned, federation: Federation, out: Path, callback: Callback, code: Code) -> Row:
    """One k and seed: trained in a run folder of its own, or read from it where that is done."""
    config, folder = one.config, _begun(one, out, code)
    try:
        summary = go_on(config, federation, folder, callback, code)
    except Diverged as failure:
        raise Diverged(f"{one.title}: {failure}") from failure
    label, losses = _labels_and_losses(folder)
    return {
        "k": config.k,
        **{name: summary[name] for name in ("seed", "train_loss", "live_clusters", "cluster_sizes")},
        "silhouette": loss_silhouette(losses, label),
        **{name: summary[name] for name in (*TESTED, "seconds")},
        "label": label,
        "folder": one.folder,
        **{name: summary.get(name) for name in ("events", "rounds")},
    }


def _labels_and_losses(folder: Path) -> tuple[list[int], list[list[float]]]:
    """Each training client's cluster, and its losses under all models."""
    rows = [row for row in read_clients(folder) if row["train_samples"] != "0"]
    names = [name for name in rows[0] if name.startswith("loss_")]
    losses = [[float(row[name] or "nan") for name in names] for row in rows]  # no loss: no model there
    return [int(row["cluster"]) for row in rows], losses


def _result(config: Config, ks: range, rows: list[Row]) -> dict[str, Any]:
    pairs = [row for row in rows if not row["folder"].startswith(REFEREE)]
    table = [_row(k, [pair for pair in pairs if pair["k"] == k]) for k in ks]
    judged = [row for row in rows if row["folder"] == rows[-1]["folder"]]  # with the largest k
    ended = [Ended(**{field.name: row[field.name] for field in fields(Ended)}) for row in judged]
    verdict = supported(ended, ks[-1])
    return {
        "algorithm": config.algorithm,
        "method": method_of(config.algorithm).facts(),
        "supported_k": verdict.k,
        "because": verdict.because,
        "seeds": sorted({pair["seed"] for pair in pairs}),
        "table": table,
        "pairs": [_without(pair, "label", "folder", "events", "rounds") for pair in pairs],
        "referee": [asdict(one) for one in ended],
        "config": config_dict(config),
    }


def _without(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}


def _row(k: int, pairs: list[Row]) -> Row:
    """What the seeds of one k say together."""

    def mean(name: str) -> float | None:
        known = [pair[name] for pair in pairs if pair[name] is not None]
        return fmean(known) if known else None

    losses = [pair["train_loss"] for pair in pairs]
    return {
        "k": k,
        "train_loss": fmean(losses),
        "train_losses": losses,
        "train_loss_std": stdev(losses) if len(losses) > 1 else None,
        "live_clusters": [pair["live_clusters"] for pair in pairs],
        "stability": stability([np.array(pair["label"]) for pair in pairs]),
        "silhouette": mean("silhouette"),
        **{name: mean(name) for name in TESTED},
    }
