"""The scikit-learn flavoured front."""

from __future__ import annotations

import inspect
import json
import pickle
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.cluster import AgglomerativeClustering
from torch import nn

from ifca import (
    IFCA,
    Diverged,
    Federation,
    FewerClustersWarning,
    InvalidInput,
    mixture_of_regressions,
    open_run,
    read_config,
    register,
    rotated_digits,
    run,
)
from ifca.core.errors import RunFolderWarning
from ifca.core.metrics import cluster_accuracy
from ifca.core.recipe import Recipe
from ifca.methods import method_of, registry
from ifca.runs.clients_table import read_clients
from ifca.training.checkpoint import load_tensors, save_tensors
from tests.conftest import groups


def test_arguments_are_those_of_the_recipe() -> None:
    signature = inspect.signature(IFCA).parameters
    for field in fields(Recipe):
        default = {"k": None, "on_divergence": "halve"}.get(field.name, field.default)  # k: may be left out
        assert signature[field.name].default == default, field.name


def test_fit_assign_predict() -> None:
    federation = groups((60,) * 8, clusters=2)
    front = IFCA(k=2, rounds=30, restarts=3, model="mlp").fit(federation)
    true = federation.train.true_cluster
    assert true is not None
    assert cluster_accuracy(true, front.labels_) == 1
    assert front.models_["fc1.weight"].shape == (2, 200, 6)
    assert len(front.history_) == 30
    assert front.train_loss_ == min(front.restarts_)
    assert len(front.restarts_) == 3
    rows = slice(60, 120)  # client 1, as if it were new
    x, y = federation.train.x[rows].numpy(), federation.train.y[rows].numpy()
    assert front.assign(x, y) == front.labels_[1]
    assert (front.predict(x, front.assign(x, y)) == y).mean() > 0.9
    assert front.losses(x, y).argmin() == front.labels_[1]


def test_constructor_only_stores_and_clones() -> None:
    front = IFCA(k=-3, step_size=-1)  # refused by fit, not here
    assert clone(front).get_params() == front.get_params()
    with pytest.raises(InvalidInput, match="k must be at least 1"):
        front.fit(groups((5, 5)))


def test_errors_name_the_argument() -> None:
    federation = groups((9, 9))
    with pytest.raises(
        InvalidInput, match=r"fit: y is missing; call fit\(X, y, groups=...\) or fit\(federation\)"
    ):
        IFCA().fit([1, 2])
    with pytest.raises(InvalidInput, match="device must be auto, cpu or cuda"):
        IFCA(device="tpu").fit(federation)
    with pytest.raises(InvalidInput, match="call fit first"):
        IFCA().predict([[1.0]], 0)
    front = IFCA(algorithm="oneshot", rounds=1).fit(federation)
    with pytest.raises(InvalidInput, match=r"has no cluster 2 \(it has 0, 1\)"):
        front.predict(np.zeros((1, 6)), 2)
    with pytest.raises(InvalidInput, match=r"samples have shape \(5,\), training had \(6,\)"):
        front.assign(np.zeros((1, 5)), np.zeros(1, int))


def test_own_module_own_clusterer_and_own_loss() -> None:
    federation, _ = mixture_of_regressions(clients=8, samples=40, dimension=5, noise=0.0)

    def absolute(output: object, y: object) -> object:
        return (output.flatten() - y).abs()  # type: ignore[attr-defined]

    front = IFCA(
        2,
        algorithm="oneshot",
        model=nn.Linear(5, 1),
        loss=absolute,  # type: ignore[arg-type]
        clusterer=lambda k, _seed: AgglomerativeClustering(k),
        rounds=50,
        step_size=0.05,
    ).fit(federation)
    true = federation.train.true_cluster
    assert true is not None
    assert cluster_accuracy(true, front.labels_) == 1
    assert front.predict(federation.train.x[:3], 0).shape == (3,)


def test_fewer_clusters_than_asked_is_a_warning() -> None:
    federation = groups((30,) * 4, clusters=1)
    with pytest.warns(FewerClustersWarning, match="of 4 clusters have clients"):
        IFCA(algorithm="ifca-plain", k=4, rounds=20).fit(federation)


def test_diverged_restarts_are_reported_and_outlived() -> None:
    federation, _ = mixture_of_regressions(clients=6, samples=20, dimension=5)
    with pytest.raises(Diverged):
        IFCA(2, step_size=50.0, restarts=2, on_divergence="stop").fit(federation)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("option", "gradients"), ("engine", "foo"), ("initial", "zeros"), ("algorithm", "IFCA")],
        *[("rounds", 2.5), ("weighted", "no"), ("k", 2.0), ("k", True), ("k", "two"), ("step_size", "0.1")],
        *[("shared", "fc1"), ("model", 3), ("model", lambda: 3)],
    ],
)
def test_typos_and_wrong_types_do_not_pass(field: str, value: object) -> None:
    with pytest.raises(InvalidInput, match=field):
        IFCA(**{"k": 2, field: value}).fit(groups((9, 9)))  # type: ignore[arg-type]


