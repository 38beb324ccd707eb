import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import playbook


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_is_light() -> None:
    """Itself and typing: what is imported costs the same on every machine, what it takes does not."""
    found = python("import sys; before = set(sys.modules); import playbook; print(*set(sys.modules) - before)").split()
    assert {name.split(".")[0] for name in found} <= {"playbook", "typing", "_typing", "collections"}
    assert len([name for name in found if name.startswith("playbook")]) < 5


def test_at_most_forty_five_names_and_each_loads() -> None:
    assert len(playbook.__all__) <= 45
    for name in playbook.__all__:
        assert getattr(playbook, name) is not None


def test_no_name_is_shadowed_by_a_submodule() -> None:
    modules = {path.stem for path in Path(playbook.__file__).parent.iterdir()}
    shadowed = {name for name in playbook.__all__ if name in modules}
    assert [name for name in shadowed if getattr(playbook, name) is not import_module(f"playbook.{name}")] == []


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(playbook.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname for node in block.body if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names
    }
    assert seen == set(playbook.__all__)
