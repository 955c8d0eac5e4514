"""Where a run stands, in one line."""

from __future__ import annotations

from ifca.report.read_run import RunFolder
from ifca.report.terminal.progress_bar import describe
from ifca.report.words import count, duration, size_of
from ifca.runs.over_seeds import is_over_seeds

RECENT = 10  # rounds that an estimate of time is made from


def status(run: RunFolder) -> str:
    """The state of a run, how far it is and how long it will take."""
    done, total = len(run.rounds), run.planned
    if run.state == "waiting":
        wanted = run.gathering
        return f"Waiting for {count(wanted, 'client')} to join." if wanted else "Waiting for the first round."
    if run.state == "finished":
        return f"Finished after {done} rounds."
    if run.finished:
        what = "other methods and seeds" if is_over_seeds(run.path.parent) else "baselines"
        words = f"{what} are being trained" if run.state == "running" else f"{what} are missing"
        return f"{done} of {total} rounds done; {words}." + _advice(run)
    where = f"Round {done} of {total}{_restart(run)}"
    if run.state == "stopped":
        return f"{where}: stopped." + _advice(run)
    return f"{where}, {pace(run)}."


def last_round(run: RunFolder) -> str:
    """The last round in a few words."""
    return describe(run.rounds[-1]) if run.rounds else ""


def pace(run: RunFolder) -> str:
    """The rate of the last rounds, the time left at that rate, and what was sent so far."""
    recent = [record["seconds"] for record in run.rounds[-RECENT:]]
    if not recent:
        return "running"
    each = sum(recent) / len(recent)
    left = f"about {duration(each * (run.planned - len(run.rounds)))} left"
    return f"{rate(each)}, {left}, {sent(run)}"


def rate(seconds: float) -> str:
    """12 rounds a second, or 2.5 s a round."""
    return f"{1 / seconds:.3g} rounds a second" if 0 < seconds < 0.5 else f"{duration(seconds)} a round"


def sent(run: RunFolder) -> str:
    """What was sent to clients and by them so far."""
    down, up = (size_of(run.summary[name] or 0) for name in ("bytes_down", "bytes_up"))
    return f"{down} sent to clients, {up} by them"


def _restart(run: RunFolder) -> str:
    restarts = (run.summary.get("config") or {}).get("restarts", 1)
    if restarts == 1 or run.log.parent.parent.name != "restarts":
        return ""
    return f" of restart {int(run.log.parent.name) + 1}/{restarts}"


def _advice(run: RunFolder) -> str:
    if run.state != "stopped":
        return ""
    if run.summary["engine"] == "flower":
        return f" 'ifca federate server --resume {run.path}' goes on with a server's run."
    whole = run.path.parent if is_over_seeds(run.path.parent) else run.path
    return f" 'ifca resume {whole}' goes on."
