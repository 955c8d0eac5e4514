"""Draw the sensors of this example: sensors/*.csv to train on, new/*.csv that come later.

A gas sensor shows a voltage that also follows temperature and humidity. Sixty were compared with a reference
instrument for some weeks. They have drifted: a third reads as delivered, a third has lost sensitivity,
a third answers to humidity with the opposite sign. Which sensor is which, nobody wrote down.

    python make_sensors.py [FOLDER]
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

# By population: gas (ppm) per volt, per degree, per percent of humidity.
CALIBRATIONS = ((42.0, -0.8, 0.3), (95.0, -0.2, 0.3), (42.0, -0.8, -0.9))
COLUMNS = ("voltage", "temperature", "humidity", "reference")


def write_sensor(file: Path, population: int, n: int, rng: np.random.Generator, offset: float = 0.0) -> None:
    """One sensor's measurements beside the reference; offset: a fault of its own, in ppm."""
    voltage = rng.uniform(0.4, 3.2, n)
    temperature = rng.normal(18, 7, n)
    humidity = rng.uniform(25, 90, n)
    volt, degree, percent = CALIBRATIONS[population]
    gas = 20 + volt * voltage + degree * (temperature - 20) + percent * (humidity - 50)
    gas += 4 * np.sin(3 * voltage) + rng.normal(0, 2, n) + offset
    rows = np.stack([voltage, temperature, humidity, gas], 1)
    with file.open("w", newline="") as out:
        table = csv.writer(out)
        table.writerow(COLUMNS)
        table.writerows([[f"{value:.3f}" for value in row] for row in rows])


def main(folder: Path) -> None:
    """Sixty sensors of 30 to 80 measurements, and four new ones."""
    rng = np.random.default_rng(0)
    (folder / "sensors").mkdir(parents=True, exist_ok=True)
    (folder / "new").mkdir(exist_ok=True)
    for i, population in enumerate(rng.permutation(np.repeat([0, 1, 2], 20))):
        write_sensor(folder / "sensors" / f"s{i:02d}.csv", population, int(rng.integers(30, 80)), rng)
    for population, name in enumerate(("n-as-delivered", "n-weak", "n-turned")):
        write_sensor(folder / "new" / f"{name}.csv", population, 40, rng)
    write_sensor(folder / "new" / "n-broken.csv", 0, 40, rng, offset=60.0)
    print(f"wrote 60 sensors to {folder / 'sensors'}, 4 new ones to {folder / 'new'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
