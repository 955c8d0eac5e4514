"""A federation that goes on with the models of an earlier run, while its clients' data may have changed.

The server knows no sample, so what it goes by is each client's mean loss under the earlier models: whose
best one is above what was usual in that model's cluster is tried in a group of its own
(methods/continued_start.py), and the referee decides, as everywhere, on samples that clients set aside.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ifca.core.errors import InvalidInput
from ifca.core.identity import identity
from ifca.core.types import Params
from ifca.data import Federation
from ifca.data.files import write_atomically
from ifca.data.scaling import Scaling
from ifca.methods import method_of
from ifca.runs.auto_k import MOST
from ifca.runs.bands import Known, bands_of, known_clients
from ifca.runs.config import Config
from ifca.runs.continued import CONTINUED, can_go_on, earlier_models
from ifca.runs.run_code import run_id
from ifca.runs.run_folder import write_start
from ifca.training import Job
from ifca.training.continued_state import continued_state


@dataclass(frozen=True)
class Earlier:
    """The run that is continued: its models, their header, its clients."""

    run: Path
    theta: Params
    header: dict[str, Any]
    known: list[Known]

    @property
    def preparation(self) -> str:
        """How its tables were prepared, as JSON; empty: it had arrays."""
        made = self.header.get("preparation")
        return "" if made is None else json.dumps(made)

    def as_before(self, federation: Federation) -> Federation:
        """Clients whose features, targets and classes are those of the run."""
        classes, target = self.header["classes"], Scaling.from_json(self.header.get("target_scaling"))
        if classes is not None and (federation.classes or 0) > classes:
            told = f"the clients have {federation.classes} classes, the run that is continued had {classes}"
            raise InvalidInput(f"continues: {told}")
        seen = replace(federation, classes=federation.classes if classes is None else classes)
        seen.check_fits("continues", tuple(self.header["input_shape"]), classes, self.header["outputs"])
        return replace(seen, scaling=Scaling.from_json(self.header.get("scaling")), target_scaling=target)


def earlier_of(config: Config) -> Earlier | None:
    """What a config says to go on with; None: nothing."""
    if config.continues is None:
        return None
    folder = Path(config.continues)
    can_go_on(folder)
    return Earlier(folder, *earlier_models(config), known_clients(folder))


def config_to_continue(config: Config, run: Path) -> Config:
    """The same federation, going on from a run: one training, nothing beside it."""
    return replace(config, continues=str(run), warm_start=None, baselines=(), restarts=1, initial="random")


class Look(NamedTuple):
    """What clients said of the earlier models: places that models need, a report, losses [m, c]."""

    places: int
    found: dict[str, Any]
    losses: Tensor


def look_at(job: Job, earlier: Earlier) -> Look:
    """Let the clients score the earlier models."""
    clients = job.federation.train
    theta = {name: value.to(job.device) for name, value in earlier.theta.items()}
    losses = job.make_engine().score(theta, clients).loss.cpu()
    found = found_by_losses(earlier, clients.ids, clients.sizes.tolist(), losses)
    tried = sum(row["tried"] for row in found["clients"])
    more = min(tried, MOST) if method_of(job.recipe.algorithm).referee else 0
    return Look(len(earlier.header["clusters"]) + more, found, losses)


def found_by_losses(
    earlier: Earlier, ids: tuple[str, ...], samples: list[int], losses: Tensor
) -> dict[str, Any]:
    """Who stayed, moved, is new or fits no model. losses: [m, c]; who did not answer has NaN, and stayed."""
    bands, names = bands_of(earlier.known), {one.id: one for one in earlier.known}
    if not any(name in names for name in ids):
        some = ", ".join(ids[:3])
        raise InvalidInput(
            f"continues: no client of {earlier.run} is there ({some} are): are they named alike?"
        )
    rows = []
    for name, count, row in zip(ids, samples, losses, strict=True):
        was = names[name].cluster if name in names else None
        silent = not bool(row.isfinite().any())
        best = (was or 0) if silent else int(identity(row.nan_to_num(torch.inf)[None])[0])
        own = best if was is None else was
        limit, best_limit = (bands[j].limit if j in bands else None for j in (own, best))
        loss, loss_own = (None if silent else float(row[j]) for j in (best, own))
        above = loss is not None and best_limit is not None and loss > best_limit
        state = "joined" if was is None else "stayed" if was == best else "moved"
        rows.append(
            {
                **{"client": name, "samples": count, "was": was, "cluster": best},
                "state": "misfit" if above else state,
                **{"tried": above, "alarm": above, "best_above_limit": above},
                "above_limit": loss_own is not None and limit is not None and loss_own > limit,
                "loss_then": names[name].loss if name in names else None,
                **{"loss_own": loss_own, "loss": loss, "limit": limit, "best_limit": best_limit},
                "saved": None if loss is None or loss_own is None else loss_own - loss,
                **{"margin_in_errors": None, "t": None, "p": None, "best_p": None},
            }
        )
    return {
        "level": 0.0,  # no test: clients tell their mean losses alone
        "held_out": all(one.held_out for one in earlier.known),
        "clients": rows,
        "clusters": [_cluster(j, rows) for j in earlier.header["clusters"]],
        "unlabelled": [],
        "gone": [name for name in names if name not in ids],
        "alarms": [_alarm(row) for row in rows if row["alarm"]],
    }


def _cluster(j: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    mine = [row for row in rows if row["was"] == j and row["loss_own"] is not None]
    more = [row["loss_own"] - row["loss_then"] for row in mine]
    then = [row["loss_then"] for row in mine]
    means = (None, None) if not mine else (sum(then) / len(then), sum(more) / len(more))
    known = {"cluster": j, "clients": len(mine), "then": means[0], "more": means[1]}
    return {**known, "p": None, "alarm": False}


def _alarm(row: dict[str, Any]) -> str:
    return (
        f"{row['client']} loses {row['loss']:.3g} a sample with model {row['cluster']}, which fits it best; "
        f"usual is at most {row['best_limit']:.3g}: no model fits it"
    )


def write_begin(job: Job, config: Config, out: Path, look: Look, run: Path) -> None:
    """Write the state before round 0 into the folder of the new run."""
    found, losses = look.found, look.losses
    misfit = torch.tensor([row["tried"] for row in found["clients"]])
    silent = ~losses.isfinite().any(1, keepdim=True)
    kept = torch.tensor([row["cluster"] for row in found["clients"]])
    stays = torch.where(torch.arange(losses.shape[1]) == kept[:, None], 0.0, 1.0).to(losses.dtype)
    state = continued_state(job, torch.where(silent, stays, losses), misfit)
    content = json.dumps({"run": str(run), **found}, indent=2)
    write_atomically(out / CONTINUED, content.encode())
    write_start(out, job, config, run_id(out), state)
