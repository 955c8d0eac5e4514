"""What continued.json holds, and the part of summary.json that is made of it."""

from __future__ import annotations

from typing import Any

from typing_extensions import NotRequired, TypedDict

from ifca.runs.record_schema import Count, Known, Place


class ClientThen(TypedDict):
    """A client with labels: its model in the run, and the one that fits its new data best."""

    client: str
    samples: Count
    was: Place | None
    cluster: Place
    state: str
    tried: bool
    alarm: bool
    above_limit: bool
    best_above_limit: bool
    loss_then: float | None
    loss_own: float | None
    loss: float | None
    saved: float | None
    margin_in_errors: float | None
    limit: float | None
    best_limit: float | None
    t: float | None
    p: float | None
    best_p: float | None


class ClusterThen(TypedDict):
    """A cluster of the run: what its clients lose more now."""

    cluster: Place
    clients: Count
    then: float | None
    more: float | None
    p: float | None
    alarm: bool


class WithoutLabels(TypedDict):
    """A client without labels."""

    client: str
    samples: Count
    was: Place | None
    cluster: Place
    by: str
    tried: NotRequired[Any]
    margin_in_errors: NotRequired[float | None]
    most_confident: NotRequired[Place]
    most: NotRequired[float]
    right: NotRequired[Count]
    p: NotRequired[float]
    tried_by: NotRequired[str]


class Way(TypedDict):
    """Test samples under one way to be served."""

    loss: Known
    accuracy: Known


class ClientWays(TypedDict):
    """The same of one client."""

    client: str
    samples: Count
    as_it_was: Way
    earlier_models: Way
    after: Way


class Compared(TypedDict):
    """What continuing brought."""

    samples: Count
    ways: dict[str, Way]
    clients: list[ClientWays]


class Continued(TypedDict):
    """What was found of the new data before training, and then what training brought."""

    run: str
    level: float
    held_out: bool
    clients: list[ClientThen]
    clusters: list[ClusterThen]
    unlabelled: list[WithoutLabels]
    gone: list[str]
    alarms: list[str]
    compared: NotRequired[Compared | None]
