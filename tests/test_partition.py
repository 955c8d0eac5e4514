"""Partitioners: by hand on tiny arrays, the same call the same federation, laws shared by train and test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ifca.core.errors import InvalidInput
from ifca.data import Deal, Federation, Population, partition
from ifca.data.dealing import Pool, client_sizes, label_shares
from ifca.data.population import blurred, label_map, turned, with_wrong_labels
from ifca.runs.config import read_config, write_config
from ifca.runs.make import make_federation

RNG = np.random.default_rng(0)
X = RNG.random((600, 4, 4)).astype(np.float32)
Y = np.arange(600) % 6
NUMBERS = np.arange(600.0)[:, None]  # a feature that tells the samples apart


def clients_of(federation: Federation, test: bool = False) -> list[tuple[np.ndarray, np.ndarray]]:
    part = federation.test if test else federation.train
    assert part is not None
    return [part.arrays(i) for i in range(len(part))]


def test_an_equal_deal_uses_every_sample_once_and_none_of_the_test_part() -> None:
    federation = partition(NUMBERS, Y, deal=Deal(8, 60, 15))
    train, test = (np.concatenate([x[:, 0] for x, _ in clients_of(federation, t)]) for t in (False, True))
    assert len(train) == len(set(train)) == 480
    assert len(test) == len(set(test)) == 120
    assert set(train) | set(test) == set(range(600))
    for x, y in clients_of(federation):
        assert (x[:, 0] % 6 == y).all()
    assert federation.train.true_cluster is not None
    assert federation.train.true_cluster.tolist() == [0] * 8
    assert federation.test is not None
    assert federation.test.ids == federation.train.ids


def test_a_pool_begins_anew_when_all_are_dealt() -> None:
    pool = Pool(np.array([4, 7, 9]), 0, "here")
    first, second = pool.take(3), pool.take(3)
    assert sorted(first) == sorted(second) == [4, 7, 9]


def test_the_same_call_makes_the_same_federation_and_another_seed_another() -> None:
    def made(seed: int) -> str:
        changes = [Population(turn=20, noise=0.1, wrong_labels=0.2), Population(permutation="random")]
        return partition(X, Y, deal=Deal(6, 30, 10, alpha=0.5), populations=changes, seed=seed).fingerprint

    before = X.copy(), Y.copy()
    assert made(3) == made(3) != made(4)
    assert np.array_equal(X, before[0])
    assert np.array_equal(Y, before[1])


def test_what_is_drawn_for_a_client_does_not_depend_on_how_many_there_are() -> None:
    few, many = (client_sizes(Deal(m, 40, size_sigma=1.2), 5) for m in (3, 30))
    assert few.tolist() == many[:3].tolist()
    x, y = X[:, :1, 0], Y
    two, ten = (clients_of(partition(x, y, deal=Deal(m, 50, 10, alpha=0.2))) for m in (2, 10))
    for a, b in zip(two, ten, strict=False):
        assert np.bincount(a[1], minlength=6).tolist() == np.bincount(b[1], minlength=6).tolist()


def test_lognormal_sizes() -> None:
    sizes = np.concatenate([client_sizes(Deal(500, 100, size_sigma=1.2, least=5), seed) for seed in range(8)])
    assert sizes.min() == 5
    assert 90 < np.median(sizes) < 110
    assert np.log(sizes[sizes > 5]).std() == pytest.approx(1.2, abs=0.12)
    assert set(client_sizes(Deal(5, 7), 0).tolist()) == {7}


def test_shares_of_the_classes() -> None:
    base = np.array([0.5, 0, 0.25, 0.25])
    assert label_shares(Deal(), base, 0, 0).tolist() == base.tolist()
    three = label_shares(Deal(classes_per_client=2), base, 0, 1)
    assert sorted(three.tolist()) == [0, 0, 0.5, 0.5]
    assert three[1] == 0
    most = label_shares(Deal(dominant=0.6), base, 0, 2)
    assert most.sum() == pytest.approx(1)
    assert most.max() >= 0.6
    drawn = np.array([label_shares(Deal(alpha=0.1), base, 0, i) for i in range(400)])
    assert drawn[:, 1].max() == 0
    assert drawn.mean(0) == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3], abs=0.06)
    assert (drawn.max(1) > 0.9).mean() > 0.5  # mostly one class
    assert label_shares(Deal(alpha=1e-9), base, 0, 0).max() == pytest.approx(1)


@pytest.mark.parametrize("deal", [Deal(20, 60, 60, alpha=0.2), Deal(20, 60, 60, classes_per_client=2)])
def test_a_client_is_tested_by_its_own_law(deal: Deal) -> None:
    federation = partition(X, Y, deal=deal)
    pairs = zip(clients_of(federation), clients_of(federation, test=True), strict=True)
    for (_, train), (_, test) in pairs:
        shares = [np.bincount(y, minlength=6) / len(y) for y in (train, test)]
        assert np.abs(shares[0] - shares[1]).sum() < 0.7  # two strangers differ by about 1.5


def test_turns() -> None:
    for quarters in range(5):
        assert np.array_equal(turned(X, 90.0 * quarters), np.rot90(X, quarters, axes=(1, 2)))
    assert np.array_equal(turned(X, -90), np.rot90(X, -1, axes=(1, 2)))
    row, column = np.mgrid[:21, :21] - 10.0
    plane = (column + 30)[None]  # a plane stays a plane, turned; corners come from outside
    angle = np.deg2rad(20)
    expected = np.cos(angle) * column - np.sin(angle) * row + 30
    inside = np.hypot(row, column) < 9
    assert np.allclose(turned(plane, 20)[0][inside], expected[inside])
    near = turned(turned(plane, 89.999999)[:, :, :], 0)
    assert np.allclose(near[0][inside], np.rot90(plane[0])[inside], atol=1e-4)
    colour = RNG.integers(0, 256, (5, 3, 8, 8), dtype=np.uint8)
    assert turned(colour, 30).dtype == np.uint8
    assert np.array_equal(turned(colour, 30)[:, 1], turned(colour[:, 1], 30))


def made_of(population: Population, x: np.ndarray = X, y: np.ndarray = Y) -> tuple[np.ndarray, ...]:
    """All training samples before and after, as the one client of a population."""
    deal = Deal(1, 480, 120)
    parts = [clients_of(partition(x, y, deal=deal, populations=[p]))[0] for p in (Population(), population)]
    return (*parts[0], *parts[1])


def test_changes_of_features() -> None:
    before, _, after, _ = made_of(Population(gain=0.5, offset=0.25))
    assert np.allclose(after, before / 2 + 0.25)
    before, _, after, _ = made_of(Population(invert=True))
    assert np.allclose(after, 1 - before)
    before, _, after, _ = made_of(Population(contrast=0.0))
    assert np.allclose(after, before.mean((1, 2), keepdims=True), atol=1e-6)
    before, _, after, _ = made_of(Population(noise=0.3))
    assert (after - before).std() == pytest.approx(0.3, rel=0.05)
    before, _, after, _ = made_of(Population(drift=1.0), X[:, 0], Y)
    slopes = [np.polyfit(before[:, f], after[:, f], 1) for f in range(4)]
    assert np.allclose([np.polyval(s, before[:, f]) for f, s in enumerate(slopes)], after.T, atol=1e-4)
    assert len({round(float(s[0]), 3) for s in slopes}) == 4  # every sensor its own
    spot = np.zeros((1, 9, 9))
    spot[0, 4, 4] = 1
    assert blurred(spot, 1.0).sum() == pytest.approx(1, abs=1e-3)
    assert blurred(spot, 1.0)[0, 4, 5] == pytest.approx(0.0965, abs=1e-3)  # of a Gaussian on a grid


def test_bytes_stay_bytes_and_are_cut_off() -> None:
    x = RNG.integers(0, 256, (600, 4, 4), dtype=np.uint8)
    before, _, after, _ = made_of(Population(gain=2.0), x)
    assert after.dtype == np.uint8
    assert np.array_equal(after, np.minimum(2 * before.astype(int), 255))
    before, _, after, _ = made_of(Population(invert=True), x)
    assert np.array_equal(after, 255 - before)


def test_changes_of_labels() -> None:
    _, before, _, after = made_of(Population(swap=(1, 4)))
    assert np.array_equal(after, np.array([0, 4, 2, 3, 1, 5])[before])
    _, before, _, after = made_of(Population(permutation=(1, 2, 3, 4, 5, 0)))
    assert np.array_equal(after, (before + 1) % 6)
    maps = [label_map(Population(permutation="random"), 6, 0, j).tolist() for j in range(3)]
    assert all(sorted(one) == list(range(6)) for one in maps)
    assert maps[0] != maps[1] != maps[2]
    y = np.arange(6000) % 6
    wrong = with_wrong_labels(y, 0.3, 6, 0, 0)
    assert (wrong != y).mean() == pytest.approx(0.3, abs=0.03)
    assert set(wrong) == set(range(6))
    assert with_wrong_labels(y, 0.0, 6, 0, 0) is y
    _, before, _, after = made_of(Population(target_gain=-2.0, target_offset=1.0), y=Y.astype(float))
    assert np.allclose(after, 1 - 2 * before)


def test_wrong_labels_are_in_training_only() -> None:
    federation = partition(NUMBERS, Y, deal=Deal(4, 100, 30), populations=[Population(wrong_labels=0.5)])
    wrong, tested = (
        np.mean(np.concatenate([x[:, 0] % 6 != y for x, y in clients_of(federation, test)]))
        for test in (False, True)
    )
    assert wrong == pytest.approx(0.5, abs=0.1)
    assert tested == 0


def test_populations_have_their_clients_and_their_labels() -> None:
    some = [Population(60), Population(30), Population(9), Population(1), Population(clients=1)]
    federation = partition(X, Y, deal=Deal(201, 5, 2), populations=some)
    assert np.bincount(federation.train.true_cluster).tolist() == [120, 60, 18, 2, 1]  # type: ignore[arg-type]
    groups = [Population(labels=(0, 1)), Population(labels=(1, 2, 3))]
    made = partition(X, Y, deal=Deal(4, 40, 20), populations=groups)
    for test in (False, True):
        found = [set(y.tolist()) for _, y in clients_of(made, test)]
        assert found == [{0, 1}, {0, 1}, {1, 2, 3}, {1, 2, 3}]
    assert made.classes == 6


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Deal(0), "clients must be at least 1, got 0"),
        (lambda: Deal(alpha=0.1, dominant=0.5), "alpha and dominant are two kinds of label skew"),
        (lambda: Deal(alpha=0), "alpha must be positive"),
        (lambda: Deal(dominant=2), r"dominant must be in \(0, 1\]"),
        (lambda: Population(0), "share must be positive"),
        (lambda: Population(noise=-1), "noise must be zero or positive"),
        (lambda: Population(wrong_labels=2), "wrong_labels must be from 0 to 1"),
        (lambda: partition(X, Y[:5]), r"x and y must be \[n, ...\] and \[n\]"),
        (lambda: partition(X, Y, X), "x_test and y_test must both be given"),
        (lambda: partition(X, Y, populations=[]), "at least one population"),
        (lambda: partition(X, Y, deal=Deal(1), populations=[Population()] * 2), "do not fill 2 populations"),
        (lambda: partition(X, Y, populations=[Population(labels=(8,))]), "no train sample has one of them"),
        (lambda: partition(X, Y, populations=[Population(swap=(1, 6))]), "swap must name two classes"),
        (
            lambda: partition(X, Y, populations=[Population(permutation=(0, 0))]),
            "each class from 0 to 5 once",
        ),
        (lambda: partition(X, Y * 1.0, deal=Deal(alpha=1.0)), "need class numbers y, got floats"),
        (lambda: partition(X[:, 0], Y, populations=[Population(turn=20)]), "turn and blur are for images"),
        (lambda: partition(X, Y, deal=Deal(classes_per_client=7)), "there are only 6 classes"),
        (lambda: partition(X, Y, test_share=1.0), "leaves a part empty"),
        (lambda: partition(X, Y - 1), "y has the label -1"),
    ],
)
def test_what_cannot_be_dealt_is_one_sentence(call: object, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        call()  # type: ignore[operator]


def test_a_config_can_name_a_partition(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=X, y=Y)
    file = tmp_path / "job.toml"
    file.write_text(
        '[data]\nname = "partition"\nsource = "npz"\npath = "mine.npz"\n'
        "[data.deal]\nclients = 6\nsamples = 30\nalpha = 0.5\n"
        "[[data.populations]]\nshare = 2\n[[data.populations]]\nturn = 90\nswap = [0, 1]\n"
    )
    config = read_config(file)
    made = make_federation(config)
    asked = Deal(6, 30, alpha=0.5), [Population(2.0), Population(turn=90, swap=(0, 1))]
    assert made.fingerprint == partition(X, Y, deal=asked[0], populations=asked[1]).fingerprint
    file.write_text(write_config(config))  # as a run folder keeps it
    assert read_config(file) == config
    for setting, sentence in (
        ("data.deal.alfa=1", "unknown key data.deal.alfa"),
        ("data.deal.alpha=-1", "alpha must be positive"),
        ("data.path=none.npz", "none.npz: no such file"),
        ("data.source=digits", "data.path names the file of data.source"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            make_federation(read_config(file, [setting]))
