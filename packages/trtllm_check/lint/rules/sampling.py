"""Sampling parameters that vLLM refuses, in Python and in the bodies of requests to its server."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from trtllm_check.lint.bounds import is_within, range_of
from trtllm_check.lint.carriers.python_calls import Call
from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import BLS, ENSEMBLE, ServerAddress, inputs_of, serves
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.served import VLLM, served
from trtllm_check.lint.rules.vllm_refusals import holds
from trtllm_check.lint.rules.vllm_table import release_for
from trtllm_check.lint.shell.words import Word
from trtllm_check.lint.written_requests import WrittenRequest
from trtllm_check.releases import load_release
from trtllm_check.releases.templates import template_releases

FAMILY = "sampling"
RULE = "sampling-value"
CHAT = "/v1/chat/completions"
OURS = "tensorrt_llm"
ENGINES = (VLLM, OURS)
GUIDES = ("GuidedDecodingParams", "StructuredOutputsParams")
BEST_SINCE = "0.17.0"  # TensorRT-LLM's best_of
RANDOM = frozenset({"use_beam_search", "top_k", "top_p", "temperature", "beam_width"})
PATHS = ("/v1/completions", "/v1/chat/completions")
HTTP = "the server"
OF_ALL = ("temperature", "top_p", "max_tokens", "n")  # alike in every server with OpenAI's paths
GENERATES = ("generate", "generate_stream")
OTHER_SERVER = re.compile(r"\bopea/|\bOPEA\b|GenAIComps")  # whose services take messages as one text
DEEPEST = 8
ELEMENTS = {"INT": (int,), "UINT": (int,), "FP": (int, float), "BOOL": (bool,), "BYTES": (str,)}
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for call in document.calls:
        if call.api in ENGINES and call.name == "SamplingParams":
            yield from _judge(dict(call.values), call.name, call.file, release, call.api)
            yield from _best(dict(call.values), call, release)
        if call.api == VLLM and call.name == "SamplingParams":
            yield from _lists(dict(call.values), call, document, release)
        if call.name in GUIDES and call.api in ENGINES:
            yield from _guides(call, release)
    if any(one.engine == VLLM for one in served(document)):
        for request in document.requests:
            if ServerAddress.of(request.url).path.rstrip("/") in PATHS:
                yield from _judge(_body(request), HTTP, request.file, release)
    else:
        for request in document.requests:
            fields = request.fields or {}
            if "model" in fields and ("messages" in fields or "prompt" in fields):
                body = {name: word for name, word in _body(request).items() if name in OF_ALL}
                yield from _judge(body, HTTP, request.file, release)
    others = any(OTHER_SERVER.search(text) for _, text in document.texts)
    known = serves(document) or bool(served(document))
    for request in document.requests:
        for draft in () if others else _form(request, release):
            yield draft if known else draft._replace(severity="warning")
        yield from _tensors(request, release)
        yield from _fields(request, document, platform)


def _fields(request: WrittenRequest, document: Document, platform: Platform) -> Iterator[Draft]:
    """Texts in /generate for inputs that are numbers; and a method that it does not answer."""
    target = ServerAddress.of(request.url)
    if target.verb in (*GENERATES, "infer") and request.method == "GET" and request.fields:
        place = request.address or request.place
        yield from drafts(platform.release.name, "request-body", place, form="method", file=request.file)
    if target.verb not in GENERATES or not request.fields:
        return
    is_older = target.model in (ENSEMBLE, BLS) and platform.release.name not in template_releases()
    release = load_release(template_releases()[-1]) if is_older else platform.release  # the last with an ensemble
    for tensor in inputs_of(target.model, document, release):
        value = request.fields.get(tensor.name)
        wanted = next((kinds for start, kinds in ELEMENTS.items() if tensor.type.startswith(start)), None)
        if wanted is None or str in wanted or not isinstance(value, str) or is_open(value):
            continue
        known = {"name": tensor.name, "datatype": tensor.type, "value": json.dumps(value)}
        known["wanted"] = " or ".join(WORDS[one] for one in wanted)
        place = request.at(tensor.name)
        shown: dict[str, Any] = dict(known)
        yield from drafts(platform.release.name, "request-body", place, form="element", file=request.file, **shown)


def _tensors(request: WrittenRequest, release: str) -> Iterator[Draft]:
    """Data types of the tensors of a request to Triton."""
    tensors = (request.fields or {}).get("inputs")
    if not request.url.rstrip("/").endswith("/infer") or not isinstance(tensors, list):
        return
    for tensor in tensors:
        name = tensor.get("datatype") if isinstance(tensor, dict) else None
        meant = rule_data(FAMILY)["datatypes"].get(name) if isinstance(name, str) else None
        if meant:
            place = request.at("datatype")
            known = {"name": name, "instead": meant}
            yield from drafts(release, "request-body", place, form="data type", file=request.file, **known)
            return
        if isinstance(tensor, dict) and (found := _misfit(tensor)):
            form, elements = found
            yield from drafts(release, "request-body", request.at("data"), form=form, file=request.file, **elements)
            return


def _misfit(tensor: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Elements of another type than the tensor's, or more or fewer than its shape has."""
    shape, name = tensor.get("shape"), tensor.get("datatype")
    elements = list(_flat(tensor.get("data"), DEEPEST))
    if not isinstance(name, str) or not elements or any(isinstance(one, str) and is_open(one) for one in elements):
        return None
    wanted = next((kinds for start, kinds in ELEMENTS.items() if name.startswith(start)), None)
    if wanted is not None and (other := next((one for one in elements if type(one) not in wanted), None)) is not None:
        shown = {"datatype": name, "value": json.dumps(other), "wanted": " or ".join(WORDS[one] for one in wanted)}
        return "element", {"name": tensor.get("name", "the tensor"), **shown}
    if isinstance(shape, list) and shape and all(type(one) is int and one >= 0 for one in shape):
        count = math.prod(shape)
        if count != len(elements):
            return "elements", {
                "name": tensor.get("name", "the tensor"),
                "shape": shape,
                "wanted": count,
                "count": len(elements),
            }
    return None


