"""What a run's summary says of an attack."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ifca.training import Fitted
from ifca.training.attack_effect import backdoor_success


def honest(fitted: Fitted) -> NDArray[np.bool_]:
    """Which training clients are honest: [m]."""
    found = np.ones(len(fitted.labels), bool)
    if fitted.job.attack is not None:
        found[list(fitted.job.attack.rows)] = False
    return found


def attack_results(fitted: Fitted) -> dict[str, Any]:
    """The part "attack" of a summary; nothing where nobody attacks."""
    attack, ids = fitted.job.attack, fitted.job.federation.train.ids
    if attack is None:
        return {}
    found = {
        "name": attack.kind.name,
        "strength": attack.strength,
        "cluster": attack.cluster,
        "attackers": [ids[i] for i in attack.rows],
        "backdoor_success": backdoor_success(fitted, attack),
    }
    return {"attack": found}


def attack_sentences(fitted: Fitted) -> list[str]:
    """That this was a rehearsal, and over whom results are."""
    attack, m = fitted.job.attack, len(fitted.labels)
    if attack is None:
        return []
    where = "" if attack.cluster is None else f" of true cluster {attack.cluster}"
    who = f"{len(attack.rows)} of {m} clients{where} attacked ({attack.kind.name})"
    return [f"a rehearsal: {who}; results on test data are over the honest clients"]
