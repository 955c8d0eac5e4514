"""While clients gather: most decide, no claim of one decides for all, every wait ends and says what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from ifca.data import Client
from ifca.runs.config import Config, read_config

pytest.importorskip("flwr")

from flwr.app import Message
from flwr.serverapp import Grid

from ifca.engines.flower import Roster, TooFewClients
from ifca.engines.flower.agreement import agreed
from ifca.engines.flower.local_grid import LocalGrid
from ifca.engines.flower.members import Member
from ifca.engines.flower.moments import capped, scaling_of
from ifca.federation.apps import client_app
from ifca.federation.serverapp import serve

SMALL = ["algorithm=ifca-plain", "k=2", "rounds=2", "model.hidden=[8]", "device=cpu", "baselines=[]"]
SMALL += ["evaluate_every=0", "federation.round_timeout=0.5", "federation.gather_timeout=0.7"]
SMALL += ["data={name='folder', path='.'}", "federation.clients=4"]


def client(i: int, features: int = 6, classes: int = 3) -> Client:
    rng = np.random.default_rng(i)
    x = rng.normal(size=(30, features)).astype(np.float32)
    return Client(x, rng.integers(0, classes, 30), id=f"c{i}")


def grid_of(config: Config, make: Callable[[int], Client], m: int = 5) -> LocalGrid:
    return LocalGrid(client_app(config, lambda context: make(int(context.node_config["partition-id"]))), m)


def served(grid: Grid, config: Config, out: Path) -> tuple[dict[str, Any], list[str]]:
    said: list[str] = []
    return serve(grid, config, out, poll=0.01, say=said.append), said


def test_the_majority_decides_what_kind_the_samples_are(tmp_path: Path) -> None:
    """The one that came first has five features, the four others six."""
    config = read_config(None, SMALL)
    summary, said = served(grid_of(config, lambda i: client(i, 5 if i == 0 else 6)), config, tmp_path / "run")
    assert summary["clients"] == 4
    assert summary["faults"] == {"refused": 1}
    assert said[-1] == "c1, c2, c3 and 1 more joined: 4 of 4 clients"


def test_who_comes_later_with_more_classes_is_refused_and_the_run_goes_on(tmp_path: Path) -> None:
    config = read_config(None, SMALL)
    grid = grid_of(config, lambda i: client(i, classes=7 if i == 4 else 3))
    grid.connected.discard(5)

    class Late(type(grid)):  # type: ignore[misc]
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            messages = list(messages)
            if any(message.metadata.message_type == "train" for message in messages):
                self.connected.add(5)
            return super().push_messages(messages)  # type: ignore[no-any-return]

    grid.__class__ = Late
    summary, _ = served(grid, config, tmp_path / "run")
    assert summary["faults"] == {"refused": 1}
    assert "its labels are of 7 classes, the models' of 3" in (tmp_path / "run" / "faults.jsonl").read_text()


class Named(LocalGrid):
    """A grid whose nodes were registered under names, with their keys."""

    def get_nodes(self) -> Iterable[Any]:
        return [type("Node", (), {"node_id": n, "name": f"c{n - 1}"}) for n in self.get_node_ids()]


def test_a_key_is_that_of_one_client(tmp_path: Path) -> None:
    """Client 4 comes first and says that it is c0: it is refused, and c0 itself is not."""
    config = read_config(None, SMALL)
    grid = grid_of(config, lambda i: client(0 if i == 4 else i))
    grid.__class__ = Named
    grid.connected = {5}
    with pytest.raises(TooFewClients, match=r"0 of 4 clients; 1 more connected, .*its key is that of 'c4', "):
        serve(grid, config, tmp_path / "run", poll=0.01)
    grid.connected |= {1, 2, 3, 4}
    summary, _ = served(grid, config, tmp_path / "run")
    assert summary["clients"] == 4
    assert summary["faults"] == {"refused": 2}


def test_every_wait_says_what_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node never says who it is, and one fails: the line says so, and the run ends by its deadline."""
    monkeypatch.setattr("ifca.federation.client_manager.QUERY_TIMEOUT", 0.1)
    monkeypatch.setattr("ifca.engines.flower.exchange.TELL_EVERY", 0.05)
    config, said = read_config(None, [*SMALL, "federation.gather_timeout=3"]), list[str]()

    class Silent(LocalGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            found = list(super().pull_messages(message_ids))
            return [reply for reply in found if reply.metadata.src_node_id != 5]

    def make(i: int) -> Client:
        if i == 3:
            raise OSError("no disk")
        return client(i)

    grid = grid_of(config, make)
    grid.__class__ = Silent
    with pytest.raises(TooFewClients, match=r"^3 of 4 clients; 2 more connected, .* after 3 s without a new"):
        serve(grid, config, tmp_path / "run", poll=0.01, say=said.append)
    assert any(line.startswith("waiting for the reply of node 5 to 'query'; given up in ") for line in said)
    assert "c0, c1, c2 joined: 3 of 4 clients" in said
    told = next(
        line for line in said if line.startswith("3 of 4 clients; 2 more connected, but did not join")
    )
    assert "raised (OSError: no disk); given up in " in told


def test_who_is_late_with_its_statistics_is_asked_who_it_is(tmp_path: Path) -> None:
    """Its reply to the first question comes after the timeout; then it describes itself, and takes part."""
    config = read_config(None, [*SMALL, "federation.clients=5", "federation.gather_timeout=5"])
    grid = grid_of(config, client)

    class Late(LocalGrid):
        held: ClassVar[dict[str, Message]] = {}

        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            asked = list(message_ids)
            if asked[0] in self.held:
                self._replies |= self.held
            found = list(super().pull_messages(asked))
            if not self.held and len(found) == 5:
                late = found.pop()
                self.held[late.metadata.reply_to_message_id] = late
            return found

    grid.__class__ = Late
    assert served(grid, config, tmp_path / "run")[0]["clients"] == 5


def member(i: int, **facts: Any) -> Member:
    known: dict[str, Any] = {"place": i, "samples": 10, "test_samples": 0, "input_shape": (1,), "classes": 3}
    known |= {"target_shape": (), "pixels": False, "cluster": None, "node": i + 1}
    return Member(f"c{i}", **known | facts)


def test_no_claim_of_classes_decides_for_all() -> None:
    honest = [member(i, classes=2 + i) for i in range(3)]
    taken, refused = agreed([member(9, classes=100_000), *honest])
    assert [one.id for one in taken] == ["c0", "c1", "c2"]
    assert next(iter(refused.values())).startswith("it says that it has labels of 100000 classes, and no ")
    assert not agreed([*honest, member(9, classes=40)])[1]  # ten times as many may be right
    assert len(agreed([member(9, classes=4), *honest], classes=3)[1]) == 2  # the config says how many


def test_no_claim_about_features_makes_the_others_vanish() -> None:
    """Means 0, 1, 2 and variances 1 reach 1 or sqrt 2 from the middle; who goes farther counts 10 times."""
    means, variances = torch.tensor([[0.0], [1.0], [2.0]]), torch.ones(3, 1)
    assert all(map(torch.equal, capped(means, variances), (means, variances)))
    told = [(10, (0.0, 1.0)), (10, (1.0, 1.0)), (10, (2.0, 1.0)), (2**31 - 1, (1e100, 1e100))]
    honest, lied = scaling_of(told[:3], (1,)), scaling_of(told, (1,))
    assert honest is not None
    assert lied is not None
    assert float(honest.scale) == pytest.approx((5 / 3) ** 0.5)
    reach = 10 * 2**0.5  # c2 is 1 from the middle (the lower median, 1), with a deviation of 1
    assert float(lied.scale) < reach * 1.001
    assert abs(float(lied.mean) - 1) < reach * 1.001
    rare = torch.tensor([[0.0], [0.0], [0.3]])  # a feature that one client has alone
    assert torch.equal(capped(rare, rare)[0], rare)


def test_no_claim_of_samples_decides_the_weights_of_classes() -> None:
    honest = [member(i, classes=2, class_counts=(5, 5)) for i in range(3)]
    liar = member(9, classes=2, samples=2**31 - 1, class_counts=(2**31 - 1, 0))
    assert Roster((*honest, liar)).federation().class_counts == (15 + 30, 15)
    assert Roster(tuple(honest)).federation().class_counts == (15, 15)