def _flat(data: Any, deepest: int) -> Iterator[Any]:
    if isinstance(data, list) and deepest:
        for one in data:
            yield from _flat(one, deepest - 1)
    elif data is not None:
        yield data


def _form(request: WrittenRequest, release: str) -> Iterator[Draft]:
    """``messages`` that are no list of messages, and names of transformers, in the body of a chat or a completion."""
    fields: Mapping[str, Any] = request.fields or {}
    path = ServerAddress.of(request.url).path.rstrip("/")
    if path not in PATHS and "messages" not in fields:
        return
    messages = fields.get("messages")
    if path == CHAT and messages is not None and not _is_list_of_messages(messages):
        yield from drafts(release, "request-body", request.at("messages"), form="messages", file=request.file)
    if "model" in fields:
        for name, meant in rule_data(FAMILY)["ignored"].items():
            if name in fields and meant not in fields:
                known = {"name": name, "instead": meant}
                yield from drafts(release, "request-body", request.at(name), form="ignored", file=request.file, **known)


def _is_list_of_messages(value: object) -> bool:
    """A text that a shell or a template fills in may be one."""
    if isinstance(value, str):
        return any(mark in value for mark in "${<")
    return isinstance(value, list) and all(isinstance(one, dict | str) for one in value)


def _body(request: WrittenRequest) -> dict[str, Word]:
    """The numbers of a body, each at its field."""
    fields: Mapping[str, Any] = request.fields or {}
    numbers = {name: value for name, value in fields.items() if isinstance(value, int | float)}
    places = {name: request.at(name) for name in numbers}
    return {name: Word(str(value), places[name].line, places[name].column) for name, value in numbers.items()}


def _guides(call: Call, release: str) -> Iterator[Draft]:
    """``GuidedDecodingParams(json=..., regex=...)``: one answer cannot follow two."""
    given = [word for word in call.arguments if word.text in rule_data(FAMILY)["guides"]]
    if len(given) > 1:
        known: dict[str, Any] = {"where": call.name, "first": given[0].text, "second": given[1].text}
        yield from drafts(release, RULE, given[1], form="guides", file=call.file, **known)


