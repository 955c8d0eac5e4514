"""IFCA.quality_ and privacy_: how good the predictions are on test data, and what training has spent."""

from __future__ import annotations

from typing import Any

from ifca.runs.summary_file import finished_summary
from ifca.training import Fitted
from ifca.training.privacy import privacy_facts
from ifca.training.quality import measured_quality
from ifca.use.trained_models import TrainedModels


class QualityFront(TrainedModels):
    """The part of IFCA that knows how good, and how private, its models are."""

    fitted_: Fitted

    @property
    def quality_(self) -> dict[str, Any] | None:
        """Metrics over all test samples ("overall") and by cluster ("clusters"); None: no test data.

        Classification: accuracy, auroc, f1, log_loss, calibration_error; regression: mae, rmse, r2.
        """
        if "fitted_" in self.__dict__:
            return measured_quality(self.fitted_)
        return self._summary("quality_").get("quality")

    @property
    def privacy_(self) -> dict[str, Any] | None:
        """What training has spent of epsilon, how, and what that does not cover; None: no privacy."""
        if "fitted_" in self.__dict__:
            return privacy_facts(self.fitted_.job, self.fitted_.state)
        return self._summary("privacy_").get("privacy")

    def _summary(self, name: str) -> dict[str, Any]:
        """The summary of the run's folder; name: of what is asked for."""
        directory = self._trained(name).directory
        return (None if directory is None else finished_summary(directory)) or {}
