"""TensorBoard: a folder of event files, one run in it per training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from ifca.core.callbacks import Record, Training
from ifca.runs.track.trackers import final_numbers, numbers


class TensorBoard:
    """Writes rounds as scalars; step: rounds done.

    A training that goes on is written anew from its history, so that no point is there twice or missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer: SummaryWriter | None = None
        self._title = ""

    def started(self, training: Training) -> None:
        """Begin anew, with what was done before."""
        self._open(training.title, anew=True)
        for record in training.history:
            self._write(record)
        self._flush()

    def round_ended(self, record: Record) -> None:
        """Write a round."""
        self._write(record)
        self._flush()

    def finished(self, summary: dict[str, Any]) -> None:
        """Write what came out, under the algorithm's name."""
        self._open(summary["algorithm"], anew=False)
        for name, value in final_numbers(summary).items():
            self._scalar(name, value, summary["rounds"])
        if self._writer is not None:
            self._writer.close()
        self._writer, self._title = None, ""

    def _open(self, title: str, *, anew: bool) -> None:
        if self._writer is not None and self._title == title and not anew:
            return
        if self._writer is not None:
            self._writer.close()
        place = self.folder / title.replace("/", "-of-").replace(" ", "-")
        if anew and place.is_dir():
            for file in place.glob("events.out.tfevents.*"):
                file.unlink()
        self._writer, self._title = SummaryWriter(str(place)), title

    def _write(self, record: Record) -> None:
        for name, value in numbers(record).items():
            self._scalar(name, value, record["round"] + 1)

    def _scalar(self, name: str, value: float, step: int) -> None:
        assert self._writer is not None
        self._writer.add_scalar(name, value, step)

    def _flush(self) -> None:
        assert self._writer is not None
        self._writer.flush()
