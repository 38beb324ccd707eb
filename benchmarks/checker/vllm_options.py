"""The options of vLLM's commands in one release: what ``add_argument`` is given, and the types of its dataclasses.

The kind of an option is one word and, for ``choice``, its values: toggle (with a --no-... beside it), switch, boolean
(true or false behind it), whole, amount (25k), decimal, text, json, list, choice.
"""

import ast
from collections.abc import Iterator, Mapping

from benchmarks.checker.vllm_sources import Source

AMOUNTS = {"human_readable_int", "human_readable_int_or_auto"}
AMOUNT_FIELDS = {
    *("max_model_len", "max_num_batched_tokens", "max_num_scheduled_tokens", "kv_cache_memory_bytes"),
    *("safetensors_prefetch_block_size", "max_num_queued_tokens"),
}
JSON_TYPES = {
    "json.loads",
    "parse_type(json.loads)",
    "optional_dict",
    "optional_type(json.loads)",
    "union_dict_and_str",
}
ENGINE = "vllm/engine/arg_utils.py"
FRONTENDS = tuple(f"vllm/entrypoints/{place}/cli_args.py" for place in ("common", "launchers", "openai"))
OLD_SERVER = "vllm/entrypoints/openai/api_server.py"
COMMANDS = ("vllm/entrypoints/cli/serve.py", "vllm/entrypoints/cli/main.py", "vllm/scripts.py")
BATCH = tuple(f"vllm/entrypoints/{place}/run_batch.py" for place in ("openai", "cli", "launchers", "offline", "common"))
BENCH = "vllm/benchmarks/{name}.py"
DATASETS = ("vllm/benchmarks/datasets.py", "vllm/benchmarks/datasets/datasets.py")
BENCHES = ("serve", "throughput", "latency", "startup")
SPECIAL = {"lora_modules": "list", "middleware": "text", "allowed_origins": "json", "allowed_methods": "json"}
SPECIAL |= {"allowed_headers": "json", "default_chat_template_kwargs": "json", "reasoning_effort_map": "json"}
Options = dict[str, str]


def engine_options(source: Source, owner: str = "EngineArgs") -> Options:
    """Those of EngineArgs, or what AsyncEngineArgs adds to them."""
    found: Options = {}
    for one, function in source.functions(ENGINE):
        if one == owner and function.name in ("add_cli_args", "add_cli_args_for_vlm"):
            found |= _added(source, function, ENGINE)
    return found


def engine_fields(source: Source) -> set[str]:
    """The fields of EngineArgs, which Python and LMI hand on by their names."""
    return {*source.fields_of("EngineArgs", ENGINE)}


def frontend_options(source: Source) -> Options:
    """Those of the server in front of the engine."""
    found: Options = {}
    for file in (*FRONTENDS, OLD_SERVER, *COMMANDS):
        for _, function in source.functions(file):
            if "bench" not in function.name and "query" not in function.name:
                only = "serve_parser" if function.name in ("main", "_init_subparser") else ""
                found |= _added(source, function, file, only)
    for file in (OLD_SERVER,):
        for owner, function in source.functions(file):
            if owner == "" and function.name in ("parse_args", "make_arg_parser"):
                found |= _added(source, function, file)
        found |= _of_main(source, file)
    for file in FRONTENDS:
        if file in source.texts:
            for name, annotation in source.fields_of("FrontendArgs", file).items():
                found[name.replace("_", "-")] = SPECIAL.get(name) or kind_of(source, annotation, name, file)
    return found


def batch_options(source: Source) -> Options:
    """Those of ``vllm run-batch`` beside the engine's."""
    found: Options = {}
    for file in BATCH:
        for _, function in source.functions(file):
            found |= _added(source, function, file)
        if "(BaseFrontendArgs)" in source.texts.get(file, ""):
            own = next(name for name in _classes(source, file) if name.endswith("FrontendArgs"))
            for name, annotation in source.fields_of(own, file).items():
                found[name.replace("_", "-")] = SPECIAL.get(name) or kind_of(source, annotation, name, file)
    return found


