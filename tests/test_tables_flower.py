"""Tables in a federation: each client prepares its own, by statistics that the server has added up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ifca.data.cells import cells_of
from ifca.data.column_statistics import ColumnStatistics, client_statistics
from ifca.runs.config import read_config
from ifca.runs.run import run
from ifca.use.opened_run import open_trained
from ifca.use.predict import predict

pytest.importorskip("flwr")

from flwr.app import Context, Message, RecordDict

from ifca.engines.flower.local_grid import LocalGrid
from ifca.federation.apps import client_app
from ifca.federation.serverapp import serve
from ifca.federation.table_agreement import each_left_out

CONFIG = """
rounds = 4
k = 2
engine = "loop"
[data]
name = "folder"
path = "{folder}"
test_share = 0.25
[federation]
clients = 4
[model]
name = "logistic"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Four clients of two kinds, whose tables have words and holes."""
    rng = np.random.default_rng(0)
    (tmp_path / "clients").mkdir()
    for i in range(4):
        lines = ["age,sex,ward,outcome"]
        for _ in range(40 + i):
            age, sex, ward = int(rng.integers(20, 90)), rng.choice(["m", "f"]), rng.choice(list("abc"))
            well = (age > 55) != (i % 2 == 0)
            lines.append(f"{age if rng.random() > 0.1 else ''},{sex},{ward},{'well' if well else 'ill'}")
        (tmp_path / "clients" / f"c{i}.csv").write_text("\n".join(lines) + "\n")
    file = tmp_path / "job.toml"
    file.write_text(CONFIG.format(folder=tmp_path / "clients"))
    return file


def grid_of(config: Path, clients: Path) -> LocalGrid:
    """A node for each file, which only knows its own."""
    files = sorted(clients.glob("*.csv"))
    grid = LocalGrid(client_app(config), len(files))
    for node, file in enumerate(files, 1):
        grid._contexts[node] = Context(1, node, {"data": str(file)}, RecordDict(), {})
    return grid


def test_clients_that_only_know_their_own_table_train_the_same_models(config: Path, tmp_path: Path) -> None:
    expected = run(read_config(config), tmp_path / "run")
    grid = grid_of(config, tmp_path / "clients")
    found = serve(grid, read_config(config), tmp_path / "federated")
    assert found["class_names"] == expected["class_names"] == ("ill", "well")
    assert found["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-4)
    assert found["test_accuracy"] == expected["test_accuracy"]
    here, there = (open_trained(tmp_path / name) for name in ("run", "federated"))
    assert here.preparation == there.preparation
    assert here.scaling is not None
    assert there.scaling is not None
    np.testing.assert_allclose(there.scaling.mean, here.scaling.mean, rtol=1e-12)
    np.testing.assert_allclose(there.scaling.scale, here.scaling.scale, rtol=1e-12)
    (tmp_path / "c1.csv").write_text("age,sex,ward\n30,m,a\n,f,b\n")
    assert set(predict(tmp_path / "federated", tmp_path / "c1.csv").labels_or_values()) <= {"ill", "well"}


def test_no_name_leaves_a_client(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What leaves a client before the first round: counts, vocabularies of what repeats, sums."""
    for file in sorted((tmp_path / "clients").glob("*.csv")):
        head, *rows = file.read_text().splitlines()
        named = [f"name,{head}", *[f"secret-{i},{row}" for i, row in enumerate(rows)]]
        file.write_text("\n".join(named) + "\n")
    replies: list[Any] = []
    grid = grid_of(config, tmp_path / "clients")
    pull = grid.pull_messages

    def pulled(ids: Any) -> Any:
        replies.extend(found := list(pull(ids)))
        return found

    monkeypatch.setattr(grid, "pull_messages", pulled)
    serve(grid, read_config(config), tmp_path / "run")
    told = [json.dumps(dict(r.content.config_records["reply"])) for r in replies if r.content.config_records]
    assert any("statistics" in one for one in told)
    assert not any("secret" in one for one in told)
    assert any("sex" in one for one in told)
    config.write_text(config.read_text() + "[data.columns]\nsex = 'leave out'\n")
    replies.clear()
    serve(grid, read_config(config), tmp_path / "without")
    told = [json.dumps(dict(r.content.config_records["reply"])) for r in replies if r.content.config_records]
    assert not any("sex" in one for one in told)


def test_a_table_of_words_needs_a_config_that_says_so(config: Path, tmp_path: Path) -> None:
    config.write_text(
        'rounds = 1\n[federation]\nclients = 4\ngather_timeout = 1\n[model]\nname = "logistic"\n'
    )
    grid = grid_of(config, tmp_path / "clients")
    with pytest.raises(Exception, match=r"c0\.csv: has words, holes or classes by name"):
        serve(grid, read_config(config), tmp_path / "run")


