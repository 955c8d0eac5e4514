"""Who is served badly: the worst tenth, clients worse off than by another method, clients never seen."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, v_measure_score

from ifca import IFCA, open_run
from ifca.core.errors import RunFolderWarning
from ifca.core.metrics import agreement, rounds_to, served_worse, v_measure, worst_tenth
from ifca.core.recipe import Recipe
from ifca.core.types import Params
from ifca.data import Client, Clients, Federation
from ifca.models import linear
from ifca.report.page import page
from ifca.report.read_run import read_run
from ifca.report.terminal.run_tables import badly_served_table
from ifca.runs.config import read_config
from ifca.runs.run import compare, resume, run
from ifca.runs.served import compared, spoiled
from ifca.training import Job, fit
from ifca.training.unseen import halves
from tests.conftest import groups, make_job

DIGITS = ["rounds=6", "data.samples=50", "model.hidden=[20]", "device=cpu", "baselines=[]"]


class TestByHand:
    def test_v_measure_is_nmi(self) -> None:
        """Two true clusters of two, found as {a, a, b} and {b}: by entropies in natural logarithms."""
        true, found = [0, 0, 1, 1], [0, 0, 0, 1]
        of_found = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
        joint = -(0.5 * np.log(0.5) + 2 * 0.25 * np.log(0.25))
        information = np.log(2) + of_found - joint
        assert v_measure(true, found) == pytest.approx(2 * information / (np.log(2) + of_found))
        assert v_measure(true, found) == pytest.approx(normalized_mutual_info_score(true, found))
        assert v_measure(true, [5, 5, 2, 2]) == 1
        assert v_measure(true, [0, 0, 0, 0]) == 0
        measures = agreement(true, found)
        assert measures["nmi"] == measures["v_measure"] == v_measure(true, found)
        assert measures["cluster_accuracy"] == 0.75

    @pytest.mark.parametrize("m", [1, 2, 7, 40])
    def test_partitions_as_scikit_learn_compares_them(self, m: int) -> None:
        rng = np.random.default_rng(m)
        for k in (1, 2, 5):
            true, found = rng.integers(0, k, m), rng.integers(-1, 3, m)
            measures = agreement(true, found)
            assert measures["adjusted_rand_index"] == pytest.approx(adjusted_rand_score(true, found))
            assert measures["v_measure"] == pytest.approx(v_measure_score(true, found), abs=1e-12)

    def test_worst_tenth(self) -> None:
        accuracies = [0.9] * 18 + [0.2, 0.4]
        assert worst_tenth(accuracies, higher_is_better=True) == pytest.approx(0.3)
        assert worst_tenth(accuracies, higher_is_better=False) == pytest.approx(0.9)
        assert worst_tenth([1.0, 3.0, 2.0], higher_is_better=False) == 3  # at least one client
        assert worst_tenth([0.5] * 19 + [0.1], higher_is_better=True) == pytest.approx(0.3)
        assert worst_tenth([0.5] * 18 + [0.1], higher_is_better=True) == pytest.approx(0.1)  # 1.9 are one
        assert worst_tenth([], higher_is_better=True) is None

    def test_served_worse_is_strict(self) -> None:
        mine, other = {"a": 0.5, "b": 0.7, "c": 0.9, "d": 0.1}, {"c": 0.8, "a": 0.6, "b": 0.7, "e": 1.0}
        assert served_worse(mine, other, higher_is_better=True) == ["a"]
        assert served_worse(mine, other, higher_is_better=False) == ["c"]

    def test_rounds_to_a_level_that_is_kept(self) -> None:
        assert rounds_to([0.2, 0.95, 0.5, 0.9, 1.0]) == 4  # 0.95 was not kept, 0.9 is enough
        assert rounds_to([0.9, 1.0]) == 1
        assert rounds_to([0.2, 1.0, 0.8]) is None
        assert rounds_to([1.0, None, 1.0]) == 3
        assert rounds_to([]) is None


def test_with_few_participants_all_clients_known_so_far_are_judged() -> None:
    job = make_job(
        groups((12, 7, 20, 9, 8, 8)), Recipe(algorithm="ifca-plain", k=2, rounds=8, participation=0.34)
    )
    fitted = fit(job)
    true, last = job.federation.train.true_cluster, np.full(6, -1)
    assert true is not None
    for record in fitted.history:
        last[record["clients"]] = record["identity"]
        known = last >= 0
        assert record["known_clients"] == known.sum()
        for name, value in agreement(true[known], last[known]).items():
            assert record[f"{name}_known"] == value
        alone = agreement(true[record["clients"]], record["identity"])
        assert {name: record[name] for name in alone} == alone
    assert fitted.history[-1]["known_clients"] > fitted.history[-1]["participants"]


def regression_with_strangers() -> Job:
    """Models y = theta x at 1 and 3. Two clients to train on, at 1 and 3; two that are only tested."""
    x = np.ones((4, 1))
    clients = [Client(x, np.full(4, slope), x, np.full(4, slope), id=str(slope)) for slope in (1.0, 3.0)]
    federation = Federation.from_clients(clients)
    assert federation.test is not None
    strange = Federation.from_clients(
        [
            Client(np.ones((5, 1)), np.array([1.0, 1.0, 1.0, 1.0, 1.0]), id="like 1"),
            Client(np.ones((2, 1)), np.array([1.0, 3.0]), id="one of each"),
            Client(np.ones((1, 1)), np.array([3.0]), id="too small"),
        ]
    ).train
    both = federation.test
    test = Clients(
        torch.cat([both.x, strange.x]),
        torch.cat([both.y, strange.y]),
        np.concatenate([both.offsets, both.offsets[-1] + strange.offsets[1:]]),
        (*both.ids, *strange.ids),
    )
    start: Params = {"fc1.weight": torch.tensor([1.0, 3.0], dtype=torch.float64).reshape(-1, 1, 1)}
    recipe = Recipe(algorithm="ifca-plain", k=2, rounds=1)
    return Job(
        Federation(federation.train, test), recipe, lambda: linear(1), precision="float64", warm_start=start
    )


def test_clients_never_seen_are_scored_on_data_that_did_not_choose() -> None:
    """One of each: whichever sample chooses, the other one is off by 2: loss 4 of squared error."""
    fitted = fit(regression_with_strangers())
    assert fitted.test is not None
    assert fitted.unseen is not None
    assert fitted.unseen.place.tolist() == [2, 3]  # one sample cannot choose and score
    unseen = fitted.unseen.test
    scale = float(fitted.test.loss(torch.zeros(5, dtype=torch.long))[4]) / 4  # of (1 - 3)^2
    assert unseen.sizes.tolist() == [3, 1]
    assert (unseen.loss(unseen.train_rule) / scale).tolist() == pytest.approx([0, 4])
    assert unseen.mean_loss(unseen.train_rule) == pytest.approx(scale)  # (3 * 0 + 1 * 4) / 4
    assert fitted.test.train_rule.tolist() == [0, 1, -1, -1, -1]


def test_halves_follow_from_seed_and_name_alone() -> None:
    test = groups((12, 7, 20, 9)).test
    assert test is not None
    choosing, scoring = halves(test, 3)
    assert choosing.sizes.tolist() == [2] * 4  # of 5
    assert scoring.sizes.tolist() == [3] * 4
    for i in range(4):
        parts = np.concatenate([choosing.arrays(i)[0], scoring.arrays(i)[0]])
        assert sorted(map(tuple, parts)) == sorted(map(tuple, test.arrays(i)[0]))
    alone = halves(test.subset([2]), 3)
    for part, whole in zip(alone, (choosing, scoring), strict=True):
        assert np.array_equal(part.arrays(0)[0], whole.arrays(2)[0])
    assert any(not np.array_equal(halves(test, s)[0].x, choosing.x) for s in range(3))


def rows_of(folder: Path) -> dict[str, dict[str, str]]:
    with (folder / "clients.csv").open() as file:
        return {row["id"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits by IFCA and by the others."""
    folder = tmp_path_factory.mktemp("served") / "run"
    compare(read_config(None, DIGITS), folder, methods=("ifca", "oneshot", "global", "local"))
    return folder


