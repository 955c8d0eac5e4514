"""Which cluster is a client that was never seen in training, how sure that is, and whether any model fits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from ifca.core.errors import InvalidInput
from ifca.core.identity import identity
from ifca.core.types import Data
from ifca.data import Client
from ifca.data.sources.partly_labelled import Unlabelled
from ifca.training.quality import quality_of
from ifca.use.confidence import unlabelled
from ifca.use.opened_run import open_trained
from ifca.use.trained import Trained

SURE = 2.0  # standard errors that the best model must be ahead of the second
FEWEST = 5  # samples below which a margin says little
NO_FIT = "no model fits it"


def assign_clients(
    directory: Path, path: Path, trust: bool = False, client: str | None = None
) -> list[dict[str, Any]]:
    """Of each client in a file or folder: its losses, its cluster, the margin, warnings; of one without
    labels the model that is the most confident on its samples, and how far that can be trusted.

    trust: as of open_trained. client: a table's column that says whose a row is, where the run has none.
    """
    trained = open_trained(directory, trust)
    clients, without = _read(trained, path, client)
    found, train = [], trained.federation(clients, str(path)).train if clients else None
    for i in range(len(clients)):
        assert train is not None
        data = train.one(i, torch.device("cpu"), next(iter(trained.theta.values())).dtype)
        name = train.ids[i]
        found.append({"client": name, **assignment(trained, data, f"{path}: client {name}")})
    fitting = {one["client"]: one["cluster"] for one in found if fits(one)}
    return found + unlabelled(trained, train, fitting, {}, without)


def _read(trained: Trained, path: Path, client: str | None) -> tuple[list[Client], list[Unlabelled]]:
    """The clients with labels, and those without."""
    try:
        return trained.clients(path, client), []
    except InvalidInput:
        found = trained.with_and_without_labels(path, client)
        if not found[1]:
            raise
        return found


def fits(found: dict[str, Any]) -> bool:
    """Whether a model fits a client with labels."""
    return not any(warning.startswith(NO_FIT) for warning in found["warnings"])


def assignment(trained: Trained, data: Data, where: str) -> dict[str, Any]:
    """One client's losses, cluster, margin and warnings; where: what to name in a complaint."""
    x, y, _ = data
    with torch.no_grad():
        samples = {j: trained.task.loss(trained.task.output(trained.model(j), x), y) for j in trained.live}
    k = max(trained.live) + 1
    losses = torch.tensor([float(samples[j].mean()) if j in samples else math.nan for j in range(k)])
    if not bool(torch.isfinite(losses).any()):
        raise InvalidInput(
            f"{where}: no model gives a finite loss on this data; is it scaled as in training?"
        )
    best = int(identity(losses))
    others = [j for j in trained.live if j != best and math.isfinite(losses[j])]
    second = min(others, key=lambda j: float(losses[j])) if others else None
    found: dict[str, Any] = {
        "cluster": best,
        "losses": [loss if math.isfinite(loss) else None for loss in losses.tolist()],
        "samples": len(x),
        "second": second,
        "margin": None,
        "margin_in_errors": None,
        "usual_loss": trained.usual.get(best),
        "quality": _quality(trained, best, data),
        "warnings": [],
    }
    if second is not None:
        gap = (samples[second] - samples[best]).double()
        error = float(gap.std() / math.sqrt(len(gap))) if len(gap) > 1 else math.nan
        found["margin"] = float(gap.mean())
        found["margin_in_errors"] = float(gap.mean()) / error if error > 0 else None
    found["warnings"] = _warnings(found, float(losses[best]))
    return found


def _quality(trained: Trained, best: int, data: Data) -> dict[str, Any]:
    """How well the chosen model predicts the client's samples."""
    with torch.no_grad():
        outputs = trained.in_units(trained.task.output(trained.model(best), data.x))
    y = trained.in_units(data.y)
    return quality_of(outputs.reshape(len(y), -1).numpy(), y.numpy(), trained.classes)


def _warnings(found: dict[str, Any], loss: float) -> list[str]:
    best, second, sure = found["cluster"], found["second"], found["margin_in_errors"]
    usual = found["usual_loss"]
    said = []
    if usual is not None and loss > usual:
        said.append(
            f"{NO_FIT}: its loss under the best, {loss:.4g}, is above {usual:.4g}, "
            f"the usual limit of the clients of cluster {best}"
        )
    if second is not None and sure is not None and sure < SURE:
        ahead = f"{sure:.1f} standard errors apart"
        said.append(
            f"models {best} and {second} fit it about equally well ({ahead}); more samples would tell"
        )
    if found["samples"] < FEWEST:
        said.append(f"it has {found['samples']} sample(s): its cluster is a guess")
    return said
