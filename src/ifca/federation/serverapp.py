"""What the ServerApp does: wait for clients, train over the grid, let others join, write the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from secrets import randbits
from typing import Any

from flwr.serverapp import Grid

from ifca.core.callbacks import Callback
from ifca.core.errors import InvalidInput
from ifca.data import Federation
from ifca.data.files import write_atomically
from ifca.data.jsonl import append_jsonl, read_jsonl
from ifca.engines.flower import Exchange, FaultLog, FlowerEngine, Roster, Session, Terms
from ifca.engines.flower.faults import Fault
from ifca.federation.client_manager import ClientManager, Joined
from ifca.federation.continued_server import Earlier, earlier_of, look_at, write_begin
from ifca.federation.gate import LIMIT
from ifca.federation.joining import add_clients_to_checkpoints
from ifca.federation.preparing import keep, prepare, with_preparation
from ifca.models.task import Factory
from ifca.runs.attack_config import check_on_flower
from ifca.runs.config import Config, with_absolute_paths
from ifca.runs.drift_words import report_lines
from ifca.runs.make import make_job
from ifca.runs.own_code import Code
from ifca.runs.run import check_jobs, go_on
from ifca.runs.run_code import code_of
from ifca.runs.run_folder import CHECKPOINT, CONFIG, FAULTS, PRIVATE, check_unused, new_directory
from ifca.runs.summary_file import write_summary
from ifca.training import Job

Say = Callable[[str], None]
ROSTER, NOISE_KEY = "roster.json", "noise.key"


def serve(
    grid: Grid,
    config: Config,
    out: Path,
    callback: Callback | None = None,
    *,
    model: Factory | None = None,
    poll: float = 0.1,
    code: Code | None = None,
    seeded: bool = False,
    say: Say | None = None,
) -> dict[str, Any]:
    """Train a new run in an unused folder, or go on with the one that is there.

    code: the user's modules that the config names; None: as they lie here. seeded: the noise of differential
    privacy follows from the seed, for tests and simulations, and not from the operating system. say: told who
    joins and what is waited for.
    """
    _refuse_what_needs_the_data(config)
    if not (out / CONFIG).exists():
        check_unused(out)
    code = code_of(config) if code is None else code
    config, terms = replace(with_absolute_paths(config), engine="flower"), config.federation
    faults = FaultLog(partial(_log, out))
    faults.counts.update(fault["kind"] for fault in read_jsonl(out / FAULTS))
    agreed = Terms(terms.min_clients, terms.attempts, half=terms.half_precision)
    session = Session(Exchange(grid, timeout=terms.round_timeout, poll=poll), _known(out), agreed, faults)
    session.say = session.say if say is None else say
    session.on_largest = partial(_tell_gate, out / PRIVATE)
    before, manager = session.roster, ClientManager(session, getattr(config.data, "classes", None))
    session.update_roster = manager.update_roster
    wanted, earlier = terms.clients or terms.min_clients, earlier_of(config)
    told = "" if earlier is None else earlier.preparation
    prepare(session, config, out, wanted, terms.gather_timeout, told)
    manager.wait_for(wanted, terms.gather_timeout)
    session.roster = replace(session.roster, begun=True)
    secret = _secret(out) if config.private and not seeded else None
    make = partial(_job, session, model, secret)
    federation = _federation(session, earlier)
    look = None
    if earlier is not None and not (out / CHECKPOINT).exists():
        look = look_at(make(config, federation, code), earlier)
        config = replace(config, k=look.places)
        for line in report_lines(look.found):
            session.say(line)
    check_jobs(config, federation, code, make)
    if not (out / CONFIG).exists():
        new_directory(config, out, code)
        keep(session, out)
        _keep_secret(secret, out)
    if earlier is not None and look is not None:
        write_begin(make(config, federation, code), config, out, look, earlier.run)
    while True:
        federation = _federation(session, earlier)
        add_clients_to_checkpoints(out, before, federation, config)
        write_atomically(out / ROSTER, json.dumps(session.roster.to_json(), indent=1).encode())
        before = session.roster
        try:
            summary = go_on(config, federation, out, callback, code, make)
            break
        except Joined:
            manager.wait_for(1, terms.gather_timeout)
    summary |= {"faults": dict(sorted(faults.counts.items())), "bytes_evaluation": session.evaluation_bytes}
    write_summary(out, summary)
    return summary


def _federation(session: Session, earlier: Earlier | None) -> Federation:
    """The server's view of its clients; prepared and scaled as in the run that is continued, if any is."""
    found = with_preparation(session.roster.federation(), session)
    return found if earlier is None else earlier.as_before(found)


def _refuse_what_needs_the_data(config: Config) -> None:
    """The server of a federation never sees a sample."""
    if config.personalise:
        raise InvalidInput(
            "personalise: is for 'ifca run'; in a federation each client chooses on its side, by "
            "'ifca predict RUN ITS-DATA --personalise' with a copy of the finished run"
        )
    check_on_flower(config.attack)
    if config.model.metrics:
        raise InvalidInput(
            "model.metrics: are for 'ifca run'; in a federation clients report their loss only"
        )


def _job(
    session: Session,
    model: Factory | None,
    secret: int | None,
    config: Config,
    federation: Federation,
    code: Code,
) -> Job:
    """The job of a config over the grid; model: the user's, in place of the config's; secret: of noise."""
    job = make_job(config, federation, code)

    def engine(job: Job) -> FlowerEngine:
        alone = job.recipe.algorithm != config.algorithm  # the local solutions of one-shot clustering
        joins = not alone and not job.method.personal
        step = job.recipe.step_size if job.halvings else None
        parts = session, job.recipe, job.federation, job.shared
        return FlowerEngine(*parts, alone=alone, open_to_new=joins, model=job.model, step_size=step)

    return replace(job, remote=engine, model=model or job.model, secret=secret)


def _known(out: Path) -> Roster:
    """The clients of a run that was begun; none in a new one."""
    file = out / ROSTER
    return Roster.from_json(json.loads(file.read_text())) if file.exists() else Roster(())


def _secret(out: Path) -> int:
    """What the noise of a private run is drawn from: as the run keeps it, or new."""
    file = out / NOISE_KEY
    return int(file.read_text(), 16) if file.exists() else randbits(64)


def _keep_secret(secret: int | None, out: Path) -> None:
    """Write it for those who resume the run; nobody else may read it."""
    if secret is not None:
        (out / NOISE_KEY).touch(0o600)
        (out / NOISE_KEY).write_text(f"{secret:016x}\n")


def _tell_gate(work: Path, largest: int) -> None:
    """The gate of 'ifca federate server' lets no larger reply pass."""
    if work.is_dir():
        write_atomically(work / LIMIT, str(largest).encode())


def _log(out: Path, fault: Fault) -> None:
    """Faults may come before the run is made, which only begins when its clients are there."""
    out.mkdir(parents=True, exist_ok=True)
    append_jsonl(out / FAULTS, fault)
