"""Slips in a program that Python stops at, or passes over: modules and methods that are misspelt, keys that are twice.

A name is a slip only where what is meant is known, and what the text asks of it is there.
"""

import ast
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from serving_base.yaml_files import read_yaml
from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.python_text import PythonText

RULE, TWICE = "python-slip", "dict-key-twice"
LEXICAL = (RULE, TWICE)  # they hold for a text of which lines were taken out, too
NEAR, SHORTEST, LONG = 0.83, 4, 6


@cache
def _facts() -> dict[str, Any]:
    content: dict[str, Any] = read_yaml(Path(__file__).with_name("python_slips.yml"))
    return content


def slip_faults(text: PythonText) -> Iterator[FormFault]:
    """All faults of the program."""
    yield from _modules(text)
    yield from _members(text)
    yield from _attributes(text)
    yield from _keys(text)


def _modules(text: PythonText) -> Iterator[FormFault]:
    """``from tim import gmtime``."""
    tried = {id(inner) for node in text.nodes if isinstance(node, ast.Try) for inner in ast.walk(node)}
    for node in text.nodes:
        if id(node) in tried:
            continue
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            first = node.module.partition(".")[0]
            wanted = {one.name for one in node.names} if first == node.module else set()
            yield from _module(text, node, first, wanted)
        elif isinstance(node, ast.Import):
            for one in node.names:
                first = one.name.partition(".")[0]
                local = one.asname or first
                wanted = {
                    inner.attr
                    for inner in text.nodes
                    if isinstance(inner, ast.Attribute)
                    and isinstance(inner.value, ast.Name)
                    and inner.value.id == local
                }
                yield from _module(text, one, first, wanted if first == one.name else set())


def _module(text: PythonText, node: ast.ImportFrom | ast.alias, name: str, wanted: set[str]) -> Iterator[FormFault]:
    right = meant_module(name)
    if not right:
        return
    below = node.module.partition(".")[2] if isinstance(node, ast.ImportFrom) and node.module else ""
    is_own = any(one[:1].isupper() for one in wanted) or below.startswith(f"{name.partition('_')[0]}_")
    if name.replace("_", "") == right and is_own:
        return  # a module of the reader's own, with classes or modules of its own
    is_standard = right in _facts()["standard"].split()
    if (is_standard and wanted and wanted <= _names_of(right)) or (not is_standard and len(right) >= LONG - 1):
        yield _fault(text, node, "module", name=name, right=right)


@cache
def meant_module(name: str) -> str:
    """The module that ``name`` is a slip of; "" for a module, and for what is none of them."""
    facts = _facts()
    known = [*facts["standard"].split(), *facts["others"].split()]
    if name in known or name in facts["real"].split() or name in sys.stdlib_module_names:
        return ""
    return next((one for one in known if _is_slip(name, one)), "")


def _is_slip(name: str, right: str) -> bool:
    """One letter missing or too many, or two that changed places."""
    if len(right) < SHORTEST or name[:1] != right[:1]:
        return False
    if len(name) == len(right):
        places = range(len(name) - 1)
        return any(name[:at] + name[at + 1] + name[at] + name[at + 2 :] == right for at in places) and name != right
    if abs(len(name) - len(right)) != 1:
        return False
    longer, shorter = sorted((name, right), key=len, reverse=True)
    return any(longer[:at] + longer[at + 1 :] == shorter for at in range(len(longer)))


@cache
def _names_of(module: str) -> frozenset[str]:
    """All that a module of Python holds."""
    return frozenset(dir(import_module(module)))


def _members(text: PythonText) -> Iterator[FormFault]:
    """``sagemaker.Session().defualt_bucket()``."""
    if "sagemaker" not in text.word.text:
        return
    for table in _facts()["members"]:
        classes = tuple(table["classes"].split())
        names = text.made_by(*classes)
        known = table["names"].split()
        stored = {
            node.attr for node in text.nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
        for node in text.nodes:
            if not isinstance(node, ast.Attribute) or node.attr in known or node.attr in stored:
                continue
            is_made = isinstance(node.value, ast.Name) and node.value.id in names
            is_call = isinstance(node.value, ast.Call) and text.dotted(node.value.func) in classes
            close = get_close_matches(node.attr, known, 1, NEAR) if is_made or is_call else []
            if close and not node.attr.startswith("_"):
                about = classes[0].rpartition(".")[2]
                yield _fault(text, node, "member", name=node.attr, right=close[0], owner=f"sagemaker.{about}")


def _attributes(text: PythonText) -> Iterator[FormFault]:
    """``json.dupms(...)``."""
    standard = _facts()["standard"].split()
    changed = {node.id for node in text.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    changed |= {node.arg for node in text.nodes if isinstance(node, ast.arg)}
    for node in text.nodes:
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name) or node.value.id in changed:
            continue
        module, name = text.names.get(node.value.id, ""), node.attr
        if module in standard and len(name) >= SHORTEST and name.islower() and name not in _names_of(module):
            close = [one for one in sorted(_names_of(module)) if _is_slip(name, one)]
            if close:
                yield _fault(text, node, "member", name=name, right=close[0], owner=module)


def _keys(text: PythonText) -> Iterator[FormFault]:
    """``{"TENSOR_PARALLEL_DEGREE": "max", ..., "TENSOR_PARALLEL_DEGREE": "2"}``."""
    for node in text.nodes:
        if not isinstance(node, ast.Dict):
            continue
        seen: dict[str, tuple[ast.Constant, ast.expr]] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                continue
            before = seen.get(key.value)
            seen[key.value] = (key, value)
            if before is not None and ast.dump(before[1]) != ast.dump(value):
                known = {"key": key.value, "first": str(text.at(before[0]).line), "before": _shown(before[1])}
                yield FormFault(TWICE, text.at(key), "", tuple({**known, "value": _shown(value)}.items()))


def _shown(value: ast.expr) -> str:
    written = ast.unparse(value)
    return written if len(written) <= 40 else f"{written[:37]}..."


def _fault(text: PythonText, node: ast.expr | ast.stmt | ast.alias, form: str, **known: str) -> FormFault:
    return FormFault(RULE, text.at(node), form, tuple(known.items()))
