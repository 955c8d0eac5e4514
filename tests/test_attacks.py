"""Attacks: each formula by hand, the same in every engine, who attacks, and over whom results are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.anchor_linear import STRAY, mixture
from benchmarks.robust import units
from benchmarks.robust_table import summary, table
from torch import Tensor
from typer.testing import CliRunner

from ifca.cli.main import app, main
from ifca.core.attacks import KINDS, Attack, Block, Seen, attackers
from ifca.core.attacks.omniscient import alie, inner_product, mimic, min_max, supported
from ifca.core.attacks.on_clusters import boosted, drag, smallest, worst_fitting
from ifca.core.attacks.on_data import backdoor, label_flip, triggered
from ifca.core.attacks.single_client import gaussian, scale, sign_flip
from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.core.replies import Part
from ifca.data import Federation, rotated_digits
from ifca.report.badly_served import spoiled_clusters
from ifca.report.page import page
from ifca.report.read_run import read_run
from ifca.runs.attack_config import AttackConfig
from ifca.runs.config import read_config, write_config
from ifca.runs.rehearse import rehearse
from ifca.runs.run import resume, run
from ifca.runs.units.lines import read_lines
from ifca.training import Job, fit
from ifca.training.attack_effect import backdoor_success
from ifca.training.poisoned import poisoned
from tests.conftest import groups, make_job, scalar_job
from tests.test_contract import assert_same

SMALL = ["rounds=3", "data.samples=150", "data.angles=[0, 90]", "model.hidden=[8]", "device=cpu"]


def seen(honest: list[list[float]], own: list[list[float]], strength: float | None = None) -> Seen:
    """Two coordinates, a block each: what attackers send may not depend on blocks."""
    h, a = torch.tensor(honest, dtype=torch.float64), torch.tensor(own, dtype=torch.float64)
    toward = torch.tensor([5.0, 1.0], dtype=torch.float64)

    def blocks() -> Iterator[Block]:
        for c in (0, 1):
            yield Block(h[:, c : c + 1], a[:, c : c + 1], Part("w", c, 1))

    def noise(part: Part) -> Tensor:
        return torch.full((len(a), 1), part.start + 0.5, dtype=torch.float64)

    return Seen(blocks, strength, noise, lambda part: toward[part.start : part.start + part.width])


def sent(what: Iterator[Tensor]) -> list[Any]:
    return torch.cat(list(what), -1).tolist()


class TestFormulas:
    def test_one_client_alone(self) -> None:
        assert sent(sign_flip(seen([[0, 0]], [[1, -2]], 1.0))) == [[-1, 2]]
        assert sent(scale(seen([[0, 0]], [[1, -2]], 100.0))) == [[100, -200]]
        assert sent(gaussian(seen([[0, 0]], [[1, -2], [3, 4]], 2.0))) == [[1, 3], [1, 3]]

    def test_inner_product(self) -> None:
        assert sent(inner_product(seen([[1, 0], [3, 4]], [[9, 9]], 2.0))) == [-4, -4]

    def test_alie(self) -> None:
        """Means 1 and 2, standard deviations 1 and 2."""
        assert sent(alie(seen([[0, 0], [2, 4]], [[9, 9]], 1.5))) == [2.5, 5]
        assert supported(4, 1) == 0  # s = 2 of 4 honest clients, Phi^-1(1/2)
        assert supported(7, 3) == pytest.approx(0.18001, abs=1e-5)  # s = 3, Phi^-1(4/7)
        assert supported(1, 5) == 0

    def test_min_max(self) -> None:
        """D = 45, between (3, 0) and (-3, -3); both std are sqrt 6 and g = sqrt 1.5 reaches D to (3, 0)."""
        assert sent(min_max(seen([[3, 0], [0, 3], [-3, -3]], [[9, 9]]))) == pytest.approx([-3, -3])
        assert sent(min_max(seen([[1, 2]], [[9, 9]]))) == [1, 2]

    def test_mimic_takes_the_one_farthest_from_the_mean(self) -> None:
        assert sent(mimic(seen([[0, 0], [1, 0], [10, 2]], [[9, 9]]))) == [10, 2]

    def test_drag(self) -> None:
        """Towards (5, 1): ((1, 0) + (3, 0) + 2 (8, 2)) / 4 = (5, 1)."""
        assert sent(drag(seen([[1, 0], [3, 0]], [[9, 9], [9, 9]], 1.0))) == [8, 2]

    def test_boosted(self) -> None:
        assert sent(boosted(seen([[0, 0]] * 3, [[1, -2]]))) == [[4, -8]]
        assert sent(boosted(seen([[0, 0]] * 3, [[1, -2]], 10.0))) == [[10, -20]]

    def test_claims(self) -> None:
        own, losses = torch.tensor([0, 1]), torch.tensor([[0.1, 0.9, 0.5], [torch.nan, 0.2, torch.nan]])
        assert smallest(torch.tensor([0, 0, 2, 1, 1]), own, losses).tolist() == [2, 2]
        assert worst_fitting(torch.tensor([0]), own, losses).tolist() == [1, 1]

    def test_data(self) -> None:
        y = torch.tensor([0, 1, 2, 2])
        assert label_flip(torch.zeros(4, 1), y, 3, y)[1].tolist() == [2, 1, 0, 0]
        x, labels = backdoor(torch.arange(16.0).reshape(4, 4), y, 3, torch.tensor([1, 2, 3, 4]))
        assert labels.tolist() == [0, 1, 0, 2]
        assert x[:, 3].tolist() == [15, 7, 15, 15]  # the largest value is 15
        assert triggered(torch.zeros(1, 8, 8), 1.0).sum() == 4
        assert triggered(torch.zeros(1, 28, 28, dtype=torch.uint8), 255).sum() == 9 * 255


def attack_on(those: Any, name: str, **options: Any) -> Attack:
    return attackers(name, ids=those.ids, keys=those.keys, true=those.true_cluster, **options)


def scalars(name: str, who: str, **recipe: Any) -> list[float]:
    """Models 0 and 10 after a round. Clients 0 to 2 have y = 2 and go from 0 to 1, client 3 has y = 10."""
    points = [(1.0, 2.0), (1.0, 2.0), (1.0, 2.0), (1.0, 10.0)]
    given = {"algorithm": "ifca-plain", "k": 2, "rounds": 1, "local_steps": 1, "step_size": 0.25, **recipe}
    job = scalar_job(points, [0.0, 10.0], Recipe(**given))
    found = fit(replace(job, attack=attack_on(job.federation.train, name, clients=[who])))
    return found.state.theta["fc1.weight"].flatten().tolist()


def test_a_round_by_hand() -> None:
    assert scalars("sign-flip", "0") == pytest.approx([1 / 3, 10])  # (1 + 1 - 1) / 3
    assert scalars("scale", "0") == pytest.approx([102 / 3, 10])
    assert scalars("misreport", "0") == pytest.approx([1, 5.5])  # (10 + 1) / 2
    assert scalars("drag", "0") == pytest.approx([10, 10])
    assert scalars("concentrate", "0") == pytest.approx([1, 10])  # nothing moves in cluster 1
    assert scalars("inner-product", "0") == pytest.approx([0, 10])  # (1 + 1 - 2) / 3
    assert scalars("lie-losses", "0") == pytest.approx([1, 10])
    assert scalars("sign-flip", "0", aggregation="median") == pytest.approx([1, 10])
    # Option I: each gradient of clients 0 to 2 is -4, and m = 4: 0 + 0.25 / 4 (4 + 4 - 4).
    assert scalars("sign-flip", "0", option="gradient") == pytest.approx([0.25, 10])


@pytest.mark.parametrize("name", KINDS)
def test_every_attack_is_the_same_in_every_engine(name: str, unequal: Federation) -> None:
    recipe = Recipe(algorithm="ifca-plain", k=2, rounds=3, local_steps=3, seed=3)
    strength = 0.5 if name == "drag" else None  # two equal models are chosen by rounding
    attack = attack_on(unequal.train, name, share=0.5, strength=strength)
    job = replace(make_job(unequal, recipe), attack=attack)
    oracle = fit(replace(job, engine="loop"))
    assert_same(oracle, fit(job))
    assert_same(oracle, fit(replace(job, fast_path=False)))
    unharmed = fit(replace(job, attack=None))
    same = [torch.equal(v, unharmed.state.theta[n]) for n, v in oracle.state.theta.items()]
    assert name == "lie-losses" or not all(same)  # plain IFCA does not listen to losses


def test_who_attacks(unequal: Federation) -> None:
    """Clusters have 4 and 3 clients; larger shares hold the smaller ones."""
    some, more = (attack_on(unequal.train, "scale", share=share) for share in (0.25, 0.5))
    assert len(some.rows) == 1
    assert some.rows[0] in more.rows
    assert len(more.rows) == 2
    assert all(i % 2 == 0 for i in more.rows)  # of true cluster 0, the first
    assert all(i % 2 for i in attack_on(unequal.train, "scale", cluster=1, share=0.7).rows)
    assert len(attack_on(unequal.train, "concentrate", share=0.6).rows) == 4  # of all 7
    assert attack_on(unequal.train, "mimic", clients=["c4", "c1"]).rows == (1, 4)
    unknown = replace(unequal.train, true_cluster=None)
    assert len(attack_on(unknown, "scale", share=0.3).rows) == 2  # of all 7


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": "foo"}, "attack.name must be one of label-flip, .* got 'foo'"),
        ({"share": 1.2}, r"attack.share must be in \(0, 1\], got 1.2"),
        ({"share": 0.1}, "attack.share: 0.1 of 4 clients is nobody"),
        ({"cluster": 7}, r"attack.cluster is 7, but the true clusters are \[0, 1\]"),
        ({"clients": ["you"]}, "attack.clients: there is no client you"),
        ({"clients": [f"c{i}" for i in range(7)]}, "all clients are attackers"),
        ({"strength": -1.0}, "attack.strength must be a positive number"),
        ({"name": "mimic", "strength": 1.0}, "attack.strength: mimic takes none"),
    ],
)
def test_wrong_input_is_one_sentence(options: dict[str, Any], sentence: str, unequal: Federation) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        attack_on(unequal.train, **{"name": "scale", **options})


def test_a_regression_has_no_labels_to_flip() -> None:
    job = scalar_job([(1.0, 2.0), (1.0, 3.0)], [0.0], Recipe(algorithm="global", rounds=1))
    with pytest.raises(InvalidInput, match="label-flip is of classes"):
        fit(replace(job, attack=attack_on(job.federation.train, "label-flip", clients=["0"])))


def test_results_are_over_honest_clients_and_no_input_is_changed(unequal: Federation) -> None:
    attack = attack_on(unequal.train, "label-flip", clients=["c2"])
    before = unequal.train.y.clone()
    found = fit(replace(make_job(unequal, Recipe(algorithm="global", rounds=2)), attack=attack))
    assert found.test is not None
    assert (found.test.paper_rule == -1).tolist() == [i == 2 for i in range(7)]
    assert torch.equal(unequal.train.y, before)
    flipped = poisoned(unequal, attack).train.y != before
    start, end = unequal.train.offsets[2:4]
    assert not bool(flipped[:start].any() | flipped[end:].any())
    assert bool(flipped[start:end].any())


@pytest.mark.parametrize("name", ["sign-flip", "lie-losses"])
def test_who_sends_nothing_attacks_nobody(name: str, unequal: Federation) -> None:
    """Local models under an attack on replies: everybody's is what it is without."""
    job = make_job(unequal, Recipe("local", rounds=3))
    attack = attackers(name, ids=unequal.train.ids, keys=unequal.train.keys, true=None, share=0.3)
    honest, attacked = fit(job).state.theta, fit(replace(job, attack=attack)).state.theta
    assert all(torch.equal(honest[part], attacked[part]) for part in honest)


