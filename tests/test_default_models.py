"""Models that fit a user's data by default: intercepts, targets in their own units, a model by the data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ifca import IFCA, Federation, mixture_of_regressions, open_run
from ifca.core.errors import InvalidInput
from ifca.core.recipe import Recipe
from ifca.data.scaling import Scaling
from ifca.models import BuiltIn, choose_model
from ifca.runs.config import read_config
from ifca.runs.make import make_job, read_federation
from ifca.runs.run import run
from ifca.training import Job, fit
from ifca.use.export import Served
from ifca.use.opened_run import open_trained


def regression(rows: int = 60, clients: int = 6, *, mean: float = 5.0, scale: float = 1.0) -> Any:
    """y = mean + scale (x w + noise of deviation 0.1), the same law for all clients."""
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(rows, 4)) for _ in range(clients)]
    return x, [mean + scale * (a @ [1.0, -1, 2, 0.5] + 0.1 * rng.normal(size=rows)) for a in x]


@pytest.mark.parametrize("model", [None, "linear", "mlp"])
def test_an_intercept_is_found(model: str | None) -> None:
    x, y = regression()
    front = IFCA(1, rounds=60, model=model).fit(Federation.from_arrays(x, y))
    assert front.train_loss_ < 0.05  # 24.7 without an intercept; the noise has 0.01


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_prices_neither_diverge_nor_lose_their_units(model: str, tmp_path: Path) -> None:
    x, y = regression(mean=2e5, scale=4e4)
    federation = Federation.from_arrays(x, y, x, y)
    front = IFCA(1, rounds=60, model=model).fit(federation)
    error = np.mean((front.predict(x[0], 0) - y[0]) ** 2)
    assert error < 5 * 4000**2  # the noise has 4000; their variance is 1e10
    assert front.losses(x[0], y[0])[0] == pytest.approx(error, rel=1e-3)
    assert front.fitted_.own_loss[0] == pytest.approx(error, rel=1e-3)
    assert front.quality_ is not None
    assert front.quality_["overall"]["mae"] == pytest.approx(
        np.mean([np.abs(front.predict(a, 0) - b).mean() for a, b in zip(x, y, strict=True)]), rel=1e-3
    )
    assert front.score(federation) > 0.95
    again = open_run(front.save(tmp_path / "run"))
    np.testing.assert_allclose(again.predict(x[0], 0), front.predict(x[0], 0))
    own = front.personalise(x[0], y[0])
    assert own.report["before"]["loss"] == pytest.approx(error, rel=0.2)
    assert np.mean((own.predict(x[0]) - y[0]) ** 2) < 5 * 4000**2


def test_exports_answer_in_the_targets_units(tmp_path: Path) -> None:
    x, y = regression(mean=2e5, scale=4e4)
    front = IFCA(1, rounds=30, model="linear").fit(Federation.from_arrays(x, y))
    front.save(tmp_path / "run")
    given = torch.from_numpy(x[0]).float()
    served = Served(open_trained(tmp_path / "run"), 0)(given)[0][:, 0].numpy()
    np.testing.assert_allclose(served, front.predict(x[0], 0), rtol=1e-5, atol=1)
    for kind in ("pt", "safetensors", "onnx"):
        if kind == "onnx":
            pytest.importorskip("onnxscript")
        front.export(0, tmp_path / f"m.{kind}")  # reads back and compares, in these units
    card = (tmp_path / "m.pt.card.md").read_text()
    assert "linear(4, 1, bias=True)" in card
    assert 'output = output * content["target_scale"] + content["target_mean"]' in card
    runtime = pytest.importorskip("onnxruntime")
    found = runtime.InferenceSession(str(tmp_path / "m.onnx")).run(["output"], {"x": given.numpy()})[0]
    np.testing.assert_allclose(found[:, 0], served, rtol=1e-5, atol=1)


def test_scaling_targets_by_hand() -> None:
    """Targets 1, 3 | 5, 7 have mean 4 and variance 5; a loss of 2 in scaled units is 10."""
    x, y = [np.ones((2, 1))] * 2, [np.array([1.0, 3.0]), np.array([5.0, 7.0])]
    scaled = Federation.from_arrays(x, y).with_scaled_targets()
    assert scaled.target_scaling is not None
    assert float(scaled.target_scaling.mean) == 4
    assert float(scaled.target_scaling.scale) == pytest.approx(5**0.5)
    assert scaled.train.y.tolist() == pytest.approx([v / 5**0.5 for v in (-3, -1, 1, 3)])
    job = Job(scaled, Recipe(k=1, rounds=1), lambda: torch.nn.Linear(1, 1))
    assert float(job.task.loss(torch.tensor([2.0]), torch.tensor([0.0]))[0]) == pytest.approx(20)
    assert float(job.task.minimised(torch.tensor([2.0]), torch.tensor([0.0]))[0]) == 4
    assert Scaling.undo(scaled.target_scaling, scaled.train.y).tolist() == pytest.approx([1, 3, 5, 7])


def test_several_targets_each_have_their_scale() -> None:
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(80, 3)) for _ in range(4)]
    y = [np.column_stack([1e6 + 1e5 * a[:, 0], 0.001 * a[:, 1]]) for a in x]
    front = IFCA(1, rounds=60, model="linear").fit(Federation.from_arrays(x, y))
    error = np.abs(front.predict(x[0], 0) - y[0]).mean(0)
    assert (error / [1e5, 1e-3] < 0.01).all()


def test_what_is_scaled_by_itself() -> None:
    x, y = regression(mean=2e5)
    own = IFCA(1, rounds=1, step_size=1e-9, model=torch.nn.Linear(4, 1))
    with pytest.warns(UserWarning, match="standardise_target = true"):
        own.fit(Federation.from_arrays(x, y))
    assert own.fitted_.job.federation.target_scaling is None  # a model of the user's may rely on units
    own = IFCA(1, rounds=30, model=torch.nn.Linear(4, 1), standardise=True, standardise_target=True)
    assert own.fit(Federation.from_arrays(x, y)).train_loss_ < 0.05
    with pytest.raises(InvalidInput, match="standardise_target: the labels y are class numbers"):
        IFCA(1, standardise_target=True).fit(Federation.from_arrays(x, [np.arange(60) % 2] * 6))


def test_the_papers_data_keep_the_papers_model() -> None:
    federation, _ = mixture_of_regressions(clients=6, samples=30, dimension=5)
    front = IFCA(2, rounds=3).fit(federation)
    assert [name for name, _ in front.fitted_.job.template.named_parameters()] == ["fc1.weight"]
    assert front.fitted_.job.federation is federation
    job = make_job(read_config(None, ["data={name='synthetic', clients=6, dimension=5}", "model={}"]))
    assert [name for name, _ in job.template.named_parameters()] == ["fc1.weight"]
    assert job.federation.target_scaling is None


FACTS: dict[str, Any] = {"regression": False, "pixels": False, "samples": 1000}


@pytest.mark.parametrize(
    ("shape", "facts", "name", "hidden"),
    [
        ((8,), {}, "mlp", (32,)),  # 1000 / (2 * (8 + 3)) = 45: the next power of two below
        ((8,), {"samples": 100}, "logistic", ()),  # 4 are too few
        ((8,), {"samples": 100, "regression": True}, "linear", ()),
        ((8,), {"samples": 10**6}, "mlp", (128,)),
        ((3, 32, 32), {}, "cnn", ()),
        ((28, 28), {"pixels": True}, "cnn", ()),
        ((28, 28), {}, "mlp", (200,)),  # floats: not known to be an image
        ((8, 8), {"pixels": True}, "mlp", (200,)),
    ],
)
def test_the_model_follows_from_the_data(
    shape: tuple[int, ...], facts: dict[str, Any], name: str, hidden: tuple[int, ...]
) -> None:
    found = choose_model("auto", None, shape, 3, **{**FACTS, **facts})
    assert found == BuiltIn(name, shape, 3, hidden)
    assert found()(torch.zeros(2, *shape)).shape == (2, 3)
    assert BuiltIn.from_json(found.to_json(), shape, 3) == found


@pytest.mark.parametrize("shape", [(20, 16), (3, 16, 20), (16, 20, 3), (1, 16, 16), (16, 16, 1)])
def test_images_have_their_channels_first_last_or_not_at_all(shape: tuple[int, ...]) -> None:
    assert BuiltIn("cnn", shape, 5)()(torch.zeros(2, *shape)).shape == (2, 5)


def test_names_in_python_and_what_is_refused() -> None:
    rng = np.random.default_rng(0)
    x, y = [rng.integers(0, 256, (12, 16, 16), dtype=np.uint8) for _ in range(3)], [np.arange(12) % 2] * 3
    front = IFCA(1, rounds=1, algorithm="global", model="cnn", class_weights="balanced")
    assert front.fit(Federation.from_arrays(x, y)).models_["conv1.weight"].shape == (1, 16, 1, 3, 3)
    with pytest.raises(InvalidInput, match="unknown model resnet"):
        IFCA(1, model="resnet").fit(Federation.from_arrays(x, y))
    with pytest.raises(InvalidInput, match="needs images"):
        IFCA(1, model="cnn").fit(Federation.from_arrays([np.ones((3, 4))], [np.arange(3)]))


def test_a_config_and_python_train_the_same(tmp_path: Path) -> None:
    x, y = regression(mean=2e5, scale=4e4)
    (folder := tmp_path / "clients").mkdir()
    for i, (a, b) in enumerate(zip(x, y, strict=True)):
        np.savez(folder / f"{i}.npz", x=a, y=b)
    data = f"data={{name='folder', path='{folder}', test_share=0.2}}"
    config = replace(read_config(None, [data, "rounds=3", "k=1", "model={}"]), baselines=())
    summary = run(config, tmp_path / "run")
    federation = read_federation(config)
    front = IFCA(1, rounds=3).fit(federation)
    assert summary["train_loss"] == pytest.approx(front.train_loss_, rel=1e-6)
    assert summary["quality"] == front.quality_


def test_a_run_goes_on_with_the_model_of_another(tmp_path: Path) -> None:
    """auto depends on how much data there is; a warm start has its model already."""
    x, y = regression(rows=60)
    for name, rows in (("few", 12), ("all", 60)):
        (tmp_path / name).mkdir()
        for i in range(6):
            np.savez(tmp_path / name / f"{i}.npz", x=x[i][:rows], y=y[i][:rows])

    def config(name: str) -> Any:
        data = f"data={{name='folder', path='{tmp_path / name}'}}"
        return replace(read_config(None, [data, "rounds=2", "k=1", "model={}"]), baselines=())

    run(config("few"), tmp_path / "before")
    run(replace(config("all"), warm_start=str(tmp_path / "before")), tmp_path / "after")
    assert open_trained(tmp_path / "after").built_in == open_trained(tmp_path / "before").built_in


def test_losses_of_both_engines_agree_in_units() -> None:
    x, y = regression(mean=2e5, scale=4e4)
    job = IFCA(2, rounds=3, precision="float64")._job(Federation.from_arrays(x, y))
    jobs = [replace(job, engine="loop"), job, replace(job, fast_path=False)]
    losses = [fit(one).train_loss for one in jobs]
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=1e-9)
