"""The memory of a soak's processes: what each had early in its life, and later."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.chaos_faults import Soaked

WARM = 50  # rounds of a process before its memory is compared
EVERY = 5  # rounds between two looks


class Memory:
    """Megabytes of each long-lived process, by rounds."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], list[tuple[int, float]]] = {}
        self._looked = -EVERY

    def look(self, soaked: Soaked, done: int) -> None:
        """Note what the processes have now."""
        if done < self._looked + EVERY:
            return
        self._looked = done
        from benchmarks.chaos_faults import command

        started = {"server": soaked.server, **soaked.clients}
        for process in (one for one in started.values() if one is not None):
            for pid in soaked.tree(process):
                kind, size = kind_of(command(pid)), own(pid)
                if kind and size:
                    self._seen.setdefault((kind, pid), []).append((done, size))

    def growth(self) -> list[dict[str, Any]]:
        """By kind the longest life: megabytes in its first and in its last tenth, after some rounds."""
        found: dict[str, dict[str, Any]] = {}
        for (kind, _pid), seen in self._seen.items():
            warm = [size for done, size in seen if done >= seen[0][0] + WARM]
            rounds = seen[-1][0] - seen[0][0]
            if len(warm) < 20 or rounds <= found.get(kind, {"rounds": 0})["rounds"]:
                continue
            part = max(3, len(warm) // 10)
            first, last = median(warm[:part]), median(warm[-part:])
            found[kind] = {
                "process": kind,
                "rounds": rounds,
                "first_mb": round(first, 1),
                "last_mb": round(last, 1),
                "percent": round(100 * (last / first - 1), 2),
            }
        return list(found.values())


def kind_of(line: str) -> str:
    """Which long-lived process a command line is of; empty: none that is watched."""
    for word, kind in (
        ("flower-supernode", "SuperNode"),
        ("federate client", "client"),
        ("federation.gate", "SuperLink"),
        ("ifca resume", "server"),
        ("federate server", "server"),
        ("task_executor", "executor"),
    ):
        if word in line:
            return kind
    return ""


def own(pid: int) -> float:
    """Megabytes that no other process shares; 0: it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024
