"""After a power cut a run goes on to the same bits; benchmarks/power_cuts.py cuts at every byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.power_cuts import JOBS, MORE, PLAIN, tried
from benchmarks.recorded_disk import Disk, Event, cuts


@pytest.mark.parametrize(("name", "each"), [(PLAIN, 3), (MORE, 7)])
def test_a_run_goes_on_after_a_power_cut(name: str, each: int, tmp_path: Path) -> None:
    found = tried(tmp_path, JOBS[name][1], 4001, each)
    assert found.keys() == {"run", "resume"}
    assert found["resume"] > 10


def test_what_a_power_cut_leaves() -> None:
    """A file of four bytes, of which the first two were synced, cut off in its third."""
    events = [Event("empty", "a"), Event("write", "a", b"12"), Event("sync", "a"), Event("write", "a", b"34")]
    disk = Disk()
    for event in events[:3]:
        disk.do(event)
    disk.do(events[3], 1)
    assert [disk.left(way) for way in ("kept", "lost", "zeros")] == [
        {"a": b"123"},
        {"a": b"12"},
        {"a": b"12\0"},
    ]
    left = [files for files, _ in cuts(events)]
    assert left == [
        {},
        {"a": b""},
        {"a": b"1"},
        {"a": b"\0"},
        {"a": b"12"},
        {"a": b"\0\0"},
        {"a": b"123"},
        {"a": b"12\0"},
        {"a": b"1234"},
    ]
