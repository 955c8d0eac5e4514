"""Anchor tables: the settings are what they say, rows are made of lines, the page shows them."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks import anchor_linear
from benchmarks.anchor_models import ALL_BUT_HEAD, HEAD, clove_cifar, clove_mnist, pfllib_cnn
from benchmarks.anchor_settings import Anchor, overlapping, pairs, pfllibs, swaps
from benchmarks.anchor_table import summary, table
from benchmarks.anchors import ANCHORS, LINEAR, units

from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.runs.units.lines import read_lines

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "results" / "anchors"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_any_two_clusters_of_label_skew_2_share_two_labels(seed: int) -> None:
    labels = [set(population.labels or ()) for population in overlapping(seed)]
    assert [len(some) for some in labels] == [4] * 5
    assert all(len(a & b) == 2 for a, b in combinations(labels, 2))


def test_label_skew_1_and_swaps_are_the_sources() -> None:
    assert [population.labels for population in pairs(0)] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    assert swaps(0)[0].permutation == (3, 1, 2, 0, 4, 5, 6, 7, 9, 8)


def test_the_networks_have_the_sources_shapes() -> None:
    grey, coloured = torch.rand(2, 28, 28), torch.rand(2, 3, 32, 32)
    for model, x in ((clove_mnist(), grey), (pfllib_cnn(1, 28), grey), (pfllib_cnn(3, 32), coloured)):
        assert model(x).shape == (2, 10)
    whole = clove_cifar()
    assert whole(coloured).shape == (2, 10)
    layers = {name.split(".")[0] for name, _ in whole.named_parameters()}
    assert layers == {*ALL_BUT_HEAD, HEAD}


@pytest.mark.parametrize("name", ANCHORS)
def test_every_row_of_every_anchor_has_a_recipe(name: str) -> None:
    anchor: Anchor = ANCHORS[name]
    for change in anchor.methods.values():
        Recipe(**{**anchor.recipe, **change})
    assert set(anchor.published) <= set(anchor.methods)


def test_fashion_mnist_is_trained_on_where_it_is(tmp_path: Path) -> None:
    """The same two settings on the user's files, which are those of another set in MNIST's format."""
    assert [anchor.setting for anchor in pfllibs(str(tmp_path))[4:]] == [
        "Fashion-MNIST, two labels each",
        "Fashion-MNIST, Dirichlet(0.1)",
    ]
    assert pfllibs(str(tmp_path))[4].published == pfllibs(None)[0].published
    draw = np.random.default_rng(0)
    for part, n in (("train", 20_000), ("t10k", 5_000)):
        for kind, shape in (("images-idx3", (n, 28, 28)), ("labels-idx1", (n,))):
            head = b"\0\0\x08" + bytes([len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
            values = draw.integers(0, 10, shape, dtype=np.uint8)
            (tmp_path / f"{part}-{kind}-ubyte").write_bytes(head + values.tobytes())
    federation = pfllibs(str(tmp_path))[4].make(1)
    assert len(federation.train) == 20
    assert {len(set(federation.train.arrays(i)[1].tolist())) for i in range(20)} == {2}


def test_units_go_seed_by_seed() -> None:
    found = units("SR-FCA", ("ifca", "sr-fca"), None)
    assert [(unit.algorithm, unit.seed) for unit in found[:3]] == [("ifca", 1), ("sr-fca", 1), ("ifca", 2)]
    with pytest.raises(InvalidInput, match="no setting has nothing in its name"):
        units("nothing", (), None)
    with pytest.raises(InvalidInput, match="no row is called magic"):
        units("", ("magic",), None)


def test_the_linear_mixture_is_as_described() -> None:
    federation, star = anchor_linear.mixture(1)
    true = federation.train.true_cluster
    assert true is not None
    assert [(true == j).sum() for j in range(5)] == [38] * 5
    assert len(set(true[190:])) == 10  # each of its own
    assert star.norm(dim=1) == pytest.approx([3.0] * 5, abs=1e-5)


def test_rows_are_means_over_seeds_beside_the_published_number() -> None:
    name = "CLoVE: MNIST turned, 4 x 10 clients x 500"
    line: dict[str, Any] = {"setting": name, "algorithm": "clove", "seconds": 2.0, "device": "gpu"}
    line |= {"commit": "c", "versions": {"ifca": "1"}}
    lines = [{**line, "seed": seed, "accuracy": 0.9 + seed / 100, "ari": 1.0} for seed in (1, 2, 3)]
    lines += [{**line, "algorithm": "ifca", "seed": 1, "diverged": "because"}]
    rows = summary(lines, ANCHORS, LINEAR)["rows"]
    assert [row["method"] for row in rows] == ["ifca", "clove"]
    assert (rows[0]["mean"], rows[0]["diverged"]) == (None, [1])
    assert (rows[1]["mean"], rows[1]["std"], rows[1]["published"]) == (92.0, 1.0, 97.7)
    assert "| clove | 92.0 ± 1.0 (3) | 97.7 | 1.00 |" in table({"rows": rows})


def test_the_page_shows_the_table_of_the_lines() -> None:
    lines = read_lines(FOLDER)
    assert all(line["commit"] and "dirty" not in line["commit"] for line in lines)
    found = summary(lines, ANCHORS, LINEAR)
    assert json.loads((FOLDER / "summary.json").read_text()) == json.loads(json.dumps(found))
    assert (FOLDER / "table.md").read_text() == table(found)
    assert table(found) in (ROOT / "docs" / "anchors.md").read_text()
