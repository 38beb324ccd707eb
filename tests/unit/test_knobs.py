"""A figure with knobs draws the same without a person as with one who turns nothing, and follows the controls."""

from typing import Any

import pytest
from ipywidgets import Dropdown, FloatSlider, IntSlider, interactive

from playbook import knobs
from serving_base.errors import UsageError

KNOBS: dict[str, knobs.Knob] = {"batch": (1, 256, 64), "share": (0.0, 1.0, 0.5), "weights": ["fp8", "bf16"]}


def drawn_by_a_person(monkeypatch: pytest.MonkeyPatch, seen: list[dict[str, Any]]) -> interactive:
    monkeypatch.setattr(knobs, "somebody_is_there", lambda: True)
    shown: list[Any] = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    knobs.turn(lambda **values: seen.append(values), KNOBS)
    (panel,) = shown
    assert isinstance(panel, interactive)
    panel.update()
    return panel


def test_without_a_person_the_first_settings_are_drawn() -> None:
    seen: list[dict[str, Any]] = []
    knobs.turn(lambda **values: seen.append(values), KNOBS)
    assert seen == [{"batch": 64, "share": 0.5, "weights": "fp8"}]


def test_the_controls_begin_where_the_headless_figure_is_and_move_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    panel = drawn_by_a_person(monkeypatch, seen)
    assert seen[-1] == {"batch": 64, "share": 0.5, "weights": "fp8"}
    batch, share, weights = panel.children[:3]
    assert [type(control) for control in (batch, share, weights)] == [IntSlider, FloatSlider, Dropdown]
    batch.value, weights.value = 8, "bf16"
    assert seen[-1] == {"batch": 8, "share": 0.5, "weights": "bf16"}


@pytest.mark.parametrize("knob", [(1, 10, 11), (), [1, 2], ["fp8", 8]])
def test_what_is_no_knob_is_refused(knob: Any) -> None:
    with pytest.raises(UsageError, match="knob"):
        knobs.turn(print, {"batch": knob})
