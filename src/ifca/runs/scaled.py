"""Which features and targets are brought to mean 0 and variance 1 before training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ifca.core.errors import InvalidInput

if TYPE_CHECKING:
    from ifca.data import Federation

Scale = bool | Literal["auto"]


def scaled(
    federation: Federation, features: Scale, target: Scale, *, own_model: bool, own_loss: bool
) -> Federation:
    """The federation as it is trained on; what is scaled already stays as it is.

    auto scales the features of tables of floats, and the targets of a regression, for models that ifca makes:
    a model or a loss of the user's own may rely on the units. The paper's synthetic data are never scaled.
    """
    if target is True and federation.classes is not None:
        raise InvalidInput(
            "standardise_target: the labels y are class numbers, not the targets of a regression"
        )
    by_itself = not own_model and not federation.through_origin
    words = federation.preparation is not None and not federation.preparation.plain
    if features == "auto":
        features = is_table(federation) and (by_itself or words)
    if target == "auto":
        target = scales_target(federation, own_model=own_model, own_loss=own_loss)
    if features and federation.scaling is None:
        federation = federation.standardised()
    return federation.with_scaled_targets() if target and federation.target_scaling is None else federation


def is_table(federation: Federation) -> bool:
    """Whether a sample is a row of floats."""
    import torch

    return len(federation.input_shape) == 1 and federation.train.x.dtype != torch.uint8


def scales_target(federation: Federation, *, own_model: bool, own_loss: bool) -> bool:
    """What "auto" means for targets."""
    return federation.classes is None and not (own_model or own_loss or federation.through_origin)