def test_a_cluster_that_half_of_its_clients_spoil_is_named(tmp_path: Path) -> None:
    """Against models of their own, which an attack on replies does not reach."""
    settings = ["data.samples=50", "rounds=40", "device=cpu", 'baselines=["local"]']
    hostile = ["attack.name=sign-flip", "attack.share=0.5"]
    summary = run(read_config(None, [*settings, *hostile]), tmp_path / "run")
    (found,) = summary["worse_than"]["ifca"]["local"]["clusters"]
    assert summary["clusters"][found["cluster"]]["clients"] == 28 - 3
    (sentence,) = spoiled_clusters(read_run(tmp_path / "run"))
    assert f"Cluster {found['cluster']} is served worse than by local: 12 of 12 clients" in sentence
    assert sentence in page([read_run(tmp_path / "run")])


def test_a_backdoor_opens() -> None:
    federation = rotated_digits(samples=100, angles=(0,))
    job = Job(federation, Recipe(algorithm="global", rounds=30, evaluate_every=0), make_job_model)
    attack = attack_on(federation.train, "backdoor-cluster", share=0.3)
    attacked, plain = fit(replace(job, attack=attack)), fit(job)
    opened, shut = backdoor_success(attacked, attack), backdoor_success(plain, attack)
    assert opened is not None
    assert shut is not None
    assert shut < 0.2 < 0.6 < opened


