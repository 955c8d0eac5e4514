"""New data of a run's clients against its models: who stayed, who moved, whom no model fits; alarms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ifca.core.errors import InvalidInput
from ifca.core.identity import identity
from ifca.data import Clients
from ifca.data.sources.partly_labelled import Unlabelled
from ifca.methods.referee import Sums, above_zero
from ifca.runs.bands import LEVEL, Known, alarms, bands_of
from ifca.runs.drift_words import client_alarm, cluster_alarm
from ifca.use.confidence import unlabelled
from ifca.use.trained import Trained


@dataclass(frozen=True)
class Losses:
    """Of m clients under each live model: [m, live] means and variances of a sample's loss; samples [m]."""

    mean: Tensor
    variance: Tensor
    samples: NDArray[np.int64]
    margin: Tensor  # [m, live] of the model's loss over that of the best, in standard errors


def losses_of(trained: Trained, clients: Clients) -> Losses:
    """Sample by sample under every model of the run."""
    kind, found = next(iter(trained.theta.values())).dtype, []
    for i in range(len(clients)):
        x, y, _ = clients.one(i, torch.device("cpu"), kind)
        with torch.no_grad():
            each = [trained.task.loss(trained.task.output(trained.model(j), x), y) for j in trained.live]
        table = torch.stack(each, 1).double()  # [n, live]
        if not bool(table.mean(0).isfinite().any()):
            name = clients.ids[i]
            raise InvalidInput(f"client {name}: no model gives a finite loss on its data; is it scaled so?")
        best = table[:, int(identity(table.mean(0)))]
        gap = table - best[:, None]
        error = gap.std(0) / len(table) ** 0.5 if len(table) > 1 else torch.full_like(gap[0], torch.nan)
        margin = torch.where(error > 0, gap.mean(0) / error, torch.nan)
        variance = table.var(0) if len(table) > 1 else torch.full_like(table[0], torch.nan)
        found.append((table.mean(0), variance, margin))
    mean, variance, margin = (torch.stack(list(part)) for part in zip(*found, strict=True))
    return Losses(mean, variance, clients.sizes, margin)


def checked(
    trained: Trained, known: Sequence[Known], clients: Clients | None, without: Sequence[Unlabelled] = ()
) -> dict[str, Any]:
    """A report as plain JSON values. known: the run's clients; clients: those with labels, None: there are
    none; without: those without.
    """
    names, rows, clusters = {one.id: one for one in known}, list[dict[str, Any]](), list[dict[str, Any]]()
    new = [*([] if clients is None else clients.ids), *(one.id for one in without)]
    if not any(name in names for name in new):
        raise InvalidInput(
            f"the new data have no client of the run (they have {_some(new)}, the run had "
            f"{_some(list(names))}): are they named alike? 'ifca assign' is for new clients alone"
        )
    if clients is not None:
        losses = losses_of(trained, clients)
        rows = _rows(trained, names, clients, losses)
        clusters = _clusters(trained, names, clients, losses)
    raised = alarms(np.array([one["p"] for one in (*rows, *clusters)], np.float64))
    for one, alarm in zip((*rows, *clusters), raised.tolist(), strict=True):
        one["alarm"] = bool(alarm and one["above_limit"])
    for row in rows:
        row["state"] = _state(row)
    told = [client_alarm(row) for row in rows if row["alarm"]]
    fitting = {row["client"]: row["cluster"] for row in rows if row["state"] != "misfit"}
    had = {one.id: one.cluster for one in known if one.cluster in trained.live}
    return {
        "level": LEVEL,
        "held_out": all(one.held_out for one in known),
        "clients": rows,
        "clusters": clusters,
        "unlabelled": unlabelled(trained, clients, fitting, had, without),
        "gone": [one.id for one in known if one.id not in new],
        "alarms": told + [cluster_alarm(one) for one in clusters if one["alarm"]],
    }


def _state(row: dict[str, Any]) -> str:
    if row["alarm"] and row["tried"] and row["best_above_limit"]:
        return "misfit"
    if row["was"] is None:
        return "joined"
    return "stayed" if row["was"] == row["cluster"] else "moved"


def _rows(
    trained: Trained, names: dict[str, Known], clients: Clients, losses: Losses
) -> list[dict[str, Any]]:
    """A row per client with labels; its test is that of the model which it has in the run."""
    bands, live = bands_of(names.values()), trained.live
    best = identity(losses.mean)
    least = {j: losses.variance[best == j, j].nanmedian().item() for j in range(len(live))}
    rows = []
    for i, name in enumerate(clients.ids):
        at = int(best[i])
        known = names.get(name)
        own = live.index(known.cluster) if known is not None and known.cluster in live else at

        def tested(j: int, i: int = i) -> tuple[float, float, bool, float | None]:
            """T, p, above the limit, the limit: of client i under live model j."""
            band, loss = bands.get(live[j]), float(losses.mean[i, j])
            if band is None:  # nobody had this model in the run
                return 0.0, 1.0, False, None
            other = least[j] if least[j] == least[j] else 0.0
            t, p = band.test(loss, max(float(losses.variance[i, j]), other), int(losses.samples[i]))
            return t, p, loss > band.limit, band.limit

        t, p, above, limit = tested(own)
        _, best_p, best_above, best_limit = tested(at)
        margin = float(losses.margin[i, own])
        rows.append(
            {
                "client": name,
                "samples": int(losses.samples[i]),
                "was": None if known is None else known.cluster,
                "loss_then": None if known is None else known.loss,
                "cluster": live[at],
                "loss_own": float(losses.mean[i, own]),
                "loss": float(losses.mean[i, at]),
                "saved": float(losses.mean[i, own] - losses.mean[i, at]),
                "margin_in_errors": margin if own != at and margin == margin else None,
                "limit": limit,
                "t": t if np.isfinite(t) else None,
                "p": p,
                "above_limit": above,
                "best_p": best_p,
                "best_limit": best_limit,
                "best_above_limit": best_above,
                "tried": best_p <= LEVEL,
            }
        )
    return rows


def _clusters(
    trained: Trained, names: dict[str, Known], clients: Clients, losses: Losses
) -> list[dict[str, Any]]:
    """A row per cluster of the run: what its clients lose more now than then, each against itself."""
    rows = []
    for place, j in enumerate(trained.live):
        mine = [
            (i, names[name].loss)
            for i, name in enumerate(clients.ids)
            if name in names and names[name].cluster == j
        ]
        more = np.array([float(losses.mean[i, place]) - then for i, then in mine])
        honest = all(one.held_out for one in names.values())
        sums = Sums(len(more), float(more.sum()), float(np.square(more).sum()))
        t, p = above_zero(sums) if honest else (0.0, 1.0)
        rows.append(
            {
                "cluster": j,
                "clients": len(more),
                "then": float(np.mean([then for _, then in mine])) if mine else None,
                "more": sums.mean if mine else None,
                "t": t if np.isfinite(t) else None,
                "p": p,
                "above_limit": True,
            }
        )
    return rows


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
