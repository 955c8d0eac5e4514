"""The table [attack] of a config: a rehearsal with hostile clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic.dataclasses import dataclass

from ifca.core.errors import InvalidInput
from ifca.runs.data_config import STRICT

if TYPE_CHECKING:
    from ifca.core.attacks import Attack
    from ifca.data import Clients


@dataclass(frozen=True, config=STRICT)
class AttackConfig:
    """Some clients attack; accuracies are then those of the honest ones (docs/attacks.md)."""

    name: str
    """What they do: label-flip, sign-flip, scale, gaussian, alie, inner-product, min-max, mimic, backdoor,
    concentrate, misreport, lie-losses, drag, backdoor-cluster."""
    share: float = 0.2
    """How many: a share of the attacked cluster's clients, or of all clients where true clusters are not
    known (and of concentrate)."""
    cluster: int | None = None
    """The attacked cluster, as the data number their true clusters; none: the first of them."""
    clients: tuple[str, ...] = ()
    """The ids of the attackers, instead of a share."""
    strength: float | None = None
    """How strongly: what scale and sign-flip multiply by, the z of alie, and so on; none: the attack's
    own."""

    def of(self, clients: Clients, seed: int) -> Attack:
        """The attack among some clients."""
        from ifca.core.attacks import attackers

        return attackers(
            self.name,
            ids=clients.ids,
            keys=clients.keys,
            true=clients.true_cluster,
            share=self.share,
            cluster=self.cluster,
            clients=self.clients,
            strength=self.strength,
            seed=seed,
        )

    def by(self, client: Clients, seed: int) -> Attack | None:
        """The attack of a node's one client, who knows no others; None: it is not named."""
        if client.ids[0] not in self.clients:
            return None
        from ifca.core.attacks import Attack, kind_of

        kind = kind_of(self.name)
        strength = kind.strength if self.strength is None else self.strength
        return Attack(kind, (0,), (int(client.keys[0]),), strength, seed)


def check_on_flower(attack: AttackConfig | None) -> None:
    """Refuse what clients of a real federation cannot rehearse."""
    if attack is None:
        return
    from ifca.core.attacks import kind_of

    if not kind_of(attack.name).alone:
        raise InvalidInput(
            f"attack.name: {attack.name} needs to know what other clients send, which no client of a "
            "federation does; it is for 'ifca run' and 'ifca attack'"
        )
    if not attack.clients:
        raise InvalidInput("attack.clients: in a federation the attackers are named by their ids")
