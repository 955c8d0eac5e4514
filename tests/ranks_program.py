"""What test_ranks.py starts twice: two processes train every row together, and the leading one saves it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch

from ifca.engines.ranks import joined
from ifca.runs.on_ranks import take_part
from ifca.training import fit
from ifca.training.dealt_clients import dealt
from tests.test_ranks import ROWS, half_way, row_job


def main(out: Path) -> None:
    torch.set_num_threads(1)
    with joined() as ranks:
        for name in ROWS:
            job = row_job(name)
            if not ranks.leads:
                take_part(dealt(job, ranks), ranks)
                continue
            fitted = fit(job)
            found = {"theta": fitted.state.theta, "labels": fitted.labels, "losses": fitted.train.loss}
            torch.save(found | {"history": fitted.history}, out / f"{name}.pt")
            ranks.told(None)
        job = row_job("default")
        if not ranks.leads:
            take_part(dealt(job, ranks), ranks)
            return
        torch.save(fit(job, resume=half_way(replace(job))).state.theta, out / "resumed.pt")
        ranks.told(None)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
