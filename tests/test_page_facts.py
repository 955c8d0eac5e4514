"""The page beyond its headline: quality, warnings, how training ended; what is seen on paper and a phone."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ifca.report.ending_words import ending_sentences
from ifca.report.page import page, write_page
from ifca.report.page.build import article
from ifca.report.page.costs import in_words
from ifca.report.page.metric import metric_of
from ifca.report.read_run import RunFolder, read_run
from ifca.report.terminal.event_tables import _told
from ifca.report.terminal.show import _fewer
from ifca.runs.config import read_config
from ifca.runs.run import run
from tests.browser import Browser, browsing, needs_browser
from tests.test_page import TOWNS, table_of, text_of

pytestmark = pytest.mark.xdist_group("report")


def trained(folder: Path, *, regression: bool) -> Path:
    """A short run on such tables, where at most four clusters are allowed and two are there."""
    data = table_of(folder / "towns", regression=regression)
    settings = ["k=4", "rounds=16", "device=cpu", 'baselines=["global"]', "step_size=0.05"]
    settings += [f"model={{name='{'linear' if regression else 'mlp'}'}}"]
    settings += [f"data={{name='folder', path='{data}', label='outcome', test_share=0.3, standardise=true}}"]
    run(read_config(None, settings), folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def towns(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return read_run(trained(tmp_path_factory.mktemp("facts"), regression=False))


def told(found: RunFolder, **summary: object) -> str:
    """The page's text where the summary says something else."""
    return text_of(page([replace(found, summary=found.summary | summary)]))


def test_classification_tells_its_quality_under_the_headline(towns: RunFolder) -> None:
    overall, text = towns.summary["quality"]["overall"], told(towns)
    assert f"AUROC{overall['auroc']:.3f} 1 is perfect, 0.5 is guessing" in text
    off = f"off by {100 * overall['calibration_error']:.1f} points on average"
    sentence = f"AUROC is {overall['auroc']:.3f} (0.5 would be guessing), F1 is {overall['f1']:.3f}"
    assert f"{sentence}, log loss {overall['log_loss']:.3f}; the chances that models give are {off}." in text
    theirs = towns.baselines["global"].summary["quality"]["overall"]
    html = page([towns])
    for name, key in (("AUROC", "auroc"), ("F1", "f1"), ("log loss", "log_loss")):
        row = re.search(rf'<th scope="row" data-head="">{name}</th>(.*?)</tr>', html)
        assert row is not None
        assert re.findall(r">([\d.]+)<", row[1]) == [f"{overall[key]:.3f}", f"{theirs[key]:.3f}"]
    for one in towns.summary["quality"]["clusters"]:
        if one["samples"]:
            assert re.search(rf">cluster {one['cluster']}</th><td[^>]*>{one['samples']:,}</td>", html)


def test_a_run_without_quality_says_nothing_of_it(towns: RunFolder) -> None:
    undefined = {"samples": 9, **dict.fromkeys(("accuracy", "auroc", "f1", "log_loss", "calibration_error"))}
    for none in (None, {"overall": undefined, "clusters": None}):
        baselines = {"global": replace(towns.baselines["global"], summary=towns.summary | {"quality": none})}
        text = text_of(page([replace(towns, summary=towns.summary | {"quality": none}, baselines=baselines)]))
        assert "AUROC" not in text
        assert "nan" not in text


def test_regression_tells_errors_in_the_targets_unit(tmp_path: Path) -> None:
    found = read_run(trained(tmp_path, regression=True))
    overall, text = found.summary["quality"]["overall"], told(found)
    assert re.search(rf"mean error of a prediction[\d.,]+ R² {overall['r2']:.3f}", text)
    sentence = re.search(
        r"A prediction is off by ([\d.,]+) on average \(root of the mean squared error", text
    )
    assert sentence is not None
    assert float(sentence[1].replace(",", "")) == pytest.approx(overall["mae"], rel=0.01)
    assert f"predictions explain {100 * overall['r2']:.0f} % of the variance" in text
    bad = {"quality": {"overall": overall | {"r2": -0.5}, "clusters": None}}
    assert "R² is −0.500: always saying the mean would be better" in told(found, **bad)
    clients = [dict(row, test_loss_train_rule=str(1 + 9 * (i % 2))) for i, row in enumerate(found.clients)]
    theirs = [dict(row, test_loss_train_rule=str(1 + 999 * (i % 2))) for i, row in enumerate(found.clients)]
    mine, other = replace(found, clients=clients), replace(found.baselines["global"], clients=theirs)
    gain = metric_of(found).gain(mine, other)
    assert gain is not None
    assert gain.high == 1  # nothing falls by more than all of it


def test_warnings_and_the_end_of_training_stand_under_the_headline(towns: RunFolder) -> None:
    calm = article([towns])
    assert 'class="warning"' not in calm
    assert 'class="ending"' not in calm
    stopped = {"rounds": 20, "why": "it did not fall", "kept_round": 10, "held_out_loss": 2_967_487.8}
    halved = [{"round": 0, "step_size": 20.0}, {"round": 0, "step_size": 10.0}]
    changed = {"warnings": ["the fit is poor"], "stopped": stopped, "halved": halved, "step_size": 10.0}
    found = replace(towns, summary=towns.summary | changed)
    html = article([found])
    head = html[: html.index("<dl class=")]
    assert '<p class="warning"><b>Warning.</b> The fit is poor.</p>' in head
    for sentence in ending_sentences(found.summary):
        assert f'<p class="ending">{sentence}</p>' in head
    assert "round 10 (lowest held-out loss, 2.967 million)" in head
    assert "the step was halved 2 times, from 40 to 10" in head
    worse = replace(towns, summary=towns.summary | {"train_loss": 1e9})
    assert "The training loss is higher than in the first round" in article([worse])
    other = replace(towns.baselines["global"], summary=towns.baselines["global"].summary | changed)
    assert "global: Stopped after 20 rounds" in text_of(page([replace(towns, baselines={"global": other})]))


