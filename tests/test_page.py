"""The page's first answers: who is in which cluster, how sure numbers are, what distinguishes clusters."""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ifca.core.estimates import difference, estimate
from ifca.report.intervals import client_scores
from ifca.report.page import page, write_page
from ifca.report.page.everyone import moves
from ifca.report.read_run import read_run
from ifca.report.run_figures import accuracy_figure
from ifca.report.words import number
from ifca.runs.config import read_config
from ifca.runs.differences import compared
from ifca.runs.run import run
from tests.browser import browsing, needs_browser

pytestmark = pytest.mark.xdist_group("report")
TOWNS = 30


def table_of(folder: Path, *, regression: bool) -> Path:
    """A CSV per town: those of even numbers are older, and their outcome rises with income, not falls."""
    folder.mkdir()
    for i in range(TOWNS):
        rng, kind = np.random.default_rng(i), i % 2
        n = 40 + 5 * (i % 4)
        age, income = rng.normal(60 - 20 * kind, 8, n), rng.normal(3, 1, n)
        law = (1 - 2 * kind) * (income - 3)
        y = (
            1000 * law + rng.normal(0, 100, n)
            if regression
            else (law + rng.normal(0, 0.3, n) > 0).astype(int)
        )
        with (folder / f"town-{i:02}.csv").open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["age", "income", "outcome"])
            out.writerows(zip(age.round(1), income.round(2), y, strict=True))
    return folder


def trained(folder: Path, *, regression: bool) -> Path:
    """A run on such tables, with baselines and personalising."""
    data = table_of(folder / "towns", regression=regression)
    settings = ["k=2", "rounds=25", "device=cpu", "personalise=true", 'baselines=["global", "local"]']
    name = "linear" if regression else "mlp"
    settings += [f"model={{name='{name}'}}", "step_size=0.05"]
    settings += [f"data={{name='folder', path='{data}', label='outcome', test_share=0.3, standardise=true}}"]
    run(read_config(None, settings), folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def towns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("towns"), regression=False)


