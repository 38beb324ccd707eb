"""The planner: what fits, how fast it could go and what it costs, before anything is downloaded or rented.

Every name is loaded when it is first used, so importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playbook.plan.calibrate import overheads as overheads
    from playbook.plan.case import Case as Case
    from playbook.plan.case import parse_case as parse_case
    from playbook.plan.choosing import choose as choose
    from playbook.plan.chosen import Target as Target
    from playbook.plan.claim import verify as verify
    from playbook.plan.frontier import frontier_of as frontier_of
    from playbook.plan.hardware import gpu as gpu
    from playbook.plan.hardware import local_machine as local_machine
    from playbook.plan.memory import memory_of as memory_of
    from playbook.plan.memory import nearest_that_fits as nearest_that_fits
    from playbook.plan.of_profile import case_of as case_of
    from playbook.plan.planned import formulas as formulas
    from playbook.plan.predict import plan as plan
    from playbook.plan.predict import steady as steady
    from playbook.plan.roofline import roofline_of as roofline_of
    from playbook.plan.show import show_plan as show_plan

_HOME = {
    "Case": "case",
    "Target": "chosen",
    "case_of": "of_profile",
    "choose": "choosing",
    "formulas": "planned",
    "frontier_of": "frontier",
    "gpu": "hardware",
    "local_machine": "hardware",
    "memory_of": "memory",
    "nearest_that_fits": "memory",
    "overheads": "calibrate",
    "parse_case": "case",
    "plan": "predict",
    "roofline_of": "roofline",
    "show_plan": "show",
    "steady": "predict",
    "verify": "claim",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
