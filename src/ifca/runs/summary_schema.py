"""What summary.json holds, of this version and of older ones: what reports, cards and resuming rely on."""

from __future__ import annotations

from typing import Any

from typing_extensions import NotRequired, TypedDict

from ifca.runs.comparison_schema import Checksums, Comparison
from ifca.runs.continued_schema import Continued
from ifca.runs.record_schema import Count, Event, Halving, Known, Number, Place, Share, ShownConfig


class Facts(TypedDict, total=False):
    """What reports need of a method; older summaries have some."""

    name: str
    title: str
    about: str
    clustered: bool
    personal: bool
    chooses: bool
    at_most_k: bool
    referee: bool


class Cluster(TypedDict):
    """One cluster."""

    cluster: Count
    clients: Count
    train_samples: Count
    train_loss: Known
    test_accuracy: NotRequired[Known]
    test_loss: NotRequired[Known]


class Restart(TypedDict):
    """What one start reached."""

    restart: Count
    train_loss: Known
    live_clusters: Count | None
    bytes_down: NotRequired[Count]
    bytes_up: NotRequired[Count]
    seconds: NotRequired[Number]
    error: NotRequired[str]


class Quality(TypedDict):
    """The usual metrics, of all samples or of a cluster's."""

    samples: Count
    cluster: NotRequired[Count]
    accuracy: NotRequired[Known]
    auroc: NotRequired[Known]
    f1: NotRequired[Known]
    log_loss: NotRequired[Known]
    calibration_error: NotRequired[Known]
    mae: NotRequired[Known]
    rmse: NotRequired[Known]
    r2: NotRequired[Known]


class Qualities(TypedDict):
    """Of all, and by cluster."""

    overall: Quality
    clusters: list[Quality] | None


class Spoiled(TypedDict):
    """A cluster whose clients another method serves better: of those that differ, by a sign test."""

    cluster: Count
    clients: Count
    worse: Count
    p: Number


class Served(TypedDict):
    """The clients that another method serves better."""

    clients: Count
    worse: Count
    share: Known
    who: list[str]
    clusters: NotRequired[list[Spoiled]]


class Rejected(TypedDict):
    """Replies that were not used."""

    replies: Count
    clients: dict[str, Count]
    why: dict[str, Count]
    left_out: dict[str, Count]


class Stopped(TypedDict):
    """How a training ended before its last round."""

    rounds: Count
    why: str
    kept_round: NotRequired[Count]
    held_out_loss: NotRequired[Known]


class Prior(TypedDict):
    """What candidates saved the clients of a run."""

    line: list[list[Known]]
    unsure: list[list[list[Known]]]
    middle: Number
    between: list[Known]
    within: list[Known]


class Personalised(TypedDict):
    """What clients chose."""

    chose: dict[str, Share]
    candidates: list[tuple[str, int]]
    prior: Prior | None
    held_out_loss_before: Known
    held_out_loss_after: Known
    held_out_gain: Known
    test_accuracy_before: Known
    test_accuracy_after: Known
    test_loss_before: Known
    test_loss_after: Known
    worse_on_test: Known


class SpentBefore(TypedDict):
    """What earlier runs told of their clients, or they and this one together."""

    epsilon: Number
    delta: Number


class Privacy(TypedDict):
    """What was spent."""

    epsilon: Known
    delta: Number
    budget: Known
    participation: Number
    rounds: Count
    sampling: str
    not_covered: list[str]
    noise: NotRequired[Known]
    before: NotRequired[SpentBefore]
    in_all: NotRequired[SpentBefore]


class Summary(TypedDict):
    """A finished run. Numbers that older versions did not write may be missing."""

    algorithm: str
    engine: str | None
    seed: int
    k: Count
    rounds: Count
    clients: Count
    test_clients: Count | None
    test_accuracy: Known
    test_loss: Known
    train_loss: Known
    live_clusters: Count
    clusters: list[Cluster] | None
    true_clusters: dict[str, list[Count]] | None
    bytes_down: Count
    bytes_up: Count
    seconds: Number
    restarts: list[Restart]
    kept_restart: Count
    config: ShownConfig
    versions: dict[str, str]
    cluster_sizes: NotRequired[list[Count] | None]
    cluster_accuracy: NotRequired[Known]
    adjusted_rand_index: NotRequired[Known]
    nmi: NotRequired[Known]
    method: NotRequired[Facts]
    device: NotRequired[str | None]
    models: NotRequired[Count]
    places: NotRequired[list[Place]]
    clusters_asked: NotRequired[Count]
    stopped: NotRequired[Stopped | None]
    step_size: NotRequired[Number]
    halved: NotRequired[list[Halving]]
    class_names: NotRequired[list[str] | None]
    test_accuracy_train_rule: NotRequired[Known]
    test_loss_train_rule: NotRequired[Known]
    test_accuracy_worst_tenth: NotRequired[Known]
    test_loss_worst_tenth: NotRequired[Known]
    test_clients_unseen: NotRequired[Count]
    test_accuracy_unseen: NotRequired[Known]
    test_loss_unseen: NotRequired[Known]
    test_metrics: NotRequired[dict[str, Known] | None]
    quality: NotRequired[Qualities | None]
    warnings: NotRequired[list[str]]
    worse_than: NotRequired[dict[str, dict[str, Served]] | None]
    events: NotRequired[list[Event] | None]
    undecided: NotRequired[str | None]
    rejected: NotRequired[Rejected | None]
    seconds_per_round: NotRequired[Number]
    personalised: NotRequired[Personalised]
    privacy: NotRequired[Privacy]
    comparison: NotRequired[Comparison | None]
    bytes_evaluation: NotRequired[Count]
    faults: NotRequired[dict[str, Count]]
    baselines: NotRequired[dict[str, Any]]
    continued: NotRequired[Continued]
    checksums: NotRequired[Checksums]
