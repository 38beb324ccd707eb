"""Calls of the Python APIs of TensorRT-LLM and vLLM: which class or method, the names and values of its arguments."""

import ast
import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from trtllm_check.lint.carriers.python_given import GivenKeyword, constant, entries, given_to, spread
from trtllm_check.lint.carriers.python_paths import path_of
from trtllm_check.lint.carriers.python_perhaps import perhaps_given
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
# What somebody's own class that asks a server takes, under the same name.
OF_A_CLIENT = frozenset({"base_url", "api_key", "max_tokens", "temperature", "top_p", "model_name_or_path", "timeout"})
SEVERAL = 2
# Arguments of vLLM that are objects of settings, which commands write as JSON.
OBJECTS = ("speculative_config", "compilation_config", "kv_transfer_config", "structured_outputs_config", "eplb_config")
LISTS = ("stop", "bad_words", "allowed_token_ids")  # of SamplingParams, as JSON too
OF_RAY, RAY_MODEL, RAY_ENGINE = "LLMConfig", "model_loading_config", "engine_kwargs"
OURS, PLUGINS = "tensorrt_llm", "plugin_config"
WHOLE = re.compile(r"-?\d+")
METHODS = ("generate", "generate_async", "chat", "beam_search", "encode", "embed", "classify", "score")


class Call(NamedTuple):
    """``name`` of ``api``, such as ``LLM.generate``, with the names of the arguments at their places.

    ``values``: name -> value, of those that stand in the code as a text, a number, True or False; an LLM's first
    positional argument is its ``model``. ``tried``: the code catches what a wrong argument raises; ``is_open``: more
    arguments come from elsewhere. ``later``: the names of what the code sets of the object that was made.
    """

    api: str
    name: str
    arguments: tuple[Word, ...]
    file: str = ""
    values: tuple[tuple[str, Word], ...] = ()
    tried: bool = False
    is_open: bool = False
    later: tuple[Word, ...] = ()


def calls(tree: ast.Module, word: Word, starts: list[int], names: Values) -> Iterator[Call]:
    """The calls of classes that the code imports, and of methods of an ``LLM`` that it makes once."""
    yield from _handed_on(tree, word, starts)
    imported, modules = _imported(tree), dict(_modules(tree))
    if not imported and not modules:
        return
    if any(api == OURS for api, _ in imported.values()):
        yield from _plugins(tree, word, starts)
    made = dict(_made(tree, imported, modules))
    folders = dict(_downloads(tree, names))
    tried = {id(node) for node in _tried(tree)}
    later = dict(_set_later(tree))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        meant = spread(node, names)
        func = meant.func
        api, name = _called(func, imported, modules)
        if not api and isinstance(func, ast.Attribute) and func.attr in METHODS:
            api, name = made.get(ast.unparse(func.value), ""), f"LLM.{func.attr}"
        if api:
            given, more = given_to(meant, names)
            if name == OF_RAY:
                given, more = _of_ray(given, names)
            values = tuple(_values(meant.args, given, names, word, starts, is_ours=api == OURS))
            values = tuple(
                (option, _loaded(value, folders) if option == "model" else value) for option, value in values
            )
            places = later.get(node, [])
            for place, value in places:
                if isinstance(value, ast.Constant) and isinstance(value.value, str | int | float):
                    values += ((place.attr, Word(str(value.value), *_place(place, word, starts))),)
            set_later = tuple(Word(place.attr, *_place(place, word, starts)) for place, _ in places)
            arguments = tuple(Word(one.name, *_place(one.at, word, starts)) for one in given)
            yield Call(api, name, arguments, values=values, tried=id(node) in tried, is_open=more, later=set_later)
            for group in perhaps_given(node, names):
                told = tuple(_values([], group, names, word, starts))
                held = tuple(Word(one.name, *_place(one.at, word, starts)) for one in group)
                yield Call(api, name, held, values=told, tried=id(node) in tried, is_open=True)


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
    parts = {one.name: entries(one.value, names) for one in given}
    model = {one.name: one for one in parts.get(RAY_MODEL, ((), False))[0]}
    source = model.get("model_source") or model.get("model_id")
    engine, more = parts.get(RAY_ENGINE, ((), False))
    return [*([source._replace(name="model")] if source is not None else []), *engine], more


