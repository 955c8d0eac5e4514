"""Which cluster is a client that was never seen in training, how sure that is, and whether any model fits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput
from ifca.core.identity import identity
from ifca.core.types import Data
from ifca.runs.clients_table import CLIENTS, read_clients
from ifca.use.trained import Trained, open_trained

SURE = 2.0  # standard errors that the best model must be ahead of the second
FEWEST = 5  # samples below which a margin says little
USUAL = 0.99  # share of the training clients whose loss is called usual


def assign_clients(directory: Path, path: Path, trust: bool = False) -> list[dict[str, Any]]:
    """Of each client in a file or folder: its losses, its cluster, the margin, warnings.

    trust: as of open_trained.
    """
    trained = open_trained(directory, trust)
    federation = trained.federation(trained.clients(path), str(path))
    usual = usual_losses(directory)
    found = []
    for i, name in enumerate(federation.train.ids):
        data = federation.train.one(i, torch.device("cpu"), next(iter(trained.theta.values())).dtype)
        found.append({"client": name, **assignment(trained, data, usual, f"{path}: client {name}")})
    return found


def usual_losses(directory: Path) -> dict[int, float]:
    """By cluster: the loss that few of its training clients exceed.

    The losses are those on test data where there are any (a new client's data were not trained on either),
    else those on training data. The limit is their 99 % quantile, or median plus three robust deviations
    where that is more: a cluster of a few clients has no tail to speak of.
    """
    losses: dict[int, list[float]] = {}
    if not (directory / CLIENTS).exists():
        return {}
    rows = read_clients(directory)
    tested = any(row["test_loss"] for row in rows)
    for row in rows:
        loss, cluster = (
            (row["test_loss"], row["test_cluster"]) if tested else (row["train_loss"], row["cluster"])
        )
        if loss and math.isfinite(float(loss)):
            losses.setdefault(int(cluster), []).append(float(loss))
    return {j: _limit(np.array(values)) for j, values in losses.items()}


def _limit(values: NDArray[np.float64]) -> float:
    middle = float(np.median(values))
    deviation = 1.4826 * float(np.median(np.abs(values - middle)))
    return max(float(np.quantile(values, USUAL)), middle + 3 * deviation)


def assignment(trained: Trained, data: Data, usual: dict[int, float], where: str) -> dict[str, Any]:
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
        "usual_loss": usual.get(best),
        "warnings": [],
    }
    if second is not None:
        gap = (samples[second] - samples[best]).double()
        error = float(gap.std() / math.sqrt(len(gap))) if len(gap) > 1 else math.nan
        found["margin"] = float(gap.mean())
        found["margin_in_errors"] = float(gap.mean()) / error if error > 0 else None
    found["warnings"] = _warnings(found, float(losses[best]))
    return found


def _warnings(found: dict[str, Any], loss: float) -> list[str]:
    best, second, sure = found["cluster"], found["second"], found["margin_in_errors"]
    usual = found["usual_loss"]
    said = []
    if usual is not None and loss > usual:
        said.append(
            f"no model fits it: its loss under the best, {loss:.4g}, is above {usual:.4g}, "
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
