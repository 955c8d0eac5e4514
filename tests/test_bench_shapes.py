"""Users' shapes as 'ifca bench' times them: what each is, what is said of it, and the table of the docs."""

from __future__ import annotations

import json
import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ifca.bench.shapes import SHAPES, client_sizes, shape_job
from ifca.bench.users import bench_shape, path_of
from ifca.bench.work import exact_flops, round_work
from ifca.cli.benching import SHAPES as LISTED
from ifca.cli.main import app
from ifca.core.errors import InvalidInput
from ifca.engines.covered import NOT_EXACT, NOT_FUSED, not_covered, not_exact, not_fused

CPU, ROOT = torch.device("cpu"), Path(__file__).parent.parent


def test_a_row_says_how_fast_how_near_to_the_machine_and_where() -> None:
    rows = bench_shape("table", scale=0.007, device=CPU, rounds=2)
    assert [row["contestant"] for row in rows] == ["loop", "ifca-plain", "ifca"]
    loop, plain, default = rows
    assert loop["ratio_to_loop"] == 1
    assert [loop["path"], plain["path"], default["path"]] == ["loop", "exact", "exact"]
    for row in rows:
        assert len(row["seconds"]) == 2
        assert 0 < row["best_seconds"] <= row["seconds_per_round"]
        assert row["first_round_seconds"] > 0
        assert row["product_share"] > 0
        assert row["memory_share"] > 0
        assert {"commit", "versions", "load", "threads", "device"} <= set(row)
    assert default["times_plain"] > 0
    assert plain["not_covered"]["exact"] == []
    json.dumps(rows)


def test_a_method_without_clusters_has_no_default_beside_it() -> None:
    rows = bench_shape("local", scale=0.007, device=CPU, rounds=1, contestants=("local",))
    assert [row["contestant"] for row in rows] == ["local"]
    assert rows[0]["ratio_to_loop"] is None


def test_shapes_are_what_their_names_say() -> None:
    jobs = {name: shape_job(name, 0.007, CPU) for name in SHAPES}
    assert ", ".join(SHAPES) == LISTED
    assert jobs["uneven"].federation.train.sizes.max() > 2 * jobs["uneven"].federation.train.sizes.min()
    assert jobs["float"].federation.train.x.dtype == torch.float32
    assert jobs["table"].federation.input_shape == (64,)
    assert jobs["partial"].recipe.participation == 0.1
    assert len(list(jobs["deep"].template.parameters())) == 6
    assert set(jobs["tiny"].federation.train.sizes) == {25}
    assert jobs["minibatch"].recipe.batch_size == 20
    assert jobs["local"].method.personal
    assert jobs["paper"].federation.train.x.dtype == torch.uint8
    sizes = client_sizes(1000, 200, 1.0, np.random.default_rng(0))
    assert abs(sizes.mean() - 200) < 1
    assert sizes.min() >= 2


def test_the_work_of_a_round_can_be_counted_on_paper() -> None:
    """Two clients of 3 and 5 samples; h = 200, d = 784, c = 10, tau = 10; all k = 4 models are judged."""
    job = shape_job("paper", 0.007, CPU)
    flops, entries = exact_flops(job, np.array([3.0, 5.0]), 4)
    judged, summed, moves, later = 8 * 784 * 200 * 4, 8 * 784 * 200, 9 * (9 + 25) * 200, 8 * 2000 * (4 + 30)
    assert flops == 2 * (judged + summed + moves + later)
    assert entries == 34
    everybody = round_work(job, 4)
    tenth = round_work(shape_job("partial", 0.007, CPU), 4)
    assert tenth.bytes < everybody.bytes


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, []),
        ({"optimizer": "momentum", "proximal": 0.1}, []),
        ({"weight_decay": 0.1}, ["optimizer other than sgd and momentum, weight_decay"]),
        ({"proximal": 0.1, "batch_size": 10}, ["momentum or proximal with batch_size"]),
        ({"l2": 0.1}, ["l2 of the first layer"]),
        ({"l2": 0.1, "l2_layers": ("fc2",)}, []),
        ({"check_updates": True}, ["check_updates"]),
        ({"algorithm": "fedrep"}, ["methods whose clients do more than the paper's turn"]),
    ],
)
def test_one_function_says_what_is_not_covered(settings: dict[str, Any], said: list[str]) -> None:
    job = shape_job("paper", 0.007, CPU, **settings)
    assert not_exact(job.task, job.recipe) == said
    assert path_of(job) == ("vmap" if said else "exact")
    assert "there is no GPU" in not_fused(job.task, job.recipe, job.federation.train, CPU)
    assert not_covered() == {"exact": list(NOT_EXACT), "kernels": list(NOT_FUSED)}


@pytest.mark.parametrize(
    ("value", "wide"), [(4096.0, False), (-5e3, True), (math.inf, True), (math.nan, True)]
)
def test_kernels_leave_features_alone_that_fp16_does_not_hold(value: float, wide: bool) -> None:
    """One value of one client would decide how exact all others' are."""
    job = shape_job("float", 0.007, CPU)
    job.federation.train.x[5, 3] = value
    said = not_fused(job.task, job.recipe, job.federation.train, CPU)
    assert any("features beyond 4,096" in one for one in said) == wide
    assert not not_exact(job.task, job.recipe)


def test_the_command_lists_it_and_refuses_what_is_no_shape() -> None:
    listed = CliRunner().invoke(app, ["bench", "--not-covered"])
    assert listed.exit_code == 0
    assert all(reason in listed.stdout for reason in (*NOT_EXACT, *NOT_FUSED))
    with pytest.raises(InvalidInput, match="unknown shape unequal"):
        bench_shape("unequal", device=CPU)
    with pytest.raises(InvalidInput, match="scale must be"):
        bench_shape("uneven", scale=0, device=CPU)
    with pytest.raises(InvalidInput, match="unknown contestant fast"):
        bench_shape("table", scale=0.007, device=CPU, contestants=("fast",))


def test_the_tables_of_the_docs_are_made_from_what_was_measured() -> None:
    made = runpy.run_path(str(ROOT / "tools" / "docs_speed.py"))
    page = (ROOT / "docs" / "performance.md").read_text()
    assert made["with_tables"](page) == page