def test_clusters_that_were_not_needed_are_no_riddle(towns: RunFolder) -> None:
    assert f"{towns.summary['live_clusters']} of 4 4 was the most allowed" in told(towns)
    assert "was the most allowed" not in told(towns, live_clusters=4)


def test_without_a_referee_nothing_is_said_to_be_proved(towns: RunFolder) -> None:
    """SR-FCA and CLoVE end with fewer clusters, too, but nobody compared their models."""
    facts = towns.summary["method"] | {"title": "SR-FCA", "referee": False}
    text, proved = told(towns, method=facts, events=None), "those that are left serve the clients as well"
    assert proved in told(towns)
    assert proved not in text
    assert "SR-FCA keeps no record of how it came to its clusters." in text
    assert "neither divides nor merges" not in text
    judged = towns.summary | {"live_clusters": 2, "clusters_asked": 4, "rounds": 16, "models": 2}
    assert _fewer(judged) == "2 of at most 4 clusters were found: nothing spoke for more in 16 rounds."
    assert _fewer(judged | {"method": facts}) == "2 of at most 4 clusters were found."
    left = "2 of at most 4 clusters have clients: nobody has the other "
    assert _fewer(judged | {"models": 3}) == f"{left}model."
    assert _fewer(judged | {"models": 4}) == f"{left}2 models."


def test_merges_are_told_in_plain_words() -> None:
    event = {"event": "merged", "cluster": 0, "other": 2, "samples": 122, "p": 0.4, "alpha": 0.01}
    less, more = in_words(event | {"loses": -0.014}), in_words(event | {"loses": 0.014})
    assert (
        "the loss of one model for both is 0.014 lower a sample, so nothing speaks for two (p = 0.4" in less
    )
    assert "is 0.014 higher a sample, too little to prove that two are needed (p = 0.4" in more


def test_splits_and_merges_by_updates_are_told_in_plain_words() -> None:
    split = {"event": "split", "cluster": 0, "into": [1, 2], "clients": [28, 84], "cosine": 0.16}
    merged = {"event": "merged", "cluster": 0, "other": 2, "cosine": 0.71}
    assert "(groups of 28 and 84 clients), so it was divided into clusters 1 and 2." in in_words(split)
    assert in_words(merged).endswith("became one: their clients' first updates have a cosine of 0.71.")
    assert _told(split)[1] == "updates in groups of 28 + 84, the largest cosine across is 0.16"
    assert _told(merged) == ("0 and 2 became one", "first updates of their clients have a cosine of 0.71")


def printed(browser: Browser) -> str:
    """What is seen on paper, page after page."""
    browser.ask("Emulation.setEmulatedMedia", media="print")
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    text: str = browser.evaluate("document.body.innerText")
    return text


@needs_browser
def test_paper_has_every_client_and_no_dead_links(towns: RunFolder, tmp_path: Path) -> None:
    file = write_page([towns], tmp_path / "page.html")
    with browsing(tmp_path) as browser:
        browser.look(1280)
        browser.open(f"file://{file}")
        shown = "document.querySelectorAll('.clients tbody tr').length"
        assert browser.evaluate(shown) == 10
        text = printed(browser)
        assert browser.evaluate(shown) == TOWNS
        for row in towns.clients:
            assert text.count(row["id"]) >= 2  # in its cluster's card and in the table
        assert "choose one" not in text
        heads = "getComputedStyle(document.querySelector('.clients thead button')).display"
        assert browser.evaluate(heads) == "contents"  # Chromium paints no buttons in repeated heads
        assert "Every setting" not in text  # folded, so it is not printed
        assert "calibration error" in text
        sides = (
            "[...document.querySelectorAll('.plot .rows span')].map((s) => s.getBoundingClientRect().left)"
        )
        assert min(left for left in browser.evaluate(sides) if left) >= 0
        assert (
            browser.evaluate(
                "getComputedStyle(document.querySelector('.cards')).gridTemplateColumns.split(' ').length"
            )
            == 2
        )
        browser.evaluate("dispatchEvent(new Event('afterprint'))")
        assert browser.evaluate(shown) == 10
        assert not browser.complaints


@needs_browser
def test_nothing_covers_headings_or_titles(towns: RunFolder, tmp_path: Path) -> None:
    still, live = tmp_path / "still.html", tmp_path / "live.html"
    still.write_text(page([towns]))
    live.write_text(page([towns], live=True))
    with browsing(tmp_path) as browser:
        for file in (still, live):
            for width in (1280, 390):
                browser.look(width)
                browser.open(f"file://{file}")
                browser.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
                browser.evaluate("location.hash = 'result'")
                browser.wait("scrollY > 0")
                head = "document.querySelector('#result .section').getBoundingClientRect().top"
                assert browser.evaluate(
                    f"{head} >= document.querySelector('nav').getBoundingClientRect().bottom"
                )
        words = "const range = document.createRange(); range.selectNodeContents(one.querySelector('.title'));"
        covered = (
            "[...document.querySelectorAll('figure')].filter((one) => {"
            "const save = one.querySelector(':scope > .saving')?.getBoundingClientRect();"
            f"if (!save?.width || !one.querySelector('.title')) return false; {words}"
            "return [...range.getClientRects()].some((r) => r.right > save.left && r.top < save.bottom);"
            "}).length"
        )
        assert browser.evaluate(covered) == 0
        assert browser.evaluate("document.documentElement.scrollWidth") <= 390