class TestModels:
    federation = groups((9, 9))

    def fit(self, model: object, **options: object) -> None:
        IFCA(k=2, rounds=2, model=model, **options).fit(self.federation)  # type: ignore[arg-type]

    def test_a_loss_must_be_per_sample(self) -> None:
        with pytest.raises(InvalidInput, match="loss: must give one number per sample"):
            self.fit(None, loss=lambda output, y: torch.nn.functional.cross_entropy(output, y))

    def test_outputs_are_checked_before_training(self) -> None:
        with pytest.raises(InvalidInput, match=r"outputs of shape \(2,\) for 3 classes"):
            self.fit(nn.Linear(6, 2))
        with pytest.raises(InvalidInput, match=r"fails on a sample of shape \(6,\)"):
            self.fit(nn.Linear(7, 3))

    def test_frozen_and_lazy_parameters(self) -> None:
        frozen = nn.Linear(6, 3)
        frozen.bias.requires_grad_(False)
        with pytest.raises(InvalidInput, match="parameter bias is not trained"):
            self.fit(lambda: frozen)
        with pytest.raises(InvalidInput, match="a lazy layer"):
            self.fit(lambda: nn.LazyLinear(3))

    @pytest.mark.filterwarnings("ignore::ifca.training.poor_fit.PoorFitWarning")  # of two rounds
    def test_random_buffers_do_not_depend_on_the_global_state(self) -> None:
        class Features(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear = nn.Linear(8, 3)
                self.omega: torch.Tensor
                self.register_buffer("omega", torch.randn(6, 8))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                out: torch.Tensor = self.linear((x @ self.omega).cos())
                return out

        losses = []
        for seed in (1, 2):
            torch.manual_seed(seed)
            front = IFCA(k=1, rounds=2, model=Features).fit(self.federation)
            losses.append(front.train_loss_)
        assert losses[0] == losses[1]


def test_a_local_model_does_not_depend_on_the_others() -> None:
    losses = []
    for m in (1, 4):
        plain = {"model": "mlp", "standardise": False}  # else by the data of all
        front = IFCA(k=1, algorithm="local", option="gradient", rounds=10, **plain)  # type: ignore[arg-type]
        front.fit(groups((20,) * m, clusters=1))
        losses.append(float(front.fitted_.own_loss[0]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_fitted_front_can_be_pickled() -> None:
    federation = groups((9, 9))
    for model in (None, nn.Linear(6, 3)):
        front = IFCA(algorithm="oneshot", rounds=1, model=model).fit(federation)
        again = pickle.loads(pickle.dumps(front))
        x, y = federation.train.arrays(0)
        assert again.losses(x, y).tolist() == front.losses(x, y).tolist()


class TestUse:
    """One object for training and use, whether it was fitted here or read from a folder."""

    federation = groups((60, 40, 50, 45), clusters=2)

    def fitted(self, **options: object) -> IFCA:
        options = {"k": 2, "algorithm": "ifca-plain", "rounds": 15, "restarts": 2, "model": "mlp", **options}
        return IFCA(**options).fit(self.federation)  # type: ignore[arg-type]

    def test_what_was_saved_answers_the_same(self, tmp_path: Path) -> None:
        front = self.fitted()
        again = IFCA.load(front.save(tmp_path / "run"))
        x, y = self.federation.train.arrays(1)
        assert again.labels_.tolist() == front.labels_.tolist()
        assert again.history_ == front.history_
        assert again.train_loss_ == front.train_loss_
        assert all(torch.equal(again.models_[name], value) for name, value in front.models_.items())
        assert again.losses(x, y).tolist() == front.losses(x, y).tolist()
        mine, theirs = front.assign(x, y), again.assign(x, y)
        assert (mine, mine.losses, mine.margin) == (theirs, theirs.losses, theirs.margin)
        assert again.score(self.federation) == front.score(self.federation)
        assert again.predict(x, mine).tolist() == front.predict(x, mine).tolist()
        assert clone(again).get_params() == again.get_params()
        assert again.restarts_ == front.restarts_

    def test_margins_scores_and_probabilities(self) -> None:
        front = self.fitted()
        x, y = self.federation.train.arrays(0)
        cluster = front.assign(x, y)
        losses = front.losses(x, y)
        assert cluster == losses.argmin() == front.labels_[0]
        assert cluster.second == 1 - cluster
        assert cluster.margin == pytest.approx(losses.max() - losses.min(), rel=1e-5)
        shares = front.predict_proba(x, cluster)
        assert shares.sum(1) == pytest.approx(np.ones(len(x)))
        assert (shares.argmax(1) == front.predict(x, cluster)).all()
        assert front.fitted_.test is not None
        expected = front.fitted_.test.accuracy(front.fitted_.test.train_rule)
        assert front.score(self.federation) == pytest.approx(expected)

    def test_personalise_says_what_it_did(self) -> None:
        x, y = self.federation.train.arrays(0)
        personal = self.fitted().personalise(x, y, steps=5, step_size=0.05)
        assert personal.report["samples"] == 60
        assert personal.report["chosen"] in ("served", "tuned, 5 steps", "half tuned, 5 steps")
        assert personal.predict(x).shape == (60,)
        assert personal.helped == (personal.report["after"]["loss"] < personal.report["before"]["loss"])

    def test_all_training_clients_are_personalised_and_saved(self, tmp_path: Path) -> None:
        front = self.fitted(restarts=1)
        with pytest.raises(InvalidInput, match="give x and y of one client, or nothing"):
            front.personalise(steps=3)  # type: ignore[call-overload]
        found = front.personalise()
        assert len(found.chosen) == len(self.federation.train)
        again = clone(front).set_params(personalise=True)
        assert again.get_params()["personalise"] is True
        assert again.fit(self.federation).personalised_.chosen == found.chosen
        rows = read_clients(again.save(tmp_path / "run"))
        assert [row["personal_model"] for row in rows[:3]] == [one.kind for one in found.chosen[:3]]
        loaded, (x, y) = open_run(tmp_path / "run"), self.federation.train.arrays(0)
        assert loaded.get_params()["personalise"] is True
        with pytest.raises(InvalidInput, match="a loaded run has no data"):
            loaded.personalise()
        mine = loaded.personalise(x, y)  # goes by what the training clients found, as it did itself
        assert mine.report["chosen"] == again.personalise(x, y).report["chosen"]

    def test_an_export_from_memory_has_its_card(self, tmp_path: Path) -> None:
        card = self.fitted().export(1, tmp_path / "model.safetensors")
        assert (tmp_path / "model.safetensors").is_file()
        assert card.read_text().startswith("# Model of cluster 1")

    def test_a_model_given_from_python_is_given_again(self, tmp_path: Path) -> None:
        front = self.fitted(model=nn.Linear(6, 3), restarts=1)
        folder, (x, y) = front.save(tmp_path / "run"), self.federation.train.arrays(0)
        with pytest.raises(InvalidInput, match="the model was given from Python; give it again as model="):
            open_run(folder).losses(x, y)
        again = open_run(folder, model=nn.Linear(6, 3))
        assert again.losses(x, y).tolist() == front.losses(x, y).tolist()
        with pytest.raises(InvalidInput, match="already holds something"):
            front.save(folder)

    def test_a_run_s_folder_is_the_same_object(self, tmp_path: Path) -> None:
        settings = ["k=2", "rounds=3", "data.angles=[0, 180]", "data.samples=100"]
        config = read_config(None, [*settings, 'baselines=["global"]'])
        summary = run(config, tmp_path / "run")
        front = open_run(tmp_path / "run")
        assert front.train_loss_ == summary["train_loss"]
        assert front.score(rotated_digits(samples=100, angles=(0, 180))) == pytest.approx(
            summary["test_accuracy_train_rule"]
        )
        assert front.k == 2

    def test_after_use_it_can_still_be_pickled(self, tmp_path: Path) -> None:
        front = self.fitted()
        x, y = self.federation.train.arrays(0)
        for one in (front, open_run(front.save(tmp_path / "run"))):
            cluster = one.assign(x, y)
            again = pickle.loads(pickle.dumps(one))
            assert again.predict(x, cluster).tolist() == one.predict(x, cluster).tolist()

    def test_a_method_that_only_python_knew_is_saved_and_used(self, tmp_path: Path) -> None:
        own = register(replace(method_of("ifca-plain"), name="mine-alone", title="mine"))
        folder = self.fitted(algorithm=own.name, restarts=1).save(tmp_path / "run")
        x, y = self.federation.train.arrays(0)
        registry._METHODS.pop(own.name)  # as in a new process
        assert open_run(folder).assign(x, y) in (0, 1)

    def test_models_of_an_older_version_open_too(self, tmp_path: Path) -> None:
        """Their header did not say whether models are personal, nor their clusters' numbers."""
        front = self.fitted(restarts=1)
        file = front.save(tmp_path / "run") / "models.safetensors"
        theta, header = load_tensors(file)
        known = {name: value for name, value in header.items() if name not in ("personal", "clusters")}
        save_tensors(file, theta, known)
        summary = json.loads((tmp_path / "run" / "summary.json").read_text())
        del summary["checksums"]
        (tmp_path / "run" / "summary.json").write_text(json.dumps(summary))
        with pytest.warns(RunFolderWarning, match="made by an older version of ifca"):
            again = open_run(tmp_path / "run")
        assert again.score(self.federation) == front.score(self.federation)

    @pytest.mark.parametrize("algorithm", ["local", "apfl", "mapper", "fedem"])
    def test_clients_of_a_personal_method_are_served_by_their_own_models(
        self, tmp_path: Path, algorithm: str
    ) -> None:
        front = self.fitted(algorithm=algorithm, restarts=1, option="model")
        again = open_run(front.save(tmp_path / "run"))
        x, y = self.federation.train.arrays(1)
        name = self.federation.train.ids[1]
        right = round(float(front.fitted_.train.correct[1, 0]))
        for one in (front, again):
            said = one.predict(x, groups=[name] * len(x))
            assert int((said == y).sum()) == right
            assert one.score(x, y, groups=[name] * len(x)) == pytest.approx(right / len(y))
        assert again.score(self.federation) == front.score(self.federation)
        with pytest.raises(InvalidInput, match="predict: stranger is no client of this run, in which every"):
            front.predict(x, groups=["stranger"] * len(x))
        with pytest.raises(InvalidInput, match="predict: every client has a model of its own; say whose"):
            front.predict(x, cluster=0)
        with pytest.raises(InvalidInput, match="assign: every client has a model of its own; a new client"):
            front.assign(x, y)

    def test_score_without_labels_says_what_is_missing(self) -> None:
        with pytest.raises(InvalidInput, match="score: y is missing"):
            self.fitted().score(self.federation.train)

    def test_scaling_is_that_of_training_once(self) -> None:
        wide = groups((60, 40, 50, 45), clusters=2)
        scaled = wide.standardised()
        front = IFCA(2, algorithm="ifca-plain", rounds=10, model="mlp").fit(scaled)
        assert front.score(wide) == front.score(scaled)
        with pytest.raises(InvalidInput, match="standardised by other numbers than in training"):
            front.score(groups((30, 30), seed=3).standardised())

    def test_pixels_of_another_whole_type_are_pixels(self) -> None:
        rng = np.random.default_rng(0)
        x = [rng.integers(0, 256, (9, 4), dtype=np.uint8) for _ in range(3)]
        y = [np.arange(9) % 2] * 3
        front = IFCA(1, rounds=2).fit(Federation.from_arrays(x, y))
        assert front.losses(x[0].astype(np.int64), y[0]) == pytest.approx(front.losses(x[0], y[0]))
        for wrong, said in ((np.full((1, 4), 300), "pixels from 0 to 255"), (np.empty((0, 4)), "no samples")):
            with pytest.raises(InvalidInput, match=said):
                front.predict(wrong, 0)

    def test_regression_is_scored_by_r2(self) -> None:
        federation, _ = mixture_of_regressions(clients=8, samples=60, dimension=4, noise=0.01)
        front = IFCA(2, rounds=60, step_size=0.1).fit(federation)
        assert 0.99 < front.score(federation) <= 1
        with pytest.raises(InvalidInput, match="this is a regression"):
            front.predict_proba(np.zeros((1, 4)), 0)

    def test_models_that_nobody_needs_are_not_shown(self) -> None:
        front = IFCA(5, rounds=12).fit(groups((30,) * 6, clusters=1))
        live = len(set(front.labels_.tolist()))
        assert front.models_["fc1.weight"].shape[0] == live < 5
        assert all(bool(value.isfinite().all()) for value in front.models_.values())
        with pytest.raises(InvalidInput, match="has no cluster 4"):
            front.predict(np.zeros((1, 6)), 4)


def test_k_may_be_left_out(tmp_path: Path) -> None:
    """Two groups of clients: as many clusters are found, of at most as many as there are clients."""
    for front in (IFCA(rounds=16), IFCA("auto", rounds=16)):
        front.fit(groups((40,) * 6))
        assert front.fitted_.job.recipe.k == 6
        assert len(set(front.labels_.tolist())) == 2
        assert front.models_["fc1.weight"].shape[0] == 2
    again = IFCA.load(front.save(tmp_path / "run"))
    assert again.k == "auto"
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["k"], summary["config"]["k"]) == (6, "auto")
    with pytest.raises(InvalidInput, match='k: clove needs a number of clusters; "auto" is for ifca'):
        IFCA("auto", algorithm="clove").fit(groups((5, 5)))
