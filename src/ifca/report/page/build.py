"""The page: sections in a template, with its style and script inside. Nothing is fetched from anywhere."""

from __future__ import annotations

import base64
import hashlib
import warnings
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from ifca import __version__
from ifca.core.errors import InvalidInput, RunFolderWarning
from ifca.data.files import write_atomically
from ifca.report.ending_words import DIVERGED, ending_sentences, grew_worse
from ifca.report.live_run import LiveRun
from ifca.report.page.best import best
from ifca.report.page.cards import cards
from ifca.report.page.clusters import over_time
from ifca.report.page.compare import comparison, labels
from ifca.report.page.costs import events, settings, traffic
from ifca.report.page.distances import model_distances
from ifca.report.page.distinguish import distinguish
from ifca.report.page.everyone import everyone
from ifca.report.page.headline import headline, tiles
from ifca.report.page.history import history
from ifca.report.page.learning import learning
from ifca.report.page.loss_matrix import loss_matrix
from ifca.report.page.parts import Section, paragraph
from ifca.report.page.people import served
from ifca.report.page.personalising import personal
from ifca.report.page.private import private
from ifca.report.page.since_before import continued
from ifca.report.page.sizes import sizes, truth
from ifca.report.read_run import RunFolder
from ifca.report.words import count, title_of

STATES = {"finished": "finished", "running": "running", "stopped": "not finished", "waiting": "not begun"}
REPORT = "report.html"
PAGES = (".html", ".htm")
MISSING = "What this part tells of cannot be shown, because the run's files do not fit together"
MISFIT = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, AssertionError, StopIteration)
T = TypeVar("T")
TEMPLATES = Path(__file__).parent / "templates"
STYLES = ("page.css", "answers.css")
SCRIPTS = ("page.js", "frame.js", "clients.js", "story.js", "map.js", "save.js")
SHORT = {
    "groups": "Clusters",
    "best": "Best method",
    "result": "Result",
    "continued": "New data",
    "distinguish": "Differences",
    "everyone": "Clients",
    "served": "Served",
    "privacy": "Privacy",
    "learning": "Learning",
    "clusters": "Over time",
    "traffic": "Sent",
    "events": "Events",
    "settings": "Settings",
}
"""Sections in the navigation, which is short."""


