"""Calls of the Python APIs of TensorRT-LLM and vLLM: which class or method, the names and values of its arguments."""

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from trtllm_check.lint.carriers.python_values import Values
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
    "ray.serve.llm": "vllm",
    "ray.llm": "vllm",
    "openai": "openai",
    "langchain_openai": "openai",
    "langchain_community.llms": "openai",
    "langchain_community.llms.vllm": "openai",
}
# Keywords of llama_index, langchain and others, whose value goes to vLLM's EngineArgs whole.
HANDED_ON = ("vllm_kwargs",)
OF_RAY, RAY_MODEL, RAY_ENGINE = "LLMConfig", "model_loading_config", "engine_kwargs"
VARIABLES = ("os.getenv", "os.environ.get", "getenv", "environ.get")  # which may give a default
CASTS: Mapping[str, Callable[[Any], str | int | float]] = {"int": int, "float": float, "str": str}
DEEPEST = 8
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


def calls(tree: ast.Module, word: Word, starts: list[int], names: Values) -> Iterator[Call]:
    """The calls of classes that the code imports, and of methods of an ``LLM`` that it makes once."""
    yield from _handed_on(tree, word, starts)
    imported, modules = _imported(tree), dict(_modules(tree))
    if not imported and not modules:
        return
    made = dict(_made(tree, imported, modules))
    folders = dict(_downloads(tree, names))
    tried = {id(node) for node in _tried(tree)}
    later = dict(_set_later(tree))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        api, name = _called(node.func, imported, modules)
        if not api and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            api, name = made.get(ast.unparse(node.func.value), ""), f"LLM.{node.func.attr}"
        if api:
            given, more = given_to(node, names)
            if name == OF_RAY:
                given, more = _of_ray(given, names)
            values = tuple(_values(node, given, names, word, starts))
            values = tuple(
                (option, _loaded(value, folders) if option == "model" else value) for option, value in values
            )
            for place, value in later.get(node, ()):
                values += ((place.attr, Word(str(value.value), *_place(place, word, starts))),)
            arguments = tuple(Word(one.name, *_place(one.at, word, starts)) for one in given)
            yield Call(api, name, arguments, values=values, tried=id(node) in tried, is_open=more)


def _downloads(tree: ast.Module, names: Values) -> Iterator[tuple[str, str]]:
    """``snapshot_download("owner/name", local_dir="/model")``: the folder -> the model, where it is one."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "snapshot_download":
            given = {one.name: one.value for one in given_to(node, names)[0]}
            repository = node.args[0] if node.args else given.get("repo_id")
            told = [constant(one, names) if one is not None else None for one in (repository, given.get("local_dir"))]
            if all(one is not None and isinstance(one.value, str) for one in told):
                model, folder = (str(one.value) for one in told if one is not None)
                found.setdefault(folder.rstrip("/"), set()).add(model)
    yield from ((folder, models.pop()) for folder, models in found.items() if len(models) == 1)


def _loaded(value: Word, folders: dict[str, str]) -> Word:
    """The model that a folder was loaded with, at the place of the folder."""
    model = folders.get(value.text.rstrip("/"))
    return Word(model, value.line, value.column) if model else value


def _of_ray(given: "list[GivenKeyword]", names: Values) -> "tuple[list[GivenKeyword], bool]":
    """The engine's arguments of Ray's LLMConfig, and its model."""
    parts = {one.name: _entries(one.value, names, 0) for one in given}
    model = {one.name: one for one in parts.get(RAY_MODEL) or ()}
    source = model.get("model_source") or model.get("model_id")
    engine = parts.get(RAY_ENGINE, [])
    found = [*([source._replace(name="model")] if source is not None else []), *(engine or ())]
    return found, engine is None


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
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.pop(node.name, None)
    return {name: meant for name, meant in found.items() if name not in twice}


def _modules(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """``import vllm as v``: name in the code -> the module, of those whose classes are read."""
    for node in ast.walk(tree):
        for one in node.names if isinstance(node, ast.Import) else ():
            if one.name.partition(".")[0] in MODULES:
                yield one.asname or one.name.partition(".")[0], one.name if one.asname else one.name.partition(".")[0]


def _called(func: ast.expr, imported: dict[str, tuple[str, str]], modules: dict[str, str]) -> tuple[str, str]:
    """The API and the class of ``LLM`` and of ``vllm.LLM``; empty for another."""
    if isinstance(func, ast.Name):
        return imported.get(func.id, ("", ""))
    parts: list[str] = []
    node = func
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in modules or not parts:
        return "", ""
    module = ".".join([modules[node.id], *parts[:-1]])
    return (MODULES[module], parts[-1]) if module in MODULES else ("", "")


def _made(tree: ast.Module, imported: dict[str, tuple[str, str]], modules: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Names and attributes that are an ``LLM`` and nothing else but None, with its API."""
    found: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        value: ast.expr | None = None
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            targets, value = [node.optional_vars], node.context_expr
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            targets = [node.target]
        elif isinstance(node, ast.NamedExpr):
            targets, value = [node.target], node.value
        if isinstance(value, ast.Constant) and value.value is None:
            continue
        api, name = _called(value.func, imported, modules) if isinstance(value, ast.Call) else ("", "")
        for one in (inner for target in targets for inner in ast.walk(target)):
            if isinstance(one, ast.Name | ast.Attribute) and isinstance(one.ctx, ast.Store):
                found.setdefault(ast.unparse(one), []).append(api if name == "LLM" and one in targets else "")
    yield from ((name, apis[0]) for name, apis in found.items() if len(apis) == 1 and apis[0])


