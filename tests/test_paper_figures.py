"""Figures of the paper's experiments: what a reader of the printed page has to be able to tell apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ifca.report.paper.accuracy_figure import accuracy_figure
from ifca.report.paper.bytes_figure import at_common_bytes, bytes_figure
from ifca.report.paper.paper_figures import write_figure
from ifca.report.paper.paper_style import INKS, MARKS, PLACES, WIDTH, symbols
from ifca.report.paper.success_figure import success_figure
from ifca.report.paper.theory_figures import theory_figure

Row = dict[str, Any]


def row(setting: str, algorithm: str, mean: float, **more: object) -> Row:
    found: Row = {"setting": setting, "algorithm": algorithm, "metric": "test_accuracy", "mean": mean}
    return found | {"std": 0.5, "paper_mean": None, "paper_std": None, **more}


def test_settings_are_written_in_the_papers_symbols() -> None:
    assert symbols("sigma=0.1 R=0.25") == r"$\sigma=0.1$, $R=0.25$"
    assert symbols("rho=4 alpha=0.3") == r"$\rho=4$, $\alpha=0.3$"
    assert symbols("n'=10") == "$n′=10$"
    assert symbols("k models") == "$k$ models"
    assert symbols("rotated-mnist m=1200 n=200") == "rotated-mnist $m=1200$, $n=200$"
    assert symbols("weight sharing") == "weight sharing"


def test_every_algorithm_has_its_own_ink_and_mark() -> None:
    assert len(set(MARKS)) == len(MARKS) == len(set(INKS)) == len(INKS)
    assert len(set(PLACES.values())) == len(PLACES)
    assert "D" not in MARKS  # the paper's


def test_a_pdf_has_no_type_3_fonts(tmp_path: Path) -> None:
    summary = {"experiment": "rotated-mnist", "rows": [row("m=4800 n=50", "ifca", 94.0, paper_mean=94.2)]}
    png, pdf = write_figure(tmp_path, summary, [])
    assert png.read_bytes().startswith(b"\x89PNG")
    assert b"/Type3" not in pdf.read_bytes()
    assert b"/CIDFontType2" in pdf.read_bytes()


def test_our_point_and_the_papers_stand_side_by_side_around_their_tick() -> None:
    """A lone algorithm stands at its tick, whatever other settings have."""
    rows = [row("k=2", "ifca", 88.0, paper_mean=88.0, paper_std=0.3), row("k=2", "oneshot", 87.0)]
    axes = accuracy_figure([*rows, row("k=4", "ifca", 88.0)], []).axes[0]
    points = {float(x) for line in axes.lines for x in np.atleast_1d(line.get_xdata())}
    near = sorted(x for x in points if x < 0)
    assert len(near) == 2  # ours and the paper's of IFCA
    assert near[1] - near[0] > 0.05
    assert 1.0 in points


def test_global_is_drawn_beside_a_setting_without_it() -> None:
    curve = [[10, 0.5], [20, 0.6]]
    runs = (("k=2", "ifca"), ("k=2", "oneshot"), ("baselines", "global"))
    lines = [{"setting": s, "algorithm": a, "accuracy_by_round": curve} for s, a in runs]
    below = accuracy_figure([row("k=2", "ifca", 60.0)], lines).axes[1]
    assert [line.get_label() for line in below.lines] == ["IFCA (default)", "global", "one-shot"]
    assert below.get_title() == "$k=2$ and global, every seed"


def test_accuracy_is_averaged_at_common_bytes() -> None:
    """By hand: at 200 bytes the seeds have 20% and 15%."""
    curves = [[[100.0, 0.1], [300.0, 0.3]], [[100.0, 0.1], [400.0, 0.25]]]
    sent, accuracy = at_common_bytes(curves)
    assert (sent[0], sent[-1]) == pytest.approx((100, 300))
    assert (np.diff(sent) > 0).all()
    assert [np.interp(200, sent, seed) for seed in accuracy] == pytest.approx([20, 15], rel=1e-3)
    lines = [{"setting": "k models", "algorithm": "ifca", "curve": curve} for curve in curves]
    assert bytes_figure([], lines).get_figwidth() == WIDTH


def test_a_panels_ticks_are_the_measured_points_and_each_algorithm_has_its_legend() -> None:
    rows = [row(f"sigma=0.1 R={r}", "ifca-plain", 50.0, interval=[40.0, 60.0]) for r in ("0.1", "0.25", "1")]
    figure = success_figure([*rows, {**rows[0], "algorithm": "ifca"}], [])
    (axes,) = figure.axes
    assert axes.get_xticks() == pytest.approx([0.1, 0.25, 1])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("separation $R$", "success probability")
    titles = [legend.get_title().get_text() for legend in figure.legends]
    assert [title.split(",")[0] for title in titles] == ["plain IFCA", "IFCA (default)"]


def test_a_point_of_the_theory_that_is_there_twice_is_drawn_once() -> None:
    settings = ("alpha=0.3 rho=1", "alpha=0.4 rho=1", "rho=1 alpha=0.3", "rho=4 alpha=0.3")
    lines = [{"setting": s, "errors": {"4": 0.3, "8": 0.1, "16": 0.0}} for s in settings]
    floors = [row(f"d={d}", "ifca-plain", 0.01 * d, metric="floor", std=0.001) for d in (10, 20, 80)]
    _, middle, last = theory_figure(floors, lines).axes
    assert len({line.get_color() for line in last.lines}) == len(last.lines) == 3
    assert middle.get_xticks() == pytest.approx([1, 2, 8])
    low, high = middle.get_ylim()
    assert sum(low <= tick <= high for tick in middle.get_yticks()) >= 3
