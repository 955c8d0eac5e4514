"""A run that continues an earlier one: data prepared as there, its models, and what that brought."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ifca.core.errors import InvalidInput
from ifca.core.types import Params, everywhere
from ifca.data import Client, Federation
from ifca.data.formats.json_file import finite, parse_json
from ifca.data.formats.whole_file import read_whole
from ifca.data.preparation import Preparation
from ifca.data.scaling import Scaling
from ifca.data.sources.columns import Columns
from ifca.data.sources.partly_labelled import Unlabelled, partly_labelled
from ifca.engines.live_models import score_live
from ifca.methods import method_of
from ifca.runs.continued_schema import Continued
from ifca.runs.own_data_config import OwnFiles
from ifca.runs.run_folder import open_directory
from ifca.runs.summary_file import finished_summary, write_summary
from ifca.training.checkpoint import models_of

if TYPE_CHECKING:  # whoever reads a config needs no training
    from ifca.runs.config import Config
    from ifca.training import Fitted

CONTINUED = "continued.json"  # what the new data were found to be, before training
MODELS = "models.safetensors"


def can_go_on(directory: Path) -> None:
    """Refuse what is no finished run whose clients choose among models."""
    open_directory(directory)
    if finished_summary(directory) is None:
        raise InvalidInput(f"{directory}: is not finished; 'ifca resume {directory}' goes on")
    name = models_of(directory / MODELS)[1]["algorithm"]
    if ":" in name or not method_of(name).chooses:
        raise InvalidInput(
            f"{directory}: is a run of {name}; only with ifca and ifca-plain do clients choose among models, "
            "so only their runs can be checked and continued"
        )


def earlier_models(config: Config) -> tuple[Params, dict[str, Any]]:
    """The models that a continuing run began with, and their header."""
    assert config.continues is not None
    folder = Path(config.continues)
    if not (folder / MODELS).is_file():
        raise InvalidInput(f"continues: {folder} has no {MODELS}; this run goes on with the models there")
    return models_of(folder / MODELS)


def columns_of(header: dict[str, Any], reading: Columns) -> Columns:
    """How new tables are read: columns, classes and fillings of the earlier run. header: of its models."""
    kept = Preparation.from_json(header.get("preparation"))
    known = replace(
        reading,
        kind="regression" if header["classes"] is None else "classification",
        classes=header["classes"],
        cluster=None,
    )
    if kept is None:
        return known
    names = tuple(column.name for column in kept.used)
    return replace(known, label=kept.label, features=names, preparation=kept)


def read_new(config: Config, header: dict[str, Any]) -> tuple[list[Client], list[Unlabelled]]:
    """The clients of the new data, with labels and without."""
    data = config.data
    if not isinstance(data, OwnFiles):
        raise InvalidInput(f"continues: needs data of files, got data.name = {data.name}")
    said = data.reading(config.seed)
    return partly_labelled(Path(data.path), columns_of(header, said), said)


def continued_federation(config: Config) -> Federation:
    """The clients with labels, as the models of the earlier run see them."""
    _theta, header = earlier_models(config)
    return as_before(header, read_new(config, header)[0], str(getattr(config.data, "path", "data")))


def as_before(header: dict[str, Any], clients: list[Client] | Federation, where: str) -> Federation:
    """Clients scaled as those of an earlier run; refused where its models cannot judge them."""
    federation = clients
    if isinstance(clients, list):
        if not clients:
            raise InvalidInput(f"{where}: no client has labels, so there is nothing to train on")
        federation = Federation.from_clients(clients, header["classes"])
    assert isinstance(federation, Federation)
    federation.check_fits(where, tuple(header["input_shape"]), header["classes"], header["outputs"])
    if (scaling := Scaling.from_json(header.get("scaling"))) is not None:
        federation = federation.with_features_as(scaling)
    if (target := Scaling.from_json(header.get("target_scaling"))) is not None:
        federation = federation.with_targets_as(target)
    return replace(federation, preparation=Preparation.from_json(header.get("preparation")))


def with_before(out: Path, config: Config, fitted: Fitted, summary: dict[str, Any]) -> dict[str, Any]:
    """The summary with what continuing brought. out: the folder, with what was found before training."""
    file = out / CONTINUED
    found = finite(parse_json(read_whole(file), str(file), Continued, finite=False))
    theta, _header = earlier_models(config)
    compared = before_and_after(fitted, theta, found["clients"])
    summary = {**summary, "continued": {**found, "compared": compared}}
    write_summary(out, summary)
    return summary


def before_and_after(fitted: Fitted, theta: Params, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The same test samples under the earlier models and under the new ones; None: there are none.

    rows: of each client the cluster it had ("was", None: it is new) and the earlier model that fits it best
    ("cluster"). Three ways: as it was served, by the best of the earlier models, as it is served now.
    """
    test, federation = fitted.test, fitted.job.federation
    if test is None or federation.test is None:
        return None
    theta = {name: value.to(fitted.job.device) for name, value in theta.items()}
    earlier = score_live(fitted.job.make_engine(), theta, everywhere(theta), federation.test)
    place = {row["client"]: row for row in rows}
    mine = [place[name] for name in federation.test.ids]
    best = torch.tensor([row["cluster"] for row in mine])
    was = torch.tensor([row["cluster"] if row["was"] is None else row["was"] for row in mine])
    sizes, own = test.sizes.double(), fitted.labels[torch.from_numpy(federation.test_owner)]
    ways = {
        "as_it_was": (earlier.loss, earlier.correct, was),
        "earlier_models": (earlier.loss, earlier.correct, best),
        "after": (test.scores.loss, test.scores.correct, own),
    }
    classes, each = test.classification, dict[str, tuple[Tensor, Tensor]]()
    for name, (loss, correct, model) in ways.items():
        each[name] = _of(loss, model), _of(correct, model) / sizes
    return {
        "samples": int(sizes.sum()),
        "ways": {
            name: {
                "loss": _mean(loss, sizes),
                "accuracy": _mean(accuracy, sizes) if classes else None,
            }
            for name, (loss, accuracy) in each.items()
        },
        "clients": [
            {"client": row["client"], "samples": int(sizes[i])}
            | {
                name: {"loss": float(loss[i]), "accuracy": float(accuracy[i]) if classes else None}
                for name, (loss, accuracy) in each.items()
            }
            for i, row in enumerate(mine)
        ],
    }


def _of(table: Tensor, model: Tensor) -> Tensor:
    """Of each client the entry of its model: [m, k], [m] -> [m]."""
    return table.cpu().double().gather(1, model[:, None])[:, 0]


def _mean(values: Tensor, sizes: Tensor) -> float | None:
    """Over all samples."""
    mean = float((values * sizes).sum() / sizes.sum())
    return mean if math.isfinite(mean) else None
