"""What summary.json holds of a comparison of methods, and what it is checked by."""

from __future__ import annotations

from typing_extensions import NotRequired, TypedDict

from ifca.runs.record_schema import Count, Known, Number, ShownConfig


class Checksums(TypedDict):
    """Whose results these are, and the SHA-256 of the files beside the summary and of itself."""

    run: str | None
    files: dict[str, str]
    summary: str


class Gain(TypedDict):
    """By how much a method is better than another."""

    by: Number
    low: Known
    high: Known
    clear: bool
    by_seed: list[Number]


class Standing(TypedDict):
    """A method in a comparison."""

    method: str
    title: str
    simple: Count
    value: Number
    low: Known
    high: Known
    by_seed: list[Number]
    standing: str
    behind: Gain | None


class Pair(Gain):
    """Two methods."""

    first: str
    second: str


class Comparison(TypedDict):
    """Which method is best."""

    metric: str
    higher_is_better: bool
    seeds: list[int]
    clients: Count
    paired_over: str
    best: str | None
    table: list[Standing]
    pairs: list[Pair]
    failed: dict[str, str]
    verdict: str
    basis: str


class SeedsSummary(TypedDict):
    """A finished comparison over seeds."""

    comparison: Comparison | None
    folders: list[str]
    config: ShownConfig
    versions: dict[str, str]
    checksums: NotRequired[Checksums]
