"""The colours of clusters and curves: the same in figures, on the page and on the terminal."""

from __future__ import annotations

# Okabe and Ito's colours, then two of Paul Tol's: told apart by readers with any colour vision, on white and
# on black (so neither yellow nor black is among them).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999933", "#AA4499")


def colour(j: int) -> str:
    """The colour of cluster j."""
    return COLOURS[j % len(COLOURS)]
