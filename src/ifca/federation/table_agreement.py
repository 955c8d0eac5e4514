"""How the tables of all clients are prepared: as most of them are, and no client's statistics decide alone.

A table's statistics are a client's own word. One that claims a label of a thousand words, or a column without
numbers, would end the run for all, make everybody's model grow, or take their features away.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from ifca.core.checks import FEWEST
from ifca.core.errors import InvalidInput
from ifca.data.column_statistics import Statistics, merged
from ifca.data.fit_preparation import fitted
from ifca.data.preparation import Preparation
from ifca.runs.own_data_config import FolderData

MANY = 10  # times as many classes or features as without one client: they would be there for it alone
Told = dict[str, Any]
"""What a client tells: columns and label of its table; or how it was prepared (ready); or nothing: arrays."""


def alike(told: Mapping[int, Told]) -> dict[int, Told]:
    """Those of the kind that most are of, by node. A table may have more columns than most have."""
    if not told:
        return {}
    kind = Counter(map(_kind, told.values())).most_common(1)[0][0]
    if not isinstance(kind, tuple):
        return {node: one for node, one in told.items() if _kind(one) == kind}
    label, names = kind
    return {
        node: one
        for node, one in told.items()
        if "columns" in one and one["label"] == label and names <= one["columns"].keys()
    }


def _kind(one: Told) -> Hashable:
    """What must be the same: the preparation itself, or label and columns; None: arrays."""
    if "ready" in one:
        return json.dumps(one["ready"].to_json())
    return (one["label"], frozenset(one["columns"])) if "columns" in one else None


def agreed_preparation(
    told: Mapping[int, Told], data: FolderData
) -> tuple[Preparation | None, dict[int, str]]:
    """The preparation (None: clients have arrays), and why the statistics of a node are not counted."""
    same = alike(told)
    first = next(iter(same.values()), {})
    if "ready" in first:
        made: Preparation = first["ready"]
        return made, {}
    if "columns" not in first:
        return None, {}
    label = first["label"]
    # What most tables have: a column that one client has alone would shut out all the others.
    names = Counter(frozenset(one["columns"]) for one in same.values()).most_common(1)[0][0]

    def decide(statistics: Statistics) -> Preparation | None:
        holes, named = data.missing == "refuse", bool(data.features)
        return fitted(
            statistics,
            label,
            data.columns,
            task=data.task,
            classes=data.classes,
            named=named,
            refuse_holes=holes,
        )

    tables = {node: {n: one["columns"][n] for n in sorted(names)} for node, one in same.items()}
    return decided(tables, decide)


def decided(
    tables: Mapping[int, Statistics], decide: Callable[[Statistics], Preparation | None]
) -> tuple[Preparation | None, dict[int, str]]:
    """By the statistics of all; without those of a client that alone would spoil it for the others."""
    whole, each = _tried(decide, merged(tables.values())), list(tables.values())
    if len(tables) >= FEWEST:
        rests = [_tried(decide, rest) for rest in each_left_out(each)]
        spoils = {
            node: why
            for node, rest in zip(tables, rests, strict=True)
            if (why := _spoiled(whole, rest)) is not None
        }
        if len(spoils) == 1:
            node = next(iter(spoils))
            rest = rests[list(tables).index(node)]
            assert not isinstance(rest, InvalidInput)
            return rest, spoils
    if isinstance(whole, InvalidInput):
        raise whole
    return whole, {}


def each_left_out(clients: Sequence[Statistics], others: Statistics | None = None) -> Iterator[Statistics]:
    """For each client the statistics of all but it, each half added up once for the other."""
    if len(clients) == 1:
        yield others or {}
        return
    middle, before = len(clients) // 2, [] if others is None else [others]
    for mine, rest in (
        (clients[:middle], clients[middle:]),
        (clients[middle:], clients[:middle]),
    ):
        yield from each_left_out(mine, merged([*before, *rest]))


def _tried(
    decide: Callable[[Statistics], Preparation | None], statistics: Statistics
) -> Preparation | InvalidInput | None:
    try:
        return decide(statistics)
    except InvalidInput as reason:
        return reason


def _spoiled(whole: Preparation | InvalidInput | None, rest: Preparation | InvalidInput | None) -> str | None:
    """What a client does to the others alone, by the preparation with it and without; None: nothing."""
    if rest is None or isinstance(rest, InvalidInput):
        return None
    if whole is None or isinstance(whole, InvalidInput):
        return f"by its table alone, {whole or 'no column would be left'}"
    if whole.regression != rest.regression:
        kinds = ("classes", "numbers to predict")
        was, now = kinds[rest.regression], kinds[whole.regression]
        return f"the labels of all others are {was}, and would be {now} by its table alone"
    for what, mine, theirs in (
        ("classes", len(whole.class_names or ()), len(rest.class_names or ())),
        ("features", len(whole.features), len(rest.features)),
    ):
        if mine > MANY * max(theirs, 1):
            return f"with its table there are {mine} {what}, without it {theirs}"
    if 2 * len(whole.used) < len(rest.used):
        return f"with its table {len(whole.used)} columns can be used, without it {len(rest.used)}"
    return None
