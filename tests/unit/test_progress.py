"""Guesses and solved exercises: kept when a person made them, passed over when nobody is there."""

from pathlib import Path

import pytest
from ipywidgets import FloatSlider
from typer.testing import CliRunner

from course_exercises.progress import PROGRESS_FILE, ProgressEntry, entries, first_guesses, note, solved
from playbook import guesses
from playbook.chapter import start
from playbook.cli.app import app


def test_without_a_person_a_guess_is_its_default_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = start("04", profile="local", workspace=str(tmp_path))
    guess = lab.guess("steps", "How many steps?", low=0, high=400, default=150, unit="steps")
    assert guess.value == 150 and not guess.made
    assert "How many steps? Without an answer: 150 steps." in capsys.readouterr().out
    guess.against(120)
    assert entries(tmp_path) == []


def test_a_moved_slider_is_the_guess_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guesses, "somebody_is_there", lambda: True)
    shown: list[object] = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    guess = guesses.ask("04-steps", "How many?", low=0, high=400, default=150, unit="steps", workspace=tmp_path)
    (slider,) = shown
    assert isinstance(slider, FloatSlider)
    guess.against(120)
    assert entries(tmp_path) == []  # not moved: no guess
    slider.value = 240
    guess.against(120)
    (entry,) = entries(tmp_path)
    assert (entry.name, entry.guess, entry.actual, entry.factor) == ("04-steps", 240, 120, 2)


@pytest.mark.parametrize(
    ("number", "unit", "said"),
    [
        (1, "errors", "1 error"),
        (1, "retries", "1 retry"),
        (1.0, "times", "1 time"),
        (1, "ms", "1 ms"),
        (1, "%", "1 %"),
        (1.5, "times", "1.5 times"),
        (0, "errors", "0 errors"),
        (1200, "steps", "1,200 steps"),
    ],
)
def test_one_has_no_plural(number: float, unit: str, said: str) -> None:
    assert guesses.counted(number, unit) == said


def test_only_the_first_guess_counts_and_solved_stays_solved(tmp_path: Path) -> None:
    note(tmp_path, "04-steps", guess=100.0, actual=200.0, unit="steps")
    note(tmp_path, "04-steps", guess=200.0, actual=200.0, unit="steps")
    note(tmp_path, "06-1", solved=True)
    note(tmp_path, "06-1", solved=False)
    with (tmp_path / PROGRESS_FILE).open("a") as file:
        file.write('{"name": "06-2", "from a later version": 1}\n{"name": "cut')
    tries = entries(tmp_path)
    assert [guess.factor for guess in first_guesses(tries)] == [2]
    assert solved(tries) == {"06-1"}


def test_a_guess_of_nothing_has_no_factor() -> None:
    assert ProgressEntry(name="04-x", at="", guess=0, actual=3).factor is None


def test_progress_lists_exercises_and_guesses(tmp_path: Path) -> None:
    note(tmp_path, "04-steps", guess=100.0, actual=200.0, unit="steps")
    found = CliRunner().invoke(app, ["progress", "--workspace", str(tmp_path)])
    assert found.exit_code == 0, found.output
    assert "04-steps" in found.output and "2.00 x" in found.output and "solved" in found.output
