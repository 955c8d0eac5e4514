"""The page of a run: complete, true to the files, safe, accessible, and quick for large federations."""

from __future__ import annotations

import base64
import csv
import json
import re
import shutil
import sys
import time
from html.parser import HTMLParser
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from ifca.cli.main import app, main
from ifca.report.live_run import LiveRun
from ifca.report.page import page, write_page
from ifca.report.page.history import history
from ifca.report.page.images import identity_picture
from ifca.report.palette import colour
from ifca.report.read_run import RunFolder, read_run
from ifca.report.run_figures import identities_figure
from ifca.runs.config import config_dict, read_config, write_config
from ifca.runs.run import run
from ifca.training.checkpoint import save_tensors
from tests.browser import browsing, needs_browser
from tests.files import reseal

SMALL = ["rounds=9", "data.samples=120", "model.hidden=[8]", "device=cpu"]
REGRESSION = ["data.name=synthetic", "data.clients=12", "data.samples=30", "data.dimension=5", "device=cpu"]
pytestmark = pytest.mark.xdist_group("report")


class Page(HTMLParser):
    """What a reader and a reader's software find on a page."""

    EMPTY = ("meta", "link", "img", "br", "input", "path", "rect", "line", "polygon")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.alternatives: list[str] = []
        self.addresses: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.tiles: dict[str, str] = {}
        self.text = ""
        self._open: list[str] = []
        self._term = ""
        self.feed(text)
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag not in self.EMPTY:
            self._open.append(tag)
        self.ids += [name for name in [found.get("id")] if name]
        self.addresses += [found[name] or "" for name in ("src", "href") if name in found]
        if found.get("role") == "img":
            self.alternatives.append(found.get("aria-label") or "")
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            assert tag == "td" or found.get("scope") in ("row", "col")
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        if inside in ("script", "style"):
            return
        self.text += data
        if inside in ("td", "th"):
            self.tables[-1][-1][-1] += data
        if inside == "dt":
            self._term = data
        if inside == "dd":
            self.tiles[self._term] = self.tiles.get(self._term, "") + data.strip()

    def row(self, name: str, head: str = "") -> list[str]:
        """The cells of the first row with this name, in a table that begins with this head."""
        tables = [table for table in self.tables if table and table[0][0] == head]
        return next(row for table in tables for row in table if row[0] == name)[1:]


