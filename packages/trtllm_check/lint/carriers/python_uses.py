"""How Python uses the libraries around the engines: quantization, tokenizers, Triton's clients, ranks of Python.

Each is a slip that stops the program, or makes it do something else, whatever the values are that the text leaves open.
"""

import ast
import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from serving_base.yaml_files import read_yaml
from trtllm_check.lint.carriers.boto_clients import boto_faults
from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.python_answers import answer_faults
from trtllm_check.lint.carriers.python_arrays import array_faults
from trtllm_check.lint.carriers.python_async import async_faults
from trtllm_check.lint.carriers.python_clients import client_faults
from trtllm_check.lint.carriers.python_engines import engine_faults
from trtllm_check.lint.carriers.python_results import result_faults
from trtllm_check.lint.carriers.python_sagemaker import sagemaker_faults
from trtllm_check.lint.carriers.python_slips import slip_faults
from trtllm_check.lint.carriers.python_started import start_faults
from trtllm_check.lint.carriers.python_text import PythonText, fault
from trtllm_check.lint.carriers.python_wrappers import wrapper_faults
from trtllm_check.releases.templates import release_templates, template_releases

ENGINE_CLASSES = ("LLM",)
PAGE = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/(?P<name>[\w.-]+/[\w.-]+)(?:/tree/main)?/?")
DOWNLOADS = ("huggingface_hub.snapshot_download", "huggingface_hub.hf_hub_download")
NAMES_OF_MODELS = ("repo_id", "pretrained_model_name_or_path")
UTILS = "triton_python_backend_utils"
RESPONSE = f"{UTILS}.InferenceResponse"
READER, CALLED_WITH = f"{UTILS}.get_input_tensor_by_name", {"initialize": "args", "execute": "requests"}
MODEL_CLASS, ALIKE = "TritonPythonModel", 0.7
CONFIG_READERS = tuple(f"{UTILS}.{name}" for name in ("get_input_config_by_name", "get_output_config_by_name"))


@cache
def _facts() -> dict[str, Any]:
    content: dict[str, Any] = read_yaml(Path(__file__).with_name("python_uses.yml"))
    return content


def uses(text: PythonText, *, is_script: bool) -> Iterator[FormFault]:
    """All faults. ``is_script``: a program of its own, and no cell of a notebook."""
    yield from client_faults(text, is_script=is_script)
    yield from engine_faults(text, is_script=is_script)
    yield from async_faults(text)
    yield from answer_faults(text)
    yield from result_faults(text)
    yield from boto_faults(text)
    yield from sagemaker_faults(text)
    yield from start_faults(text)
    yield from wrapper_faults(text)
    yield from slip_faults(text)
    yield from _addresses(text)
    yield from _modelopt(text)
    yield from _tokens(text)
    yield from _triton(text)
    yield from _datatypes(text)
    yield from _backend(text)
    yield from array_faults(text, _facts()["tensors"])
    if is_script:
        yield from _main_guard(text)


def _addresses(text: PythonText) -> Iterator[FormFault]:
    """``from_pretrained("https://huggingface.co/...")``: a page in place of a name."""
    for call in text.calls:
        name = text.dotted(call.func)
        is_ours = name in DOWNLOADS or (name.startswith("transformers.") and name.endswith(".from_pretrained"))
        given = [*call.args[:1], *(one.value for one in call.keywords if one.arg in NAMES_OF_MODELS)]
        for value in given[:1] if is_ours else ():
            match = PAGE.fullmatch(str(value.value)) if isinstance(value, ast.Constant) else None
            if match is not None:
                known = {"value": match[0], "tool": name.rpartition(".")[2], "right": match["name"]}
                yield FormFault("model-address", text.at(value), "", tuple(known.items()))


def _modelopt(text: PythonText) -> Iterator[FormFault]:
    """A static configuration of modelopt's without calibration; which there are is in the tables of names."""
    facts = _facts()["modelopt"]
    for call in text.calls:
        if not _is_quantize(text, call.func, facts["module"]) or len(call.args) > 2:
            continue
        given = {one.arg: one.value for one in call.keywords}
        loop = given.pop("forward_loop", None)
        config = call.args[1] if len(call.args) == 2 else given.pop("config", None)
        if given.keys() - {"model"} or not (loop is None or _is_none(loop)):
            continue
        named = _attribute(text, config)
        if named in facts["calibrated"].split():
            yield fault(text, call, "calibration", name=named)


def _is_quantize(text: PythonText, func: ast.expr, module: str) -> bool:
    """``mtq.quantize``, also in a piece of code whose imports were left out."""
    if text.dotted(func) == f"{module}.quantize":
        return True
    return ast.unparse(func) == "mtq.quantize" and "mtq" not in text.names