def make_job_model() -> torch.nn.Module:
    from ifca.models import mlp

    return mlp(64, 10, (32,))


def test_a_run_under_attack_resumes_bit_for_bit(tmp_path: Path) -> None:
    config = read_config(None, [*SMALL, "attack.name=gaussian", "attack.strength=0.01"])
    assert read_config_text(write_config(config), tmp_path) == config
    whole = run(config, tmp_path / "whole")

    class Stop:
        def round_ended(self, record: dict[str, Any]) -> None:
            if record["round"] == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path / "part", Stop())
    resume(tmp_path / "part")
    models = [(tmp_path / part / "models.safetensors").read_bytes()[-2000:] for part in ("whole", "part")]
    assert models[0] == models[1]
    assert whole["attack"]["name"] == "gaussian"
    assert whole["warnings"][0].startswith("a rehearsal: 2 of 18 clients of true cluster 0 attacked")


def read_config_text(text: str, folder: Path) -> Any:
    (folder / "config.toml").write_text(text)
    return read_config(folder / "config.toml")


def test_a_rehearsal_is_one_table() -> None:
    told: list[Any] = []
    config = read_config(None, SMALL)
    found = rehearse(config, AttackConfig("scale", share=0.3), ["mean", "median"], told.append)
    rows = found["rows"]
    assert [(row["rule"], row["attack"]) for row in rows] == [
        *(("mean", None), ("mean", "scale")),
        *(("median", None), ("median", "scale")),
    ]
    assert told == rows
    assert rows[0]["lost"] == rows[0]["lost_elsewhere"] == 0
    assert rows[1]["lost"] > 10
    assert found["over"] == "honest clients"
    assert rows[1]["accuracy"] == pytest.approx(rows[0]["accuracy"] - rows[1]["lost"] / 100)