def made(folder: Path, *settings: str, base: list[str] = SMALL) -> Page:
    """Train, and read the page."""
    run(read_config(None, [*base, *settings]), folder)
    return Page(page([read_run(folder)]))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with baselines."""
    folder = tmp_path_factory.mktemp("report") / "whole"
    run(
        read_config(None, [*SMALL, "data.samples=50", "model.hidden=[100]", 'baselines=["global", "local"]']),
        folder,
    )
    return folder


def copy_of(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def shown(share: float) -> str:
    return f"{100 * share:.2f} %"


def test_numbers_are_those_of_the_summary(whole: Path) -> None:
    summary, found = json.loads((whole / "summary.json").read_text()), Page(page([read_run(whole)]))
    assert found.tiles["test accuracy"].startswith(shown(summary["test_accuracy_train_rule"]))
    assert found.tiles["clusters with clients"] == f"{summary['live_clusters']} of {summary['k']}"
    assert found.tiles["clients"] == str(summary["clients"])
    everybody = [summary, *summary["baselines"].values()]
    assert found.row("test accuracy, paper's rule") == [shown(one["test_accuracy"]) for one in everybody]
    assert found.row("training loss") == [f"{one['train_loss']:.4g}" for one in everybody]
    for cluster in summary["clusters"]:
        cells = found.row(str(cluster["cluster"]), "cluster")
        assert cells[0] == str(cluster["clients"])
        assert cells[3] == shown(cluster["test_accuracy"])
    for name, row in summary["true_clusters"].items():
        used = [n for j, n in enumerate(row) if any(r[j] for r in summary["true_clusters"].values())]
        assert found.row(f"true {name}") == [str(n) for n in used]


def test_sentences_are_true(whole: Path) -> None:
    """Counted again from the files, another way."""
    text = Page(page([read_run(whole)])).text
    records = [json.loads(line) for line in (whole / "rounds.jsonl").read_text().splitlines()]
    with (whole / "clients.csv").open() as file:
        clients = list(csv.DictReader(file))
    columns: list[dict[int, int]] = [{}]
    for record in records:
        who = range(len(clients)) if record["clients"] is None else record["clients"]
        columns.append(columns[-1] | dict(zip(who, record["identity"], strict=True)))
    columns.append({i: int(row["cluster"]) for i, row in enumerate(clients)})
    moves = [sum(before[i] != after[i] for i in before) for before, after in pairwise(columns)]
    ever = sum(len({column[i] for column in columns if i in column}) > 1 for i in range(len(clients)))
    moved = f"{ever} of {len(clients)} clients changed cluster at some time ({sum(moves)} changes"
    assert (moved if sum(moves) else "No client ever changed its cluster") in text
    with (whole / "baselines" / "global" / "clients.csv").open() as file:
        single = {row["id"]: float(row["test_accuracy_train_rule"]) for row in csv.DictReader(file)}
    better = sum(float(row["test_accuracy_train_rule"]) > single[row["id"]] for row in clients)
    assert f"{better} of {len(clients)} clients are served better than with one model for all" in text
    worst = min(float(row["test_accuracy_train_rule"]) for row in clients)
    assert f"with {100 * worst:.1f} %." in text
    own = np.array([[float(row[f"loss_{j}"] or "nan") for j in range(4)] for row in clients])
    best = np.nanargmin(own, axis=1)
    right = sum(int(row["cluster"]) == j for row, j in zip(clients, best.tolist(), strict=True))
    assert f"{right} of {len(clients)} clients are with the model of their lowest training loss" in text


KINDS: list[tuple[str, list[str], list[str]]] = [
    ("one model", SMALL, ["k=1"]),
    ("local", SMALL, ["algorithm=local", "rounds=2"]),
    ("restarts", SMALL, ["algorithm=ifca-plain", "restarts=2"]),
    ("option I", SMALL, ["option=gradient", "algorithm=oneshot"]),
    ("few take part", SMALL, ["participation=0.2", 'shared=["fc1"]', "stable_after=2", "rounds=15"]),
    ("tested once", SMALL, ["evaluate_every=0"]),
    ("one round", SMALL, ["rounds=1", "data.test_share=0.5"]),
    ("regression", REGRESSION, ["k=2", "rounds=6"]),
    ("no test data", REGRESSION, ["k=3", "rounds=6", "data.test_samples=0"]),
]


@pytest.mark.parametrize(("base", "settings"), [kind[1:] for kind in KINDS], ids=[kind[0] for kind in KINDS])
def test_every_kind_of_run_has_a_page(base: list[str], settings: list[str], tmp_path: Path) -> None:
    found = made(tmp_path / "run", "baselines=[]", *settings, base=base)
    check_form(found)
    assert {"result", "learning", "served", "traffic", "events", "settings"} <= set(found.ids)
    assert ("clusters" in found.ids) == ("algorithm=local" not in settings)


def check_form(found: Page) -> None:
    """What holds for every page."""
    assert len(found.ids) == len(set(found.ids))
    assert all(len(text) > 30 for text in found.alternatives)
    assert all(address.startswith(("#", "data:")) for address in found.addresses)
    assert not re.search(r"\b(nan|None|inf|undefined)\b", found.text)


def test_the_numbers_of_restarts_count_all_of_them(tmp_path: Path) -> None:
    found = made(tmp_path / "run", "algorithm=ifca-plain", "restarts=2", "rounds=3", "baselines=[]")
    assert "over 2 restarts (drawn is the one that was kept)" in found.text


def test_a_cluster_has_one_colour_in_figures_and_on_the_page(tmp_path: Path) -> None:
    """Clusters 6 and 7, too, of which every client of the drawn run has chosen one."""
    m, k = 16, 9
    chosen = [i % k for i in range(m)]
    rounds = [{"identity": chosen, "clients": None}]
    clients = [{"train_samples": "1", "true_cluster": "", "cluster": str(j)} for j in chosen]
    figure = identities_figure(RunFolder(tmp_path, {"clients": m, "k": k}, rounds, clients, {}))
    drawn = [str(line.get_color()) for line in figure.axes[0].get_lines()]
    picture = identity_picture(np.arange(k, dtype=np.int16)[None]).split(",")[1]
    with Image.open(BytesIO(base64.b64decode(picture))) as image:
        pixels = [image.convert("RGB").getpixel((x, 0)) for x in range(k)]
    assert drawn == [colour(j) for j in range(k)]
    assert pixels == [tuple(int(one[i : i + 2], 16) for i in (1, 3, 5)) for one in drawn]
    assert len(set(drawn)) == 8  # then they repeat


def test_names_from_files_are_text(whole: Path, tmp_path: Path) -> None:
    evil = "<img src=x onerror='window.hacked=1'>\"'&"
    folder = copy_of(whole, tmp_path / "<b>run")
    with (folder / "clients.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    for i, row in enumerate(rows[1:]):
        row[0] = f"{evil}{i}"
    with (folder / "clients.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    fault = {"round": 1, "client": evil, "node": "1", "kind": evil, "detail": "</script><script>x()</script>"}
    (folder / "faults.jsonl").write_text(json.dumps(fault) + "\n")
    reseal(folder)
    text = page([read_run(folder), read_run(whole)])
    found = Page(text)
    check_form(found)
    assert "<img src=x" not in text
    assert "<script>x()" not in text
    assert "<b>run" not in text
    assert f"served worst is client {evil}" in found.text


def test_several_runs_are_compared(whole: Path, tmp_path: Path) -> None:
    run(read_config(None, [*SMALL, "k=2", "baselines=[]"]), tmp_path / "two")
    out = tmp_path / "page.html"
    result = CliRunner().invoke(app, ["report", str(whole), str(tmp_path / "two"), "-o", str(out)])
    assert result.exit_code == 0, result.output
    found = Page(out.read_text())
    check_form(found)
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (whole, tmp_path / "two")]
    assert found.row("test accuracy, train rule") == [shown(s["test_accuracy_train_rule"]) for s in summaries]
    assert found.row("k", "setting") == ["4", "2"]
    best = max(summaries, key=lambda s: s["test_accuracy_train_rule"])
    name = "whole" if best is summaries[0] else "two"
    assert f"Best is {name} with {shown(best['test_accuracy_train_rule'])}" in found.text
    apart = "so these numbers do not measure the same thing"
    assert f"The runs differ in data, {apart}" in found.text  # 50 samples a client, and fewer
    assert apart not in page([read_run(whole), read_run(whole)])


def miss(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A metric of the user's own."""
    return (output.flatten() - y).abs()