def _attribute(text: PythonText, node: ast.expr | None) -> str:
    """The last name of ``mtq.FP8_DEFAULT_CFG``, also where a name or a parameter's default stands for it."""
    if isinstance(node, ast.Name):
        defaults = [
            value
            for one in text.nodes
            if isinstance(one, ast.FunctionDef)
            for name, value in zip(reversed(one.args.args), reversed(one.args.defaults), strict=False)
            if name.arg == node.id
        ]
        values = [*text.values_of(node.id), *defaults]
        node = values[0] if len(values) == 1 else None
    return node.attr if isinstance(node, ast.Attribute) else ""


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _tokens(text: PythonText) -> Iterator[FormFault]:
    """``model.generate(inputs)`` with what a tokenizer returns, which is a mapping."""
    models = {name for name in _stored(text) if _made_by(text, name, "from_pretrained", "AutoModel")}
    tokenizers = {name for name in _stored(text) if _made_by(text, name, "from_pretrained", "Tokenizer")}
    for call in text.calls:
        is_ours = isinstance(call.func, ast.Attribute) and call.func.attr == "generate"
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if not (is_ours and isinstance(owner, ast.Name) and owner.id in models and call.args):
            continue
        first = call.args[0]
        made = text.values_of(first.id) if isinstance(first, ast.Name) else []
        if made and all(_calls_a(one, tokenizers) for one in made) and isinstance(first, ast.Name):
            yield fault(text, first, "mapping", name=first.id, owner=owner.id)


