"""What lines of rounds.jsonl and faults.jsonl hold, and configs as far as they are shown; older ones too."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AllowInfNan, Field
from typing_extensions import NotRequired, TypedDict

Number = Annotated[float, AllowInfNan(False)]
Known = Number | None
"""A number, or null where it is not known."""
Count = Annotated[int, Field(ge=0, lt=2**63)]
Share = Annotated[float, Field(ge=0, le=1)]
Place = Annotated[int, Field(ge=-1, lt=2**31)]
"""The number of a cluster or of a client; -1: of none."""


class Event(TypedDict):
    """What the server decided; the other fields are those of its kind."""

    event: str
    round: NotRequired[Count]
    cluster: NotRequired[Place | None]
    other: NotRequired[Place | None]
    into: NotRequired[list[Place] | Place | None]
    clients: NotRequired[list[Any] | Count | None]
    clusters: NotRequired[Any]
    samples: NotRequired[Count | None]
    loses: NotRequired[Known]
    t: NotRequired[Known]
    p: NotRequired[Known]
    alpha: NotRequired[Known]
    moved: NotRequired[Known]
    loss: NotRequired[Known]
    clear: NotRequired[bool | None]


class Halving(TypedDict):
    """A time that the step was halved."""

    round: Count
    step_size: Number
    back_to: Count
    because: str
    asked_again: NotRequired[list[str]]


class Rejection(TypedDict):
    """A reply that was not used."""

    client: str
    why: str
    detail: NotRequired[Any]


class RoundRecord(TypedDict):
    """One round. What the first versions did not write may be missing."""

    round: Count
    participants: Count
    clients: list[Place] | None
    identity: list[Place] | None
    train_loss: Number
    cluster_sizes: list[Count] | None
    bytes_down: Count
    bytes_up: Count
    seconds: Number
    step_size: NotRequired[Number]
    sent_all_models: NotRequired[Count]
    sent_all_models_to: NotRequired[list[Place] | None]
    rounds_unchanged: NotRequired[Count]
    cluster_train_loss: NotRequired[list[Known] | None]
    live_clusters: NotRequired[Count]
    models: NotRequired[Count]
    test_accuracy: NotRequired[Known]
    test_accuracy_train_rule: NotRequired[Known]
    test_loss: NotRequired[Known]
    cluster_test_accuracy: NotRequired[list[Known]]
    cluster_test_loss: NotRequired[list[Known]]
    test_metrics: NotRequired[dict[str, Known] | None]
    cluster_accuracy: NotRequired[Known]
    adjusted_rand_index: NotRequired[Known]
    adjusted_rand_index_known: NotRequired[Known]
    nmi: NotRequired[Known]
    held_out_loss: NotRequired[Known]
    halved: NotRequired[list[Halving] | None]
    clipped: NotRequired[Share]
    moved: NotRequired[list[bool]]
    rejected: NotRequired[list[Rejection]]
    left_out: NotRequired[list[str]]
    events: NotRequired[list[Event] | None]


class Fault(TypedDict):
    """Something that went wrong in a federation."""

    kind: str
    client: str
    detail: str
    round: NotRequired[int | None]


class ShownData(TypedDict, total=False):
    """What is shown of where the data are from."""

    name: str
    path: str | None
    label: str | list[str] | None


class ShownConfig(TypedDict, total=False):
    """The keys of a config that reports show or count with; older versions may have had others."""

    algorithm: str
    k: int | Literal["auto"] | None
    rounds: int | Literal["auto"]
    seed: int
    restarts: int
    engine: str
    baselines: list[str]
    data: ShownData
    federation: dict[str, Any]
