"""Calls of the Python APIs of TensorRT-LLM and vLLM: which class or method, and the names of its arguments."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from trtllm_check.lint.shell.words import Word

MODULES = {
    "tensorrt_llm": "tensorrt_llm",
    "tensorrt_llm.llmapi": "tensorrt_llm",
    "tensorrt_llm.hlapi": "tensorrt_llm",
    "tensorrt_llm.builder": "tensorrt_llm",
    "tensorrt_llm.sampling_params": "tensorrt_llm",
    "vllm": "vllm",
    "vllm.sampling_params": "vllm",
    "vllm.engine.arg_utils": "vllm",
}
METHODS = ("generate", "generate_async")


class Call(NamedTuple):
    """``name`` of ``api``, such as ``LLM.generate``, with the names of the arguments at their places."""

    api: str
    name: str
    arguments: tuple[Word, ...]
    file: str = ""


def calls(tree: ast.Module, word: Word, starts: list[int]) -> Iterator[Call]:
    """The calls of classes that the code imports, and of methods of an ``LLM`` that it makes once."""
    imported = _imported(tree)
    if not imported:
        return
    made = dict(_made(tree, imported))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        api, name = "", ""
        if isinstance(node.func, ast.Name):
            api, name = imported.get(node.func.id, ("", ""))
        elif isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            api, name = made.get(owner, ""), f"LLM.{node.func.attr}"
        if api:
            yield Call(api, name, tuple(_arguments(node, word, starts)))


def _imported(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Name in the code -> the API and the name there; none that the code defines itself."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in MODULES and node.level == 0:
            for one in node.names:
                found[one.asname or one.name] = (MODULES[node.module], one.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.pop(node.name, None)
    return found


def _made(tree: ast.Module, imported: dict[str, tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Names that are an ``LLM`` and nothing else, with its API."""
    set_names = [one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
    for node in ast.walk(tree):
        target: ast.expr | None = None
        value: ast.expr | None = None
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.withitem):
            target, value = node.optional_vars, node.context_expr
        if isinstance(target, ast.Name) and isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            api, name = imported.get(value.func.id, ("", ""))
            if name == "LLM" and set_names.count(target.id) == 1:
                yield target.id, api


def _arguments(node: ast.Call, word: Word, starts: list[int]) -> Iterator[Word]:
    for one in node.keywords:
        if one.arg is not None:
            index = starts[one.lineno - 1] + one.col_offset
            place = word.places[min(index, len(word.places) - 1)] if word.places else (one.lineno, one.col_offset + 1)
            yield Word(one.arg, *place)
