"""Who is rejected three times in a row is left out, and when that says that the step is too long."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ifca import Client, Diverged, Federation
from ifca.core.recipe import Recipe
from ifca.core.rejections import forgiven, in_a_row, left_out, spoiled, too_many
from ifca.core.replies import Rejection
from ifca.models import linear
from ifca.training import Job, fit
from ifca.training.checked import rejected_in


class TestByHand:
    def test_rejections_in_a_row(self) -> None:
        """Client 4 is rejected twice and then used; client 7 is rejected a third time; 9 is not there."""
        before = torch.zeros(10, dtype=torch.long)
        before[4], before[7], before[9] = 2, 2, 1
        asked, used = torch.tensor([4, 7, 9]), torch.tensor([True, False, False])
        after = in_a_row({"in_a_row": before}, 10, asked, [Rejection(1, "too-large", "")], used)
        assert after["in_a_row"][[4, 7, 9]].tolist() == [0, 3, 1]
        assert torch.nonzero(left_out(after, 10)).flatten().tolist() == [7]

    def test_most_clients_of_a_model_without_numbers(self) -> None:
        """Three of five of model 0 make the model bad; two of four, or two of a model with others, do not."""
        nan = [Rejection(row, "not-finite", "", 0) for row in range(3)]
        assert spoiled(torch.tensor([0, 0, 1]), nan) == (
            "3 of 5 clients of a model reply with a loss or an update that is not finite"
        )
        assert spoiled(torch.tensor([0, 0, 1]), nan[:2]) is None
        assert spoiled(torch.tensor([1]), nan[:2]) is None
        assert spoiled(torch.tensor([]), nan[:2]) is not None

    def test_more_clients_than_may_attack_are_forgiven_three_times(self) -> None:
        """Of ten two may attack; a third that stands out says that it is the step."""
        row, step = torch.tensor([3, 3, 3, 2] + [0] * 6), torch.tensor([1, 1, 1, 1] + [0] * 6)
        checks = {"in_a_row": row, "of_step": step, "forgiven": torch.zeros(10, dtype=torch.long)}
        assert too_many({**checks, "in_a_row": row.where(row < 3, 3 * torch.eye(10).long()[0])}, 0.2) is None
        assert "the changes of 3 of 10 clients" in str(too_many(checks, 0.2))
        assert too_many(checks, 0.3) is None
        assert too_many({**checks, "of_step": torch.tensor([1, 1] + [0] * 8)}, 0.2) is None
        for _ in range(3):
            after, again = forgiven(checks)
            assert after["in_a_row"].tolist() == [0] * 10
            assert torch.nonzero(again).flatten().tolist() == [0, 1, 2]
            checks = {**after, "in_a_row": row}
        assert too_many(checks, 0.2) is None
        assert forgiven(checks)[0]["in_a_row"].tolist() == row.tolist()
        assert forgiven({})[0] == {}


def uneven(step: float) -> Job:
    """Six clients have y = 2x at x = 1, four y = 4x at x = 3, where full-batch steps above 1/9 grow."""
    laws = [(1.0, 2.0)] * 6 + [(3.0, 4.0)] * 4
    clients = [Client(np.full((4, 1), x), np.full(4, slope * x)) for x, slope in laws]
    recipe = Recipe("global", rounds=20, step_size=step, on_divergence="halve", check_updates=True)
    return Job(Federation.from_clients(clients), recipe, lambda: linear(1), precision="float64")


def test_a_step_that_is_too_long_for_many_is_halved_and_nobody_left_out() -> None:
    """Ten steps of 0.4 take what is wrong at x = 3 times 6.2^10, those of 0.1 times 0.8^10.

    Then the slope is (6 * 2 + 4 * 4) / 10 = 2.8, and the mean loss (6 * 0.8^2 + 4 * 3.6^2) / 10 = 5.568.
    """
    fitted = fit(uneven(0.4))
    found = rejected_in(fitted.history)
    assert [event["step_size"] for event in fitted.state.progress.halved] == [0.2, 0.1]
    assert fitted.state.progress.halved[0]["because"].startswith(
        "training diverged: in round 3 the changes of 4 of 10 clients were too large or no numbers 3 times"
    )
    assert (found["why"], found["left_out"]) == ({"too-large": 16}, {})  # two rounds of each step are kept
    assert fitted.train_loss == pytest.approx(5.568, rel=1e-3)


def test_where_nobody_has_numbers_the_step_is_halved() -> None:
    """Ten steps of 1e38, or of 1e38 / 1024, are no numbers: that is the step and not the clients."""
    with pytest.raises(Diverged, match=r"10 of 10 clients of a model .* \(it was halved 10 times\)"):
        fit(uneven(1e38))