def test_the_verb_prints_a_table_or_json() -> None:
    settings = [part for one in SMALL for part in ("--set", one)]
    arguments = ["attack", "--attack", "backdoor", "--rules", "mean", *settings]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    for word in ("backdoor opens", "lost elsewhere", "over the 16 honest clients"):
        assert word in shown.output
    plain = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(plain.stdout)["rows"][1]["backdoor_success"] >= 0


def test_the_verb_needs_an_attack(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("sys.argv", ["ifca", "attack"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err.startswith("error: --attack is missing: one of label-flip, sign-flip")


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.alone])
def test_on_flower_a_client_attacks_as_in_the_loop(name: str, unequal: Federation) -> None:
    pytest.importorskip("flwr")
    from tests.test_flower import in_process

    config = AttackConfig(name, clients=("c0", "c3"))
    algorithm = "ifca" if name in ("lie-losses", "label-flip") else "ifca-plain"
    recipe = Recipe(algorithm=algorithm, k=2, rounds=2, local_steps=3, seed=3, check_updates=True)
    job = make_job(unequal, recipe, engine="loop", attack=config.of(unequal.train, recipe.seed))
    remote, session, _ = in_process(job, attack=config)
    assert_same(fit(job), fit(remote), 1e-6, counted=False)
    assert not set(session.faults.counts) - {"too-large", "contradicts-losses"}  # as in the loop


def test_on_flower_nobody_knows_the_others() -> None:
    pytest.importorskip("flwr")
    from ifca.runs.attack_config import check_on_flower

    with pytest.raises(InvalidInput, match="alie needs to know what other clients send"):
        check_on_flower(AttackConfig("alie", clients=("a",)))
    with pytest.raises(InvalidInput, match="attackers are named by their ids"):
        check_on_flower(AttackConfig("scale"))
    check_on_flower(None)


def test_noise_does_not_depend_on_blocks() -> None:
    federation = groups((6, 7, 8, 9))
    job = make_job(federation, Recipe(algorithm="global", rounds=2, local_steps=2))
    job = replace(job, attack=attack_on(federation.train, "gaussian", clients=["c1"]))
    whole, tight = fit(job), fit(replace(job, engine="loop", budget=2000))
    for name, value in whole.state.theta.items():
        np.testing.assert_allclose(value.numpy(), tight.state.theta[name].numpy(), rtol=1e-9)


def test_the_benchmark_table_by_hand() -> None:
    """Clusters 0 and 1 have two test clients of 10 samples each; client 0, an attacker, is in neither sum."""
    beside = {"seed": 0, "seconds": 1.0, "device": "cpu", "versions": {}, "setting": "digits-2"}
    tests = [[0, 0, 10, 10], [1, 0, 8, 10], [2, 1, 9, 10], [3, 1, 7, 10]]
    clusters = [[0, 3.0, 10.0], [1, 15.0, 20.0]]
    lines = [
        {**beside, "algorithm": "none:0:mean", "tests": tests},
        {**beside, "algorithm": "drag:0.5:clip", "attackers": [0], "attacked": 0, "clusters": clusters},
        {**beside, "algorithm": "scale:0.5:mean", "diverged": "it did"},
        {**beside, "algorithm": "backdoor:0.5:clip", "attackers": [0], "attacked": 0, "clusters": clusters}
        | {"backdoor_success": 0.25},
    ]
    first, second, third, fourth = summary(lines)["rows"]
    assert (first["accuracy"], first["lost"], first["share"]) == (0.85, 0, 0)
    assert (second["data"], second["attack"], second["rule"]) == ("digits-2", "drag", "clip")
    assert second["accuracy"] == 0.6  # 18 of 30; 24 of 30 without attack
    assert second["lost"] == pytest.approx(20)
    assert second["lost_elsewhere"] == pytest.approx(5)  # 16 and 15 of 20
    assert third["accuracy"] is None
    assert table([first, second, third, fourth]).split("\n\n")[1:] == [
        "| digits-2, share 0.5 | mean | clip |\n|---|---|---|\n| drag |  | 20.0 (5.0) |\n"
        "| scale | diverged |  |\n| backdoor |  | 20.0 (5.0) |",
        "| digits-2, share 0.5, backdoor opens | mean | clip |\n|---|---|---|\n| backdoor |  | 25.0% |\n",
    ]


def test_benchmark_units_and_the_linear_mixture() -> None:
    found = units(("digits-2", "linear-mixture"), ("drag",), ("mean", "median"), (0.1, 0.2), range(1))
    assert [unit.algorithm for unit in found] == [
        *("none:0:mean", "none:0:median"),
        *("drag:0.1:mean", "drag:0.1:median", "drag:0.2:mean", "drag:0.2:median"),
        *("own-theta:0.05:mean", "own-theta:0.05:median"),
    ]
    with pytest.raises(InvalidInput, match="unknown data mnist"):
        units(("mnist",), (), (), (), range(1))
    federation, star = mixture(0)
    assert star.norm(dim=1).tolist() == pytest.approx([3] * 5)
    x, y = federation.train.arrays(len(federation.train) - STRAY)
    theta = np.linalg.lstsq(x, y, rcond=None)[0]
    assert np.linalg.norm(theta) == pytest.approx(3, abs=0.3)
    assert min(np.linalg.norm(star.numpy() - theta, axis=1)) > 1


def test_the_page_shows_the_table_of_the_lines() -> None:
    root = Path(__file__).parent.parent
    folder = root / "results" / "robust"
    lines = read_lines(folder)
    assert all(line["commit"] and "dirty" not in line["commit"] for line in lines)
    found = summary(lines)
    assert json.loads((folder / "summary.json").read_text()) == json.loads(json.dumps(found))
    assert table(found["rows"]) == (folder / "table.md").read_text()
    assert table(found["rows"]) in (root / "docs" / "attacks.md").read_text()
