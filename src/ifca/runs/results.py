"""What a finished run leaves in its folder: summary.json, clients.csv, models.safetensors, rounds.jsonl."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch

from ifca import __version__
from ifca.core.callbacks import Record
from ifca.core.errors import Diverged
from ifca.core.ledger import Wire
from ifca.core.metrics import agreement, cluster_sizes, rounds_to
from ifca.core.numbering import renumbered
from ifca.data.files import write_atomically
from ifca.data.formats.json_file import json_text
from ifca.models import BuiltIn
from ifca.runs.attack_results import attack_results, attack_sentences, honest
from ifca.runs.clients_table import CLIENTS, clients_table
from ifca.runs.config import Config, config_dict
from ifca.runs.differences import DIFFERENCES, differences
from ifca.runs.personal_results import personal_summary
from ifca.runs.run_code import run_id
from ifca.runs.run_folder import ROUNDS
from ifca.runs.served import served_numbers
from ifca.runs.summary_file import MODELS, write_summary
from ifca.runs.undecided import undecided
from ifca.training import Fitted
from ifca.training.checked import rejected_in
from ifca.training.checkpoint import save_tensors
from ifca.training.personalise import Personalised
from ifca.training.poor_fit import poor_fit
from ifca.training.privacy import privacy_facts
from ifca.training.quality import measured_quality
from ifca.training.unprotected import unprotected

ARI = 0.9
"""The adjusted Rand index from which clusters count as found."""


def write_results(
    out: Path,
    fitted: Fitted,
    config: Config,
    restarts: list[dict[str, Any]],
    personalised: Personalised | None = None,
) -> dict[str, Any]:
    """Write all result files, the summary last: where it stands, the run is complete.

    personalised: None where the clients were not asked.
    """
    save_tensors(out / MODELS, fitted.state.theta, {"run": run_id(out), **models_header(fitted)})
    write_atomically(out / CLIENTS, clients_table(fitted, personalised).encode("utf-8"))
    if len(restarts) > 1 or not (out / ROUNDS).exists():
        lines = [json_text(record) + "\n" for record in fitted.history]
        write_atomically(out / ROUNDS, "".join(lines).encode())
    if (found := differences(fitted)) is not None:
        write_atomically(out / DIFFERENCES, json_text(found).encode())
    summary = summarise(fitted, config, restarts)
    if personalised is not None:
        summary["personalised"] = personal_summary(personalised)
    write_summary(out, summary)
    return summary


def models_header(fitted: Fitted) -> dict[str, Any]:
    """What must be known of the models to use them."""
    federation, model = fitted.job.federation, fitted.job.model
    return {
        "algorithm": fitted.job.recipe.algorithm,
        "personal": fitted.job.method.personal,
        "clusters": list(range(len(fitted.places))),
        "input_shape": federation.input_shape,
        "outputs": federation.outputs,
        "classes": federation.classes,
        "features": federation.features,
        "pixels": federation.train.x.dtype == torch.uint8,
        "scaling": None if federation.scaling is None else federation.scaling.to_json(),
        "preparation": None if federation.preparation is None else federation.preparation.to_json(),
        "target_scaling": (
            None if federation.target_scaling is None else federation.target_scaling.to_json()
        ),
        "class_weights": fitted.job.class_weights,
        "model": model.to_json() if isinstance(model, BuiltIn) else None,
    }


def summarise(fitted: Fitted, config: Config, restarts: list[dict[str, Any]]) -> dict[str, Any]:
    """The run in numbers; null where a number is unknown."""
    job, state, test = fitted.job, fitted.state, fitted.test
    method, models, private = job.method, len(fitted.places), privacy_facts(job, fitted.state)
    true = job.federation.train.true_cluster
    sizes = cluster_sizes(fitted.labels, models)
    live, events = sum(size > 0 for size in sizes), _events(fitted)
    seconds = [record["seconds"] for record in fitted.history]
    asked, quality = torch.zeros(len(fitted.labels), dtype=torch.bool), measured_quality(fitted)
    final = Wire.of(state.theta, state.live, job.shared).down(asked).sum() if method.chooses else 0
    return {
        "algorithm": config.algorithm,
        "method": method.facts(),
        "engine": config.engine,
        "device": str(job.device),
        "seed": config.seed,
        "k": job.models,
        "clusters_asked": min(job.models, job.recipe.k) if method.clustered else job.models,
        "models": models,
        "places": fitted.places,
        "rounds": state.round,
        "stopped": fitted.stopped,
        **({} if private is None else {"privacy": private}),
        "step_size": job.recipe.step_size,
        "halved": list(state.progress.halved),
        "clients": len(job.federation.train),
        "class_names": job.federation.class_names,
        "test_clients": None if job.federation.test is None else len(job.federation.test),
        "test_accuracy": None if test is None else test.accuracy(test.paper_rule),
        "test_accuracy_train_rule": None if test is None else test.accuracy(test.train_rule),
        "test_loss": None if test is None else test.mean_loss(test.paper_rule),
        "test_loss_train_rule": None if test is None else test.mean_loss(test.train_rule),
        **_own_metrics(fitted),
        **served_numbers(fitted),
        "train_loss": fitted.train_loss,
        "quality": quality,
        "warnings": [*attack_sentences(fitted), *unprotected(fitted), *poor_fit(fitted, quality)],
        **attack_results(fitted),
        "cluster_sizes": None if method.personal else sizes,
        "live_clusters": live,
        **_recovered(fitted),
        "clusters": None if method.personal else [_cluster(fitted, j) for j in range(models)],
        "true_clusters": None if true is None or method.personal else _confusion(fitted),
        "bytes_down": sum(restart["bytes_down"] for restart in restarts),
        "bytes_up": sum(restart["bytes_up"] for restart in restarts),
        "bytes_down_final_identity": int(final),
        "seconds": round(sum(restart["seconds"] for restart in restarts), 3),
        "seconds_per_round": round(sum(seconds) / max(1, len(seconds)), 5),
        "events": events,
        "undecided": undecided(events, live, job.federation.train.sizes, job.recipe.alpha),
        "rejected": rejected_in(fitted.history),
        "restarts": restarts,
        "kept_restart": fitted.restart,
        "config": config_dict(config),
        "versions": {
            "ifca": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
    }


def _events(fitted: Fitted) -> list[dict[str, Any]] | None:
    """What the server decided, by the final numbers of clusters; None: the method decides nothing."""
    if not any("events" in record for record in fitted.history):
        return None
    records = renumbered(fitted.history, fitted.places, fitted.job.models)
    return [{"round": r["round"], **event} for r in records for event in r.get("events", [])]


def restart_report(restart: int, start: Fitted | Diverged, history: list[Record]) -> dict[str, Any]:
    """What one restart reached and cost; diverged ones are reported too. history: its finished rounds."""
    report = {"restart": restart, "train_loss": None, "live_clusters": None}
    seconds = round(sum(record["seconds"] for record in history), 3)
    if isinstance(start, Diverged):
        return report | {
            "bytes_down": sum(record["bytes_down"] for record in history) + start.bytes_down,
            "bytes_up": sum(record["bytes_up"] for record in history) + start.bytes_up,
            "seconds": seconds,
            "error": str(start),
        }
    sizes = cluster_sizes(start.labels, len(start.places))
    return report | {
        "train_loss": start.train_loss,
        "live_clusters": sum(size > 0 for size in sizes),
        "bytes_down": int(start.state.bytes_down.sum()),
        "bytes_up": int(start.state.bytes_up.sum()),
        "seconds": seconds,
    }


def _own_metrics(fitted: Fitted) -> dict[str, Any]:
    """The means of the user's own metrics, by both rules; nothing where there are none."""
    test = fitted.test
    if test is None or not test.metrics:
        return {}
    return {
        "test_metrics": test.mean_metrics(test.metrics),
        "test_metrics_train_rule": test.mean_metrics(test.metrics_train_rule),
    }