def test_metrics_and_names_of_the_users_own_are_on_the_page(tmp_path: Path) -> None:
    (tmp_path / "machines").mkdir()
    for i in range(4):
        x = np.random.default_rng(i).normal(size=(20, 2))
        np.savez(tmp_path / "machines" / f"m{i}.npz", x=x, y=(-1) ** i * x.sum(1))
    found = made(
        tmp_path / "run",
        f"data={{name='folder', path='{tmp_path / 'machines'}', test_share=0.3}}",
        "model={name='linear', metrics=['tests.test_report:miss']}",
        "baselines=['global']",
        base=["k=2", "rounds=3"],
    )
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    everybody = [summary, *summary["baselines"].values()]
    for rule, key in (("train rule", "test_metrics_train_rule"), ("paper's rule", "test_metrics")):
        values = [f"{one[key]['miss']:.4g}" for one in everybody]
        assert found.row(f"miss on test data, {rule}") == values
    assert "machines IFCA" in " ".join(found.text.split())


def test_a_run_that_was_cut_off_has_a_page(whole: Path, tmp_path: Path) -> None:
    folder = copy_of(whole, tmp_path / "cut")
    for name in ("summary.json", "clients.csv", "models.safetensors"):
        (folder / name).unlink()
    shutil.rmtree(folder / "baselines")
    lines = (folder / "rounds.jsonl").read_text().splitlines(keepends=True)
    (folder / "rounds.jsonl").write_text("".join(lines[:5]) + lines[5][:40])  # half a line
    found = Page(page([LiveRun(folder).read()]))
    check_form(found)
    assert "not finished" in found.text
    assert "5 of 9 rounds" in found.text
    assert found.tiles["test accuracy"] == shown(json.loads(lines[4])["test_accuracy_train_rule"])
    config = (folder / "config.toml").read_text()
    assert 'engine = "vectorised"\n' in config
    (folder / "config.toml").write_text(config.replace('engine = "vectorised"\n', ""))
    assert LiveRun(folder).read().summary["engine"] == "vectorised"  # the default, found by the fuzzer


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["{}/nowhere"], "nowhere: no such run folder"),
        (["{}"], "has no round yet"),
        (["{}/a", "{}/b"], "with -o page.html"),
    ],
)
def test_what_cannot_be_reported_is_one_sentence(
    arguments: list[str],
    complaint: str,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("a", "b") if len(arguments) > 1 else ():
        copy_of(whole, tmp_path / name)
    monkeypatch.setattr(sys, "argv", ["ifca", "report", *[text.format(tmp_path) for text in arguments]])
    with pytest.raises(SystemExit) as end:
        main()
    errors = capsys.readouterr().err
    assert (end.value.code, errors.count("\n")) == (2, 1)
    assert complaint in errors


def test_a_damaged_run_has_a_page_and_exit_code_1(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy_of(whole, tmp_path / "damaged")
    content = (folder / "models.safetensors").read_bytes()
    (folder / "models.safetensors").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    monkeypatch.setattr(sys, "argv", ["ifca", "report", str(folder)])
    with pytest.raises(SystemExit) as end:
        main()
    errors = capsys.readouterr().err
    assert end.value.code == 1
    assert errors.startswith(f"warning: {folder / 'models.safetensors'}: is not what the run wrote")
    assert "is not what the run wrote" in (folder / "report.html").read_text()


def test_runs_write_their_page_and_survive_without(whole: Path, tmp_path: Path) -> None:
    folder = copy_of(whole, tmp_path / "run")
    assert CliRunner().invoke(app, ["resume", str(folder), "--quiet"]).exit_code == 0
    check_form(Page((folder / "report.html").read_text()))
    (folder / "report.html").unlink()
    (folder / "report.html").mkdir()
    result = CliRunner().invoke(app, ["resume", str(folder), "--quiet"])
    assert result.exit_code == 0
    assert "report.html could not be written" in result.output
    assert "run folder:" in result.output.splitlines()[-1]


def large_run(folder: Path, m: int = 10_000, rounds: int = 500, k: int = 4) -> Path:
    """The folder of a large federation, without training it."""
    rng, folder = np.random.default_rng(0), folder / "large"
    folder.mkdir()
    config = read_config(None, [f"k={k}", f"rounds={rounds}", "baselines=[]"])
    (folder / "config.toml").write_text(write_config(config))
    true = np.arange(m) % k
    with (folder / "rounds.jsonl").open("w") as log:
        for t in range(rounds):
            lost = rng.random(m) < 0.5 * 0.97**t
            identity = np.where(lost, rng.integers(0, k, m), true)
            record: dict[str, Any] = {
                **{"round": t, "participants": m, "clients": None, "identity": identity.tolist()},
                **{"train_loss": 2 * 0.99**t, "test_accuracy": 1 - 0.8 * 0.99**t, "test_loss": 0.99**t},
                **{"test_accuracy_train_rule": 1 - 0.8 * 0.99**t, "live_clusters": k, "models": k},
                "cluster_sizes": np.bincount(identity, minlength=k).tolist(),
                "cluster_train_loss": [2 * 0.99**t + 0.01 * j for j in range(k)],
                "cluster_test_accuracy": [1 - 0.8 * 0.99**t - 0.01 * j for j in range(k)],
                **{"bytes_down": 10**9, "bytes_up": 10**8, "seconds": 1.0, "events": []},
            }
            log.write(json.dumps(record) + "\n")
    heads = ["id", "cluster", "true_cluster", "train_samples", "train_loss", "test_samples", "test_cluster"]
    heads += ["test_loss", "test_accuracy", "test_accuracy_train_rule", "bytes_down", "bytes_up"]
    losses = rng.random((m, k)) + 1
    losses[np.arange(m), true] = 0.1
    with (folder / "clients.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow([*heads, *[f"loss_{j}" for j in range(k)]])
        for i, share in enumerate(rng.beta(9, 1, m).round(3).tolist()):
            table.writerow(
                [f"client-{i}", true[i], true[i], 50, 0.1, 20, true[i], 0.1, share, share, 9, 9, *losses[i]]
            )
    models = {"fc1.weight": torch.from_numpy(rng.random((k, 20, 20)).astype(np.float32))}
    save_tensors(folder / "models.safetensors", models, {"algorithm": "ifca"})
    size = m // k
    summary = {
        **{"algorithm": "ifca", "engine": "vectorised", "device": "cpu", "seed": 0, "k": k, "rounds": rounds},
        **{"clients": m, "test_clients": m, "test_accuracy": 0.9, "test_accuracy_train_rule": 0.9},
        **{"test_loss": 0.1, "test_loss_train_rule": 0.1, "train_loss": 0.1, "live_clusters": k},
        **{"cluster_accuracy": 1.0, "bytes_down": 5 * 10**11, "bytes_up": 5 * 10**10, "seconds": 500.0},
        "clusters": [
            {"cluster": j, "clients": size, "train_samples": 9, "train_loss": 0.1} for j in range(k)
        ],
        "true_clusters": {str(c): [size if j == c else 0 for j in range(k)] for c in range(k)},
        **{
            "events": [],
            "restarts": [{"restart": 0, "train_loss": 0.5, "live_clusters": 2}],
            "kept_restart": 0,
            "config": config_dict(config),
            "versions": {},
        },
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return large_run(tmp_path_factory.mktemp("large"))


def test_a_large_federation_has_a_small_page(large: Path) -> None:
    began = time.perf_counter()
    file = write_page([LiveRun(large).read()], large / "report.html")
    assert time.perf_counter() - began < 30
    assert file.stat().st_size < 3e6
    text = Page(file.read_text()).text
    assert "Drawn are 480 of the 10,000 clients" in text
    past = history(read_run(large))
    assert past is not None
    assert f"({int(past.changes.sum()):,} changes in all)" in text


@needs_browser
def test_pages_in_a_browser(large: Path, whole: Path, tmp_path: Path) -> None:
    """A large page opens within three seconds; no page complains, asks the network or scrolls sideways."""
    with browsing(tmp_path) as browser:
        for runs in ([large], [whole, large]):
            file = write_page([LiveRun(folder).read() for folder in runs], tmp_path / "page.html")
            for width, dark in ((1280, False), (360, True)):
                browser.look(width, dark=dark)
                assert browser.open(f"file://{file}") < 3
                browser.evaluate(
                    "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
                )
                assert browser.evaluate("document.documentElement.scrollWidth") <= width
                paper = browser.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (sum(map(int, re.findall(r"\d+", paper))) < 200) == dark
        browser.evaluate("document.querySelector('[data-chart]').focus()")
        assert browser.evaluate("document.getElementById('readout').hidden")
        browser.key("End")
        assert "round 500" in browser.evaluate("document.getElementById('readout').textContent")
        assert not browser.complaints
        assert all(address.startswith(("file:", "data:", "about:")) for address in browser.requests)


def test_a_training_that_made_things_worse_is_told(tmp_path: Path) -> None:
    settings = [part for one in [*SMALL, "step_size=30", "rounds=4"] for part in ("--set", one)]
    shown = CliRunner().invoke(app, ["run", *settings, "--out", str(tmp_path / "run")])
    assert shown.exit_code == 0, shown.output
    told = " ".join(shown.output.split())
    assert "The training loss is higher than in the first round: try a smaller step_size." in told
    assert "The data supports" not in told