def text_of(html: str) -> str:
    """The words of a page, without scripts."""
    shown = re.sub(r"<(script|style).*?</\1>", " ", html, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", "", shown).split())


def test_estimates_of_the_largest_numbers_are_finite() -> None:
    """Found by the fuzzer: a loss of 1e308 in a client's row. Of 1 and 3, twice each: 2 +- 1.837."""
    small = estimate({"a": (1.0, 2.0), "b": (3.0, 2.0), "c": (1.0, 2.0), "d": (3.0, 2.0)})
    large = estimate({name: (value * 5e307, 1e308) for name, value in zip("abcd", (1, 3, 1, 3), strict=True)})
    assert small is not None
    assert large is not None
    assert large.low is not None
    reach = 3.18244630528371 * (4 / 16 * 4 / 3) ** 0.5
    assert (small.value, small.high) == pytest.approx((2.0, 2.0 + reach))
    assert (large.value / 5e307, large.low / 5e307) == pytest.approx((2.0, 2.0 - reach))


def test_intervals_by_hand() -> None:
    """Two clients of equal weight: half their distance is one standard error; t of one degree: 12.7062."""
    found = estimate({"a": (0.4, 10.0), "b": (0.6, 10.0)})
    assert found is not None
    assert found.low is not None
    assert (found.value, found.clients) == (0.5, 2)
    assert found.low == pytest.approx(0.5 - 12.7062 * 0.1, abs=1e-4)
    bounded = estimate({"a": (0.4, 10.0), "b": (0.6, 10.0)}, 0.0, 1.0)
    assert bounded is not None
    assert (bounded.low, bounded.high) == (0.0, 1.0)
    weighted = estimate({"a": (1.0, 30.0), "b": (0.0, 10.0)})
    assert weighted is not None
    assert weighted.value == 0.75
    alone = estimate({"a": (1.0, 30.0)})
    assert alone is not None
    assert alone.low is None


def test_a_difference_compares_each_client_with_itself() -> None:
    mine = {str(i): (0.5 + 0.1 * i, 10.0) for i in range(4)}
    other = {name: (value - 0.1 - 0.001 * float(name), 10.0) for name, (value, _) in mine.items()}
    gain = difference(mine, other | {"stranger": (0.0, 99.0)})
    assert gain is not None
    assert gain.clients == 4
    assert gain.beyond_noise
    assert gain.value == pytest.approx(0.1015)


def test_large_and_small_numbers_are_readable() -> None:
    assert [number(v) for v in (1.602e11, 65_840.4, 9_999.7, 0.03517, 2.5e6, 0.0)] == [
        *("160.2 billion", "65,840", "10,000", "0.03517", "2.5 million", "0"),
    ]
    assert number(1.5e-9) == "1.50 × 10⁻⁹"
    assert number(-3.2e20) == "-3.20 × 10²⁰"


def test_every_client_is_named_in_the_card_of_its_cluster(towns: Path) -> None:
    html = page([read_run(towns)])
    cards = re.findall(r'<div class="card".*?(?=<div class="card"|<p class="note">)', html, re.DOTALL)
    rows = read_run(towns).clients
    assert len(cards) == 2
    for j, card in enumerate(cards):
        mine = [row["id"] for row in rows if row["cluster"] == str(j)]
        assert sorted(re.findall(r"town-\d\d", text_of(card))) == sorted(mine)
        assert f"and {len(mine) - 12} more" in card
        samples = sum(int(row["train_samples"]) for row in rows if row["cluster"] == str(j))
        assert f"{len(mine)} clients, {samples:,} training samples" in card
        assert re.search(r"\+[\d.]+ points \(−?[\d.]+ to [\d.]+\) over one model for all", text_of(card))
    assert html.index('id="groups"') < html.index('id="result"')


def test_what_distinguishes_clusters_is_said_in_words(towns: Path) -> None:
    found = json.loads((towns / "differences.json").read_text())
    assert [one["name"] for one in found["features"]] == ["age"]
    assert sorted(round(mean, -1) for mean in found["features"][0]["means"]) == [40, 60]
    first = found["uses"]["features"][0]
    assert first["name"] == "income"
    assert min(first["pulls"]) < -0.2 < 0.2 < max(first["pulls"])
    assert min(first["leans"]) > 1.5
    text = text_of(page([read_run(towns)]))
    assert re.search(r"Higher age: (59|60|61)[.\d]* on average, against (39|40|41)", text)
    assert "A higher income raises the chance of outcome = 1 here" in text
    assert "A higher income lowers the chance of outcome = 1 here" in text


def test_clients_that_vary_are_no_difference_between_clusters() -> None:
    """Each client has its own level; clusters of them differ by chance, as many samples as there are."""
    rng = np.random.default_rng(0)
    level = np.repeat(rng.normal(0, 1, 10), 500)
    x = (level + rng.normal(0, 0.1, 5000))[:, None]
    offsets, labels = np.arange(0, 5001, 500), np.arange(10) % 2
    assert abs(x[np.repeat(labels == 0, 500)].mean() - x[np.repeat(labels == 1, 500)].mean()) > 0.2 * x.std()
    assert compared(x, offsets, labels, [0, 1], ["level"]) == []
    apart = compared(x + 5 * np.repeat(labels, 500)[:, None], offsets, labels, [0, 1], ["level"])
    assert [one["name"] for one in apart] == ["level"]


def test_older_folders_have_a_page_without_differences(towns: Path) -> None:
    old = read_run(towns)
    there = page([old])
    bare = page([replace(old, path=towns / "nowhere")])
    assert 'id="distinguish"' in there
    assert 'id="distinguish"' not in bare
    assert 'id="groups"' in bare


def test_a_regression_says_how_far_off_it_is(tmp_path: Path) -> None:
    folder = trained(tmp_path, regression=True)
    html = page([read_run(folder)])
    losses = client_scores(read_run(folder), "test_loss_train_rule")
    rows = [row["id"] for row in read_run(folder).clients if row["cluster"] == "0"]
    mine = estimate({name: score for name, score in losses.items() if name in rows})
    assert mine is not None
    told = re.findall(r"typically off by ([\d.,]+) \(root of the mean squared error\), R² (−?[\d.]+)", html)
    assert float(told[0][0].replace(",", "")) == pytest.approx(math.sqrt(mine.value), rel=0.01)
    assert 0.5 < float(told[0][1]) <= 1
    assert "raises outcome here" in html
    assert "e+0" not in text_of(html)


def test_bars_end_at_a_hundred_and_a_run_behind_is_explained(towns: Path, tmp_path: Path) -> None:
    found = read_run(towns)
    local = found.baselines["local"]
    share = found.summary["test_accuracy_train_rule"]
    html = page([found])
    assert f'class="bar mine" title="IFCA: {100 * share:.2f} %, 95 % interval' in html
    assert f'<i style="width:{100 * share:.2f}%"></i>' in html
    assert "is not first" not in html
    rows = [dict(row, test_accuracy_train_rule="1.0") for row in local.clients]
    better = replace(local, summary=local.summary | {"test_accuracy_train_rule": 1.0}, clients=rows)
    text = text_of(page([replace(found, baselines={"local": better})]))
    assert re.search(r"IFCA is not first: [\d.]+ points less \(−[\d.]+ to −[\d.]+\) than local", text)
    assert "That is more than noise" in text
    some = [dict(row) for row in found.clients]
    up = next(i for i, row in enumerate(some) if float(row["test_accuracy_train_rule"]) < 0.95)
    some[up]["test_accuracy_train_rule"] = "1.0"
    summary = local.summary | {"test_accuracy_train_rule": share + 0.001}
    text = text_of(page([replace(found, baselines={"local": replace(local, summary=summary, clients=some)})]))
    assert "The interval includes 0, so the order of the two may be chance" in text


def test_the_figure_draws_the_rule_to_quote(towns: Path) -> None:
    found = read_run(towns)
    rounds = [dict(record, test_accuracy=0.123) for record in found.rounds]
    axes = accuracy_figure(replace(found, rounds=rounds)).axes[0]
    drawn = axes.get_lines()[0].get_ydata()
    assert list(np.asarray(drawn)) == [100 * r["test_accuracy_train_rule"] for r in found.rounds]
    assert "paper" not in axes.get_ylabel()


def test_moves_are_told_once() -> None:
    table = np.array([[0, 0, 1, 1, 0], [2, 2, 2, 2, 2], [-1, -1, 1, 1, 1]], np.int16)
    assert moves(table) == [[0, 0, 2, 1, 4, 0], [0, 2], [0, -1, 2, 1]]


@needs_browser
def test_clients_are_searched_sorted_and_told_of(towns: Path, tmp_path: Path) -> None:
    file = write_page([read_run(towns)], tmp_path / "page.html")
    rows = read_run(towns).clients
    with browsing(tmp_path) as browser:
        browser.look(1280)
        browser.open(f"file://{file}")
        assert browser.evaluate("document.documentElement.scrollHeight") < 6500
        names = "[...document.querySelectorAll('.clients tbody th')].map((one) => one.innerText)"
        assert browser.evaluate(names) == [row["id"] for row in rows[:10]]
        browser.evaluate("document.querySelector('.pages .next').click()")
        assert browser.evaluate(names) == [row["id"] for row in rows[10:20]]
        browser.evaluate(
            "[...document.querySelectorAll('.clients thead button')]"
            ".find((one) => one.innerText === 'test accuracy').click()"
        )
        best = max(rows, key=lambda row: float(row["test_accuracy_train_rule"]))
        assert browser.evaluate(names)[0] == best["id"]
        search = "document.querySelector('.tools input')"
        browser.evaluate(f"{search}.value = 'TOWN-07'")
        browser.evaluate(f"{search}.dispatchEvent(new Event('input', {{bubbles: true}}))")
        assert browser.evaluate(names) == ["town-07"]
        browser.evaluate("document.querySelector('.client').click()")
        story = browser.evaluate("document.querySelector('.story').innerText")
        mine = next(row for row in rows if row["id"] == "town-07")
        assert f"Served by the model of cluster {mine['cluster']}" in story
        assert f"it has {mine['train_samples']} training samples" in story
        assert "Personalising: " in story
        assert "model 0" in story
        near = browser.evaluate("[...document.querySelectorAll('.near .client')].map((one) => one.innerText)")
        assert len(near) == 5
        assert {row["cluster"] for row in rows if row["id"] in near} == {mine["cluster"]}
        assert not browser.complaints


@needs_browser
def test_figures_and_tables_are_saved_and_print_keeps_colours(towns: Path, tmp_path: Path) -> None:
    file = write_page([read_run(towns)], tmp_path / "page.html")
    with browsing(tmp_path) as browser:
        browser.look(390, dark=True)
        browser.open(f"file://{file}#settings")
        assert browser.evaluate("document.querySelector('#settings details').open")
        assert browser.evaluate("document.documentElement.scrollWidth") <= 390
        svg = browser.evaluate("window.ifca.figure(document.querySelector('#result figure')).text")
        assert svg.startswith("<svg")
        assert "IFCA" in svg
        assert svg.count("<rect") > 4
        chart = browser.evaluate("window.ifca.figure(document.querySelector('#learning figure')).text")
        assert "stroke-width" in chart
        made = (
            "(async () => { const made = [];"
            "URL.createObjectURL = (blob) => { made.push(blob); return 'data:,'; };"
            "document.querySelector('#distinguish [data-save=CSV]').click();"
            "document.querySelector('#learning [data-save=PNG]').click();"
            "for (let i = 0; i < 100 && made.length < 2; i++) await new Promise((go) => setTimeout(go, 50));"
            "return [await made[0].text(), made[1].type, made[1].size]; })()"
        )
        rows, kind, size = browser.evaluate(made)
        assert rows.splitlines()[0].startswith("mean of,cluster 0,cluster 1")
        assert (kind, size > 1000) == ("image/png", True)
        browser.ask("Emulation.setEmulatedMedia", media="print")
        browser.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert browser.evaluate("document.querySelectorAll('.more:not([open])').length") == 0
        adjust = "getComputedStyle(document.querySelector('.bar i')).printColorAdjust"
        assert browser.evaluate(adjust) == "exact"
        assert not browser.complaints


def test_shares_survive_standardising() -> None:
    """A column of yes and no, scaled and back, is still told of as a share."""
    rng = np.random.default_rng(1)
    labels, offsets = np.arange(20) % 2, np.arange(0, 2001, 100)
    yes = (rng.random(2000) < np.repeat(0.2 + 0.5 * labels, 100)).astype(np.float32)
    scaled = (yes - np.float32(yes.mean())) / np.float32(yes.std())
    back = scaled.astype(np.float64) * float(yes.std()) + float(yes.mean())
    (found,) = compared(back[:, None], offsets, labels, [0, 1], ["ward = surgery"])
    assert found["share"]
    assert found["means"] == pytest.approx([0.2, 0.7], abs=0.05)
