"""A rehearsal: the same job without and with an attack, under several rules, in one table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ifca.core.attacks import Attack, kind_of
from ifca.core.errors import Diverged, InvalidInput
from ifca.core.initial import best_restart
from ifca.methods.aggregation import BUILT_IN_RULES
from ifca.runs.attack_config import AttackConfig
from ifca.runs.config import Config, check_names
from ifca.runs.make import make_federation, make_job
from ifca.runs.run_code import code_of
from ifca.training import Fitted, Job, fit
from ifca.training.attack_effect import Served, backdoor_success, served, victim
from ifca.training.preflight import check
from ifca.training.unprotected import unprotected

Row = dict[str, Any]
USUAL = ("mean", "clip", "trimmed-mean", "median")
"""The rules that are tried where none are named."""


def rehearse(
    config: Config,
    attack: AttackConfig,
    rules: Sequence[str] = (),
    on_row: Callable[[Row], None] | None = None,
) -> dict[str, Any]:
    """Train without and with the attack under each rule; `rows`, and who attacked.

    accuracy: of the honest clients (regression: loss). lost: points against no attack with the plain mean
    (regression: percent of its loss). lost_elsewhere: the same in the other true clusters.
    """
    kind_of(attack.name)  # an unknown attack is not the rules' fault
    rules = list(dict.fromkeys(rules)) or [name for name in USUAL if name in BUILT_IN_RULES]
    plain, code = replace(config, attack=None, baselines=(), personalise=False), code_of(config)
    federation = make_federation(plain, code)
    if federation.test is None:
        raise InvalidInput(
            "attack: the clients have no test data, so nothing can be measured; with data of your own, "
            "data.test_share = 0.2 keeps a fifth of each client's samples for it"
        )
    jobs = {}
    for rule in ("mean", *rules):
        one = replace(plain, attack=attack, aggregation=rule)
        check_names(one, "--rules")
        jobs[rule] = make_job(one, federation, code)
        check(jobs[rule])
    found = jobs["mean"].attack
    assert found is not None
    base = _trained(replace(jobs["mean"], attack=None))
    if isinstance(base, Diverged):
        raise base
    rows: list[Row] = []
    for rule in rules:
        for job in (replace(jobs[rule], attack=None), jobs[rule]):
            same = rule == "mean" and job.attack is None
            row = {"rule": rule, **_row(base, base if same else _trained(job), job, found)}
            rows.append(row)
            if on_row is not None:
                on_row(row)
    return {**described(found, federation.train.ids), "regression": federation.classes is None, "rows": rows}


def described(attack: Attack, ids: Sequence[str]) -> dict[str, Any]:
    """Who attacked, how, and over whom results are."""
    return {
        "attack": attack.kind.name,
        "strength": attack.strength,
        "cluster": attack.cluster,
        "attackers": [ids[i] for i in attack.rows],
        "clients": len(ids),
        "over": "honest clients",
    }


def _trained(job: Job) -> Fitted | Diverged:
    """The best of the job's starts; a training that diverges is a result, too."""
    try:
        fits = [fit(job, restart=restart) for restart in range(job.recipe.restarts)]
    except Diverged as reason:
        return reason
    return fits[best_restart([one.train_loss for one in fits])]


def _row(base: Fitted, now: Fitted | Diverged, job: Job, attack: Attack) -> Row:
    name = None if job.attack is None else attack.kind.name
    if isinstance(now, Diverged):
        return {"attack": name, "diverged": str(now), **dict.fromkeys(("accuracy", *LOST)), "warnings": []}
    return {"attack": name, **effect(base, now, attack)}


LOST = ("lost", "lost_elsewhere", "backdoor_success")


def effect(base: Fitted, now: Fitted, attack: Attack) -> Row:
    """The numbers of a row. base: without attack, with the plain mean."""
    before, after = served(base, attack), served(now, attack)
    hit = victim(attack, before, after)
    return {
        "accuracy": _finite(after.mean()),
        "lost": _lost(now, before, after, None),
        "lost_elsewhere": None if hit is None else _lost(now, before, after, hit),
        "backdoor_success": backdoor_success(now, attack),
        "warnings": unprotected(now),
    }


def _lost(fitted: Fitted, before: Served, after: Served, but: int | None) -> float | None:
    a, b = before.mean(but), after.mean(but)
    return _finite(100 * (a - b) if fitted.job.federation.classes is not None else 100 * (b / a - 1))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
