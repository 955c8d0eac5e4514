"""DataFrames with words, dates and missing cells: the hospitals in ten lines of Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ifca import IFCA, InvalidInput, open_run

pd = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def hospitals() -> Any:
    """Eight hospitals, 60 patients each; at half of them age counts the other way."""
    rng = np.random.default_rng(0)
    n, hospital = 480, np.repeat(np.arange(8), 60)
    age, ward = rng.integers(18, 95, n), rng.choice(["surgery", "medicine", "emergency"], n)
    risk = (age - 56) / 10 * np.where(hospital % 2, -1, 1) + 2 * (ward == "surgery") - 0.7
    return pd.DataFrame(
        {
            "date": pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 300, n), "D"),
            "age": np.where(rng.random(n) < 0.05, np.nan, age),
            "ward": ward,
            "smoker": rng.random(n) < 0.3,
            "hospital": [f"h{i}" for i in hospital],
            "outcome": np.where(risk > 0, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def fitted(hospitals: Any) -> IFCA:
    return IFCA(rounds=12, seed=0).fit(hospitals, "outcome", groups="hospital")


def test_words_in_the_answer(fitted: IFCA, hospitals: Any, tmp_path: Path) -> None:
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert fitted.fitted_.job.federation.features == (
        "age",
        "age is missing",
        "ward = emergency",
        "ward = medicine",
        "ward = surgery",
        "smoker",
    )
    assert [int(j != fitted.labels_[0]) for j in fitted.labels_] == [0, 1, 0, 1, 0, 1, 0, 1]
    x = hospitals.drop(columns="outcome")
    said = fitted.predict(x, groups="hospital")
    assert set(said) == {"no", "yes"}
    right = float((said == hospitals["outcome"].to_numpy()).mean())
    assert right > 0.9
    assert fitted.score(x, hospitals["outcome"], groups="hospital") == pytest.approx(right)
    fitted.save(tmp_path / "run")
    assert (open_run(tmp_path / "run").predict(x, groups="hospital") == said).all()


def test_a_word_that_training_never_saw_is_none_of_the_others(fitted: IFCA, hospitals: Any) -> None:
    row = hospitals.drop(columns=["outcome", "hospital"]).iloc[:1].assign(ward="maternity")
    none = np.array([[float(row["age"].iloc[0]), 0, 0, 0, 0, float(row["smoker"].iloc[0])]])
    assert (fitted.predict_proba(row, cluster=0) == fitted.predict_proba(none, cluster=0)).all()


def test_a_column_that_is_gone_is_named(fitted: IFCA, hospitals: Any) -> None:
    with pytest.raises(InvalidInput, match="X has no column ward, which was there in training"):
        fitted.predict(hospitals.drop(columns=["ward", "outcome"]), groups="hospital")


def test_labels_that_are_words_with_an_array() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((80, 2))
    y = np.where(x[:, 0] > 0, "high", "low")
    model = IFCA(rounds=10, k=1).fit(x, y, groups=np.arange(80) // 20)
    assert model.predict(np.array([[3.0, 0.0], [-3.0, 0.0]]), groups=[0, 1]).tolist() == ["high", "low"]