def write_report(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Write the page of some run folders, finished or not; without out: report.html in the only folder.

    A folder that is damaged is shown as far as it goes: the page says so, and a RunFolderWarning.
    """
    if out is not None and out.suffix not in PAGES:
        raise InvalidInput(f"-o {out}: a page is written as .html")
    runs = [LiveRun(folder).read() for folder in folders]
    for run in runs:
        if not run.rounds:
            raise InvalidInput(f"{run.path}: has no round yet, there is nothing to report")
    if len(runs) > 1 and out is None:
        raise InvalidInput("several runs: say where the page should go, with -o page.html")
    for sentence in dict.fromkeys(one for run in runs for one in run.damage):
        warnings.warn(sentence, RunFolderWarning, stacklevel=2)
    return write_page(runs, out or folders[0] / REPORT)


def write_page(runs: Sequence[RunFolder], file: Path) -> Path:
    """Write the page of some runs."""
    write_atomically(file, page(runs).encode("utf-8", "backslashreplace"))  # a folder's name may be no text
    return file


def page(runs: Sequence[RunFolder], *, live: bool = False) -> str:
    """The whole page; live: it asks the server it came from for news."""
    style = "".join(_read(name) for name in STYLES)
    script = "".join(_read(name) for name in (*SCRIPTS, *(["live.js"] if live else [])))
    title = f"{_subject(runs[0])}: {_name(runs[0])}" if len(runs) == 1 else f"{len(runs)} runs compared"
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=title,
            style=Markup(style),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            live=live,
            content=Markup(article(runs)),
        )
    )


def article(runs: Sequence[RunFolder]) -> str:
    """What the page says, without its frame: what is renewed while a run goes on."""
    names, now = labels(runs), datetime.now(timezone.utc)
    return (
        _environment()
        .get_template("article.html")
        .render(
            alone=len(runs) == 1,
            compared=None if len(runs) == 1 else comparison(runs, names),
            short=SHORT,
            runs=[_told(run, name) for run, name in zip(runs, names, strict=True)],
            written=f"{now.day} {now:%B %Y, %H:%M} UTC",
            version=__version__,
        )
    )


def sections(run: RunFolder) -> list[Section]:
    """Everything that can be said of a run, in the order a reader asks."""
    if not run.rounds:
        return [Section("waiting", "Nothing to see yet", paragraph("The first round has not ended yet."))]
    past = _or(None, history, run)
    folder = run.path if run.finished else run.log.parent
    verdict = shown("best", best, run)
    seeds = len((run.summary.get("comparison") or {}).get("seeds", ()))
    found: list[Callable[[RunFolder], Section | None]] = [
        *([lambda _run: verdict] if seeds > 1 else []),  # what the page is there for
        cards,
        *([lambda _run: verdict] if seeds == 1 else []),
        headline,
        continued,
        distinguish,
        lambda run: everyone(run, past),
        served,
        personal,
        private,
        learning,
        *([partial(over_time, past=past), partial(sizes, past=past)] if past is not None else []),
        truth,
        loss_matrix,
        lambda run: model_distances(run, folder),
        traffic,
        events,
        settings,
    ]
    made = [shown(f"part-{i}", one, run) for i, one in enumerate(found)]
    return [section for section in made if section is not None]


def shown(name: str, make: Callable[[RunFolder], Section | None], run: RunFolder) -> Section | None:
    """A section; where files that are as they should be do not fit together, that it cannot be shown.

    Files of older versions, and files that somebody made, have no checksums, and no reader knows all that
    they may say: the rest of the page is worth having.
    """
    try:
        return make(run)
    except MISFIT as reason:
        return Section(
            name, "A part is missing", paragraph(f"{MISSING} ({type(reason).__name__}: {reason}).")
        )


def _told(run: RunFolder, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "subject": _subject(run),
        "algorithm": _name(run),
        "state": run.state,
        "state_word": STATES[run.state],
        "lead": _or("", _lead, run),
        "damage": [sentence.replace(f"{run.path}/", "") for sentence in run.damage],
        "warnings": _or(list[str](), _warnings, run) if run.rounds else [],
        "ending": _or(list[str](), lambda run: ending_sentences(run.summary), run),
        "tiles": _or(list[tuple[str, str, str]](), tiles, run) if run.rounds else [],
        "sections": sections(run),
    }


def _or(otherwise: T, make: Callable[[RunFolder], T], run: RunFolder) -> T:
    """What is made of a run, or something else where its files do not fit together."""
    try:
        return make(run)
    except MISFIT:
        return otherwise


def _warnings(run: RunFolder) -> list[str]:
    """What a reader must know before any number."""
    found = [f"{text[:1].upper()}{text[1:]}." for text in run.summary.get("warnings") or []]
    return [DIVERGED, *found] if run.finished and grew_worse(run) else found


def _lead(run: RunFolder) -> str:
    s, what = run.summary, run.summary["method"]["about"]
    clients = count(s["clients"], "client") if s["clients"] else "The clients"
    done = count(len(run.rounds), "round")
    how = f"{done}" if run.finished else f"{len(run.rounds):,} of {count(run.planned, 'round')}"
    text = f"{clients} trained together for {how}, each keeping its data to itself ({what}). "
    if s["method"]["personal"]:
        return text.replace("trained together", "trained")
    if s["k"] == 1:
        return text
    if run.finished:
        live = s["live_clusters"]
        came = f"{live} groups came out, each with its own model" if live > 1 else "one group came out"
        return f"{text}Nobody said which clients are alike; {came}."
    return text + "Nobody says which clients are alike; the clusters are found on the way."


def _subject(run: RunFolder) -> str:
    """The data set; where the data are the user's own, the name of their file or of the run's folder."""
    data = (run.summary.get("config") or {}).get("data", {})
    if path := data.get("path"):
        return Path(path).stem
    own = data.get("name", "function") == "function"
    return run.path.resolve().name if own else str(data["name"])


def _name(run: RunFolder) -> str:
    return title_of(run.summary)


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("ifca.report.page"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )


def _read(name: str) -> str:
    return (TEMPLATES / name).read_text("utf-8")