def bench_options(source: Source) -> dict[str, Options]:
    """Those of each ``vllm bench`` beside the engine's; empty before there was one."""
    found: dict[str, Options] = {}
    for name in BENCHES:
        file = BENCH.format(name=name)
        if file not in source.texts or "add_cli_args" not in source.texts[file]:
            continue
        options: Options = {}
        for _, function in source.functions(file):
            options |= _added(source, function, file)
            for dataset in DATASETS if "add_dataset_parser" in ast.unparse(function) else ():
                for _, one in source.functions(dataset):
                    if one.name.startswith(("add_", "_add")):
                        options |= _added(source, one, dataset)
            for dataset in DATASETS if "add_random" in ast.unparse(function) else ():
                for _, one in source.functions(dataset):
                    if one.name.startswith("add_random"):
                        options |= _added(source, one, dataset)
        found[name] = options
    return found


def _classes(source: Source, file: str) -> Iterator[str]:
    yield from (node.name for node in source.tree(file).body if isinstance(node, ast.ClassDef))


def _of_main(source: Source, file: str) -> Options:
    """``parser.add_argument`` below ``if __name__``, as in 0.2."""
    if file not in source.texts:
        return {}
    body = [node for node in source.tree(file).body if isinstance(node, ast.If)]
    return _added(source, ast.Module(body=list(body), type_ignores=[]), file)


def _added(source: Source, place: ast.AST, file: str, only: str = "") -> Options:
    """What the calls of ``add_argument`` in ``place`` add; ``only``: of the parser of that name."""
    holders = dict(_holders(place))
    found: Options = {}
    for node in ast.walk(place):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr != "add_argument" or (only and ast.unparse(node.func.value) != only):
            continue
        names = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        names += [
            one.value
            for starred in node.args
            if isinstance(starred, ast.Starred) and isinstance(starred.value, ast.List | ast.Tuple)
            for one in starred.value.elts
            if isinstance(one, ast.Constant) and isinstance(one.value, str)
        ]
        for name in names:
            if name.startswith("--"):
                found[name[2:].replace("_", "-")] = _kind(source, node, holders, file)
    return found | dict(_looped(place))


def _looped(place: ast.AST) -> Iterator[tuple[str, str]]:
    """``for arg, type in [("--a", bool), ...]: group.add_argument(arg, type=type)``."""
    kinds = {"bool": "text", "int": "whole", "float": "decimal"}
    for loop in ast.walk(place):
        if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.List | ast.Tuple):
            continue
        if not any(isinstance(one, ast.Attribute) and one.attr == "add_argument" for one in ast.walk(loop)):
            continue
        for pair in loop.iter.elts:
            parts = pair.elts if isinstance(pair, ast.Tuple | ast.List) else [pair]
            if isinstance(parts[0], ast.Constant) and str(parts[0].value).startswith("--"):
                kind = kinds.get(ast.unparse(parts[1]), "text") if len(parts) > 1 else "text"
                yield str(parts[0].value)[2:].replace("_", "-"), kind


def _holders(place: ast.AST) -> Iterator[tuple[str, str]]:
    """``load_kwargs = get_kwargs(LoadConfig)``: the variable and the class."""
    for node in ast.walk(place):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        target = node.targets[0]
        if isinstance(target, ast.Name) and ast.unparse(node.value.func) == "get_kwargs" and node.value.args:
            yield target.id, ast.unparse(node.value.args[0])


def _kind(source: Source, call: ast.Call, holders: Mapping[str, str], file: str) -> str:
    given = {one.arg: one.value for one in call.keywords if one.arg}
    spread = [one.value for one in call.keywords if one.arg is None]
    action = ast.unparse(given["action"]).strip("'\"") if "action" in given else ""
    if action in ("store_true", "store_false", "store_const"):
        return "switch"
    if action.endswith("BooleanOptionalAction"):
        return "toggle"
    if action.endswith("StoreBoolean"):
        return "boolean"
    for one in (part for whole in spread for part in ast.walk(whole)):
        if isinstance(one, ast.Subscript) and isinstance(one.value, ast.Name) and one.value.id in holders:
            field = ast.unparse(one.slice).strip("'\"")
            annotation = source.fields_of(holders[one.value.id]).get(field)
            if annotation is not None:
                return kind_of(source, annotation, field, "")
    if "choices" in given:
        values = values_of(source, given["choices"], file)
        if values:
            return "choice " + "|".join(values)
    if "nargs" in given and ast.unparse(given["nargs"]) in ("'+'", "'*'"):
        return "list"
    written = ast.unparse(given["type"]) if "type" in given else "str"
    if written in AMOUNTS:
        return "amount"
    if written in JSON_TYPES or written.endswith("_validate_json"):
        return "json"
    number = {"int": "whole", "float": "decimal", "optional_int": "whole", "optional_float": "decimal"}
    return number.get(written, "text")


