"""K-means from ten starts at once: by hand, and beside scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from torch import Tensor

from ifca.methods.k_means import first_centers, k_means, means, nearest


def same_partition(a: Tensor, b: Tensor) -> bool:
    pairs = set(zip(a.tolist(), b.tolist(), strict=True))
    return len(pairs) == len(set(a.tolist())) == len(set(b.tolist()))


def points_of(m: int, q: int, k: int, apart: float, seed: int) -> Tensor:
    rng = np.random.default_rng(seed)
    centers = apart * rng.normal(size=(k, q))
    points = torch.from_numpy(centers[rng.integers(0, k, m)] + rng.normal(size=(m, q)))
    return points - points.mean(0)


def test_two_pairs_by_hand() -> None:
    points = torch.tensor([[-3.0], [-2.0], [2.0], [3.0]]).double()
    assert same_partition(k_means(points, 2), torch.tensor([0, 0, 1, 1]))
    assert len(set(k_means(points, 4).tolist())) == 4


def test_an_outlier_does_not_hide_what_the_others_cost() -> None:
    """Squared, it is so large that differences between starts are lost in the sum."""
    points = torch.tensor([[-1.2], [-1.0], [-0.8], [1.0], [1.2], [3e7]]).double()
    found = k_means(points - points.mean(), 3)
    assert same_partition(found, torch.tensor([0, 0, 0, 1, 1, 2]))


@pytest.mark.parametrize("apart", [0.0, 0.5, 3.0])
@pytest.mark.parametrize(("m", "q", "k"), [(4, 2, 3), (12, 5, 2), (60, 30, 4), (300, 8, 7), (40, 60, 3)])
def test_it_is_scikit_learn_s(m: int, q: int, k: int, apart: float) -> None:
    """The same draws, steps and end, so the same partition; where there are no groups, too."""
    for seed in range(5):
        points = points_of(m, q, k, apart, seed)
        theirs = KMeans(k, n_init=10, random_state=0).fit_predict(points.numpy())
        assert same_partition(k_means(points, k), torch.from_numpy(theirs))


def test_first_centers_are_points_and_differ() -> None:
    points = points_of(20, 3, 2, 1.0, 0)
    found = first_centers(points, points.square().sum(1), 5)
    assert found.shape == (10, 5, 3)
    assert float(torch.cdist(found, points).amin(2).max()) == pytest.approx(0, abs=1e-7)
    assert all(len(torch.unique(start, dim=0)) == 5 for start in found)


def test_a_step_by_hand() -> None:
    """Centers -4, 0 and 9 of points -5, -3, 1, 7: the means are -4, 1 and 7."""
    points = torch.tensor([[-5.0], [-3.0], [1.0], [7.0]]).double()
    before = torch.tensor([[[-4.0], [0.0], [9.0]]]).double()
    group = nearest(points, before).indices
    assert group.tolist() == [[0, 0, 1, 2]]
    assert means(points, group, before).flatten().tolist() == [-4, 1, 7]


def test_a_center_that_nobody_is_next_to_takes_the_farthest_point() -> None:
    points = torch.tensor([[-5.0], [-3.0], [1.0], [7.0]]).double()
    before = torch.tensor([[[-4.0], [0.0], [90.0]]]).double()
    group = nearest(points, before).indices
    assert group.tolist() == [[0, 0, 1, 1]]
    assert means(points, group, before).flatten().tolist() == [-4, 1, 7]
