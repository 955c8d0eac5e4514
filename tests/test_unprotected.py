"""A robust rule says in which clusters it protects nobody."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from ifca.cli.main import app
from ifca.core.recipe import Recipe
from ifca.data import rotated_digits
from ifca.models import mlp
from ifca.training import Job, fit
from ifca.training.unprotected import unprotected


def test_clusters_of_which_one_attacker_is_half() -> None:
    """Labels 0 to 2 of one, two and three clients; with half of them in a round, three are one or two."""
    recipe = Recipe("ifca-plain", k=3, rounds=1, aggregation="median", evaluate_every=0)
    fitted = fit(Job(rotated_digits(samples=300), recipe, lambda: mlp(64, 10, (8,))))
    fitted = replace(fitted, labels=torch.tensor([0, 1, 1, 2, 2, 2]))
    (said,) = unprotected(fitted)
    assert said.endswith("median cannot hold it off: cluster 0 (1 client), cluster 1 (2 clients)")

    def told(**settings: object) -> list[str]:
        job = replace(fitted.job, recipe=replace(recipe, **settings))  # type: ignore[arg-type]
        return unprotected(replace(fitted, job=job))

    assert told(participation=0.5)[0].endswith("cluster 1 (2 clients), cluster 2 (3 clients)")
    assert told(aggregation="mean") == []
    assert told(algorithm="local") == []
    assert unprotected(replace(fitted, labels=torch.tensor([0, 0, 0, 2, 2, 2]))) == []


@pytest.mark.parametrize(("rule", "warned"), [("mean", False), ("clip", True)])
def test_the_rehearsal_says_it(rule: str, warned: bool) -> None:
    settings = [
        "rounds=1",
        "k=4",
        "algorithm=ifca-plain",
        "data.samples=300",
        "device=cpu",
        "model.hidden=[8]",
    ]
    words = [word for setting in settings for word in ("--set", setting)]
    done = CliRunner().invoke(app, ["attack", "--attack", "scale", "--rules", rule, *words])
    assert done.exit_code == 0, done.output
    assert ("clip cannot hold it off" in done.output) == warned
