"""Classes by the names that labels have: words, or other numbers than 0, 1, ..."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ifca.core.errors import InvalidInput
from ifca.data.cells import text_of
from ifca.data.preparation import class_name


def are_numbers(names: tuple[str, ...]) -> bool:
    """Whether all classes are called by whole numbers."""
    return all(name.lstrip("-").isdigit() for name in names)


def labels_of_classes(names: tuple[str, ...]) -> NDArray[Any]:
    """The labels of the classes, as a table has them: whole numbers or words."""
    return np.array([int(name) for name in names] if are_numbers(names) else names)


def class_numbers(where: str, y: Any, names: tuple[str, ...]) -> Any:
    """Labels as they are given -> class numbers; where classes are words, class numbers stay as they are."""
    given = np.asarray(y)
    if given.ndim != 1 or (given.dtype.kind in "iub" and not are_numbers(names)):
        return y
    number = {name: i for i, name in enumerate(names)}
    said = [class_name(text_of(value)) for value in given.tolist()]
    if unknown := [name for name in said if name not in number]:
        raise InvalidInput(f"{where}: y has the label {unknown[0]}; training had {', '.join(names)}")
    return np.array([number[name] for name in said], np.int64)
