"""The building blocks of the page: sections, figures with their sentence, tables with headers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ifca.report.page.axes import chosen
from ifca.report.page.charts import Line, Show

ROWS = 12  # of a figure's numbers as a table
MATRIX = 6  # columns of a matrix that fits on a phone


@dataclass(frozen=True)
class Section:
    """One question a reader has, and its answer."""

    name: str
    title: str
    body: Markup
    told: str = ""  # the answer in a sentence; a section that has one is folded


def figure(picture: Markup, sentence: str, title: str = "", extra: Markup | None = None) -> Markup:
    """A figure, and one sentence that says what it shows and what is noteworthy."""
    head = Markup('<p class="title">{}</p>').format(title) if title else ""
    return Markup("<figure>{}{}<figcaption>{}</figcaption>{}</figure>").format(
        head, picture, sentence, extra or ""
    )


def paragraph(text: str) -> Markup:
    """Plain words."""
    return Markup("<p>{}</p>").format(text)


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    caption: str,
    shades: Sequence[Sequence[float]] | None = None,
    words: Sequence[int] = (0,),
    kind: str = "",
) -> Markup:
    """A table; the first cell of a row names it. shades: 0 to 1 by cell; words: columns of text.

    kind: matrix (narrow columns) or list (a block per row on a phone); without: by its shades and width.
    """
    head = Markup("").join(
        Markup('<th scope="col"{}>{}</th>').format(Markup(' class="word"') if c in words else "", text)
        for c, text in enumerate(heads)
    )
    body = Markup("")
    for r, row in enumerate(rows):
        cells = Markup('<th scope="row" data-head="{}">{}</th>').format(heads[0], row[0])
        for c, value in enumerate(row[1:], 1):
            shade = shades[r][c - 1] if shades is not None else 0.0
            style = Markup(' style="--shade:{:.0f}%" class="shaded"').format(100 * shade) if shade else ""
            if c in words:
                style = Markup(' class="word"')
            cells += Markup('<td{} data-head="{}">{}</td>').format(style, heads[c], value)
        body += Markup("<tr>{}</tr>").format(cells)
    kind = kind or ("matrix" if shades is not None and len(heads) <= MATRIX else "list")
    whole = Markup(
        '<table class="{}"><caption>{}</caption><thead><tr>{}</tr></thead><tbody>{}</tbody></table>'
    ).format(kind, caption, head, body)
    reach = (
        Markup(' tabindex="0" role="region" aria-label="{}"').format(caption) if len(heads) > MATRIX else ""
    )
    return Markup('<div class="scroll"{}>{}</div>').format(reach, whole)


def folded(summary: str, inside: Markup) -> Markup:
    """Something for those who want to know more."""
    return Markup("<details><summary>{}</summary>{}</details>").format(summary, inside)


def numbers(x: Sequence[int], lines: Sequence[Line], show: Show, caption: str) -> Markup:
    """The numbers behind a chart, some rounds of them."""
    keep = chosen(len(x), ROWS)
    rows = [[x[i], *["–" if one.y[i] is None else show(one.y[i] or 0.0) for one in lines]] for i in keep]
    some = caption if len(keep) == len(x) else f"{caption} ({len(keep)} of {len(x)} rounds)"
    return folded("The numbers", table(["round", *[one.name for one in lines]], rows, caption=some))
