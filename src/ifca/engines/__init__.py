"""Engines decide how the client function is mapped over clients: a loop, or chunks at once."""

from ifca.engines.fit import Fitted, fit
from ifca.engines.job import Job, choose_device

__all__ = ["Fitted", "Job", "choose_device", "fit"]
