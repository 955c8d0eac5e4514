"""One file per method: what distinguishes IFCA from its baselines. No other room decides by their names."""

from ifca.methods.aggregation import Aggregation, register_aggregation
from ifca.methods.averaging import average
from ifca.methods.method import Ask, Event, Method, Problem, Round
from ifca.methods.registry import facts_of, method_names, method_of, register

__all__ = [
    "Aggregation",
    "Ask",
    "Event",
    "Method",
    "Problem",
    "Round",
    "average",
    "facts_of",
    "method_names",
    "method_of",
    "register",
    "register_aggregation",
]
