"""How the columns of a table become features, and its label's values classes; kept with a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ifca.data.cells import Cells

ColumnKind = Literal["number", "category", "yes-no", "set aside"]
TRUE = frozenset({"true", "yes", "y", "t", "ja", "oui", "1"})
FALSE = frozenset({"false", "no", "n", "f", "nein", "non", "0"})


@dataclass(frozen=True)
class Column:
    """One column, and what is done to it."""

    name: str
    kind: ColumnKind
    fill: float | str | None = None
    """What stands in for a missing cell: the median, or the most frequent value."""
    indicator: bool = False
    """Whether a feature says that the cell was missing: so it is where training had such cells."""
    values: tuple[str, ...] = ()
    """Of a category: a feature each, of two values one for the second. Others are 0 in all of them."""
    why: str = ""
    """Of a column that is set aside: the reason."""

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features."""
        if self.kind == "set aside":
            return ()
        own = (
            tuple(f"{self.name} = {value}" for value in self._shown)
            if self.kind == "category"
            else (self.name,)
        )
        return (*own, f"{self.name} is missing") if self.indicator else own

    @property
    def _shown(self) -> tuple[str, ...]:
        """The values that have a feature of their own."""
        return self.values[1:] if len(self.values) == 2 else self.values

    def prepared(self, cells: Cells) -> list[NDArray[np.float64]]:
        """Its features, [n] each."""
        if self.kind == "set aside":
            return []
        if self.kind == "number":
            holes = ~np.isfinite(cells.numbers)
            assert isinstance(self.fill, float)
            own = [np.where(holes, self.fill, cells.numbers)]
        else:
            holes = cells.missing
            texts = np.array([text or self.fill for text in cells.texts], dtype=object)
            if self.kind == "yes-no":
                own = [np.array([truth_of(text, self.fill) for text in texts], np.float64)]
            else:
                own = [(texts == value).astype(np.float64) for value in self._shown]
        return [*own, holes.astype(np.float64)] if self.indicator else own

    def unknown(self, cells: Cells) -> NDArray[np.bool_]:
        """[n] cells that are there, but that training did not know what to do with."""
        if self.kind == "number":
            return cells.words
        if self.kind == "category":
            known = {*self.values, ""}
            return np.array([text not in known for text in cells.texts], bool)
        if self.kind == "yes-no":
            known = {*TRUE, *FALSE, ""}
            return np.array([text.casefold() not in known for text in cells.texts], bool)
        return np.zeros(len(cells), bool)

    def done(self) -> str:
        """What is done to it, in words."""
        if self.kind == "set aside":
            return self.why
        filled = f"{self.fill:g}" if isinstance(self.fill, float) else self.fill
        holes = f"; missing cells become {filled}, marked" if self.indicator else ""
        if self.kind == "number":
            return f"as it is{holes}"
        if self.kind == "yes-no":
            return f"yes or true: 1, else 0{holes}"
        if len(self.values) == 2:
            return f"{self.values[1]}: 1, {self.values[0]}: 0{holes}"
        return f"{len(self.values)} features, one per value{holes}"


@dataclass(frozen=True)
class Preparation:
    """From the rows of a table to the numbers that models see."""

    columns: tuple[Column, ...]
    """In the order of the table; those that are set aside too."""
    label: tuple[str, ...]
    """The column to predict; of a regression there may be several."""
    class_names: tuple[str, ...] | None = None
    """The label's values by class number; None: a regression, or labels that are numbered from 0."""
    regression: bool = False
    refuse_holes: bool = False
    """Whether a missing cell is refused instead of filled."""

    @property
    def used(self) -> tuple[Column, ...]:
        """The columns that become features."""
        return tuple(column for column in self.columns if column.kind != "set aside")

    @property
    def features(self) -> tuple[str, ...]:
        """The names of all features."""
        return tuple(name for column in self.used for name in column.features)

    @property
    def plain(self) -> bool:
        """Whether the features are columns of numbers, as they stand."""
        return all(column.kind == "number" and not column.indicator for column in self.used)

    def prepared(self, table: Mapping[str, Cells]) -> NDArray[np.float64]:
        """The features of some rows: [n, features]."""
        return np.stack([one for column in self.used for one in column.prepared(table[column.name])], 1)

    def labels(self, table: Mapping[str, Cells]) -> NDArray[Any]:
        """The labels of some rows: class numbers, or targets ([n, targets] where there are several)."""
        if self.class_names is not None:
            number = {name: i for i, name in enumerate(self.class_names)}
            return np.array(
                [number.get(class_name(text), -1) for text in table[self.label[0]].texts], np.int64
            )
        y = np.stack([table[name].numbers for name in self.label], 1)
        y = y[:, 0] if len(self.label) == 1 else y
        return y if self.regression else np.nan_to_num(y).astype(np.int64)

    @classmethod
    def of_numbers(cls, names: Sequence[str], label: tuple[str, ...], regression: bool) -> Preparation:
        """Columns of numbers, used as they stand."""
        columns = tuple(Column(name, "number", 0.0) for name in names)
        return cls(columns, label, None, regression, refuse_holes=True)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, for a file's header."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any] | None) -> Preparation | None:
        """The inverse of to_json."""
        if content is None:
            return None
        names = content["class_names"]
        known = {
            "columns": tuple(Column(**{**one, "values": tuple(one["values"])}) for one in content["columns"]),
            "label": tuple(content["label"]),
            "class_names": None if names is None else tuple(names),
        }
        return cls(**{**content, **known})


def class_name(text: str) -> str:
    """What a label says: a whole number without needless signs and zeros, or the words as they stand."""
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() else text


def truth_of(text: str, otherwise: Any) -> float:
    """1 for yes, 0 for no; a word that is neither is taken as the most frequent one."""
    word = text.casefold()
    return float(word in TRUE) if word in TRUE | FALSE else float(str(otherwise).casefold() in TRUE)