def kind_of(source: Source, annotation: ast.expr, name: str, file: str) -> str:
    """The kind of an option by the annotation of its field, in the order in which vLLM's ``get_kwargs`` asks."""
    written = {*_parts(source, annotation, file)}
    heads = {one.partition("[")[0] for one in written}
    if any(_is_object(source, one) for one in heads):
        return "json"
    if "bool" in heads:
        return "text" if "str" in heads else "toggle"
    literals = [one for one in written if one.startswith("Literal[")]
    if literals:
        values = [value for one in sorted(literals) for value in _literals(one)]
        return "text" if "str" in heads else "choice " + "|".join(values)
    if heads & {"list", "List", "tuple", "Tuple", "set", "Sequence", "Collection"}:
        return "list"
    if "int" in heads:
        return "amount" if name in AMOUNT_FIELDS else "whole"
    if "float" in heads:
        return "decimal"
    if heads & {"dict", "Dict", "Mapping", "HfOverrides"}:
        return "json"
    return "text"


def _is_object(source: Source, name: str) -> bool:
    """True for a dataclass of settings, and for a kind of dict."""
    found = source.class_of(name) if name[:1].isupper() else None
    if found is None:
        return False
    return name.endswith("Config") or any(
        ast.unparse(base).startswith(("dict", "Dict", "TypedDict")) for base in found[0].bases
    )


def _parts(source: Source, annotation: ast.expr, file: str, depth: int = 0) -> Iterator[str]:
    """The types that an annotation joins: of ``Optional``, ``Union``, ``|``, and behind names of its own."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        yield from _parts(source, ast.parse(annotation.value, mode="eval").body, file, depth)
    elif isinstance(annotation, ast.BinOp):
        yield from _parts(source, annotation.left, file, depth)
        yield from _parts(source, annotation.right, file, depth)
    elif isinstance(annotation, ast.Subscript):
        head = ast.unparse(annotation.value).rpartition(".")[2]
        inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        if head in ("Optional", "Union", "SkipValidation", "Annotated"):
            for one in inner[:1] if head == "Annotated" else inner:
                yield from _parts(source, one, file, depth)
        elif head == "Literal":
            yield "Literal[" + "|".join(_named(source, one, file) for one in inner) + "]"
        else:
            yield head
    else:
        name = ast.unparse(annotation).rpartition(".")[2]
        value = source.value_of(name, file) if depth < 5 and name[:1].isupper() else None
        if isinstance(value, ast.Subscript | ast.BinOp | ast.Name):
            yield from _parts(source, value, file, depth + 1)
        elif value is not None and ast.unparse(value).startswith("get_args"):
            yield "str"
        else:
            yield name


def _named(source: Source, node: ast.expr, file: str) -> str:
    """One value of a Literal; of one that another Literal is, all of its values."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "|".join(values_of(source, node, file)) or ast.unparse(node)


def _literals(written: str) -> Iterator[str]:
    yield from written.removeprefix("Literal[").removesuffix("]").split("|")


def values_of(source: Source, node: ast.expr, file: str, depth: int = 0) -> list[str]:
    """The texts of a list, a mapping's keys, or the Literal behind a name; empty where it is made at run time."""
    if depth > 6:
        return []
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        found: list[str] = []
        for one in node.elts:
            if isinstance(one, ast.Starred):
                found += values_of(source, one.value, file, depth + 1)
            elif isinstance(one, ast.Constant) and one.value is not None:
                found.append(str(one.value))
            elif not isinstance(one, ast.Constant):
                return []
        return found
    if isinstance(node, ast.Dict):
        return [str(one.value) for one in node.keys if isinstance(one, ast.Constant)]
    if isinstance(node, ast.Name):
        value = source.value_of(node.id, file)
        return values_of(source, value, file, depth + 1) if value is not None else _enumerated(source, node.id)
    if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in ("get_args", "list", "sorted", "tuple"):
        return values_of(source, node.args[0], file, depth + 1)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys":
        return values_of(source, node.func.value, file, depth + 1)
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
        parts = _parts(source, node, file)
        return [value for one in parts for value in _literals(one)]
    return []


def _enumerated(source: Source, name: str) -> list[str]:
    """The values of an Enum of texts."""
    found = source.class_of(name)
    if found is None or not any("Enum" in ast.unparse(base) for base in found[0].bases):
        return []
    values = [one.value for one in found[0].body if isinstance(one, ast.Assign)]
    return [str(one.value) for one in values if isinstance(one, ast.Constant) and isinstance(one.value, str)]
