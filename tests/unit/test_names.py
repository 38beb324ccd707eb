"""A public class has a name of its own: whoever reads it in one package cannot take it for another one's."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from checkout import ROOT

TRITONS_OWN = {"TritonPythonModel"}
"""Triton looks for a class of this name in every model file."""


def public_classes(files: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    for path in files:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name not in TRITONS_OWN:
                yield node.name, path


def named_twice(files: Iterable[Path]) -> dict[str, list[str]]:
    homes: dict[str, list[str]] = {}
    for name, path in public_classes(files):
        homes.setdefault(name, []).append(str(path))
    return {name: paths for name, paths in homes.items() if len(paths) > 1}


def test_no_two_public_classes_of_one_name() -> None:
    files = sorted([*(ROOT / "playbook").rglob("*.py"), *(ROOT / "packages").rglob("*.py")])
    assert named_twice(files) == {}


def test_a_name_that_stands_twice_is_found(tmp_path: Path) -> None:
    for name, text in (
        ("a.py", "class Load:\n    pass\n"),
        ("b.py", "class Load:\n    pass\nclass _Load:\n    pass\n"),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert list(named_twice(sorted(tmp_path.glob("*.py")))) == ["Load"]
