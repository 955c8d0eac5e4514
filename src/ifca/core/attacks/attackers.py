"""Who attacks: a share of a true cluster's clients, of all clients, or those whose ids are given."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ifca.core.attacks.attack import Attack
from ifca.core.attacks.attack_names import kind_of
from ifca.core.errors import InvalidInput
from ifca.core.random import UInts, bits


def attackers(
    name: str,
    *,
    ids: Sequence[str],
    keys: UInts,
    true: NDArray[np.int64] | None,
    share: float = 0.2,
    cluster: int | None = None,
    clients: Sequence[str] = (),
    strength: float | None = None,
    seed: int = 0,
) -> Attack:
    """An attack by some of m clients. ids, keys: [m]; true: [m] their true clusters, where they are known.

    clients: ids, instead of a share. cluster: the attacked one; None: the first of them, or all clients.
    """
    kind = kind_of(name)
    if strength is not None:
        if not kind.settable:
            raise InvalidInput(f"attack.strength: {name} takes none")
        if not (math.isfinite(strength) and (strength > 0 or (kind.lies and strength == 0))):
            raise InvalidInput(f"attack.strength must be a positive number, got {strength}")
    strength = kind.strength if strength is None else strength
    if clients:
        rows = _named(clients, ids)
    else:
        cluster = _attacked(kind.everywhere, true, cluster)
        pool = np.arange(len(ids)) if cluster is None or true is None else np.flatnonzero(true == cluster)
        rows = _drawn(pool, keys, share, seed)
    if len(rows) == len(ids):
        raise InvalidInput("attack: all clients are attackers, so there is nobody to measure")
    return Attack(kind, tuple(rows), tuple(int(keys[i]) for i in rows), strength, seed, cluster)


def _attacked(everywhere: bool, true: NDArray[np.int64] | None, cluster: int | None) -> int | None:
    """The true cluster that attackers are of; None: they are of all."""
    if cluster is not None and true is None:
        raise InvalidInput("attack.cluster: the true clusters of these data are not known")
    if true is None:
        return None
    known = sorted(set(true.tolist()))
    if cluster is not None and cluster not in known:
        raise InvalidInput(f"attack.cluster is {cluster}, but the true clusters are {known}")
    return cluster if cluster is not None or everywhere else known[0]


def _drawn(pool: NDArray[np.int64], keys: UInts, share: float, seed: int) -> list[int]:
    """A share of some clients, by their ids: a larger share has those of a smaller one, and more."""
    if not 0 < share <= 1:
        raise InvalidInput(f"attack.share must be in (0, 1], got {share}")
    count = math.floor(share * len(pool) + 0.5)
    if not count:
        raise InvalidInput(f"attack.share: {share} of {len(pool)} clients is nobody")
    order = bits(seed, "attackers", keys[pool]).argsort(kind="stable")
    return sorted(pool[order[:count]].tolist())


def _named(clients: Sequence[str], ids: Sequence[str]) -> list[int]:
    place = {name: i for i, name in enumerate(ids)}
    for name in clients:
        if name not in place:
            raise InvalidInput(f"attack.clients: there is no client {name}")
    return sorted({place[name] for name in clients})