def test_a_column_that_one_client_has_alone_is_not_used(config: Path, tmp_path: Path) -> None:
    expected = run(read_config(config), tmp_path / "run")
    file = tmp_path / "clients" / "c2.csv"
    head, *rows = file.read_text().splitlines()
    file.write_text("\n".join([f"bmi,{head}", *[f"{20 + i % 9},{row}" for i, row in enumerate(rows)]]) + "\n")
    found = serve(grid_of(config, tmp_path / "clients"), read_config(config), tmp_path / "federated")
    assert found["faults"] == {}
    assert found["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": "many"},
        {"holes": -1},
        {"numbers": 9},
        {"smallest": float("nan")},
        {"values": {"1": 2.5}},
        {"sketch": [[3, -1], [4, 4]]},
    ],
)
def test_statistics_that_no_honest_client_tells_are_refused(wrong: dict[str, Any]) -> None:
    told = client_statistics({"a": cells_of(np.array([1.0, 2.0, 3.0]))})["a"].to_json()
    assert ColumnStatistics.from_json(told).numbers == 3
    with pytest.raises((ValueError, TypeError)):
        ColumnStatistics.from_json(told | wrong)


def lying(grid: LocalGrid, node: int, lie: Callable[[dict[str, Any]], None]) -> LocalGrid:
    """One node changes what it tells of its table."""
    push = grid.push_messages

    def pushed(messages: Iterable[Message]) -> Iterable[str]:
        keys = list(push(messages))
        for key in keys:
            reply = grid._replies[key]
            told = None if reply.has_error() else reply.content.config_records.get("reply")
            if told is not None and "statistics" in told and reply.metadata.src_node_id == node:
                content = json.loads(str(told["statistics"]))
                lie(content)
                told["statistics"] = json.dumps(content)
        return keys

    grid.push_messages = pushed  # type: ignore[method-assign]
    return grid


def many_classes(told: dict[str, Any]) -> None:
    told["columns"]["outcome"]["values"] = {f"class {i}": 1 for i in range(500)}


def too_many_values(told: dict[str, Any]) -> None:
    told["columns"]["outcome"]["values"] = None


def a_number(told: dict[str, Any]) -> None:
    rows = 10**9
    told["columns"]["outcome"] |= {"rows": rows, "holes": 0, "numbers": rows, "whole": 0, "smallest": 0.5}
    told["columns"]["outcome"] |= {"largest": 0.5, "values": {}, "sketch": [[0, rows]]}


def a_long_table(told: dict[str, Any]) -> None:
    for name in ("age", "sex", "ward"):
        told["columns"][name] |= {"rows": 10**9, "values": None, "distinct": 10**9}


def its_own_preparation(told: dict[str, Any]) -> None:
    column = {"name": "sex", "kind": "number", "fill": 0.0, "indicator": False, "values": [], "why": ""}
    made = {"columns": [column], "label": ["outcome"], "class_names": ["a"], "regression": False}
    told.clear()
    told["preparation"] = made | {"refuse_holes": False}


@pytest.mark.parametrize("lie", [many_classes, too_many_values, a_number, a_long_table, its_own_preparation])
def test_no_table_of_one_client_decides_for_all(
    lie: Callable[[dict[str, Any]], None], config: Path, tmp_path: Path
) -> None:
    """What c0 claims of its table would end the run, or take the others' features or classes away."""
    grid = lying(grid_of(config, tmp_path / "clients"), 1, lie)
    terms = ["federation.clients=3", "federation.gather_timeout=2", "rounds=1"]
    serve(grid, read_config(config, terms), tmp_path / "run", poll=0.01)
    made = open_trained(tmp_path / "run").preparation
    assert made is not None
    assert made.class_names == ("ill", "well")
    assert [column.name for column in made.used] == ["age", "sex", "ward"]


def test_tables_are_waited_for_whatever_else_comes_first(config: Path, tmp_path: Path) -> None:
    """A table of other columns is there before the four; their own preparation counts all four of them."""
    expected = run(read_config(config), tmp_path / "run")
    (tmp_path / "clients" / "a.csv").write_text("bmi,outcome\n" + "20,well\n22,ill\n" * 9)
    grid = grid_of(config, tmp_path / "clients")
    grid.connected.discard(5)
    push, said = grid.push_messages, list[str]()

    def pushed(messages: Iterable[Message]) -> Iterable[str]:
        keys = list(push(messages))
        grid.connected.add(5)  # after the first four were asked
        return keys

    grid.push_messages = pushed  # type: ignore[method-assign]
    terms = read_config(config, ["federation.gather_timeout=5"])
    found = serve(grid, terms, tmp_path / "federated", poll=0.01, say=said.append)
    assert said[0].startswith("3 of 4 clients tell of tables that are alike, 4 are connected")
    faults = (tmp_path / "federated" / "faults.jsonl").read_text()
    assert "a.csv: has no column age, which the others have (found: bmi, outcome)" in faults
    assert open_trained(tmp_path / "run").preparation == open_trained(tmp_path / "federated").preparation
    assert found["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-4)


def test_each_left_out_by_hand() -> None:
    clients = [{"a": ColumnStatistics(rows=n)} for n in (1, 2, 4, 8, 16)]
    assert [rest["a"].rows for rest in each_left_out(clients)] == [30, 29, 27, 23, 15]
