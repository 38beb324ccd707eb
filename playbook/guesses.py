"""A guess before a measurement: a slider in JupyterLab, its default in a run without a person."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_exercises.progress import note

if TYPE_CHECKING:
    from ipywidgets import FloatSlider


def somebody_is_there() -> bool:
    """Whether a person may answer: JupyterLab's requests allow input, those of papermill and nbval do not."""
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    return bool(getattr(getattr(shell, "kernel", None), "_allow_stdin", False))


class Guess:
    """What somebody expects, in ``unit``. ``value`` follows the slider; without one it stays the default."""

    def __init__(self, name: str, unit: str, default: float, workspace: Path, slider: FloatSlider | None) -> None:
        self.name = name
        self.unit = unit
        self._default = default
        self._workspace = workspace
        self._slider = slider

    @property
    def value(self) -> float:
        return self._default if self._slider is None else float(self._slider.value)

    @property
    def made(self) -> bool:
        """Whether a person moved the slider."""
        return self._slider is not None and self._slider.value != self._default

    def against(self, actual: float) -> None:
        """Say how the guess went, and keep it for ``playbook progress`` when a person made it."""
        from IPython.display import Markdown, display

        whose = "Your guess" if self.made else "The default guess"
        text = f"{whose}: {counted(self.value, self.unit)}. It is **{counted(actual, self.unit)}**."
        display(Markdown(text))  # type: ignore[no-untyped-call]
        if self.made:
            note(self._workspace, self.name, guess=self.value, actual=float(actual), unit=self.unit)


def counted(number: float, unit: str) -> str:
    """``5 errors`` and ``1 error``, ``1 retry``: a unit that is a plural loses it at one. ``ms`` and ``%`` are none."""
    text = f"{number:,.4g}"
    if text == "1" and len(unit) > 3:
        unit = re.sub("(ie)?s$", lambda end: "y" if end[1] else "", unit)
    return f"{text} {unit}"


def ask(name: str, question: str, *, low: float, high: float, default: float, unit: str, workspace: Path) -> Guess:
    """Ask ``question`` with a slider where a person may answer; elsewhere say the default and go on."""
    from IPython.display import display

    if not somebody_is_there():
        print(f"{question} Without an answer: {counted(default, unit)}.")
        return Guess(name, unit, default, workspace, None)
    slider = _slider(question, low, high, default, unit)
    display(slider)  # type: ignore[no-untyped-call]
    print("Move the slider, then run the next cell.")
    return Guess(name, unit, default, workspace, slider)


def _slider(question: str, low: float, high: float, default: float, unit: str) -> Any:
    from ipywidgets import FloatSlider, Layout

    whole = all(float(number).is_integer() for number in (low, high, default))
    return FloatSlider(
        value=default,
        min=low,
        max=high,
        step=max((high - low) / 200, 1) if whole else (high - low) / 200,
        description=f"{question} ({unit})",
        readout_format=",.0f" if whole else ",.3g",
        style={"description_width": "initial"},
        layout=Layout(width="95%"),
    )
