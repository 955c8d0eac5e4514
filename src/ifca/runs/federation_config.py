"""The table [federation] of a config."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from ifca.runs.data_config import STRICT, Positive


@dataclass(frozen=True, config=STRICT)
class FederationConfig:
    """A real federation, or its simulation on Flower (ifca federate)."""

    clients: Positive | None = None
    """Wait for so many clients before the first round; none: min_clients."""
    min_clients: Positive = 2
    """A round with fewer usable replies (or fewer than its participants) is repeated."""
    attempts: Positive = 3
    """So many times in all; then the run stops with its checkpoint."""
    round_timeout: Annotated[float, Field(gt=0)] = 600.0
    """Seconds to wait for replies; a client that is later is left out of the round."""
    gather_timeout: Annotated[float, Field(gt=0)] = 600.0
    """Seconds to wait for clients without a new one joining; then the run ends and says why."""
    half_precision: bool = False
    """Clients send their updates as float16, half the bytes; results change a little."""
