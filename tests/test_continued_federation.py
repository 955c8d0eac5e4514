"""A federation of tables that goes on from a finished run with new data: who moved, whom no model fits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ifca.core.errors import InvalidInput
from ifca.runs.clients_table import read_clients
from ifca.runs.config import Config, read_config
from ifca.runs.continued import CONTINUED

pytest.importorskip("flwr")

from ifca.engines.flower.local_grid import LocalGrid
from ifca.federation.apps import client_app
from ifca.federation.continued_server import config_to_continue
from ifca.federation.serverapp import serve

NAMES = tuple(f"site-{i}" for i in range(8))
LAWS = {"and": (1.0, 1.0), "or": (-1.0, 1.0), "third": (0.2, -1.5)}
SETTINGS = [
    *("k=2", "rounds=12", "local_steps=5", "step_size=0.5", "model.name=logistic", "device=cpu", "seed=3"),
    *(
        "baselines=[]",
        "evaluate_every=0",
        "federation.clients=8",
        "data={name='folder', path='.', label='sick'}",
    ),
]


def write_table(folder: Path, name: str, law: str, seed: int, n: int = 160) -> None:
    """Rows with a number far from 0, a word and an answer that a law gives."""
    rng = np.random.default_rng(seed)
    x, word = rng.normal(size=(n, 2)), rng.choice(["red", "blue"], n)
    sick = x @ np.array(LAWS[law]) + np.where(word == "red", 0.5, -0.5) > 0
    rows = zip(100 + 20 * x[:, 0], x[:, 1], word, np.where(sick, "yes", "no"), strict=True)
    text = "".join(f"{a:.6f},{b:.6f},{c},{d}\n" for a, b, c, d in rows)
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.csv").write_text(f"blood,size,colour,sick\n{text}")


def grid_of(config: Config, folder: Path) -> LocalGrid:
    """A node for each file of a folder, as 'ifca federate client' makes it."""
    files = sorted(folder.glob("*.csv"))
    grid = LocalGrid(client_app(config), len(files))
    for context, file in zip(grid._contexts.values(), files, strict=True):
        context.node_config.update({"data": str(file), "name": file.stem})
    return grid


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished federation of two laws; then new data: one moved, two follow a third law, one is new."""
    here = tmp_path_factory.mktemp("continued")
    for i, name in enumerate(NAMES):
        write_table(here / "then", name, "and" if i < 4 else "or", i)
    config = read_config(None, [*SETTINGS, "data.test_share=0.25"])
    assert serve(grid_of(config, here / "then"), config, here / "run", poll=0.01)["live_clusters"] == 2
    laws = ["or", "and", "third", "third", "or", "or", "or"]
    for i, law in enumerate(laws):
        write_table(here / "now", NAMES[i], law, 100 + i)
    write_table(here / "now", "site-new", "and", 200)
    return here


def test_who_stayed_who_moved_whom_no_model_fits(here: Path) -> None:
    config = config_to_continue(read_config(here / "run" / "config.toml"), here / "run")
    said = list[str]()
    out = here / "continued"
    summary = serve(grid_of(config, here / "now"), config, out, poll=0.01, say=said.append)
    found = json.loads((out / CONTINUED).read_text())
    states = {row["client"]: row["state"] for row in found["clients"]}
    assert [states[name] for name in NAMES[:7]] == [
        *("moved", "stayed", "misfit", "misfit", "stayed", "stayed", "stayed")
    ]
    assert (states["site-new"], found["gone"]) == ("joined", ["site-7"])
    assert (
        "clients: 4 stayed, 1 moved, 1 new, 2 fit no model, 0 without labels, 1 not in the new data" in said
    )
    clusters = {row["id"]: int(row["cluster"]) for row in read_clients(out)}
    assert clusters["site-2"] == clusters["site-3"] == 2  # a model of their own
    assert clusters["site-0"] == clusters["site-4"] != clusters["site-1"] == clusters["site-new"]
    ways = summary["continued"]["compared"]["ways"]
    assert ways["after"]["accuracy"] > ways["earlier_models"]["accuracy"] > ways["as_it_was"]["accuracy"]
    assert ways["after"]["accuracy"] > 0.9
    begun = read_config(out / "config.toml")
    again = serve(grid_of(begun, here / "now"), begun, out, poll=0.01)
    assert again["continued"]["compared"] == summary["continued"]["compared"]


def test_a_continuation_that_is_cut_off_goes_on(here: Path) -> None:
    config = config_to_continue(read_config(here / "run" / "config.toml"), here / "run")
    whole = serve(grid_of(config, here / "now"), config, here / "whole", poll=0.01)

    class Stop(Exception):
        pass

    class Stopping:
        def round_ended(self, record: dict[str, Any]) -> None:
            if record["round"] == 3:
                raise Stop

    with pytest.raises(Stop):
        serve(grid_of(config, here / "now"), config, here / "cut", Stopping(), poll=0.01)  # type: ignore[arg-type]
    begun = read_config(here / "cut" / "config.toml")
    summary = serve(grid_of(begun, here / "now"), begun, here / "cut", poll=0.01)
    assert summary["train_loss"] == whole["train_loss"]
    assert read_clients(here / "cut") == read_clients(here / "whole")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["algorithm=global"], "is a run of global; only with ifca and ifca-plain do clients choose"),
        ([], "no client of .* is there \\(stranger are\\): are they named alike"),
    ],
)
def test_what_cannot_be_continued(settings: list[str], reason: str, here: Path, tmp_path: Path) -> None:
    before = here / "run"
    if settings:
        config = read_config(None, [*SETTINGS, *settings, "rounds=1"])
        before = tmp_path / "run"
        serve(grid_of(config, here / "then"), config, before, poll=0.01)
    write_table(tmp_path / "other", "stranger", "and", 5)
    config = config_to_continue(read_config(here / "run" / "config.toml"), before)
    config = replace(config, federation=replace(config.federation, clients=1))
    with pytest.raises(InvalidInput, match=reason):
        serve(grid_of(config, tmp_path / "other"), config, tmp_path / "new", poll=0.01)
    assert not (tmp_path / "new" / "config.toml").exists()
