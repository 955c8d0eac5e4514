"""What each column of a table is, by the statistics of all clients; and what the user says of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from ifca.data.column_statistics import MOST_CLASSES, MOST_VALUES, ColumnStatistics, Statistics
from ifca.data.preparation import FALSE, TRUE, Column, Preparation, class_name
from ifca.data.problems import Complain, refuse

Override = Literal["number", "category", "yes-no", "leave out"]
REPEATS = 3  # a category's values occur so often, on average
SENTENCE = 4  # values of more words than this, on average, are no names of categories
FEW_WORDS = 0.1  # a smaller share of words in a column of numbers is a mistake, not a category
MOST_WHOLE = 20  # more whole numbers than this are classes only where they begin at 0, or repeat often
_ID = re.compile(r"(.*[\W_])?(id|ids|uuid|guid|index)|id[\W_].*|.*[a-z](Id|ID)|unnamed.*")


def fitted(
    statistics: Statistics,
    label: tuple[str, ...],
    overrides: Mapping[str, Override] | None = None,
    *,
    task: Literal["auto", "classification", "regression"] = "auto",
    classes: int | None = None,
    named: bool = False,
    refuse_holes: bool = False,
    complain: Complain = refuse,
) -> Preparation | None:
    """The preparation of the columns that the statistics have, but those of the label; None: nothing is left.

    named: the features were chosen by the user, so that no column of numbers is set aside. classes: the
    number of classes where the user said it; then labels are class numbers as they stand.
    """
    overrides = overrides or {}
    columns = tuple(
        column_of(name, one, overrides.get(name), named=named, complain=complain)
        for name, one in statistics.items()
        if name not in label
    )
    regression, names = label_of(label, statistics, task, classes, complain)
    made = Preparation(columns, label, names, regression, refuse_holes)
    if not made.used:
        complain("no column is left for the features: " + "; ".join(f"{c.name} ({c.why})" for c in columns))
        return None
    return made


def column_of(
    name: str,
    told: ColumnStatistics,
    override: Override | None,
    *,
    named: bool = False,
    complain: Complain = refuse,
) -> Column:
    """What a column is taken as."""
    values = told.values or {}
    if override == "leave out":
        return Column(name, "set aside", why="left out as you said")
    if override is None and (why := _set_aside(name, told, named)):
        return Column(name, "set aside", why=why)
    if override == "number" or (override is None and _is_number(told)):
        if not told.numbers:
            complain(f"column {name} is to be a number, but no cell of it is one")
        return Column(name, "number", told.median(), bool(told.holes or (override and told.words)))
    if told.values is None:
        complain(f"column {name} is to be a {override or 'category'}, but has more than {MOST_VALUES} values")
    usual = max(sorted(values), key=values.__getitem__, default="")
    if override == "yes-no" or (
        override is None and all(value.casefold() in TRUE | FALSE for value in values)
    ):
        return Column(name, "yes-no", usual, bool(told.holes))
    return Column(name, "category", usual, bool(told.holes), tuple(sorted(values)))


def _is_number(told: ColumnStatistics) -> bool:
    """Numbers, but for a few cells that are mistakes."""
    return told.words <= FEW_WORDS * (told.numbers + told.words)


def _set_aside(name: str, told: ColumnStatistics, named: bool) -> str:
    """Why a column is no feature; nothing where it is one."""
    there = told.rows - told.holes
    if not there:
        return "all its cells are empty"
    if _is_number(told):
        if named:
            return ""
        unique = told.whole == told.distinct == there > 1
        return "its numbers name rows: all differ" if unique and _ID.fullmatch(name) else ""
    if told.dates > there / 2:
        return "it holds dates or times"
    if told.values is not None and len(told.values) == 1 and not told.holes:
        return "it has the same value everywhere"
    values = told.values or {}
    many = told.values is None or len(values) > min(MOST_VALUES, max(2, there / REPEATS))
    if many or told.untold > there / REPEATS:
        return "almost all its values differ" if told.distinct > there / 2 else "it has too many values"
    sentences = sum(len(value.split()) for value in values) > SENTENCE * len(values)
    return "it holds free text" if sentences else ""


def label_of(
    label: tuple[str, ...],
    statistics: Statistics,
    task: Literal["auto", "classification", "regression"],
    classes: int | None,
    complain: Complain,
) -> tuple[bool, tuple[str, ...] | None]:
    """Whether the label is a target, and else its classes' names (None: they are numbered from 0)."""
    told = [statistics[name] for name in label]
    if task == "regression" or len(label) > 1:
        return True, None
    one = told[0]
    if task == "auto" and _is_number(one) and one.whole < one.numbers:
        return True, None
    if not one.words and (classes is not None or (one.smallest == 0 and one.largest < MOST_CLASSES)):
        return False, None  # numbered from 0, as they stand
    if one.values is None or len(one.values) > MOST_CLASSES:
        return _many_values(label[0], one, task, complain)
    there = one.rows - one.holes
    if task == "auto" and not one.words and len(one.values) > max(MOST_WHOLE, there**0.5):
        return True, None  # ages, prices in whole euros: more a number than a class
    if one.words and len(one.values) > max(2, there / REPEATS):
        complain(
            f"column {label[0]} has {len(one.values)} different values in {there} rows; is it the label?"
        )
    return False, _class_names(one)


def _many_values(
    name: str, told: ColumnStatistics, task: str, complain: Complain
) -> tuple[bool, tuple[str, ...] | None]:
    if told.words:
        complain(f"column {name} has more than {MOST_CLASSES} different values; is it the label?")
    return task == "auto" and told.smallest != 0, None


def _class_names(told: ColumnStatistics) -> tuple[str, ...]:
    """Numbers by size, words by the alphabet."""
    names = {class_name(value) for value in told.values or {}}
    return tuple(sorted(names) if told.words else sorted(names, key=float))
