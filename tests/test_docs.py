"""The documentation site: built strictly, every config key and every command on its pages."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from ifca.runs.attack_config import AttackConfig
from ifca.runs.config import Config, ModelConfig
from ifca.runs.federation_config import FederationConfig
from tests.browser import browsing, needs_browser

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.xdist_group("docs")  # one process builds the site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=quiet)
    assert done.returncode == 0, done.stderr
    return out


def test_every_config_key_is_explained(site: Path) -> None:
    page = (site / "config.html").read_text()
    data = get_args(get_type_hints(Config)["data"])
    keys = {
        f.name for kind in (Config, ModelConfig, FederationConfig, AttackConfig, *data) for f in fields(kind)
    }
    for key in keys - {"data", "model", "federation", "attack"}:
        assert f"<code>{key}</code>" in page, key
    reference = runpy.run_path(str(ROOT / "tools" / "docs_reference.py"))
    headings = [heading for heading, *_ in reference["TABLES"]]
    for kind in data:
        (name,) = get_args(get_type_hints(kind)["name"])
        assert f'[data] name = "{name}"' in headings
    for _, _, file, classes in reference["TABLES"]:
        for name in classes:
            keys = reference["keys_of"](file, name)[1]
            silent = [key.name for key in keys if not key.text and key.name != "name"]
            assert not silent, f"{name}: no docstring for {silent}"


def test_every_command_is_there(site: Path) -> None:
    page = (site / "cli.html").read_text()
    for command in ("init", "run", "assign", "predict", "export", "data inspect", "federate server"):
        assert f"ifca {command}" in page
    assert "--personalise" in page


def test_the_signature_of_ifca_is_there(site: Path) -> None:
    page = re.sub(r"<[^>]+>", "", (site / "api.html").read_text())
    assert re.search(r"IFCA\(\s*k: int", page)
    assert "how far a model moves at each gradient step" in page


def test_a_page_fetches_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(https?:[^"]+)"', page.read_text()
        )
        assert not [url for url in loaded if "canonical" not in url], page


def test_the_site_can_be_opened_as_files(site: Path) -> None:
    """Every link names a file that is there; without a server a folder would show its list of files."""
    for page in site.glob("*.html"):
        for link in re.findall(r'<a [^>]*href="([^"#?]+)', page.read_text()):
            if not link.startswith(("http:", "https:", "mailto:")) and page.name != "404.html":
                assert (page.parent / link).is_file(), (page.name, link)


@needs_browser
def test_search_works_without_a_server(site: Path, tmp_path: Path) -> None:
    with browsing(tmp_path) as browser:
        browser.open((site / "index.html").as_uri() + "?q=batch+norm")
        browser.wait("document.querySelectorAll('.md-search-result__item').length > 0")
        found = browser.evaluate("document.querySelector('.md-search-result__link').href")
        assert found.startswith(site.as_uri())
        assert ".html" in found
        assert browser.complaints == []
        assert not [url for url in browser.requests if url.startswith("http")]


def test_figures_have_text_alternatives() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        for alternative, file in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text()):
            assert len(alternative) > 20, f"{page.name}: {file}"
            assert (page.parent / file).is_file()


PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
NAMED = re.compile(r"((?:`[\w.]+`(?:, and |, | and | or )?)+) in `([\w/]+\.py)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_functions_that_pages_name_are_there(page: Path) -> None:
    """`room/file.py` is a file of the package or of the checkout; `name` in it is defined there."""
    text = page.read_text()
    for name in re.findall(r"[`(]((?:\.\./)?(?:[\w-]+/)+[\w-]+\.(?:py|toml|jsonl))[`)]", text):
        folders = (page.parent, ROOT, ROOT / "src" / "ifca")
        assert any((folder / name).is_file() for folder in folders), name
    for names, file in NAMED.findall(text):
        code = (ROOT / "src" / "ifca" / file).read_text()
        for name in re.findall(r"`(?:\w+\.)*(\w+)`", names):
            assert re.search(rf"\b(def|class) {name}\b|^\s*{name}\b.* [:=]", code, re.MULTILINE), (name, file)


def test_the_search_index_knows_the_words_of_users(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    text = " ".join(entry["text"] for entry in index["docs"])
    for word in ("standardise", "personalise", "model card", "collapse"):
        assert word in text


def test_the_table_of_collapses_is_what_was_measured() -> None:
    page = (ROOT / "docs" / "collapse.md").read_text()
    rows = json.loads((ROOT / "results" / "collapse" / "summary.json").read_text())["rows"]
    found = {(row["setting"], row["algorithm"], row["metric"]): row for row in rows}
    for setting in dict.fromkeys(row["setting"] for row in rows):
        shares = [found.get((setting, algorithm, "success")) for algorithm in ("ifca-plain", "ifca")]
        cells = [f"{sum(map(bool, row['values']))} of {len(row['values'])}" if row else "–" for row in shares]
        costs = [found.get((setting, "ifca", f"{cost}_ratio")) for cost in ("bytes", "turns")]
        cells += ["–" if row is None else f"{row['mean']:.2f}" for row in costs]
        assert f"| {setting} | {' | '.join(cells)} |\n" in page


def test_the_tables_of_reliability_are_what_was_measured() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    for tool in ("docs_chaos", "docs_reliability"):
        made = runpy.run_path(str(ROOT / "tools" / f"{tool}.py"))
        assert made["with_tables"](page) == page, f"python tools/{tool}.py"
    kinds = json.loads((ROOT / "results" / "fuzz" / "counts.json").read_text())
    assert set(kinds) == set(made["WHAT"]), "python tools/docs_reliability.py"
