"""All kinds of attacks, by name."""

from __future__ import annotations

from ifca.core.attacks.attack import Kind
from ifca.core.attacks.omniscient import alie, inner_product, mimic, min_max
from ifca.core.attacks.on_clusters import boosted, drag, smallest, worst_fitting
from ifca.core.attacks.on_data import backdoor, label_flip
from ifca.core.attacks.single_client import gaussian, scale, sign_flip
from ifca.core.errors import InvalidInput

KINDS = {
    kind.name: kind
    for kind in (
        Kind("label-flip", "train on labels C - 1 - y", poisons=label_flip, settable=False, alone=True),
        Kind("sign-flip", "send the negative of their change", sends=sign_flip, strength=1.0, alone=True),
        Kind("scale", "send their change 100 times", sends=scale, strength=100.0, alone=True),
        Kind("gaussian", "send noise", sends=gaussian, strength=1.0, alone=True),
        Kind("alie", "send mean + z std of the honest changes", sends=alie),
        Kind("inner-product", "send -2 times the honest mean", sends=inner_product, strength=2.0),
        Kind("min-max", "send mean - g std, no farther out than the honest", sends=min_max, settable=False),
        Kind("mimic", "all copy one honest client", sends=mimic, settable=False),
        Kind(
            "backdoor",
            "train half of their samples with a trigger and label 0",
            poisons=backdoor,
            settable=False,
            alone=True,
            triggered=True,
        ),
        Kind(
            "concentrate",
            "all claim the smallest cluster and send -2 times its honest mean",
            sends=inner_product,
            claims=smallest,
            strength=2.0,
            everywhere=True,
        ),
        Kind(
            "misreport",
            "claim the model that fits them worst and send what another became",
            claims=worst_fitting,
            settable=False,
            alone=True,
        ),
        Kind(
            "lie-losses",
            "report losses 100 times as large, and the opposite of what else they found",
            lies=True,
            strength=100.0,
            alone=True,
        ),
        Kind("drag", "pull their cluster's model onto the nearest other", sends=drag, strength=1.0),
        Kind(
            "backdoor-cluster",
            "backdoor, their change boosted to be the whole of their cluster's mean",
            sends=boosted,
            poisons=backdoor,
            triggered=True,
        ),
    )
}


def kind_of(name: str) -> Kind:
    """The kind of this name."""
    if name not in KINDS:
        raise InvalidInput(f"attack.name must be one of {', '.join(KINDS)}, got {name!r}")
    return KINDS[name]
