"""A figure with knobs: sliders and menus in JupyterLab, the same figure for the first settings everywhere else."""

from collections.abc import Callable
from typing import Any

from playbook.guesses import somebody_is_there
from serving_base.errors import UsageError

Knob = tuple[float, float, float] | list[str]
"""Lowest, highest and first value of a slider; or the choices of a menu, the first one chosen."""


def first(knob: Knob) -> float | str:
    """Where a knob stands before somebody turns it; :class:`UsageError` for what is none."""
    how = "a tuple (lowest, highest, first) of numbers, or a list of words"
    if isinstance(knob, list):
        if not knob or not all(isinstance(word, str) for word in knob):
            raise UsageError(f"{knob!r} is no knob", fix=how)
        return knob[0]
    if len(knob) != 3 or not knob[0] <= knob[2] <= knob[1]:
        raise UsageError(f"{knob!r} is no knob", why="it begins between its ends", fix=how)
    return knob[2]


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
    if isinstance(knob, list):
        return Dropdown(options=knob, value=first(knob), **look)
    low, high, value = knob
    if all(isinstance(number, int) for number in knob):
        return IntSlider(min=low, max=high, value=value, continuous_update=False, **look)
    return FloatSlider(min=low, max=high, value=value, step=(high - low) / 100, continuous_update=False, **look)