def _recovered(fitted: Fitted) -> dict[str, Any]:
    """Recovered against true clusters, at the end; null where there are none to compare."""
    true = fitted.job.federation.train.true_cluster
    name = f"rounds_to_ari_{ARI}"
    if true is None or not fitted.job.method.clustered:
        unknown = ("cluster_accuracy", "adjusted_rand_index", "nmi", "v_measure", name)
        return dict.fromkeys(unknown)
    who = honest(fitted)
    found: dict[str, Any] = agreement(true[who], fitted.labels.numpy()[who])
    rounds = [  # older records have the participants' alone
        record.get("adjusted_rand_index_known", record.get("adjusted_rand_index"))
        for record in fitted.history
    ]
    first = rounds_to([*rounds, found["adjusted_rand_index"]], ARI)  # the last choice comes after T rounds
    return {**found, name: None if first is None else min(first, max(1, len(rounds)))}


def _cluster(fitted: Fitted, j: int) -> dict[str, Any]:
    """Size and quality of one cluster; its test clients are those that chose it by the paper's rule."""
    mine, test = fitted.labels == j, fitted.test
    samples = torch.from_numpy(fitted.job.federation.train.sizes)[mine]
    result: dict[str, Any] = {"cluster": j, "clients": int(mine.sum()), "train_samples": int(samples.sum())}
    heard = mine & ~fitted.own_loss.isnan()  # of a real federation some may not have answered
    result["train_loss"] = float(fitted.own_loss[heard].mean()) if bool(heard.any()) else None
    if test is not None:
        only = test.served_by(j)
        result |= {"test_accuracy": test.accuracy(only), "test_loss": test.mean_loss(only)}
    return result


def _confusion(fitted: Fitted) -> dict[str, list[int]]:
    """True cluster -> how many of its clients are in each recovered cluster."""
    true = fitted.job.federation.train.true_cluster
    assert true is not None
    truth = torch.from_numpy(true)
    return {
        str(c): cluster_sizes(fitted.labels[truth == c], len(fitted.places))
        for c in sorted(set(true.tolist()))
    }