def _stored(text: PythonText) -> set[str]:
    return {node.id for node in text.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _made_by(text: PythonText, name: str, method: str, owner: str) -> bool:
    made = text.values_of(name)
    return bool(made) and all(
        isinstance(one, ast.Call)
        and isinstance(one.func, ast.Attribute)
        and one.func.attr == method
        and "transformers" in text.dotted(one.func)
        and owner in text.dotted(one.func)
        for one in made
    )


def _calls_a(node: ast.expr, names: set[str]) -> bool:
    """True for ``tokenizer(..., return_tensors="pt")``, and the same with ``.to("cuda")`` behind it."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "to":
        return _calls_a(node.func.value, names)
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    return is_call and isinstance(node, ast.Call) and any(one.arg == "return_tensors" for one in node.keywords)


def _triton(text: PythonText) -> Iterator[FormFault]:
    """Addresses of Triton's clients: a scheme, and the other protocol's port."""
    for call in text.calls:
        protocol = _facts()["triton"].get(text.dotted(call.func), {})
        given = [*call.args[:1], *(one.value for one in call.keywords if one.arg == "url")]
        for value in given[:1] if protocol else ():
            address = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
            scheme, _, rest = address.partition("://")
            if rest:
                yield fault(text, value, "scheme", address=address, instead=rest, scheme=scheme)
            elif address.endswith(f":{protocol['not']}") and _is_written(text, call):
                instead = f"{address.rpartition(':')[0]}:{protocol['port']}"
                names = {"address": address, "protocol": protocol["name"], "other": protocol["other"]}
                yield fault(text, value, "port", instead=instead, **names)


def _is_written(text: PythonText, call: ast.Call) -> bool:
    """False for a client whose address is a parameter, which callers give with the protocol."""
    written = text.as_written(call)
    given = [*written.args[:1], *(one.value for one in written.keywords if one.arg == "url")]
    return not any(
        isinstance(one, ast.Attribute) or (isinstance(one, ast.Name) and not text.values_of(one.id)) for one in given
    )


def _datatypes(text: PythonText) -> Iterator[FormFault]:
    """``InferInput(name, shape, "STRING")``."""
    facts = _facts()
    for call in text.calls:
        if text.dotted(call.func) not in facts["tensors"]:
            continue
        given = [*call.args[2:3], *(one.value for one in call.keywords if one.arg == "datatype")]
        for value in given[:1]:
            name = str(value.value) if isinstance(value, ast.Constant) else ""
            if name in facts["datatypes"]:
                yield fault(text, value, "data type", name=name, instead=facts["datatypes"][name])
                continue
            first = call.args[0] if call.args else None
            tensor = str(first.value) if isinstance(first, ast.Constant) else ""
            taken = _types_of_ensemble().get(tensor, frozenset())
            if taken and name and name not in taken and _asks_ensemble(text):
                yield fault(text, value, "type of another", name=tensor, given=name, instead=" or ".join(sorted(taken)))


def _asks_ensemble(text: PythonText) -> bool:
    """True where the code names the models that take texts, and a tensor that only these have."""
    said = {node.value for node in text.nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return bool(said & {"ensemble", "tensorrt_llm_bls"}) and "text_input" in said


@cache
def _types_of_ensemble() -> dict[str, frozenset[str]]:
    """Each input -> its types over the releases, as requests write them; the unsigned ones are of releases before."""
    found: dict[str, set[str]] = {}
    for release in template_releases():
        for tensor in release_templates(release).models["ensemble"].inputs:
            kind = {"STRING": "BYTES"}.get(tensor.type, tensor.type)
            if not kind.startswith("$"):
                found.setdefault(tensor.name, set()).add(kind)
    return {name: frozenset(kinds | ({"UINT32"} if "INT32" in kinds else set())) for name, kinds in found.items()}


def _backend(text: PythonText) -> Iterator[FormFault]:
    """Triton's models in Python: a configuration that is a text, and an answer that is no list of answers."""
    for call in text.calls:
        name = text.dotted(call.func)
        if name in CONFIG_READERS and call.args:
            given = call.args[0]
            values = text.values_of(ast.unparse(given)) if isinstance(given, ast.Name) else [given]
            if values and all(_is_config_text(one) for one in values):
                yield fault(text, given, "config text", name=name.rpartition(".")[2])
    for node in text.nodes:
        if isinstance(node, ast.FunctionDef) and node.name == "execute" and node.args.args[1:]:
            for one in ast.walk(node):
                value = one.value if isinstance(one, ast.Return) else None
                made = text.values_of(value.id) if isinstance(value, ast.Name) else [value]
                if value is not None and made and all(_is_response(text, each) for each in made):
                    yield fault(text, value, "one answer")
            yield from _no_answer(text, node)
    yield from _signatures(text)
    classes = [node for node in text.nodes if isinstance(node, ast.ClassDef)]
    if UTILS in text.names.values() and MODEL_CLASS not in {*text.names, *(one.name for one in classes)}:
        for one in classes:
            has_it = any(isinstance(part, ast.FunctionDef) and part.name == "execute" for part in one.body)
            if has_it and get_close_matches(one.name, [MODEL_CLASS], 1, ALIKE):
                yield fault(text, one, "model class", name=one.name)


def _no_answer(text: PythonText, node: ast.FunctionDef) -> Iterator[FormFault]:
    """``execute`` that collects answers and returns nothing, of a model that sends none."""
    inside = list(ast.walk(node))
    makes = any(isinstance(one, ast.Call) and text.dotted(one.func) == RESPONSE for one in inside)
    ends = any(isinstance(one, ast.Return | ast.Yield | ast.Raise | ast.YieldFrom) for one in inside)
    if makes and not ends and "response_sender" not in text.word.text:
        yield fault(text, node, "no answer")


def _is_response(text: PythonText, node: ast.expr | None) -> bool:
    return isinstance(node, ast.Call) and text.dotted(node.func) == RESPONSE


def _signatures(text: PythonText) -> Iterator[FormFault]:
    """Arguments in the other order, and methods that the stub calls with one argument each."""
    for call in text.calls:
        first = call.args[0] if call.args else None
        if text.dotted(call.func) == READER and isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield fault(text, first, "tensor order", name=first.value)
    for node in text.nodes:
        if not isinstance(node, ast.ClassDef) or node.name != MODEL_CLASS:
            continue
        for one in node.body:
            if isinstance(one, ast.FunctionDef) and one.name in CALLED_WITH and not one.decorator_list:
                wanted = [arg.arg for arg in one.args.args[1 : len(one.args.args) - len(one.args.defaults)]]
                few = len(one.args.args) < 2 and one.args.vararg is None
                if few or len(wanted) > 1:
                    yield fault(text, one, "method arguments", name=one.name, argument=CALLED_WITH[one.name])


def _is_config_text(node: ast.expr) -> bool:
    """True for ``args["model_config"]``, which is JSON."""
    is_part = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    return is_part and isinstance(node, ast.Subscript) and ast.unparse(node.slice) == "'model_config'"


def _main_guard(text: PythonText) -> Iterator[FormFault]:
    """An ``LLM`` of TensorRT-LLM on several ranks, made whenever the file is imported: each rank imports it."""
    for statement in text.tree.body:
        if not isinstance(statement, ast.Assign | ast.Expr | ast.With):
            continue
        for node in ast.walk(statement):
            if not isinstance(node, ast.Call):
                continue
            module, _, name = text.dotted(node.func).rpartition(".")
            is_engine = module.partition(".")[0] == "tensorrt_llm" and name in ENGINE_CLASSES
            if is_engine and (ranks := text.has_ranks(node)):
                yield fault(text, node.func, "main guard", ranks=str(ranks))
