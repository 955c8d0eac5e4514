"""What differences.json holds."""

from __future__ import annotations

from typing_extensions import NotRequired, TypedDict

from ifca.runs.record_schema import Count, Number


class Difference(TypedDict):
    """A feature or a class whose means differ between clusters."""

    name: str
    means: list[Number]
    spread: Number
    gap: Number
    share: bool


class Images(TypedDict):
    """Mean images: bytes in base 64."""

    shape: tuple[Count, Count, Count, Count, Count]
    kinds: list[str]
    pixels: str


class Use(TypedDict):
    """What models make of a feature, by cluster."""

    name: str
    two_valued: bool
    leans: list[Number]
    pulls: list[Number] | None


class Uses(TypedDict):
    """What models make of features."""

    answer: str | None
    spread: Number
    features: list[Use]


class DifferencesFile(TypedDict):
    """What distinguishes the clusters."""

    clusters: list[Count]
    label: list[Difference]
    target_variance: NotRequired[list[Number] | None]
    images: NotRequired[Images]
    features: NotRequired[list[Difference]]
    compared: NotRequired[Count]
    uses: NotRequired[Uses | None]
