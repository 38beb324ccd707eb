"""Engines that Python makes with what they do not take: wrappers of other libraries, and objects in the wrong place."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from serving_base.yaml_files import read_yaml
from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.python_text import PythonText, fault
from trtllm_check.releases.vllm import vllm_facts

FACTS = "python_wrappers.yml"
MODELS = "tensorrt_llm.models."
LOADS = ("from_hugging_face", "from_meta_ckpt", "from_checkpoint", "quantize")
SIZES = ("world_size", "tp_size", "pp_size", "cp_size")


@cache
def _facts() -> dict[str, Any]:
    content: dict[str, Any] = read_yaml(Path(__file__).with_name(FACTS))
    return content


@cache
def _engine_arguments() -> frozenset[str]:
    """The engine's arguments as Python writes them, of every release."""
    facts = vllm_facts()
    return frozenset(name.replace("-", "_") for name in facts.table("options", "engine"))


def wrapper_faults(text: PythonText) -> Iterator[FormFault]:
    """All faults."""
    yield from _wrapped(text)
    yield from _hub_names(text)
    yield from _engines(text)
    yield from _mappings(text)
    yield from _loads(text)
    yield from _algorithms(text)


def _wrapped(text: PythonText) -> Iterator[FormFault]:
    """LangChain's ``VLLM(quantization="awq")``, which drops it: the engine's arguments belong into vllm_kwargs."""
    for call in text.calls:
        entry = _facts()["wrappers"].get(text.dotted(call.func))
        for one in call.keywords if entry else ():
            name = one.arg or ""
            if name in entry["meant"]:
                yield fault(text, one.value, entry["form"], name=name, instead=f"write {entry['meant'][name]}")
            elif name in _engine_arguments() and name not in entry["takes"].split():
                instead = f"write vllm_kwargs={{'{name}': {ast.unparse(one.value)[:40]}}}"
                yield fault(text, one.value, entry["form"], name=name, instead=instead)


def _hub_names(text: PythonText) -> Iterator[FormFault]:
    """LlamaIndex' ``OpenAI(model="owner/name")``, which looks the name up among OpenAI's own."""
    for call in text.calls:
        if text.dotted(call.func) not in _facts()["of_openai"]:
            continue
        given = [*call.args[:1], *(one.value for one in call.keywords if one.arg == "model")]
        for value in given[:1]:
            name = _text(text, value)
            if "/" in name and not name.startswith("ft:"):
                yield fault(text, value, "unknown to the client", name=name)


def _text(text: PythonText, node: ast.expr) -> str:
    """A text, or that of a name that is set once."""
    values = text.values_of(node.id) if isinstance(node, ast.Name) else [node]
    value = values[0].value if len(values) == 1 and isinstance(values[0], ast.Constant) else ""
    return value if isinstance(value, str) else ""


def _engines(text: PythonText) -> Iterator[FormFault]:
    """``AsyncLLMEngine(model="x")`` and ``LLM(EngineArgs(...))``."""
    facts = _facts()
    made = text.made_by(*facts["arguments"])
    for call in text.calls:
        name = text.dotted(call.func)
        if name not in facts["engines"] and name not in facts["of_keywords"]:
            continue
        first = call.args[0] if call.args else None
        is_made = isinstance(first, ast.Name) and first.id in made
        is_made |= isinstance(first, ast.Call) and text.dotted(first.func) in facts["arguments"]
        if name in facts["of_keywords"]:
            if is_made and first is not None:
                yield fault(text, first, "arguments in an object", written=ast.unparse(first)[:40])
        elif any(one.arg == "model" for one in call.keywords) or (is_made and not call.args[1:] and not call.keywords):
            yield fault(text, call.func, "engine of keywords", name=name.rpartition(".")[2])


def _mappings(text: PythonText) -> Iterator[FormFault]:
    """``Mapping(world_size=4, tp_size=2)``: the sizes do not make the world."""
    for call in text.calls:
        if text.dotted(call.func) not in _facts()["mappings"] or any(one.arg is None for one in call.keywords):
            continue
        given: dict[str, ast.expr] = {one.arg: one.value for one in call.keywords if one.arg in SIZES}
        if call.args:
            given["world_size"] = call.args[0]
        if any(one.arg == "auto_parallel" for one in call.keywords):
            continue
        numbers = {name: _whole(text, value) for name, value in given.items()}
        sizes = [number for number in numbers.values() if number]
        if not sizes or len(sizes) != len(given):
            continue
        world, product = numbers.get("world_size", 1), 1
        for name in SIZES[1:]:
            product *= numbers.get(name, 1)
        if world != product:
            yield fault(text, call, "world of a mapping", world=str(world), product=str(product))


def _whole(text: PythonText, node: ast.expr) -> int:
    """A whole number, or that of a name that is set once; 0 for what is not told."""
    values = text.values_of(node.id) if isinstance(node, ast.Name) else [node]
    value = values[0].value if len(values) == 1 and isinstance(values[0], ast.Constant) else 0
    return value if isinstance(value, int) else 0


def _loads(text: PythonText) -> Iterator[FormFault]:
    """``from_hugging_face(dtype="fp16", mapping={...})`` of TensorRT-LLM's models."""
    facts = _facts()
    for call in text.calls:
        owner, _, method = text.dotted(call.func).rpartition(".")
        if not owner.startswith(MODELS) or method not in LOADS:
            continue
        given = [(one.arg, one.value) for one in call.keywords]
        given += [("dtype", one) for one in call.args[1:2] if method == LOADS[0]]
        for name, value in given:
            written = value.value if isinstance(value, ast.Constant) else None
            if name == "dtype" and written in facts["types"]:
                yield fault(text, value, "type of a load", value=str(written), right=facts["types"][written])
            is_dict = isinstance(value, ast.Dict) or (
                isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict"
            )
            if name == "mapping" and is_dict:
                yield fault(text, value, "mapping of a load", name=method)


def _algorithms(text: PythonText) -> Iterator[FormFault]:
    """``QuantConfig(quant_algo="int4_awq")`` and ``QuantAlgo.INT4_AWQ``: names of quantize.py."""
    meant = _facts()["algorithms"]
    for call in text.calls:
        if not text.dotted(call.func).startswith("tensorrt_llm.") or not text.dotted(call.func).endswith(
            ".QuantConfig"
        ):
            continue
        for one in call.keywords:
            value = _text(text, one.value) if one.arg in ("quant_algo", "kv_cache_quant_algo") else ""
            right = meant.get(value.lower(), "")
            if right and value != right:
                yield fault(text, one.value, "algorithm", value=value, right=right)
    for node in text.nodes:
        if isinstance(node, ast.Attribute) and text.dotted(node.value).endswith(".QuantAlgo"):
            right = meant.get(node.attr.lower(), "")
            if right and node.attr != right and text.dotted(node.value).startswith("tensorrt_llm."):
                yield fault(text, node, "algorithm attribute", value=node.attr, right=right)
