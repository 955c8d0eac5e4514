"""IFCA.personalise: of one client, or of all training clients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, overload

from numpy.typing import ArrayLike

from ifca.core.errors import InvalidInput
from ifca.runs.personal_results import experience_of, personal_summary
from ifca.training import Fitted
from ifca.training.personalise import Personalised, personalise
from ifca.use.answers import Personal
from ifca.use.quality_front import QualityFront


class PersonalFront(QualityFront):
    """The part of IFCA, an estimator of scikit-learn, that makes clients' own models."""

    fitted_: Fitted
    _personalise: bool

    def __setattr__(self, name: str, value: Any) -> None:
        """The argument personalise has the name of a method: it is kept beside it."""
        super().__setattr__("_personalise" if name == "personalise" else name, value)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments, as scikit-learn asks for them."""
        return {**super().get_params(deep), "personalise": self._personalise}  # type: ignore[misc]

    @overload
    def personalise(self) -> Personalised: ...

    @overload
    def personalise(
        self,
        x: ArrayLike,
        y: ArrayLike,
        *,
        cluster: int | None = None,
        steps: int | None = None,
        step_size: float | None = None,
    ) -> Personal: ...

    def personalise(
        self, x: ArrayLike | None = None, y: ArrayLike | None = None, **settings: Any
    ) -> Personalised | Personal:
        """Let clients choose between their cluster's model and one of their own, by samples held out.

        Without arguments: all training clients, after fit; personalised_ keeps what they chose, and save
        writes it. With x and y: one client, seen or not, which also goes by what the training clients found.
        """
        if x is not None and y is not None:
            return super().personalise(x, y, **settings)
        if x is not None or y is not None or settings:
            raise InvalidInput("personalise: give x and y of one client, or nothing for all training clients")
        if not hasattr(self, "fitted_"):
            raise InvalidInput("personalise: call fit first; a loaded run has no data, so give x and y")
        self.personalised_: Personalised = personalise(self.fitted_)
        experience = experience_of({"personalised": personal_summary(self.personalised_)})
        self._use = replace(self._use, experience=experience)
        return self.personalised_