def _best(values: Mapping[str, Word], call: Call, release: str) -> Iterator[Draft]:
    """``best_of`` below ``n``; of TensorRT-LLM more than one of them where nothing makes the answers differ."""
    best, answers = _number(values.get("best_of")), _number(values.get("n"))
    if best is None and answers is None:
        return
    at, given = values["n" if best is None else "best_of"], {word.text for word in call.arguments}
    if call.api == OURS and _number(values.get("temperature")) == 0:
        given -= {"temperature"}  # which makes no difference
    name = "n" if best is None else "best_of"
    known: dict[str, Any] = {
        "where": call.name,
        "name": name,
        "best": at.text,
        "value": values["n"].text if "n" in values else "1",
    }
    if best is not None and answers is not None and best < answers:
        yield from drafts(release, RULE, at, form="best", file=call.file, **known)
    elif (
        call.api == OURS
        and max(best or 1, answers or 1) > 1
        and _has_best(release)
        and not call.is_open
        and not given & RANDOM
    ):
        yield from drafts(release, RULE, at, form="best greedy", file=call.file, **known)


def _lists(values: Mapping[str, Word], call: Call, document: Document, release: str) -> Iterator[Draft]:
    """Lists that vLLM looks into, and more log probabilities than the engine of the text gives."""
    data, told = rule_data(FAMILY), release_for(document, None)
    for form in ("no_empty_text", "not_empty"):
        for name, since in data[form].items():
            found = json.loads(values[name].text) if name in values and values[name].text.startswith("[") else None
            is_wrong = found == [] if form == "not_empty" else "" in (found or ())
            if is_wrong and holds({"since": since}, told):
                known: dict[str, Any] = {"where": call.name, "name": name}
                yield from drafts(release, RULE, values[name], form=form.replace("_", " "), file=call.file, **known)
    stops, reads = values.get("stop"), values.get("detokenize")
    if stops is not None and stops.text not in ("", "[]") and reads is not None and reads.text == "False":
        yield from drafts(release, RULE, stops, form="detokenize", file=call.file, where=call.name)
    engines = [one for one in served(document) if one.engine == VLLM]
    asked = _number(values.get("logprobs"))
    gives = len(engines) == 1 and "max_logprobs" not in engines[0].options and not engines[0].is_open
    if gives and asked is not None and asked > data["most_logprobs"]:
        known = {"where": engines[0].tool, "value": values["logprobs"].text, "most": data["most_logprobs"]}
        yield from drafts(release, RULE, values["logprobs"], form="logprobs", file=call.file, **known)


def _has_best(release: str) -> bool:
    from packaging.version import Version

    return Version(release) >= Version(BEST_SINCE)


def _judge(values: Mapping[str, Word], where: str, file: str, release: str, engine: str = VLLM) -> Iterator[Draft]:
    bounds = rule_data(FAMILY)
    for name, bound in bounds[engine].items():
        number = _number(values.get(name))
        if number is None or is_within(number, bound):
            continue
        known = {"where": where, "name": name, "value": values[name].text, "range": range_of(bound)}
        yield from drafts(release, RULE, values[name], file=file, **known)
    heat, answers = _number(values.get("temperature")), _number(values.get("n"))
    beams = "use_beam_search" in values or engine != VLLM  # which wants a temperature of 0
    if heat is not None and answers is not None and not beams and 0 <= heat < bounds["greedy"] and answers > 1:
        known = {"where": where, "value": values["n"].text}
        yield from drafts(release, RULE, values["n"], form="greedy", file=file, **known)
    least, most = _number(values.get("min_tokens")), _number(values.get("max_tokens"))
    if least is not None and most is not None and least > most > 0:
        known = {"where": where, "value": values["min_tokens"].text, "most": values["max_tokens"].text}
        yield from drafts(release, RULE, values["min_tokens"], form="tokens", file=file, **known)


def _number(word: Word | None) -> float | None:
    try:
        return float(word.text) if word is not None and word.text not in ("True", "False") else None
    except ValueError:
        return None