class GivenKeyword(NamedTuple):
    """One keyword of a call, where it is written, and its value."""

    name: str
    at: ast.expr | ast.keyword
    value: ast.expr


def given_to(node: ast.Call, names: Values) -> tuple[list[GivenKeyword], bool]:
    """The keywords of a call with those of ``**options`` where the code tells them; True where more come."""
    found: list[GivenKeyword] = []
    more = False
    for one in node.keywords:
        if one.arg is not None:
            found.append(GivenKeyword(one.arg, one, one.value))
            continue
        inside = _entries(one.value, names, 0)
        found += inside or ()
        more = more or inside is None
    return found, more


def _entries(node: ast.expr, names: Values, depth: int) -> list[GivenKeyword] | None:
    """What ``**node`` gives; None where it is not told."""
    if depth > DEEPEST:
        return None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        found, more = given_to(node, names)
        return None if more else found
    if not isinstance(node, ast.Dict):
        known = names.known(node)
        return _entries(known, names, depth + 1) if known is not None else None
    entries: list[GivenKeyword] = []
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            inside = _entries(value, names, depth + 1)
            if inside is None:
                return None
            entries += inside
        elif isinstance(key, ast.Constant) and isinstance(key.value, str):
            entries.append(GivenKeyword(key.value, key, value))
        else:
            return None
    return entries


def constant(node: ast.expr, names: Values, depth: int = 0) -> ast.Constant | None:
    """The constant that an expression is: a name that is set once, ``int(...)`` of one, a default of a variable."""
    if isinstance(node, ast.Constant) or depth > DEEPEST:
        return node if isinstance(node, ast.Constant) else None
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        known = names.known(node)
        return constant(known, names, depth + 1) if known is not None else None
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) and len(node.values) == 2:
        first = node.values[0]
        is_read = isinstance(first, ast.Call) and ast.unparse(first.func) in VARIABLES and len(first.args) == 1
        return constant(node.values[1], names, depth + 1) if is_read else None
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    func = ast.unparse(node.func)
    if func in VARIABLES and len(node.args) == 2:
        return constant(node.args[1], names, depth + 1)
    if func in CASTS and len(node.args) == 1:
        inner = constant(node.args[0], names, depth + 1)
        try:
            return ast.copy_location(ast.Constant(CASTS[func](inner.value)), node) if inner is not None else None
        except (TypeError, ValueError):
            return None
    return None


def _values(
    node: ast.Call, given: list[GivenKeyword], names: Values, word: Word, starts: list[int]
) -> Iterator[tuple[str, Word]]:
    first = [("model", one) for one in node.args[:1] if not isinstance(one, ast.Starred)]
    for name, value in [*first, *((one.name, one.value) for one in given)]:
        known = constant(value, names)
        if known is not None and isinstance(known.value, str | int | float):
            yield name, Word(str(known.value), *_place(value, word, starts))


def _place(node: ast.expr | ast.keyword, word: Word, starts: list[int]) -> tuple[int, int]:
    index = starts[node.lineno - 1] + node.col_offset
    if not word.places:
        return node.lineno, node.col_offset + 1
    return word.places[min(index, len(word.places) - 1)]
