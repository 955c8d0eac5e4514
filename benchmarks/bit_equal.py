"""Are two versions of ifca equal to the last bit? Run it under each and compare what it prints.

python benchmarks/bit_equal.py > before.txt    (in the one checkout)
python benchmarks/bit_equal.py | diff before.txt -    (in the other)

A line per recipe: the hash of the models, labels and losses of a short training on a CPU.
"""

from __future__ import annotations

import hashlib
import warnings
from typing import Any

import numpy as np

from ifca import IFCA, Federation, mixture_of_regressions, rotated_digits

METHODS = ("ifca-plain", "global", "local", "oneshot")
RECIPES: dict[str, dict[str, Any]] = {
    "option II": {},
    "option I": {"option": "gradient"},
    "mini-batches": {"batch_size": 10, "local_epochs": 1},
    "a part takes part": {"participation": 0.3},
    "weighted": {"weighted": True},
    "stable identities": {"stable_after": 2, "recheck_every": 3},
    "loop": {"engine": "loop", "participation": 0.2},
    "no fast path, l2": {"l2": 0.01},
    "shared layer": {"shared": ("fc1",)},
    "restarts": {"restarts": 2},
}


def uneven() -> Federation:
    """Clients of unequal size, float features."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(3, 60, 20)
    x = [rng.normal(size=(n, 7)).astype(np.float32) for n in sizes]
    y = [((one[:, 0] > 0) ^ bool(i % 2)).astype(np.int64) for i, one in enumerate(x)]
    return Federation.from_arrays(x=x, y=y, ids=[f"client {i}" for i in range(20)])


def main() -> None:
    warnings.simplefilter("ignore")
    data = {
        "digits": rotated_digits(),
        "uneven": uneven(),
        "regression": mixture_of_regressions(clients=12, samples=30, dimension=20, clusters=2)[0],
    }
    for source, federation in data.items():
        k = 4 if source == "digits" else 2
        for name, settings in RECIPES.items():
            if settings.get("shared") and source == "regression":
                continue
            for method in METHODS:
                model = IFCA(k, algorithm=method, rounds=5, step_size=0.05, **settings).fit(federation)
                digest = hashlib.sha256()
                for key in sorted(model.models_):
                    digest.update(model.models_[key].numpy().tobytes())
                digest.update(model.labels_.tobytes() + np.float64(model.train_loss_).tobytes())
                print(f"{source}, {name}, {method}: {digest.hexdigest()[:16]}", flush=True)


if __name__ == "__main__":
    main()
