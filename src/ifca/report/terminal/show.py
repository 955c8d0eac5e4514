"""A run on the terminal: watched while it trains, shown when it is finished."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from ifca.core.callbacks import Callback, Several, Silent, Training
from ifca.report.badly_served import spoiled_clusters
from ifca.report.ending_words import DIVERGED, ending_sentences, grew_worse
from ifca.report.live_run import LiveRun
from ifca.report.personal_words import personal_sentence
from ifca.report.read_run import RunFolder, read_run
from ifca.report.terminal.event_tables import events_table
from ifca.report.terminal.progress_bar import watching
from ifca.report.terminal.run_tables import (
    badly_served_table,
    best_method_table,
    clusters_table,
    comparison_table,
    member_sentences,
    restarts_table,
)
from ifca.report.terminal.use_tables import metrics_table
from ifca.report.words import clusters_asked
from ifca.runs.over_seeds import is_over_seeds, seeds_summary
from ifca.runs.privacy_words import advice, privacy_sentences
from ifca.runs.track.trackers import trackers


def watched(
    job: Callable[[Callback], object], folder: Path, quiet: bool, track: list[str] | None = None
) -> None:
    """Train under a progress bar, telling the trackers of these names too; then show what came out."""
    console, others = Console(), trackers(track, folder)
    with watching(console, plain=quiet or not console.is_terminal) as progress:
        job(Several([_NamesFolder(console, folder), progress, *others]))
    show(console, folder)


class _NamesFolder(Silent):
    """Says where the run is, once it has begun: a job that is refused has no folder."""

    def __init__(self, console: Console, folder: Path) -> None:
        self._console, self._folder, self._said = console, folder, False

    def started(self, training: Training) -> None:  # noqa: ARG002
        """Of the first training."""
        if not self._said:
            _say(self._console, f"run folder: {self._folder} ('ifca watch {self._folder}' shows it live)")
        self._said = True


def show(console: Console, folder: Path) -> None:
    """Tables, figures and remarks of a finished run; of a comparison over seeds, what all seeds say."""
    if not console.is_terminal:
        console = Console(width=140)
    if is_over_seeds(folder):
        _show_seeds(console, folder)
        return
    from ifca.report.run_figures import write_figures  # here: training does without matplotlib

    finished = read_run(folder)
    summary = finished.summary
    for sentence in ending_sentences(summary):
        _say(console, sentence)
    if len(summary["restarts"]) > 1:
        console.print(restarts_table(finished))
    if summary["clusters"] is not None:
        console.print(clusters_table(finished))
        for sentence in [] if summary["true_clusters"] else member_sentences(finished):
            _say(console, sentence)
        if summary.get("events"):
            console.print(events_table(finished))
        if grew_worse(finished):
            console.print(DIVERGED)
        elif summary["live_clusters"] < clusters_asked(summary):
            console.print(_fewer(summary))
        if summary.get("undecided"):
            _say(console, f"{summary['undecided']}.")
    console.print(comparison_table(finished))
    if (badly := badly_served_table(finished)) is not None:
        console.print(badly)
    for sentence in spoiled_clusters(finished):
        _say(console, sentence)
    if summary.get("test_metrics"):
        console.print(metrics_table(finished))
    if summary.get("personalised"):
        _say(console, f"personalised: {personal_sentence(summary['personalised'])}")
    for sentence in summary.get("warnings", []):
        _say(console, f"warning: {sentence}")
    if private := summary.get("privacy"):
        for sentence in (*privacy_sentences(private), *advice(private, finished.rounds)):
            _say(console, sentence)
    for name, baseline in summary.get("baselines", {}).items():
        for sentence in ending_sentences(baseline):
            _say(console, f"{name}: {sentence}")
        if baseline.get("personalised"):
            _say(console, f"{name}, personalised: {personal_sentence(baseline['personalised'])}")
        if "error" in baseline:
            _say(console, f"{name}: {baseline['error']}")
    if summary.get("comparison"):
        _show_comparison(console, summary["comparison"])
    for figure in write_figures(finished):
        _say(console, f"figure: {figure}")
    _write_report(console, finished, folder)
    _say(console, f"run folder: {folder}")


def _show_comparison(console: Console, found: dict[str, Any]) -> None:
    """Which method is best."""
    console.print(best_method_table(found))
    _say(console, found["verdict"])
    _say(console, found["basis"])


def _show_seeds(console: Console, folder: Path) -> None:
    """A finished comparison over seeds; its page is that of the first seed's run, with all seeds compared."""
    summary = seeds_summary(folder) or {}
    if summary.get("comparison"):
        _show_comparison(console, summary["comparison"])
    _write_report(console, LiveRun(folder).read(), folder)
    _say(console, f"folder: {folder}, with a run folder for each seed ({', '.join(summary['folders'])})")


def _write_report(console: Console, finished: RunFolder, folder: Path) -> None:
    """The page of the run; without it the run is none the worse."""
    from ifca.report.page import REPORT, write_page  # here: training does without jinja2

    file = folder / REPORT
    try:
        _say(console, f"report: {write_page([finished], file)}")
    except Exception as reason:  # noqa: BLE001
        _say(console, f"report: {file} could not be written ({reason}); 'ifca report {folder}' tries again")


def _say(console: Console, line: str) -> None:
    console.print(line, soft_wrap=True, highlight=False, markup=False)


def _fewer(summary: dict[str, Any]) -> str:
    live, k = summary["live_clusters"], clusters_asked(summary)
    if summary["method"]["at_most_k"]:
        found, done = f"{live} of at most {k} clusters were found", summary["rounds"]
        judged, more = summary["method"]["referee"], summary.get("models", live) - live
        if judged and more > 0:
            others = "model" if more == 1 else f"{more} models"
            return f"{live} of at most {k} clusters have clients: nobody has the other {others}."
        return f"{found}: nothing spoke for more in {done} rounds." if judged else f"{found}."
    return f"Only {live} of {k} clusters have clients: try more restarts, or a smaller k."
