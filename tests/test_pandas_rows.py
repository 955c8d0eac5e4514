"""Rows as pandas and scikit-learn have them: dates, bools, labels -1 and 1, huge offsets, pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ifca import IFCA, Federation, InvalidInput
from ifca.data.cells import cells_of
from ifca.data.column_statistics import client_statistics, merged
from ifca.data.sources.columns import Columns
from ifca.data.sources.folder import folder_clients
from ifca.use.personal import Tuning
from ifca.use.predict import predict

pd = pytest.importorskip("pandas")
N = 300
GROUPS = np.arange(N) % 6


@pytest.fixture(scope="module")
def frame() -> Any:
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 300, N), "D")
    return pd.DataFrame(
        {
            "x": rng.standard_normal(N),
            "day": pd.Series(days).astype("datetime64[ns]"),
            "smoker": rng.random(N) < 0.4,
        }
    )


def test_dates_in_nanoseconds_are_dates(frame: Any) -> None:
    y = np.where(frame["x"] > 0, "yes", "no")
    federation = IFCA(1, rounds=1).fit(frame, y, groups=GROUPS).fitted_.job.federation
    assert federation.features == ("x", "smoker")


def test_bools_are_bools_where_a_cell_is_missing(frame: Any) -> None:
    y = np.where(frame["smoker"], "yes", "no")
    model = IFCA(1, rounds=10).fit(frame, y, groups=GROUPS)
    objects = frame.astype({"smoker": object})
    assert (model.predict_proba(objects, groups=GROUPS) == model.predict_proba(frame, groups=GROUPS)).all()
    objects.loc[0, "smoker"] = None
    assert (model.predict(objects, groups=GROUPS)[1:] == y[1:]).all()


def test_words_in_a_column_of_numbers_are_refused_at_predict(frame: Any) -> None:
    y = np.where(frame["x"] > 0, "yes", "no")
    model = IFCA(1, rounds=1).fit(frame, y, groups=GROUPS)
    wrong = frame.astype({"x": object})
    wrong.loc[3, "x"] = "high"
    with pytest.raises(InvalidInput, match="predict: column x of X holds 'high', which is not a number"):
        model.predict(wrong, groups=GROUPS)


@pytest.mark.parametrize("labels", [(-1, 1), (1, 2), (5, 9)])
@pytest.mark.parametrize("named", [True, False])
def test_labels_that_begin_elsewhere_are_two_classes(
    frame: Any, labels: tuple[int, int], named: bool, tmp_path: Path
) -> None:
    x = frame[["x"]] if named else frame[["x"]].to_numpy()
    y = np.where(frame["x"] > 0, labels[1], labels[0])
    model = IFCA(1, rounds=10).fit(x, y, groups=GROUPS)
    assert model.classes_.tolist() == list(labels)
    right = float((model.predict(x, groups=GROUPS) == y).mean())
    assert right > 0.9
    assert model.score(x, y, groups=GROUPS) == pytest.approx(right)
    again = IFCA.load(model.save(tmp_path / "run"))
    assert (again.predict(x, groups=GROUPS) == model.predict(x, groups=GROUPS)).all()


def test_whole_numbers_as_objects_are_scored(frame: Any) -> None:
    y = (frame["x"] > 0).astype(int).to_numpy().astype(object)
    model = IFCA(1, rounds=10).fit(frame, y, groups=GROUPS)
    right = float((model.predict(frame, groups=GROUPS) == y).mean())
    assert model.score(frame, y, groups=GROUPS) == pytest.approx(right)


def test_targets_far_from_zero_keep_their_digits() -> None:
    """In float32 numbers near 1e9 are 64 apart."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N, 2))
    y = 1e9 + x @ [1.0, 2.0] + 0.1 * rng.standard_normal(N)
    model = IFCA(1, rounds=30).fit(x, y, groups=GROUPS)
    r2 = r2_score(y, model.predict(x, groups=GROUPS))
    assert 0.98 < r2 < 0.9999
    assert model.score(x, y, groups=GROUPS) == pytest.approx(r2, abs=1e-3)


@pytest.mark.parametrize("offset", [0.0, 1234567890.0, -1234567890.0])
def test_what_fills_holes_is_among_the_numbers(offset: float) -> None:
    values = offset + np.random.default_rng(0).standard_normal(500)
    clients = [client_statistics({"a": cells_of(part)}) for part in np.array_split(values, 4)]
    median = merged(clients)["a"].median()
    assert abs(median - np.median(values)) < 1


def test_rows_without_a_label_are_predicted_in_units_by_an_own_model(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(4):
        x = rng.standard_normal((60, 2))
        table = pd.DataFrame(x, columns=["a", "b"])
        table.assign(y=20000 + 4000 * (x @ [1.0, 2.0])).to_csv(_file(tmp_path, f"c{i}"), index=False)
    federation = Federation.from_clients(folder_clients(tmp_path / "clients", Columns()))
    run = IFCA(1, rounds=20).fit(federation).save(tmp_path / "run")
    table = pd.read_csv(tmp_path / "clients" / "c0.csv")
    y = table["y"].to_numpy().copy()
    table.loc[:9, "y"] = np.nan
    table.to_csv(tmp_path / "partly.csv", index=False)
    said = predict(run, tmp_path / "partly.csv", tuning=Tuning(steps=2))
    assert said.personal is not None
    assert r2_score(y, said.outputs[:, 0]) > 0.9


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
def test_a_pipeline_scores_with_routed_groups(frame: Any) -> None:
    x, y = frame[["x"]].to_numpy(), np.where(frame["x"] > 0, 1, 0)
    last = IFCA(1, rounds=10)
    for verb in ("fit", "predict", "score"):
        getattr(last, f"set_{verb}_request")(groups=True)
    pipeline = make_pipeline(StandardScaler(), last).fit(x, y, groups=GROUPS)
    right = float((pipeline.predict(x, groups=GROUPS) == y).mean())
    assert pipeline.score(x, y, groups=GROUPS) == pytest.approx(right)


def test_what_is_not_known_before_fit_is_not_there() -> None:
    assert not hasattr(IFCA(2), "quality_")


def _file(folder: Path, name: str) -> Path:
    (folder / "clients").mkdir(exist_ok=True)
    return folder / "clients" / f"{name}.csv"


def test_several_targets_beside_words() -> None:
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"a": rng.standard_normal(N), "w": rng.choice(["u", "v"], N)})
    y = np.stack([5 + 2 * x["a"], 3 * (x["w"] == "u")], 1)
    model = IFCA(1, rounds=30).fit(x, y, groups=GROUPS)
    said = model.predict(x, groups=GROUPS)
    assert r2_score(y, said) > 0.9
    assert model.score(x, y, groups=GROUPS) > 0.9


def test_a_column_twice_is_one_sentence() -> None:
    x = pd.DataFrame([[1.0, 2.0, "u"]] * 12, columns=["a", "a", "w"])
    with pytest.raises(InvalidInput, match="X has the column a twice"):
        IFCA(1, rounds=1).fit(x, [0, 1] * 6, groups=[0, 1, 2] * 4)
