"""A figure with knobs: sliders and menus in JupyterLab, the same figure for the first settings everywhere else."""

from collections.abc import Callable, Sequence
from typing import Any

from playbook.guesses import somebody_is_there
from serving_base.errors import UsageError

Knob = tuple[float, float, float] | Sequence[str]
"""Lowest, highest and first value of a slider; or the choices of a menu, the first one chosen."""


def first(knob: Knob) -> float | str:
    """Where a knob stands before somebody turns it."""
    match knob:
        case (int() | float() as low, int() | float() as high, int() | float() as value):
            if not low <= value <= high:
                raise UsageError(
                    f"a knob begins at {value}, outside of {low} to {high}", fix="(lowest, highest, first)"
                )
            return value
        case [str() as value, *others] if all(isinstance(other, str) for other in others):
            return value
    raise UsageError(f"{knob!r} is no knob", fix="(lowest, highest, first), or a list of words")


def turn(draw: Callable[..., None], knobs: dict[str, Knob]) -> None:
    """Show ``draw(**values)`` with a control for each knob where a person may turn one; else for the first values."""
    values = {name: first(knob) for name, knob in knobs.items()}
    if not somebody_is_there():
        draw(**values)
        return
    from IPython.display import display
    from ipywidgets import interactive

    controls = {name: _control(name, knob) for name, knob in knobs.items()}
    display(interactive(draw, **controls))  # type: ignore[no-untyped-call]


def _control(name: str, knob: Knob) -> Any:
    from ipywidgets import Dropdown, FloatSlider, IntSlider

    look: dict[str, Any] = {"description": name.replace("_", " "), "style": {"description_width": "initial"}}
    value = first(knob)
    if isinstance(value, str):
        return Dropdown(options=list(knob), value=value, **look)
    low, high, _ = knob
    if all(isinstance(number, int) for number in knob):
        return IntSlider(min=low, max=high, value=value, continuous_update=False, **look)
    return FloatSlider(min=low, max=high, value=value, step=(high - low) / 100, continuous_update=False, **look)  # type: ignore[operator]
