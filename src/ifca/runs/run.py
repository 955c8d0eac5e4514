"""A run: all starts of a job, the best of them written out, then the baselines. Each part resumes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ifca.core.callbacks import Callback, Several
from ifca.core.errors import Diverged, InvalidInput, RunFolderWarning, Unreadable
from ifca.core.initial import best_restart
from ifca.data import Federation
from ifca.data.files import refuse_folders, working_in
from ifca.engines.ranks import launched
from ifca.methods import facts_of
from ifca.runs.auto_k import K
from ifca.runs.by_workers import train_restarts
from ifca.runs.chosen_methods import folder_name, other_method, with_methods
from ifca.runs.comparison import comparison
from ifca.runs.config import Config, with_absolute_paths
from ifca.runs.continued import with_before
from ifca.runs.make import make_federation, make_job
from ifca.runs.on_ranks import leading
from ifca.runs.over_seeds import begin_seeds, go_on_seeds, is_over_seeds
from ifca.runs.own_code import Code
from ifca.runs.results import restart_report, write_results
from ifca.runs.run_code import check_code, code_of, kept_code, run_id
from ifca.runs.run_folder import (
    CHECKPOINT,
    CONFIG,
    begin_again,
    check_begun,
    check_finished,
    new_directory,
    open_directory,
    read_rounds,
    train_in,
)
from ifca.runs.served import compared
from ifca.runs.summary_file import RESULTS, SUMMARY, finished_summary, write_summary
from ifca.runs.units.pool import workers_of
from ifca.training import Fitted, Job
from ifca.training.personalise import personalise
from ifca.training.preflight import check

Summary = dict[str, Any]
MakeJob = Callable[[Config, Federation, Code], Job]


def run(config: Config, out: Path, callback: object = None, workers: int | None = 1) -> Summary:
    """Train a new run in an unused folder; callback: with some of the methods of a Callback, or None.

    workers: processes that train its restarts, each on a GPU of its own in turn; None: one per GPU.
    """
    config = with_absolute_paths(config)
    code = code_of(config)  # as it is now: what is edited later is for later runs
    federation = make_federation(config, code)
    check_jobs(config, federation, code)
    new_directory(config, out, code)
    train_restarts(out, config.restarts, workers_of(workers, config.device), config.device)
    with leading(config, code):
        return go_on(config, federation, out, callback, code)


def check_jobs(config: Config, federation: Federation, code: Code, make: MakeJob = make_job) -> None:
    """Refuse what cannot run, the baselines too, before a folder is made and anything is trained."""
    check(make(config, federation, code))
    for algorithm in config.baselines:
        k = (
            None if config.k == "auto" else config.k
        )  # auto: theirs is that of the clusters which will be found
        make(replace(other_method(config, algorithm), k=k), federation, code)


def compare(
    config: Config,
    out: Path,
    callback: object = None,
    methods: Sequence[str] | None = None,
    seeds: int = 1,
    workers: int | None = 1,
) -> Summary:
    """Train methods on the same data, side by side, and say which is best (`comparison` of the summary).

    methods: their names, also module:NAME of your own; None: the paper's, and clove. seeds: how many, from
    that of the config on; where there are several, each has a run folder of its own in out. workers:
    processes that train the seeds, each on a GPU of its own in turn; None: one per GPU.
    """
    if seeds < 1:
        raise InvalidInput(f"--seeds must be at least 1, got {seeds}")
    config = with_absolute_paths(with_methods(config, methods))
    code = code_of(config)
    federation = make_federation(config, code)
    asked = config if methods is not None else replace(config, baselines=())  # of all, some may be unable
    check_jobs(asked, federation, code)
    if seeds > 1 and launched():
        raise InvalidInput("--seeds: several trainings need no torchrun; use --workers")
    try:
        if seeds > 1:
            begin_seeds(config, seeds, out, code)
            return go_on_seeds(out, callback, go_on, workers=workers)
        new_directory(config, out, code)
        with leading(config, code):
            return go_on(config, federation, out, callback, code)
    except Diverged as reason:
        advice = "the run is that of the first method: name another first to compare the rest"
        raise Diverged(f"{config.algorithm}: {reason}; {advice}") from reason


def resume(out: Path, callback: object = None, trust: bool = False) -> Summary:
    """Go on with a run that was interrupted; a finished one is left as it is.

    trust: run the code that its config names also where the folder was not made by this user here.
    """
    if is_over_seeds(out):
        return go_on_seeds(out, callback, go_on, trust=trust)
    config = open_directory(out)
    begin_again(out, config)
    code = kept_code(out, config, trust)
    with leading(config, code):
        return go_on(config, make_federation(config, code), out, callback, code)


def go_on(
    config: Config,
    federation: Federation,
    out: Path,
    callback: object,
    code: Code,
    make: MakeJob = make_job,
) -> Summary:
    """Do what is not done yet: the algorithm itself, then each baseline in a folder of its own."""
    with working_in(out):
        return _go_on(config, federation, out, Several([callback]), code, make)


def _go_on(
    config: Config, federation: Federation, out: Path, callback: Callback, code: Code, make: MakeJob
) -> Summary:
    summary = _one_algorithm(config, federation, out, callback, code, make)
    others, finished = {}, [(out, summary)]
    for algorithm in config.baselines:
        if algorithm != config.algorithm:
            baseline = other_method(config, algorithm)
            baseline = replace(baseline, k=_baseline_k(baseline, summary))
            name = folder_name(algorithm, (config.algorithm, *config.baselines))
            folder = out / "baselines" / name
            if not (folder / CONFIG).exists():
                new_directory(baseline, folder, code)
            begin_again(folder, baseline, code)
            begun = (folder / CHECKPOINT).exists() or (folder / SUMMARY).exists()
            try:
                others[name] = _one_algorithm(baseline, federation, folder, callback, code, make)
                finished.append((folder, others[name]))
            except (Diverged, InvalidInput) as failure:  # the others are worth reporting all the same
                if begun and isinstance(failure, InvalidInput):  # something in the folder is wrong
                    raise
                others[name] = {"algorithm": algorithm, "error": str(failure)}
    if others and summary.get("baselines") != others:
        summary["baselines"], summary["worse_than"] = others, compared(finished)
        summary["comparison"] = comparison({config.seed: (out, summary)})
        write_summary(out, summary)
    return summary


def _baseline_k(baseline: Config, summary: Summary) -> K:
    """Its own; where it needs a number and none was given, that of the clusters which were found."""
    facts = facts_of(baseline.algorithm)
    unable = facts["clustered"] and not facts["at_most_k"]
    given = isinstance(baseline.k, int) or not summary["method"]["at_most_k"]
    return summary["live_clusters"] if unable and not given else baseline.k


def _one_algorithm(
    config: Config, federation: Federation, out: Path, callback: Callback, code: Code, make: MakeJob
) -> Summary:
    check_code(out, code)
    check_begun(out, config)
    if done := _finished(out):
        check_finished(out, config, done)
        return done
    refuse_folders(out, (SUMMARY, *RESULTS))
    job = make(config, federation, code)
    if config.continues is not None and not (out / CHECKPOINT).exists():
        raise InvalidInput(f"{out}: it was cut off before it began; delete it and call 'ifca continue' again")
    fitted, reports = _best_start(config, job, out, callback)
    own = personalise(fitted) if config.personalise else None
    summary = write_results(out, fitted, config, reports, own)
    if config.continues is not None:
        summary = with_before(out, config, fitted, summary)
    callback.finished(summary)
    return summary


def _finished(out: Path) -> Summary | None:
    """The summary of a finished run; None: it is to be made, or made again from the checkpoint."""
    try:
        return finished_summary(out)
    except Unreadable as damage:
        if not any(out.rglob(CHECKPOINT)):
            raise
        told = f"{damage}; the results are made again from the checkpoint"
        warnings.warn(told, RunFolderWarning, stacklevel=2)
        return None


def _best_start(config: Config, job: Job, out: Path, callback: Callback) -> tuple[Fitted, list[Summary]]:
    """All restarts, each reported; the best is judged by the clients' own training loss."""
    run = run_id(out)
    if config.restarts == 1:
        fitted = train_in(out, job, config, 0, run, config.algorithm, callback)
        return fitted, [restart_report(0, fitted, fitted.history)]
    starts: list[Fitted | Diverged] = []
    folders = [out / "restarts" / str(restart) for restart in range(config.restarts)]
    for restart, folder in enumerate(folders):
        title = f"{config.algorithm} {restart + 1}/{config.restarts}"
        try:
            starts.append(train_in(folder, job, config, restart, run, title, callback))
        except Diverged as failure:
            starts.append(failure)
    losses = [start.train_loss if isinstance(start, Fitted) else math.inf for start in starts]
    if not any(math.isfinite(loss) for loss in losses):
        raise next(start for start in starts if isinstance(start, Diverged))
    best = starts[best_restart(losses)]
    assert isinstance(best, Fitted)
    done = [read_rounds(folder) for folder in folders]
    return best, [restart_report(r, start, done[r]) for r, start in enumerate(starts)]
