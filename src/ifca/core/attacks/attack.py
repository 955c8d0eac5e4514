"""What an attack is: a frozen record of pure functions. Engines apply it, and know no attack by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor

from ifca.core.replies import Part


class Block(NamedTuple):
    """Some coordinates of the changes of a round: gradients (option I), or models less the one sent."""

    honest: Tensor  # [h, b] of the honest clients of the cluster; where it has none, of all honest clients
    own: Tensor  # [a, b] what the attackers would send if they were honest
    part: Part  # which coordinates


@dataclass(frozen=True)
class Seen:
    """What the attackers of one cluster see in a round. n = h + a clients are in it."""

    blocks: Callable[[], Iterator[Block]]
    """From the first on; may be gone through more than once."""
    strength: float | None
    """How strongly they attack; None: as the formula says."""
    noise: Callable[[Part], Tensor]
    """Standard normal numbers of these coordinates: [a, b]."""
    towards: Callable[[Part], Tensor]
    """The change that turns the cluster's model into the nearest other one: [b]. No other: zero."""

    @property
    def factor(self) -> float:
        """The strength of a formula that has a number by default."""
        assert self.strength is not None
        return self.strength


Sends = Callable[[Seen], Iterator[Tensor]]
"""-> for each block the changes that the attackers send, [a, b], or [b] where all send the same."""
Claims = Callable[[Tensor, Tensor, Tensor], Tensor]
"""honest clients' identities [h], the attackers' own [a], their losses [a, k] -> what they claim [a]."""
Poisons = Callable[[Tensor, Tensor, int, Tensor], tuple[Tensor, Tensor]]
"""x, y of an attacker's samples, number of classes, 64 random bits of each [n] -> what it trains on."""


@dataclass(frozen=True)
class Kind:
    """One kind of attack."""

    name: str  # as configs call it
    about: str  # what attackers do, in a line
    sends: Sends | None = None  # None: the update that their turn gave
    claims: Claims | None = None  # None: their honest identity
    poisons: Poisons | None = None  # None: they train on their own data
    lies: bool = False  # what they report beside the update is multiplied by the strength
    strength: float | None = None  # the default; None: the formula says it
    settable: bool = True  # whether a strength can be given
    alone: bool = False  # a client can do it that knows nothing of the others
    everywhere: bool = False  # attackers come from all clusters
    triggered: bool = False  # a backdoor, whose success is measured

    @property
    def in_round(self) -> bool:
        """Whether replies differ from what training gave; else the data alone are attacked."""
        return self.lies or self.sends is not None or self.claims is not None


@dataclass(frozen=True)
class Attack:
    """A kind of attack, and the clients of a federation that take part in it."""

    kind: Kind
    rows: tuple[int, ...]  # the attackers' places among the m clients, in order
    keys: tuple[int, ...]  # a number of each attacker, from its id
    strength: float | None = None
    seed: int = 0
    cluster: int | None = None  # the attacked true cluster; None: attackers come from all clients

    @property
    def on_data(self) -> Attack:
        """The attackers' data alone are attacked: replies are what training on them gives."""
        return replace(self, kind=replace(self.kind, sends=None, claims=None, lies=False))
