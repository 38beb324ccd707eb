"""Arguments of vLLM in YAML of a project's own form: lists of options, and mappings of the engine's arguments.

Nobody says which program gets them; that nearly all of their names are vLLM's does. What stands in front of them and
behind them is unknown, so only what each option says for itself is checked.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from trtllm_check.lint.carriers.python_calls import Call
from trtllm_check.lint.carriers.script import Script, unknown, unknown_arguments
from trtllm_check.lint.shell import Word
from trtllm_check.releases.vllm import options_of, vllm_facts

LISTS = re.compile(r"args?$|arguments$|flags$|options$", re.IGNORECASE)
MAPPINGS = re.compile(r"(?:engine|vllm|llm)[-_]?(?:args?|kwargs|config|arguments)$", re.IGNORECASE)
MODEL_KEYS, INSIDE = ("model", "modelName", "model_name", "modelId", "model_id"), ("name", "id", "repo", "path")
OWNED = re.compile(r"[\w.-]+/[\w.-]+")
OF_CHARTS = re.compile(r"(?:extra|additional|vllm|engine|server)[-_]?(?:args?|arguments|flags|options)$", re.IGNORECASE)
STARTERS = frozenset({"image", "command", "entrypoint", "containers"})  # whose readers know the program
OPTION = re.compile(r"--(?P<name>[A-Za-z][\w-]*)(?:[.=\s].*)?", re.DOTALL)
FEWEST = 2  # options of vLLM that tell whose arguments these are
OF_VLLM = 2  # dashes in a name that is vLLM's alone
FOREIGN = 4  # of so many options one may be no option of vLLM: a slip of the keyboard
DEEPEST = 60
# The production stack of vLLM, and Ray Serve: their arguments are read with what is around.
READ_BELOW = frozenset({"modelURL", "llm_configs"})
PACKAGES = ("python_packages", "pip_packages")  # of cog.yaml, bentofile.yaml
KUBEAI = frozenset({"engine", "url", "args"})
OF_THE_HUB = re.compile(r"hf://(?P<model>[\w.-]+/[\w.-]+)(?:\?.*)?")
LISTED = "${model_of_a_list}"  # stands for the model of such a list
Argument = Callable[[Any], Word]


OF_THE_SERVER = (
    "host",
    "port",
    "api_key",
    "served_model_name",
    "uvicorn_log_level",
)  # where a command takes all of them


def scripts(node: Any, argument: Argument) -> Iterator[Word]:
    """``vllm serve ... OPTIONS ...`` of each list; ``argument`` makes the word of one of its entries."""
    yield from _models(node, argument, 0)
    for name, value, around in _entries(node, 0):
        beside = set(around)
        if beside >= KUBEAI:
            continue  # read with its model
        if name in PACKAGES and value.id == "sequence":
            packages = [argument(one) for one in value.value if one.id == "scalar"]
            if packages:
                place = (packages[0].line, packages[0].column)
                script = Script()
                script.words([*(Word(text, *place, (place,) * len(text)) for text in ("pip", "install")), *packages])
                yield script.word()
            continue
        read = beside & STARTERS and not OF_CHARTS.match(name)
        if value.id != "sequence" or not LISTS.search(name) or read:
            continue
        items = [one for one in value.value if one.id == "scalar"]
        if len(items) < len(value.value) or not _are_options([str(one.value) for one in items]):
            continue
        words = [argument(one) for one in items]
        place = (words[0].line, words[0].column)
        start = [Word(text, *place, (place,) * len(text)) for text in ("vllm", "serve")]
        model = _chart_model(around) if read or OF_CHARTS.match(name) else None
        named = argument(model) if model is not None else unknown("model of a list", place)
        script = Script()
        script.words([*start, named, *words, *([unknown_arguments(place)] if model is None else ())])
        yield script.word()


def _chart_model(around: Mapping[str, Any]) -> Any:
    """The model of a chart's values, beside the arguments: ``model: owner/name``, ``model: {name: owner/name}``."""
    for name in MODEL_KEYS:
        value = around.get(name)
        if value is not None and value.id == "mapping":
            inside = {str(key.value): one for key, one in value.value if key.id == "scalar"}
            value = next((inside[key] for key in INSIDE if key in inside), None)
        if value is not None and value.id == "scalar" and OWNED.fullmatch(str(value.value)):
            return value
    return None


def _models(node: Any, argument: Argument, depth: int) -> Iterator[Word]:
    """KubeAI's models, of its kind Model and of its chart's catalog: ``engine: VLLM``, ``url`` and ``args``."""
    if node.id == "scalar" or depth > DEEPEST:
        return
    entries = {str(key.value): value for key, value in node.value if key.id == "scalar"} if node.id == "mapping" else {}
    for one in node.value if node.id == "sequence" else entries.values():
        yield from _models(one, argument, depth + 1)
    if not set(entries) >= KUBEAI or any(entries[name].id != "scalar" for name in ("engine", "url")):
        return
    arguments = entries["args"]
    match = OF_THE_HUB.fullmatch(str(entries["url"].value))
    if str(entries["engine"].value) != "VLLM" or arguments.id != "sequence" or match is None:
        return
    words = [argument(one) for one in arguments.value if one.id == "scalar"]
    url = argument(entries["url"])
    place = (url.line, url.column)
    start = [Word(text, *place, (place,) * len(text)) for text in ("vllm", "serve", match["model"])]
    script = Script()
    script.words([*start, *words])
    yield script.word()


def calls(node: Any, argument: Argument) -> Iterator[Call]:
    """``EngineArgs(...)`` of each mapping."""
    for name, value, _ in _entries(node, 0):
        if value.id != "mapping" or not MAPPINGS.search(name):
            continue
        pairs = [(key, one) for key, one in value.value if key.id == "scalar"]
        names = [str(key.value) for key, _ in pairs]
        known = [one for one in names if one in _arguments()]
        if len(known) < FEWEST or len(names) - len(known) > len(names) // FOREIGN:
            continue
        given = tuple(argument(key) for key, _ in pairs if str(key.value) not in OF_THE_SERVER)
        values = tuple((str(key.value), argument(one)) for key, one in pairs if one.id == "scalar")
        yield Call("vllm", "EngineArgs", given, values=values)


def _entries(node: Any, depth: int) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Every entry of every mapping with its name, and the entries beside it."""
    if depth > DEEPEST:
        return
    if node.id == "sequence":
        for one in node.value:
            yield from _entries(one, depth + 1)
    elif node.id == "mapping":
        named = [(str(key.value), value) for key, value in node.value if key.id == "scalar"]
        beside = dict(named)
        if READ_BELOW & set(beside):
            return
        for name, value in named:
            yield name, value, beside
            if value.id != "scalar":
                yield from _entries(value, depth + 1)


def _name(match: re.Match[str]) -> str:
    return match["name"].replace("_", "-").removeprefix("no-")


def _are_options(texts: list[str]) -> bool:
    matches = [match for text in texts if (match := OPTION.fullmatch(text))]
    known = [match for match in matches if _name(match) in options_of("serve")]
    starts = bool(texts) and texts[0].startswith("-")
    enough = len(known) >= FEWEST or any(_name(one).count("-") >= OF_VLLM for one in known)
    return starts and enough and len(matches) - len(known) <= len(matches) // FOREIGN


@cache
def _arguments() -> frozenset[str]:
    facts = vllm_facts()
    names = {*facts.table("options", "engine"), *facts.table("options", "async"), *facts.table("options", "fields")}
    return frozenset(name.replace("-", "_") for name in names) | {"model", "tokenizer"}
