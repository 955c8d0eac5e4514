"""Two clients that were not there in training: new/upside-down.npz, and new/mirrored.npz, whom no model fits.

python new_clients.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from ifca.data import Client, write_client


def main(folder: Path) -> None:
    """Eighty digits each, most of which some training client has seen turned in another way."""
    digits = load_digits()
    x, y = (digits.images / 16).astype(np.float32), digits.target  # scaled as in training
    some = np.random.default_rng(5).permutation(len(x))[:80]
    (folder / "new").mkdir(parents=True, exist_ok=True)
    write_client(folder / "new" / "upside-down.npz", Client(np.rot90(x[some], 2, axes=(1, 2)), y[some]))
    write_client(folder / "new" / "mirrored.npz", Client(x[some][:, :, ::-1], y[some]))
    print(f"wrote two clients to {folder / 'new'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
