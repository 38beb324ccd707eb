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
ANSWERS = (
    ("answer text", ("vllm.LLM",)),
    ("answer text of ours", ("tensorrt_llm.LLM", "tensorrt_llm.llmapi.LLM")),
)
"""The form of the rule, and the classes whose ``generate`` gives such answers."""


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
    yield from _openai(text)
    yield from _answers(text)
    yield from _adapters(text)
    yield from _imports(text)
    yield from _removed(text)
    yield from _gone(text)
    if is_script:
        yield from _forked(text)


def _openai(text: PythonText) -> Iterator[FormFault]:
    """What is taken of an answer: of a stream, of a chat, of an object that is no dictionary."""
    clients = text.made_by("openai.OpenAI", "openai.AsyncOpenAI")
    chats: set[str] = set()
    streams: set[str] = set()
    for call in text.calls:
        path = ast.unparse(call.func)
        owner, _, method = path.partition(".")
        if owner not in clients or method not in ("chat.completions.create", "completions.create"):
            continue
        if method.startswith("chat"):
            chats |= text.targets_of(call)
        if any(
            one.arg == "stream" and isinstance(one.value, ast.Constant) and one.value.value is True
            for one in call.keywords
        ):
            streams |= {name for name in text.targets_of(call) if len(text.values_of(name)) == 1}
    for node in text.nodes:
        of = node.value if isinstance(node, ast.Attribute) and node.attr == "choices" else None
        if isinstance(node, ast.expr) and isinstance(of, ast.Name) and of.id in streams:
            yield fault(text, node, "stream", name=of.id)
        if isinstance(node, ast.Attribute) and node.attr == "text" and _is_choice(node.value, chats):
            yield fault(text, node, "chat text", written=ast.unparse(node))
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            is_choices = isinstance(node.slice, ast.Constant) and node.slice.value == "choices"
            if is_choices and node.value.id in chats:
                yield fault(text, node, "subscript", name=node.value.id)


def _is_choice(node: ast.expr, chats: set[str]) -> bool:
    """True for ``answer.choices[0]``."""
    owner = node.value if isinstance(node, ast.Subscript) else None
    is_list = isinstance(owner, ast.Attribute) and owner.attr == "choices"
    return (
        is_list and isinstance(owner, ast.Attribute) and isinstance(owner.value, ast.Name) and owner.value.id in chats
    )


def _answers(text: PythonText) -> Iterator[FormFault]:
    """``outputs[0].text`` of what ``LLM.generate`` returns."""
    for form, classes in ANSWERS:
        engines = text.made_by(*classes) | text.attributes_made_by(*classes)
        yield from _texts(text, engines, form) if engines else ()


def _texts(text: PythonText, engines: set[str], form: str) -> Iterator[FormFault]:
    answers: set[str] = set()
    for call in text.calls:
        is_ours = isinstance(call.func, ast.Attribute) and call.func.attr in ("generate", "chat")
        if is_ours and isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in engines:
            answers |= text.targets_of(call)
    answers = {name for name in answers if len(text.values_of(name)) == 1}
    singles = {
        node.target.id
        for node in text.nodes
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and ast.unparse(node.iter) in answers
    }
    for node in text.nodes:
        if not isinstance(node, ast.Attribute) or node.attr != "text":
            continue
        owner = node.value
        of_list = isinstance(owner, ast.Subscript) and ast.unparse(owner.value) in answers
        if of_list or (isinstance(owner, ast.Name) and owner.id in singles):
            yield fault(text, node, form, written=ast.unparse(node), owner=ast.unparse(owner))


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
