"""How Python uses clients and engines of text: arguments that a client refuses, and fields that an answer has not."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from serving_base.yaml_files import read_yaml
from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.python_text import PythonText, fault

FACTS = "python_clients.yml"


@cache
def _facts() -> dict[str, Any]:
    content: dict[str, Any] = read_yaml(Path(__file__).with_name(FACTS))
    return content


def _removed(text: PythonText) -> Iterator[FormFault]:
    """``openai.ChatCompletion.create``, which openai 1.0 took away."""
    for call in text.calls:
        if text.dotted(call.func) in _facts()["removed"]:
            yield fault(text, call.func, "openai 0", name=text.dotted(call.func))


def _gone(text: PythonText) -> Iterator[FormFault]:
    """``from locust import HttpLocust``: names that a library took away long ago."""
    for node in text.nodes:
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            for one in node.names:
                entry = _facts()["gone"].get(f"{node.module}.{one.name}")
                if entry is not None:
                    yield fault(text, node, "gone", name=f"{node.module}.{one.name}", **entry)
        elif isinstance(node, ast.Import):
            for one in node.names:
                entry = _facts()["gone"].get(one.name)
                if entry is not None:
                    yield fault(text, node, "gone", name=one.name, **entry)


def client_faults(text: PythonText, *, is_script: bool) -> Iterator[FormFault]:
    """All faults. ``is_script``: a program of its own, and no cell of a notebook."""
    yield from _adapters(text)
    yield from _imports(text)
    yield from _removed(text)
    yield from _gone(text)
    if is_script:
        yield from _forked(text)


def _adapters(text: PythonText) -> Iterator[FormFault]:
    """A LoRARequest without a number above 0, and one for an engine that has LoRA off."""
    for call in text.calls:
        if text.dotted(call.func) != "vllm.lora.request.LoRARequest":
            continue
        named = [one.value for one in call.keywords if one.arg == "lora_int_id"]
        number = next(iter([*call.args[1:2], *named]), None)
        if isinstance(number, ast.Constant) and isinstance(number.value, int) and number.value < 1:
            yield fault(text, number, "adapter number", value=str(number.value))
    made = [call for call in text.calls if text.dotted(call.func) == "vllm.LLM"]
    options = {one.arg for call in made for one in call.keywords}
    asks = [one for call in text.calls for one in call.keywords if one.arg == "lora_request"]
    given = [one for one in asks if not (isinstance(one.value, ast.Constant) and one.value.value is None)]
    if made and given and not options & {"enable_lora", None}:
        yield fault(text, given[0].value, "adapters off")


def _imports(text: PythonText) -> Iterator[FormFault]:
    """Names that a package has not, one letter or so from one that it has; modules that are gone."""
    for node in text.nodes:
        if not isinstance(node, ast.ImportFrom) or node.level or node.module is None:
            continue
        known = _facts()["names"].get(node.module, "").split()
        for one in node.names if known else ():
            close = [name for name in known if _is_slip(one.name, name)] if one.name not in known else []
            if close:
                yield fault(text, node, "import", name=one.name, module=node.module, instead=close[0])


def _is_slip(one: str, other: str) -> bool:
    """True for capitals, a plural or its lack, and an underline."""
    first, second = (name.replace("_", "").lower().removesuffix("s") for name in (one, other))
    return first == second


def _forked(text: PythonText) -> Iterator[FormFault]:
    """CUDA in use before an ``LLM`` on several GPUs, outside of a function."""
    touched = 0
    for statement in text.tree.body:
        if not isinstance(statement, ast.Assign | ast.Expr):
            continue
        for node in ast.walk(statement):
            if not isinstance(node, ast.Call):
                continue
            if text.dotted(node.func) in _facts()["starts_cuda"].split():
                touched = touched or node.lineno
            elif text.dotted(node.func) == "vllm.LLM" and touched and text.has_ranks(node):
                yield fault(text, node.func, "CUDA first", line=str(touched))
