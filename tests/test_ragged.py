"""Clients of unequal sizes: buckets without padding to the largest, and the same results as the loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ifca.core.averages import fold, zero_sum
from ifca.core.buckets import groups, rows_of, widths
from ifca.core.recipe import Recipe
from ifca.core.replies import Needs
from ifca.core.sketch import make_sketch
from ifca.data import Client, Federation
from ifca.engines import aside
from ifca.engines.aside import WithAside
from ifca.engines.gram import chunks
from ifca.engines.gram.chunks import Grams, load, places
from ifca.engines.gram.fast import FastEngine
from ifca.engines.gram.gram_steps import Scratch
from ifca.models import linear, logistic, mlp
from ifca.training import Job, fit
from ifca.training.start import start

SIZES = (1, 2, 7, 7, 8, 20, 60, 61)  # above 50 the factors of a Gram matrix are cheaper


def uneven(*, pixels: bool, classes: int | None = 3) -> Federation:
    rng = np.random.default_rng(0)
    clients = []
    for i, n in enumerate(SIZES):
        x = rng.integers(0, 256, (n, 25), dtype=np.uint8) if pixels else rng.normal(size=(n, 25))
        y = rng.integers(0, 3, n) if classes else rng.normal(size=n)
        clients.append(Client(x, y, id=f"c{i}"))
    return Federation.from_clients(clients, classes=classes)


class TestBuckets:
    def test_a_bucket_ends_where_it_would_have_too_much_padding(self) -> None:
        """From 10 down: 9 costs 1 row, two of 8 cost 4 more, which is more than 3; 3 begins anew after 7."""
        sizes = np.array([3, 10, 8, 9, 8, 7])
        assert widths(sizes, 3).tolist() == [3, 10, 8, 10, 8, 8]
        assert widths(sizes, 0).tolist() == sizes.tolist()
        assert widths(sizes, 100).tolist() == [10] * 6

    def test_those_of_one_size_are_never_parted(self) -> None:
        assert widths(np.array([5] * 100 + [6]), 3).tolist() == [5] * 100 + [6]

    def test_nobody_is_padded_to_the_largest(self) -> None:
        sizes = np.maximum(1, np.random.default_rng(0).lognormal(5, 1, 2000)).astype(np.int64)
        wide = widths(sizes, 2**8)
        assert (wide >= sizes).all()
        assert wide.sum() < 1.05 * sizes.sum()
        assert len(np.unique(wide)) < 100

    def test_groups_hold_everybody_once(self) -> None:
        sizes = np.array([3, 10, 8, 9, 8, 7])
        found = [some.tolist() for some in groups(sizes, 3, 17)]
        assert sorted(i for some in found for i in some) == list(range(6))
        assert found == [[0], [2, 4], [5], [1], [3]]

    def test_rows_of_some_clients(self) -> None:
        assert rows_of(np.array([0, 2, 5, 6]), np.array([2, 0])).tolist() == [5, 0, 1]

    def test_chunks_hold_clients_of_one_width(self) -> None:
        width, sizes = torch.tensor([4, 9, 4, 9, 4]), torch.tensor([3, 9, 4, 9, 4])
        asked, known = torch.tensor([True, True, True, True, False]), torch.tensor([-1, -1, -1, -1, 0])
        found = [place.tolist() for place in places(width, sizes, asked, known, lambda rows: 8 // rows or 1)]
        assert found == [[1], [3], [2, 0], [4]]


def test_what_is_loaded_is_each_clients_own() -> None:
    clients = uneven(pixels=True).train
    chunk = load(clients, np.array([2, 4]), 9, torch.empty(0, dtype=torch.float64), Scratch())
    assert chunk.x.shape == (2, 9, 25)
    for row, i in enumerate((2, 4)):
        own = clients.one(i, torch.device("cpu"), torch.float64)
        n = len(own.x)
        assert torch.equal(chunk.x[row, :n] * chunk.scale, own.x * 255 * chunk.scale)
        assert torch.equal(chunk.y[row, :n], own.y)
        assert chunk.weight[row].tolist() == [1 / n] * n + [0] * (9 - n)


def test_gram_matrices_are_kept_bucket_by_bucket_as_far_as_they_fit() -> None:
    """Widths 3, 7 and 200: 2 x 9 entries of at most 8 bytes fit into 8 x 27, 2 x 49 more do not."""
    clients = uneven(pixels=False).train
    width, like = np.array([3, 3, 7, 7, 200, 200, 200, 200]), torch.empty(0, dtype=torch.float64)
    grams = Grams(width, bias=True, budget=8 * 27)
    for _ in range(2):
        for who, wide in ((np.array([0, 1]), 3), (np.array([2, 3]), 7)):
            data = load(clients, who, wide, like, Scratch())
            whole = grams.of(who, data).whole
            assert whole is not None
            torch.testing.assert_close(whole, data.x @ data.x.transpose(1, 2) + 1)
    assert set(grams._all) == {3}


SETTINGS: dict[str, dict[str, Any]] = {
    "full batches": {},
    "weighted": {"weighted": True},
    "gradients": {"option": "gradient"},
    "epochs": {"batch_size": 6, "local_epochs": 2},
    "steps": {"batch_size": 6, "local_steps": 4},
    "one batch": {"batch_size": 5, "option": "gradient"},
    "l2 of the last layer": {"batch_size": 6, "local_epochs": 2, "l2": 0.3, "l2_layers": ("fc2",)},
    "some": {"participation": 0.5, "batch_size": 6, "local_epochs": 1},
    "local": {"algorithm": "local"},
    "local in batches": {"algorithm": "local", "batch_size": 6, "local_epochs": 1},
    "local gradients": {"algorithm": "local", "option": "gradient"},
    "default": {"algorithm": "ifca", "batch_size": 6, "local_epochs": 1, "rounds": 5},
    "shared": {"shared": ("fc1",), "batch_size": 6, "local_epochs": 1},
    "one model": {"algorithm": "global", "batch_size": 4, "local_epochs": 1},
    "median": {"aggregation": "median", "batch_size": 6, "local_epochs": 1},
    "stable": {"stable_after": 1, "batch_size": 6, "local_epochs": 1},
    "private": {"dp_noise": 1e-3, "dp_clip": 0.15},
    "private gradients": {"dp_noise": 1e-3, "dp_clip": 0.6, "option": "gradient"},
    "private, shared": {"dp_noise": 1e-3, "dp_clip": 0.15, "shared": ("fc1",), "batch_size": 6},
}


@pytest.mark.parametrize("pixels", [True, False], ids=["pixels", "floats"])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_fast_path_equals_the_loop(monkeypatch: pytest.MonkeyPatch, name: str, pixels: bool) -> None:
    monkeypatch.setitem(chunks.SPARE, "cpu", 4)  # many buckets
    recipe = Recipe(**{"algorithm": "ifca-plain", "k": 2, "rounds": 2, "local_steps": 3, **SETTINGS[name]})
    hidden = (7, 5) if name in ("epochs", "full batches") else (7,)
    job = Job(uneven(pixels=pixels), recipe, lambda: mlp(25, 3, hidden), precision="float64")
    engine = job.engine_of(job.federation.train)
    assert isinstance(engine, FastEngine)
    loop, fast = fit(replace(job, engine="loop")), fit(job)
    assert torch.equal(loop.labels, fast.labels)
    torch.testing.assert_close(fast.state.theta, loop.state.theta, rtol=1e-9, atol=1e-9)
    for a, b in zip(loop.history, fast.history, strict=True):
        assert a["train_loss"] == pytest.approx(b["train_loss"], rel=1e-9)
        assert a.get("clipped") == b.get("clipped")


@pytest.mark.parametrize("model", [lambda: linear(25, bias=True), lambda: mlp(25, 1, (6,))])
def test_regression_in_mini_batches_equals_the_loop(model: Any) -> None:
    recipe = Recipe("ifca-plain", k=2, rounds=3, batch_size=6, local_epochs=2, step_size=0.01)
    job = Job(uneven(pixels=False, classes=None), recipe, model, precision="float64")
    assert isinstance(job.engine_of(job.federation.train), FastEngine)
    torch.testing.assert_close(fit(job).state.theta, fit(replace(job, engine="loop")).state.theta)


def test_sketches_and_single_updates_of_mini_batches_equal_the_loops() -> None:
    recipe = Recipe("ifca-plain", k=2, rounds=1, batch_size=6, local_epochs=1)
    job = Job(uneven(pixels=True), recipe, lambda: logistic(25, 3), precision="float64")
    theta, who = start(job).theta, torch.arange(len(SIZES))
    needs = Needs(losses=True, sketch=make_sketch(theta, 0, 8), updates=True)
    loop, fast = (
        replace(job, engine=name).make_engine().train(theta, who, torch.full_like(who, -1), 0, needs)
        for name in ("loop", "vectorised")
    )
    torch.testing.assert_close(fast.sketch, loop.sketch)
    torch.testing.assert_close(fast.losses, loop.losses)
    names = frozenset(theta)
    assert loop.updates is not None
    assert fast.updates is not None
    for a, b in zip(loop.updates.blocks(names), fast.updates.blocks(names), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("times", [1, 40])  # 3 clients, or 120 of the same: one by one, and one product
@pytest.mark.parametrize("k", [2, 50])
def test_sums_by_cluster_on_paper(times: int, k: int) -> None:
    """Clients 0, 1, 2 with updates 1, 2, 4 and weights 1, 2, 3, of models 0, 1, 0: 1 + 12 and 4."""
    identity, weight = torch.tensor([0, 1, 0]).repeat(times), torch.tensor([1.0, 2.0, 3.0]).repeat(times)
    update = {"w": torch.tensor([[1.0], [2.0], [4.0]]).repeat(times, 1)}
    total = fold(zero_sum({"w": torch.zeros(k, 1)}), identity, update, weight)
    assert (total.total["w"][:2] / times).tolist() == [[13.0], [4.0]]
    assert (total.weight[:2] / times).tolist() == [4.0, 2.0]
    assert float(total.weight.sum()) == 6.0 * times


def test_local_models_are_summed_in_their_own_precision() -> None:
    """A model per client is not summed with others: m models in double precision are never there."""
    job = Job(uneven(pixels=True), Recipe("local", rounds=1), lambda: mlp(25, 3, (7,)))
    theta, who = start(job).theta, torch.arange(len(SIZES))
    replies = job.make_engine().train(theta, who, who, 0)
    assert {value.dtype for value in replies.total.total.values()} == {torch.float32}
    assert replies.total.weight.tolist() == [1.0] * len(SIZES)


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_large_data_are_parted_without_being_copied(monkeypatch: pytest.MonkeyPatch, engine: Any) -> None:
    """Clients that look into the data of others: the same bits."""
    recipe = Recipe("ifca", k=2, rounds=5, local_steps=2)
    job = Job(uneven(pixels=False), recipe, lambda: mlp(25, 3, (7,)), engine=engine)
    copied = fit(job)
    monkeypatch.setattr(aside, "LARGE", 0)
    made = job.make_engine()
    assert isinstance(made, WithAside)
    kept, held = made._parts
    assert kept.x is job.federation.train.x
    assert (kept.sizes + held.sizes).tolist() == list(SIZES)
    viewed = fit(job)
    for name, value in copied.state.theta.items():
        assert torch.equal(viewed.state.theta[name], value)


def test_a_view_of_a_view_and_its_clients() -> None:
    clients = uneven(pixels=False).train
    kept, _ = clients.parted(0, copied=False)
    copied, _ = clients.parted(0)
    some = kept.subset([5, 2])
    assert some.rows is not None
    assert some.ids == ("c5", "c2")
    cpu = torch.device("cpu")
    for row, i in enumerate((5, 2)):
        assert torch.equal(some.one(row, cpu, torch.float32).x, copied.one(i, cpu, torch.float32).x)
        assert np.array_equal(some.arrays(row)[1], copied.arrays(i)[1])
    both = [one.padded(np.array([1, 6]), cpu, torch.float32) for one in (kept, copied)]
    assert all(torch.equal(a, b) for a, b in zip(*both, strict=True))
    assert kept.keys.tolist() == clients.keys.tolist()
