"""Each check of a chapter can fail: its cell passes on good values, and the check fires on spoiled ones.

The cases are data, a file a chapter: `tests/chapter_checks/chapter_NN.py`.
"""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from chapter_cells import Case, checks_of, run_cell
from each import each

DATA = Path(__file__).parents[1] / "chapter_checks"
CHAPTERS = sorted(path.stem.removeprefix("chapter_") for path in DATA.glob("chapter_*.py"))


def cases(number: str) -> list[Case]:
    spec = spec_from_file_location(f"chapter_checks_{number}", DATA / f"chapter_{number}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: list[Case] = module.CASES
    return found


ALL = [(number, case) for number in CHAPTERS for case in cases(number)]


@pytest.fixture(autouse=True)
def no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")


@each(("number", "case"), ALL)
def test_a_check_passes_on_good_values_and_fires_on_spoiled_ones(number: str, case: Case, tmp_path: Path) -> None:
    assert run_cell(number, case, case.given, tmp_path) is None
    fired = run_cell(number, case, {**case.given, **case.spoiled}, tmp_path)
    assert fired is not None, "no check fired"
    assert fired.claim.startswith(case.claim)


@pytest.mark.parametrize("number", CHAPTERS)
def test_every_check_of_the_chapter_was_seen_to_fire(number: str, tmp_path: Path) -> None:
    seen = set()
    for case in cases(number):
        fired = run_cell(number, case, {**case.given, **case.spoiled}, tmp_path)
        seen |= {(case.cell, fired.line)} if fired else set()
    assert set(checks_of(number)) - seen == set()
