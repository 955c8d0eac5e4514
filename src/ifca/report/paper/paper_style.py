"""What the paper's figures share: the size of a page's text, printable colours, the paper's symbols."""

from __future__ import annotations

import re
from typing import Any

from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ifca.report.palette import COLOURS

Row = dict[str, Any]
Line = dict[str, Any]
WIDTH = 7.0  # inches: about a page's text width, so that fonts are printed at their size
PAGE: Any = {  # Any: matplotlib types the names themselves, since 3.11
    "pdf.fonttype": 42,  # TrueType: many publishers refuse Type 3
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 7.5,
    "legend.title_fontsize": 7.5,
    "legend.handlelength": 2.6,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.5,
    "errorbar.capsize": 2.5,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
}
INKS = [*COLOURS[:6], "#000000"]  # on white paper black is the best told apart
MARKS = "oP^v<sX"  # as many as inks; D is kept for the paper's numbers
DASHES: list[Any] = ["-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 1)), (0, (8, 2))]
PLACES = {"ifca": 0, "ifca-plain": 5, "global": 2, "local": 3, "local-100": 4, "oneshot": 1}
SYMBOLS = {
    "sigma": r"\sigma",
    "rho": r"\rho",
    "alpha": r"\alpha",
    "theta*": r"\theta^*",
    "n'": "n′",  # as a character: the font of mathtext's own prime draws a warning when it is embedded
}
QUANTITY = re.compile(r"(?<!\S)(sigma|rho|alpha|R|k|m|n'?|d|p)(=\S+)?(?!\S)")


def ink(algorithm: str) -> str:
    """The colour that an algorithm has in every figure."""
    return INKS[_place(algorithm)]


def mark(algorithm: str) -> str:
    """Its marker: told apart without colours, too."""
    return MARKS[_place(algorithm)]


def stroke(algorithm: str) -> dict[str, Any]:
    """A seed's curve: IFCA's is seen between the dashes of plain IFCA's where they coincide."""
    style = {"ifca": "-", "ifca-plain": (0, (4, 4)), "global": "-."}.get(algorithm, ":")
    return {"color": ink(algorithm), "linestyle": style, "linewidth": 1.0}


def symbol(name: str) -> str:
    """A quantity as the paper writes it."""
    return f"${SYMBOLS.get(name, name)}$"


def symbols(setting: str) -> str:
    """A setting's name with the paper's symbols: 'sigma=0.1 R=0.25' has two."""
    found = QUANTITY.sub(lambda one: f"${SYMBOLS.get(one[1], one[1])}{one[2] or ''}$", setting)
    return found.replace("$ $", "$, $")


def readable(axis: Axis) -> None:
    """Numbers at 1, 2 and 5 of a logarithmic axis: one that spans a decade would have a single one."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _place(algorithm: str) -> int:
    return PLACES.get(algorithm, len(INKS) - 1)
