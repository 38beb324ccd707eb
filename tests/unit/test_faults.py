"""The seeded faults of tests/mutation fit into today's code. Whether they are caught takes long, and is asked apart."""

import runpy
from typing import Any

import pytest

from checkout import ROOT

RUN: dict[str, Any] = runpy.run_path(str(ROOT / "tests" / "mutation" / "run.py"))
FAULTS = RUN["faults"]()


def test_there_are_fifty() -> None:
    assert len(FAULTS) == 50


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_has_its_one_place_and_tests_to_catch_it(fault: Any) -> None:
    assert RUN["place"](fault, ROOT).is_file()
    for test in fault.tests:
        name, _, function = test.partition("::")
        (path,) = (ROOT / "tests").rglob(name)
        assert f"def {function}" in path.read_text(encoding="utf-8")
