"""What was understood of a user's data, and what is wrong with it, before anything is trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ifca.data.assemble import put_together
from ifca.data.clients import Client
from ifca.data.federation import Federation
from ifca.data.problems import Findings, Source
from ifca.data.sources.folder import Standardise, is_standardised

HUGE = 1e6  # features beyond this make most trainings diverge
UNEVEN = 100.0  # the largest scale of a feature over the smallest


def inspect_clients(
    clients: list[Client], classes: int | None, problems: Findings, *, standardise: Standardise = False
) -> dict[str, Any]:
    """A report as plain JSON values; problems: what was found while reading, and takes what is found here."""
    together = put_together(clients, classes, problems) if clients or not problems.count else None
    remarks = Findings(problems.most)
    for client in clients:
        _huge(client, remarks)
    report: dict[str, Any] = {"trainable": problems.count == 0, "clients": 0}
    if together is not None:
        federation = Federation(*together)
        report |= _understood(federation)
        scaled = is_standardised(standardise, clients[0].preparation)
        report["standardised"] = scaled
        _remark(federation, remarks, scaled)
    return report | {
        "problems": problems.kept,
        "problem_count": problems.count,
        "remarks": remarks.kept,
        "remark_count": remarks.count,
    }


def _understood(federation: Federation) -> dict[str, Any]:
    train, test = federation.train, federation.test
    y, sizes = train.y, train.sizes
    report: dict[str, Any] = {
        "clients": len(train),
        "samples": int(sizes.sum()),
        "samples_per_client": {
            "smallest": int(sizes.min()),
            "median": float(np.median(sizes)),
            "largest": int(sizes.max()),
        },
        "test_clients": None if test is None else len(test),
        "test_samples": None if test is None else int(test.sizes.sum()),
        "input_shape": list(federation.input_shape),
        "input_type": str(train.x.dtype).removeprefix("torch."),
        "task": "regression" if federation.classes is None else "classification",
        "classes": federation.classes,
        "true_clusters": None
        if train.true_cluster is None
        else {
            str(c): int(n) for c, n in zip(*np.unique(train.true_cluster, return_counts=True), strict=True)
        },
    }
    if federation.classes is None:
        report["targets"] = federation.outputs
        report["target"] = {
            "mean": float(y.double().mean()),
            "deviation": float(y.double().std(correction=0)),
            "smallest": float(y.min()),
            "largest": float(y.max()),
        }
    else:
        report["class_samples"] = torch.bincount(y, minlength=federation.classes).tolist()
        owner = torch.repeat_interleave(torch.arange(len(train)), torch.from_numpy(sizes))
        pairs = torch.unique(torch.stack([owner, y]), dim=1)
        report["class_clients"] = torch.bincount(pairs[1], minlength=federation.classes).tolist()
    return report


def _remark(federation: Federation, remarks: Findings, standardise: bool) -> None:
    """What can be trained on but is rarely meant."""
    train, x = federation.train, federation.train.x
    if federation.test is None:
        remarks("there is nothing to test on; test_share = 0.2 keeps a fifth of each client's samples")
    if len(train) < 2:
        remarks("there is only one client: nothing to cluster")
    few = [name for name, n in zip(train.ids, train.sizes.tolist(), strict=True) if n < 5]
    if few:
        who = few[0] if len(few) == 1 else f"{len(few)} clients, {few[0]} for one,"
        remarks(f"{who} {'has' if len(few) == 1 else 'have'} fewer than 5 samples: the cluster is a guess")
    if federation.classes is not None:
        absent = np.flatnonzero(np.bincount(train.y.numpy(), minlength=federation.classes) == 0).tolist()
        if absent:
            more = f" and {len(absent) - 10} more" if len(absent) > 10 else ""
            remarks(f"nobody has a training sample of class {', '.join(map(str, absent[:10]))}{more}")
    elif train.y.dim() == 1 and bool((train.y == train.y.round()).all()):
        remarks('all targets are whole numbers; where they are classes, task = "classification" says so')
    if x.dim() == 2 and x.dtype != torch.uint8 and not standardise:
        deviation = x.double().std(0, correction=0)
        if bool((deviation == 0).any()):
            place = int((deviation == 0).nonzero()[0])
            remarks(f"{int((deviation == 0).sum())} features never change, feature {place} for one")
        size = (deviation**2 + x.double().mean(0) ** 2).sqrt()
        size = size[size > 0]
        if len(size) and float(size.max() / size.min()) > UNEVEN:
            ratio = float(size.max() / size.min())
            remarks(f"features differ {ratio:.3g} times in scale; standardise = true makes them alike")


def _huge(client: Client, remarks: Findings) -> None:
    for x, source in ((client.x, client.source), (client.x_test, client.test_source)):
        values = np.asarray(x if x is not None else [])
        if values.dtype.kind not in "fiu" or values.ndim < 2 or not values.size:
            continue
        size = np.abs(values.reshape(len(values), -1)).max(1)
        if size.max() > HUGE:
            i = int(size.argmax())
            source = source or Source(f"client {client.id}")
            remarks(f"{source.name}: x has a value of size {size[i]:.3g} in {source.row(i)}; is it meant?")
