"""What the data cannot decide is said: by hand, and at the end of runs of few clients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ifca import IFCA
from ifca.cli.main import app
from ifca.core.numbering import renumbered
from ifca.data import Client, Federation, write_client
from ifca.runs.undecided import undecided


def merged(loses: float, p: float) -> dict[str, Any]:
    return {"event": "merged", "loses": loses, "p": p, "alpha": 0.0025}


KEPT = {**merged(0.5, 1e-9), "event": "kept"}


@pytest.mark.parametrize(
    ("events", "live", "sizes", "words"),
    [
        (None, 1, [40], None),
        ([merged(-0.1, 0.9), KEPT], 2, [40, 40], None),
        ([{"event": "merged", "cluster": 0}], 1, [40], None),  # of an older version
        (
            [merged(0.1, 0.04)],
            1,
            [40] * 12,
            "12 clients, 40 samples each: the data cannot tell 1 from 2 clusters",
        ),
        (
            [merged(0.1, 0.04)],
            1,
            [40] * 12,
            "at level 0.01 (one model for two groups costs 0.1 a sample, p = 0.04)",
        ),
        ([merged(0.2, 0.2), merged(0.1, 0.04), KEPT], 2, [9, 40], "2 clients, 9 to 40 samples each"),
        ([merged(0.2, 0.09), merged(0.1, 0.04), KEPT], 2, [9, 40], "2 from 3 to 4 clusters"),
        ([merged(0.2, 0.2), merged(0.1, 0.3)], 1, [9, 40], None),  # chance alone,
    ],
)
def test_by_hand(events: list[dict[str, Any]] | None, live: int, sizes: list[int], words: str | None) -> None:
    said = undecided(events, live, np.array(sizes), 0.01)
    assert said is None if words is None else words in str(said)


def alike(m: int, samples: int, seed: int = 0) -> list[Client]:
    """Clients of two laws that differ less than the noise of so few samples."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(m):
        x = rng.normal(size=(samples, 3)).astype(np.float32)
        y = x @ np.array([1.0, 1.0, 0.3 * (i % 2)]) + rng.normal(size=samples)
        found.append(Client(x, y.astype(np.float32), id=f"c{i:02d}"))
    return found


def test_a_run_of_few_clients_says_what_it_could_not_decide(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for one in alike(12, 40, seed=3):
        write_client(tmp_path / "data" / f"{one.id}.npz", one)
    options = [f"data={{name='folder', path='{tmp_path / 'data'}'}}", "k=2", "rounds=20", "device=cpu"]
    arguments = [part for option in options for part in ("--set", option)]
    done = CliRunner().invoke(app, ["run", "--quiet", "--out", str(tmp_path / "run"), *arguments])
    assert done.exit_code == 0, done.output
    sentence = "12 clients, 40 samples each: the data cannot tell 1 from 2 clusters at level 0.01"
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["undecided"].startswith(sentence)
    assert sentence in done.stdout
    assert sentence in (tmp_path / "run" / "report.html").read_text()


def test_many_samples_decide(tmp_path: Path) -> None:
    front = IFCA(2, rounds=20, device="cpu").fit(Federation.from_clients(alike(12, 4000)))
    front.save(tmp_path / "run")
    assert len(set(front.labels_.tolist())) == 2
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["undecided"] is None


def test_rounds_before_clients_joined_have_fewer_places() -> None:
    """k = "auto" with 2 clients, then 3: two places, later three; the model in place 1 is the final one."""
    records = [{"round": 0, "cluster_sizes": [0, 2]}, {"round": 1, "cluster_sizes": [0, 3, 0]}]
    assert [one["cluster_sizes"] for one in renumbered(records, [1], 3)] == [[2, 0], [3, 0, 0]]