def _set_later(tree: ast.Module) -> Iterator[tuple[ast.expr, list[tuple[ast.Attribute, ast.expr]]]]:
    """Calls whose result has a name, with what ``name.option = True`` sets of it afterwards."""
    made: dict[str, ast.Call] = {}
    others: set[str] = set()  # names that are made of two classes
    found: dict[str, list[tuple[ast.Attribute, ast.expr]]] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Name) and isinstance(value, ast.Call):
            first = made.setdefault(target.id, value)
            if ast.unparse(first.func) != ast.unparse(value.func):
                others.add(target.id)
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            found.setdefault(target.value.id, []).append((target, value))
    yield from ((made[name], places) for name, places in found.items() if name in made and name not in others)


def _plugins(tree: ast.Module, word: Word, starts: list[int]) -> Iterator[Call]:
    """``config.plugin_config.gemm_plugin = "auto"``, each as a call of ``plugin_config`` with one argument."""
    for node in ast.walk(tree):
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if not isinstance(node, ast.Assign) or not isinstance(target, ast.Attribute):
            continue
        owner, value = ast.unparse(target.value), node.value
        if owner.rpartition(".")[2] == PLUGINS and isinstance(value, ast.Constant) and value.value is not None:
            place = _place(target, word, starts)
            given = (target.attr, Word(str(value.value), *place))
            yield Call(OURS, PLUGINS, (Word(target.attr, *place),), values=(given,), is_open=True)


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
        of_a_client = sum(word.text in OF_A_CLIENT for word in given)
        if given and of_a_client < SEVERAL:
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


def _values(
    args: list[ast.expr],
    given: list[GivenKeyword],
    names: Values,
    word: Word,
    starts: list[int],
    *,
    is_ours: bool = False,
) -> Iterator[tuple[str, Word]]:
    """``is_ours``: lists of whole numbers too, as JSON writes them."""
    first = [("model", one) for one in args[:1] if not isinstance(one, ast.Starred)]
    for name, value in [*first, *((one.name, one.value) for one in given)]:
        known = constant(value, names)
        if known is not None and isinstance(known.value, str | int | float):
            yield name, Word(str(known.value), *_place(value, word, starts))
        elif name in (*OBJECTS, *LISTS) and (written := _as_json(value, names, name)):
            yield name, Word(written, *_place(value, word, starts))
        elif known is None and is_ours and (numbers := _listed(value)):
            yield name, Word(numbers, *_place(value, word, starts))
        elif known is None and name == "model" and (path := path_of(value, names)):
            yield name, Word(path, *_place(value, word, starts))


def _listed(node: ast.expr) -> str:
    """A list of whole numbers as a text, "" for anything else."""
    numbers = [ast.unparse(one) for one in node.elts] if isinstance(node, ast.List) else []
    return f"[{', '.join(numbers)}]" if numbers and all(WHOLE.fullmatch(one) for one in numbers) else ""


def _as_json(value: ast.expr, names: Values, name: str) -> str:
    """A dictionary or a list of constants as JSON, as a command has it; "" for another value."""
    found = names.known(value) if isinstance(value, ast.Name) else value
    if not isinstance(found, ast.Dict if name in OBJECTS else ast.List):
        return ""
    try:
        return json.dumps(ast.literal_eval(found))
    except (ValueError, TypeError, RecursionError):
        return ""


def _place(node: ast.expr | ast.keyword, word: Word, starts: list[int]) -> tuple[int, int]:
    index = starts[node.lineno - 1] + node.col_offset
    if not word.places:
        return node.lineno, node.col_offset + 1
    return word.places[min(index, len(word.places) - 1)]
