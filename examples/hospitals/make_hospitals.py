"""Draw the hospitals of this example: hospitals/*.csv to train on, new/*.csv that come later.

Twenty-four hospitals wrote down who came back within a month. Their tables are as such tables are: a date,
a patient's number, words, empty cells. In half of them old patients who smoke come back, in the other half
these are sent to a rehabilitation clinic and the young come back. Nobody wrote down which is which.

    python make_hospitals.py [FOLDER]
"""

from __future__ import annotations

import csv
import sys
from datetime import date, timedelta
from pathlib import Path

import numpy as np

COLUMNS = ("date", "patient_id", "age", "sex", "blood_pressure", "ward", "smoker", "outcome")
WARDS = {"surgery": 0.5, "medicine": -0.5, "emergency": 1.0}  # what a ward adds to the risk


def patient(number: str, rehabilitation: bool, rng: np.random.Generator) -> list[str]:
    """One row of a table."""
    day = date(2025, 1, 1) + timedelta(days=int(rng.integers(365)))
    age, pressure = int(rng.integers(18, 95)), rng.normal(130, 18)
    sex, ward = str(rng.choice(["female", "male"])), str(rng.choice(list(WARDS)))
    smoker = rng.random() < 0.3
    risk = (age - 55) / 20 + (pressure - 130) / 25 + WARDS[ward] + smoker + (0.6 if sex == "male" else -0.6)
    risk = 0.5 - risk if rehabilitation else risk
    outcome = "came back" if risk + rng.logistic(scale=0.4) > 0.3 else "stayed well"
    measured = "" if rng.random() < 0.05 else f"{pressure:.1f}"
    return [day.isoformat(), number, str(age), sex, measured, ward, "yes" if smoker else "no", outcome]


def write_hospital(
    file: Path, n: int, rehabilitation: bool, rng: np.random.Generator, *, known: bool = True
) -> None:
    """A table of n patients; known: with the outcome."""
    rows = [patient(f"{file.stem}-{i:04d}", rehabilitation, rng) for i in range(n)]
    width = len(COLUMNS) if known else len(COLUMNS) - 1
    with file.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows(row[:width] for row in [list(COLUMNS), *rows])


def main(folder: Path) -> None:
    """Twenty-four hospitals; then new patients of one of them, and a hospital that is new."""
    rng = np.random.default_rng(0)
    for name in ("hospitals", "new"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for i, rehabilitation in enumerate(rng.permutation(np.repeat([False, True], 12))):
        write_hospital(
            folder / "hospitals" / f"h{i:02d}.csv", int(rng.integers(60, 300)), bool(rehabilitation), rng
        )
        if i == 0:
            write_hospital(folder / "new" / "h00.csv", 20, bool(rehabilitation), rng, known=False)
    write_hospital(folder / "new" / "h24.csv", 80, True, rng)
    print(f"wrote 24 hospitals to {folder / 'hospitals'}, new patients to {folder / 'new'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
