"""IFCA.quality_: how good the predictions are on test data."""

from __future__ import annotations

from typing import Any

from ifca.runs.results import finished_summary
from ifca.training import Fitted
from ifca.training.quality import measured_quality
from ifca.use.trained_models import TrainedModels


class QualityFront(TrainedModels):
    """The part of IFCA that knows how good its models are."""

    fitted_: Fitted

    @property
    def quality_(self) -> dict[str, Any] | None:
        """Metrics over all test samples ("overall") and by cluster ("clusters"); None: no test data.

        Classification: accuracy, auroc, f1, log_loss, calibration_error; regression: mae, rmse, r2.
        """
        if "fitted_" in self.__dict__:
            return measured_quality(self.fitted_)
        directory = self._trained("quality_").directory
        summary = (None if directory is None else finished_summary(directory)) or {}
        return summary.get("quality")