def test_a_comparison_says_who_is_worse_off(whole: Path) -> None:
    """Counted again from the tables."""
    summary = json.loads((whole / "summary.json").read_text())
    folders = {"ifca": whole} | {n: whole / "baselines" / n for n in ("oneshot", "global", "local")}
    assert set(summary["worse_than"]) == set(folders)
    assert set(summary["worse_than"]["global"]) == {"local"}  # nobody is compared with itself
    found = {
        name: {i: float(row["test_accuracy_train_rule"]) for i, row in rows_of(folder).items()}
        for name, folder in folders.items()
    }
    for name, others in summary["worse_than"].items():
        for other, told in others.items():
            who = [i for i, value in found[name].items() if value < found[other][i]]
            spoiled = told.pop("clusters", None)
            assert (spoiled is None) == (name in ("global", "local"))
            assert told == {
                "clients": len(found[name]),
                "worse": len(who),
                "share": len(who) / len(found[name]),
                "who": who,
            }
    assert summary["worse_than"]["local"]["global"]["worse"] > 0
    lowest = sorted(found["ifca"].values())
    assert summary["test_accuracy_worst_tenth"] == pytest.approx(np.mean(lowest[: len(lowest) // 10]))
    assert summary["baselines"]["global"]["worse_than"] is None  # a run alone
    assert summary["nmi"] == summary["v_measure"]
    assert summary["baselines"]["local"]["nmi"] is None


def test_a_spoiled_cluster_by_hand() -> None:
    """Of two clusters: eight of eight by chance have 2^-8 = 0.0039, below 0.01 / 2; seven of eight not."""
    rows = [{"id": f"{j}{i}", "cluster": str(j)} for j in (0, 1) for i in range(9)]
    other = {row["id"]: 0.5 for row in rows}
    mine = {row["id"]: 0.4 for row in rows} | {"08": 0.5, "17": 0.6, "18": 0.5}  # the last are ties
    expected = {"cluster": 0, "clients": 8, "worse": 8, "p": 2**-8}
    assert spoiled(rows, mine, other, "accuracy") == [expected]
    assert spoiled(rows, mine, other, "loss") == []  # there 0.4 is the better one
    assert spoiled(rows, {}, other, "accuracy") == []


def test_in_regression_losses_are_compared(tmp_path: Path) -> None:
    data = ["data.name=synthetic", "data.clients=12", "data.samples=30", "data.dimension=5", "device=cpu"]
    settings = [*data, "algorithm=local", "rounds=3", 'baselines=["global"]']
    summary = run(read_config(None, settings), tmp_path / "run")
    mine, other = (
        {i: float(row["test_loss_train_rule"]) for i, row in rows_of(folder).items()}
        for folder in (tmp_path / "run", tmp_path / "run" / "baselines" / "global")
    )
    who = [i for i, value in mine.items() if value > other[i]]
    assert summary["worse_than"]["local"]["global"]["who"] == who
    assert summary["worse_than"]["global"]["local"]["worse"] == len(mine) - len(who)  # no two are equal
    assert summary["test_accuracy_worst_tenth"] is None
    assert summary["test_loss_worst_tenth"] == max(mine.values())  # one of 12


def test_a_finished_comparison_is_left_as_it_is(whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / "run")
    before = (folder / "summary.json").read_bytes()
    resume(folder)
    assert (folder / "summary.json").read_bytes() == before


def test_a_run_alone_has_nothing_to_compare_with(tmp_path: Path) -> None:
    summary = run(read_config(None, DIGITS), tmp_path / "run")
    assert summary["worse_than"] is None
    assert summary["test_clients_unseen"] == 0
    assert summary["test_accuracy_unseen"] is None
    rounds = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    values = [record["adjusted_rand_index_known"] for record in rounds]
    first = rounds_to([*values, summary["adjusted_rand_index"]])
    assert summary["rounds_to_ari_0.9"] == (None if first is None else min(first, len(rounds)))


def only_tested(sizes: tuple[int, ...]) -> Federation:
    """Every other client is trained on, the others are only tested; both kinds of labels among both."""
    everybody = groups(sizes, clusters=2)
    assert everybody.test is not None
    chosen = [i for i in range(len(sizes)) if i % 4 < 2]
    strangers = [i for i in range(len(sizes)) if i % 4 > 1]
    return Federation(everybody.train.subset(chosen), everybody.train.subset(strangers), 3)


def test_a_run_with_clients_never_seen_says_how_they_are_served(tmp_path: Path) -> None:
    federation = only_tested((40,) * 15 + (1,))
    folders = {name: tmp_path / name for name in ("oneshot", "global", "local")}
    for name, folder in folders.items():
        IFCA(algorithm=name, k=2, rounds=15, step_size=0.5, device="cpu").fit(federation).save(folder)
    summaries = {n: json.loads((folder / "summary.json").read_text()) for n, folder in folders.items()}
    mine = summaries["oneshot"]
    assert mine["test_clients"] == 8
    assert (mine["test_clients_unseen"], mine["test_samples_unseen"]) == (7, 7 * 20)  # one has one sample
    rows = [row for row in rows_of(folders["oneshot"]).values() if row["test_accuracy_unseen"]]
    accuracies = [float(row["test_accuracy_unseen"]) for row in rows]
    assert mine["test_accuracy_unseen"] == pytest.approx(np.mean(accuracies))
    assert mine["test_accuracy_worst_tenth"] == min(accuracies)
    assert mine["test_accuracy_train_rule"] is None
    assert [row["test_samples_unseen"] for row in rows] == ["20"] * 7
    assert summaries["local"]["test_clients_unseen"] == 0  # nobody trained a model for them
    assert summaries["local"]["test_accuracy_worst_tenth"] is None
    told = compared([(folder, summaries[name]) for name, folder in folders.items()])
    assert told["oneshot"]["global"]["clients"] == 7
    assert told["oneshot"]["local"] == {
        **{"clients": 0, "worse": 0, "share": None, "who": []},
        "clusters": [],
    }
    found = page([read_run(folders["oneshot"])])
    assert "never seen (7)" in found
    assert f"{100 * mine['test_accuracy_unseen']:.2f} %" in found
    assert "was never in training" in found


NEW = (
    *("test_accuracy_worst_tenth", "test_loss_worst_tenth", "test_clients_unseen", "test_samples_unseen"),
    *("test_accuracy_unseen", "test_loss_unseen", "worse_than", "nmi", "v_measure", "rounds_to_ari_0.9"),
)


def test_a_folder_of_an_older_version_opens_and_resumes(whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / "run")
    for part in (folder, *(folder / "baselines").iterdir()):
        summary = json.loads((part / "summary.json").read_text())
        del summary["checksums"]
        for one in (summary, *summary.get("baselines", {}).values()):
            for name in NEW:
                del one[name]
        (part / "summary.json").write_text(json.dumps(summary))
        rows = list(rows_of(part).values())
        with (part / "clients.csv").open("w", newline="") as file:
            table = csv.DictWriter(
                file, [name for name in rows[0] if name != "test_loss_train_rule"], extrasaction="ignore"
            )
            table.writeheader()
            table.writerows(rows)
        records = [json.loads(line) for line in (part / "rounds.jsonl").read_text().splitlines()]
        old = [
            {
                n: v
                for n, v in r.items()
                if not n.endswith("_known") and n not in ("nmi", "v_measure", "known_clients")
            }
            for r in records
        ]
        (part / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in old))
    before = (folder / "summary.json").read_bytes()
    with pytest.warns(RunFolderWarning, match="an older version of ifca"):
        resume(folder)
    assert (folder / "summary.json").read_bytes() == before
    with pytest.warns(RunFolderWarning, match="an older version of ifca"):
        assert len(open_run(folder).labels_) == json.loads(before)["clients"]
    assert "What came out" in page([read_run(folder)])
    assert badly_served_table(read_run(folder)) is None


def test_page_and_terminal_say_who_is_served_badly(whole: Path) -> None:
    told = json.loads((whole / "summary.json").read_text())["worse_than"]["ifca"]["global"]
    shown = f"{told['worse']} of {told['clients']} ({100 * told['share']:.1f} %)"
    table = badly_served_table(read_run(whole))
    assert table is not None
    assert [column.header for column in table.columns][2:] == ["worse than global", "worse than local"]
    assert next(iter(table.columns[2].cells)) == shown
    found = page([read_run(whole)])
    assert shown in found
    for other, one in json.loads((whole / "summary.json").read_text())["worse_than"]["ifca"].items():
        assert (f"Clients better off with {other}: {', '.join(one['who'][:10])}" in found) == (
            one["worse"] > 0
        )
