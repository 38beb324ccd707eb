"""Calls of the Python APIs of TensorRT-LLM and vLLM: which class or method, the names and values of its arguments."""

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
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
    "vllm.entrypoints.llm": "vllm",
    "vllm.lora.request": "vllm",
    "openai": "openai",
    "langchain_openai": "openai",
    "langchain_community.llms": "openai",
    "langchain_community.llms.vllm": "openai",
}
# What the pieces of a page above the one that is read have imported: name -> the API and the name there.
EARLIER: ContextVar[Mapping[str, tuple[str, str]]] = ContextVar("EARLIER", default=MappingProxyType({}))
ENGINES = ("tensorrt_llm", "vllm")
IMPORT = re.compile(
    r"^[ \t]*from[ \t]+(?P<module>[\w.]+)[ \t]+import[ \t]+"
    r"(?:\((?P<several>[^()]*)\)|(?P<names>[^\n#(]+))",
    re.MULTILINE,
)
# Keywords of llama_index, langchain and others, whose value goes to vLLM's EngineArgs whole.
HANDED_ON = ("vllm_kwargs",)
METHODS = ("generate", "generate_async", "chat", "beam_search", "encode", "embed", "classify", "score")


class Call(NamedTuple):
    """``name`` of ``api``, such as ``LLM.generate``, with the names of the arguments at their places.

    ``values``: name -> value, of those that stand in the code as a text, a number, True or False; an LLM's first
    positional argument is its ``model``. ``tried``: the code catches what a wrong argument raises; ``is_open``: more
    arguments come from elsewhere.
    """

    api: str
    name: str
    arguments: tuple[Word, ...]
    file: str = ""
    values: tuple[tuple[str, Word], ...] = ()
    tried: bool = False
    is_open: bool = False


def calls(tree: ast.Module, word: Word, starts: list[int]) -> Iterator[Call]:
    """The calls of classes that the code imports, and of methods of an ``LLM`` that it makes once."""
    yield from _handed_on(tree, word, starts)
    imported = _imported(tree)
    if not imported:
        return
    made = dict(_made(tree, imported))
    constants = _constants(tree)
    tried = {id(node) for node in _tried(tree)}
    later = dict(_set_later(tree))
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
            values = tuple(_values(node, constants, word, starts))
            for place, value in later.get(node, ()):
                values += ((place.attr, Word(str(value.value), *_place(place, word, starts))),)
            given = tuple(_arguments(node, word, starts))
            more = any(one.arg is None for one in node.keywords)
            yield Call(api, name, given, values=values, tried=id(node) in tried, is_open=more)


def _set_later(tree: ast.Module) -> Iterator[tuple[ast.expr, list[tuple[ast.Attribute, ast.Constant]]]]:
    """Calls whose result has a name, with what ``name.option = True`` sets of it afterwards."""
    made: dict[str, ast.expr] = {}
    found: dict[str, list[tuple[ast.Attribute, ast.Constant]]] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Name) and isinstance(value, ast.Call):
            made.setdefault(target.id, value)
        if (
            isinstance(target, ast.Attribute)
            and isinstance(target.value, ast.Name)
            and isinstance(value, ast.Constant)
            and isinstance(value.value, str | int | float)
        ):
            found.setdefault(target.value.id, []).append((target, value))
    yield from ((made[name], places) for name, places in found.items() if name in made)


def _tried(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes that stand below a ``try`` which catches a ``TypeError`` by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(
            one.type and "TypeError" in ast.unparse(one.type) for one in node.handlers
        ):
            for statement in node.body:
                yield from ast.walk(statement)


def _handed_on(tree: ast.Module, word: Word, starts: list[int]) -> Iterator[Call]:
    """``vllm_kwargs={"swap_space": 1}``: arguments of vLLM's engine that another library hands on."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.keyword) or node.arg not in HANDED_ON or not isinstance(node.value, ast.Dict):
            continue
        pairs = [
            (key, value)
            for key, value in zip(node.value.keys, node.value.values, strict=True)
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        ]
        given = tuple(Word(str(key.value), *_place(key, word, starts)) for key, _ in pairs)
        values = tuple(
            (str(key.value), Word(str(value.value), *_place(value, word, starts)))
            for key, value in pairs
            if isinstance(value, ast.Constant) and isinstance(value.value, str | int | float)
        )
        if given:
            yield Call("vllm", "EngineArgs", given, values=values)


class PiecesAbove:
    """What the pieces of Python on a page import from an engine: those below go on with it, if it is one engine."""

    def __init__(self) -> None:
        self.imported: dict[str, dict[str, tuple[str, str]]] = {}

    @contextmanager
    def reading(self, text: str, file: str, *, is_piece: bool) -> Iterator[None]:
        """While a piece is read, the names of those above it are known."""
        above = self.imported.setdefault(file, {}) if is_piece else {}
        token = EARLIER.set(dict(above) if len({api for api, _ in above.values()}) == 1 else {})
        try:
            yield
        finally:
            EARLIER.reset(token)
            above.update(imports(text) if is_piece else ())


def imports(text: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """The names that ``text`` imports from an engine's package."""
    for match in IMPORT.finditer(text) if any(name in text for name in ENGINES) else ():
        api = MODULES.get(match["module"], "")
        for one in (match["several"] or match["names"] or "").split(",") if api in ENGINES else ():
            name, _, other = (part.strip() for part in one.partition(" as "))
            if name:
                yield other or name, (api, name)


def _imported(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Name in the code -> the API and the name there; none that the code defines itself, or imports from two."""
    found: dict[str, tuple[str, str]] = {}
    twice: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in MODULES and node.level == 0:
            for one in node.names:
                meant = (MODULES[node.module], one.name)
                if found.setdefault(one.asname or one.name, meant) != meant:
                    twice.add(one.asname or one.name)
    if not any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(tree)):
        found = {**EARLIER.get(), **found}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.pop(node.name, None)
    return {name: meant for name, meant in found.items() if name not in twice}


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


def _constants(tree: ast.Module) -> dict[str, ast.Constant]:
    """Names that are set once in the code, to a constant."""
    names = [one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.Constant):
            target = node.targets[0]
            if isinstance(target, ast.Name) and names.count(target.id) == 1:
                found[target.id] = node.value
    return found


def _values(
    node: ast.Call, constants: dict[str, ast.Constant], word: Word, starts: list[int]
) -> Iterator[tuple[str, Word]]:
    named = [(one.arg, one.value) for one in node.keywords if one.arg is not None]
    first = [("model", one) for one in node.args[:1] if not isinstance(one, ast.Starred)]
    for name, value in [*first, *named]:
        known = constants.get(value.id) if isinstance(value, ast.Name) else value
        if isinstance(known, ast.Constant) and isinstance(known.value, str | int | float):
            yield name, Word(str(known.value), *_place(value, word, starts))


def _place(node: ast.expr | ast.keyword, word: Word, starts: list[int]) -> tuple[int, int]:
    index = starts[node.lineno - 1] + node.col_offset
    if not word.places:
        return node.lineno, node.col_offset + 1
    return word.places[min(index, len(word.places) - 1)]


def _arguments(node: ast.Call, word: Word, starts: list[int]) -> Iterator[Word]:
    for one in node.keywords:
        if one.arg is not None:
            yield Word(one.arg, *_place(one, word, starts))
