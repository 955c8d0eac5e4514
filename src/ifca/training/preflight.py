"""Everything that can be refused before the first round, and before a folder is made."""

from __future__ import annotations

from functools import partial

import torch

from ifca.core.client import gradient, mean_loss
from ifca.core.errors import IFCAError, InvalidInput
from ifca.core.types import Data, Params, select
from ifca.training.job import Job
from ifca.training.own_metrics import client_metrics
from ifca.training.privacy import check_private
from ifca.training.start import drawn_models, given_models


def check(job: Job) -> None:
    """Try the model on one sample, the initial models, the plan and the budget; train nothing."""
    clients, recipe = job.federation.train, job.recipe
    if recipe.private:
        check_private(job)
    if recipe.resample and clients.sizes.min() < 2 * recipe.rounds:
        smallest = int(clients.sizes.argmin())
        raise InvalidInput(
            f"resample cuts each client's data into 2 x rounds = {2 * recipe.rounds} parts, but client "
            f"{clients.ids[smallest]} has only {clients.sizes[smallest]} samples"
        )
    if recipe.early_stopping and clients.sizes.max() < 2:
        raise InvalidInput("early stopping needs samples that clients set aside, but each has only one")
    task = job.task  # refuses layers that cannot be federated, and what the method cannot train
    theta = given_models(job) or drawn_models(job, 0)
    sample = clients.one(0, job.device, job.dtype)
    try:
        output = task.output(select(theta, 0), sample.x)
    except IFCAError:
        raise
    except Exception as reason:
        shape = tuple(sample.x.shape[1:])
        raise InvalidInput(
            f"model: fails on a sample of shape {shape} ({str(reason).splitlines()[0]})"
        ) from reason
    classes = job.federation.classes
    if classes is not None and (output.dim() != 2 or output.shape[1] < classes):
        raise InvalidInput(f"model: gives outputs of shape {tuple(output.shape[1:])} for {classes} classes")
    if classes is None and job.loss is None and output.shape[1:].numel() != job.federation.outputs:
        raise InvalidInput(
            f"model: gives {output.shape[1:].numel()} outputs for {job.federation.outputs} target(s)"
        )
    _try_loss(job, select(theta, 0), sample)
    if job.metrics:  # refuses those that fail
        client_metrics(job, theta, clients.subset([0]), torch.zeros(1, dtype=torch.long))
    engine = job.make_engine()
    if engine.name not in ("loop", "flower"):
        _try_side_by_side(job, select(theta, 0), sample)
    with torch.no_grad():
        engine.fits(theta)


def _try_side_by_side(job: Job, theta: Params, sample: Data) -> None:
    """Refuse a model or loss that torch cannot map over clients; one client at a time it may work."""
    two = {name: torch.stack([value, value]) for name, value in theta.items()}
    both = Data(*(torch.stack([part[:2], part[:2]]) for part in sample))
    try:
        torch.vmap(partial(gradient, job.task))(two, both)
    except IFCAError:
        raise
    except Exception as reason:
        what = str(reason).split(". ")[0].splitlines()[0]
        advice = "engine = 'loop' trains them one by one"
        raise InvalidInput(
            f"model or loss: cannot be computed for several clients at once ({what}); {advice}"
        ) from reason


def _try_loss(job: Job, theta: Params, sample: Data) -> None:
    """Refuse a loss that fails, or that does not give a number per sample."""
    try:
        mean_loss(job.task, theta, sample)
    except IFCAError:
        raise
    except Exception as reason:
        what = f"{type(reason).__name__}: {str(reason).splitlines()[0] if str(reason) else ''}"
        raise InvalidInput(f"loss: fails on the outputs of the model ({what})") from reason
