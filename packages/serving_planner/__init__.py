"""The planner: what fits, how fast it could go and what it costs, before anything is downloaded or rented.

Every name is loaded when it is first used, so importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serving_planner.case import Case as Case
    from serving_planner.case import parse_case as parse_case
    from serving_planner.claims.verify import verify as verify
    from serving_planner.cost_model.laws import overheads as overheads
    from serving_planner.cost_model.memory import memory_of as memory_of
    from serving_planner.cost_model.memory import nearest_that_fits as nearest_that_fits
    from serving_planner.frontier import frontier_of as frontier_of
    from serving_planner.hardware import gpu as gpu
    from serving_planner.hardware import local_machine as local_machine
    from serving_planner.plans import formulas as formulas
    from serving_planner.predict import plan as plan
    from serving_planner.predict import steady as steady
    from serving_planner.report import show_plan as show_plan
    from serving_planner.roofline import roofline_of as roofline_of
    from serving_planner.search import Target as Target
    from serving_planner.search import choose as choose

_HOME = {
    "Case": "case",
    "Target": "search",
    "choose": "search",
    "formulas": "plans",
    "frontier_of": "frontier",
    "gpu": "hardware",
    "local_machine": "hardware",
    "memory_of": "cost_model.memory",
    "nearest_that_fits": "cost_model.memory",
    "overheads": "cost_model.laws",
    "parse_case": "case",
    "plan": "predict",
    "roofline_of": "roofline",
    "show_plan": "report",
    "steady": "predict",
    "verify": "claims.verify",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
