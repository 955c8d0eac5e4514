"""From a federation and a method to models: jobs, rounds, testing, checkpoints."""

from ifca.training.devices import choose_device
from ifca.training.fit import Fitted, fit
from ifca.training.job import Job

__all__ = ["Fitted", "Job", "choose_device", "fit"]
