"""Requests to Triton: the port, the path, and the names of the inputs."""

import json
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from serving_base.facts import TRITON_PORTS
from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import (
    BLS,
    ENSEMBLE,
    LLMAPI,
    TRITON_PORT,
    TritonRequest,
    has_pieces,
    input_values,
    inputs_of,
    is_through_gateway,
    server_ports,
    serves,
    triton_requests,
)
from trtllm_check.lint.finding import Draft, Platform, Put, Swap, drafts, rule_data
from trtllm_check.lint.shell.words import Word
from trtllm_check.lint.supposing import supposed
from trtllm_check.releases import Release, load_release
from trtllm_check.releases.templates import TensorSpec, release_templates, template_releases

FAMILY, OURS = "requests", "tensorrt_llm"
_, GRPC_PORT, METRICS_PORT = TRITON_PORTS
HEALTH = "/v2/health/ready"
OTHER_PORTS = {
    GRPC_PORT: f"{GRPC_PORT} is Triton's gRPC port",
    METRICS_PORT: f"{METRICS_PORT} has Triton's metrics",
    8080: "8080 is LMI's port",
}
# Paths that answer without a body: health, metadata, statistics, settings.
READ_ONLY = re.compile(
    r"^/v2(?:/health/(?:live|ready)|/models/(?:[^/]+(?:/versions/[^/]+)?(?:/(?:ready|config|stats|trace/setting))?|stats)"
    r"|/repository/.*|/(?:logging|trace/setting)|/(?:system|cuda)sharedmemory/.*)?/?$"
)
LISTS, INDEX = re.compile(r"^/v2/models/?$"), "/v2/repository/index"
SETTABLE = re.compile(r"^/v2/(?:repository/|logging|trace/setting|models/[^/]+/trace/setting|\w+sharedmemory/)")
# From 3.1 the tokenizer's end is <|eot_id|> in every revision, and the preprocessing model takes it.
INSTRUCT = re.compile(r"llama[-_ ]?3[-_ ]\d+b[-_ ]instruct", re.IGNORECASE)
PROGRAM_PORT = re.compile(
    r"\b(?:uvicorn|fastapi|gunicorn|hypercorn|flask|app\.run|streamlit|gradio)\b[^\n]*?(?<![\d.])(\d{4,5})\b"
)
LOCUST = re.compile(r"^(?:from|import) locust\b", re.MULTILINE)
NAMES_TRITON = re.compile(r"triton|tensorrt|trt-?llm|kserve|/v2/(?:models|health|repository)", re.IGNORECASE)
END_OF_TURN = "<|eot_id|>"
OF_PICTURES = re.compile(r"(?:image|video)_(?:(?:url|bytes)_)?input$|image_sizes$")
COMPOSE = re.compile(r"\bdocker[ -]compose (?:-\S+ (?:\S+ )?)*(?:up|restart|start|logs|exec|ps)\b")
MULTIMODAL = "all_models/multimodal"
OF_TEMPLATES = frozenset({"max_tokens", "bad_words", "stop_words", "end_id", "pad_id"})
BY_FORM = "unknown-input"  # ignored by /generate, refused by /infer


@dataclass
class _Correction:
    """A request's findings, and the URL and the body that correct all of them together."""

    request: TritonRequest
    url: str
    body: dict[str, Any] | None
    method: str = ""
    found: list[tuple[str, Word, bool, dict[str, Any]]] = field(default_factory=list)

    def add(self, rule: str, place: Word, *, renamed: bool = False, **known: Any) -> None:
        self.found.append((rule, place, renamed, known))

    def rename(self, name: str, new: str) -> None:
        """Gives an input its right name; takes it out where ``new`` is empty or there already."""
        if self.body is None:
            return
        if self.request.tensors:
            _rename_tensor(self.body, name, new)
            return
        for holder in (self.body, self.body.get("parameters")):
            if isinstance(holder, dict) and name in holder:
                items = [(new if key == name else key, value) for key, value in holder.items()]
                holder.clear()
                holder.update({key: value for key, value in items if key})

    def _form(self, rule: str, renamed: bool) -> str:
        """The form of ``rule``: of an input with another name in this release, and of a body for /infer."""
        forms = {"renamed": renamed, "infer": self.request.tensors and rule == BY_FORM}
        return " ".join(form for form, holds in forms.items() if holds)

    def drafts(self, release: str) -> Iterator[Draft]:
        edits = tuple(self._edits())
        for rule, place, renamed, known in self.found:
            yield from drafts(
                release,
                rule,
                place,
                form=self._form(rule, renamed),
                edits=edits,
                invocation=self.request.curl if edits else None,
                file=self.request.request.file,
                **known,
            )

    def _edits(self) -> Iterator[Swap | Put]:
        curl, request = self.request.curl, self.request.request
        if curl is None:
            return
        if self.url != self.request.url.text:
            yield Swap(self.request.url, self.url)
        if self.method:
            yield Put("-X", self.method)
        in_words = any(word is request.place for given in curl.given for word in given.values)
        if in_words and self.body is not None and self.body != self.request.fields:
            yield Swap(request.place, json.dumps(self.body, ensure_ascii=False))


@dataclass(frozen=True)
class _Around:
    """What a whole text says about every request in it, looked up when the first asks."""

    document: Document
    platform: Platform

    @cached_property
    def serves(self) -> bool:
        return serves(self.document)

    @cached_property
    def ports(self) -> list[int]:
        return server_ports(self.document)

    @cached_property
    def is_piece(self) -> bool:
        """True where a list of a manifest's starts the server, whose ports stand in a part that the text leaves out."""
        return has_pieces(self.document)

    @cached_property
    def is_composed(self) -> bool:
        """True where docker compose starts the server, by a file that the text does not show."""
        is_started = any(COMPOSE.search(text) for _, text in self.document.texts)
        runs = (one.positional[0].text for one in self.document.of("docker") if one.positional)
        return is_started and not self.document.workloads and "run" not in runs

    @cached_property
    def is_multimodal(self) -> bool:
        """True where the repository is made of the models for pictures, whose ensemble has inputs of its own."""
        return any(MULTIMODAL in text for _, text in self.document.texts)

    @cached_property
    def programs(self) -> frozenset[int]:
        """The ports of programs that are no Triton."""
        found = (match[1] for _, text in self.document.texts for match in PROGRAM_PORT.finditer(text))
        return frozenset(map(int, found))

    @cached_property
    def has_a_base(self) -> bool:
        """True for a load test in Python, whose paths are those behind a host that a command gives."""
        return any(LOCUST.search(text) for _, text in self.document.texts)

    @cached_property
    def names_triton(self) -> bool:
        return any(NAMES_TRITON.search(text) for _, text in self.document.texts)

    @cached_property
    def _models(self) -> dict[str, set[str]]:
        return {}

    def models(self, file: str) -> set[str]:
        """Of the repository that a request in ``file`` means."""
        if file not in self._models:
            self._models[file] = _models(self.document, self.platform, file)
        return self._models[file]

    @cached_property
    def is_instruct(self) -> bool:
        return _is_instruct(self.document)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    if not document.requests:
        return
    around = _Around(document, platform)
    for one in triton_requests(document):
        if _is_anothers(one, around):
            continue
        body = None if one.fields is None else json.loads(json.dumps(one.fields))
        correction = _Correction(one, one.url.text, body)
        _port(correction, around)
        _path(correction, around)
        model = one.target.model or (ENSEMBLE if platform.release.builds_engines else LLMAPI)
        release = _release_of(model, one, platform)
        inputs = inputs_of(model, document, release)
        judged = inputs and one.fields is not None and not SETTABLE.match(one.target.path)
        if judged and not _is_of_another_model(one, inputs):
            _names(correction, model, inputs, pictured=around.is_multimodal)
        _stream(correction)
        _end(correction, around, model)
        yield from correction.drafts(release.name)


def _is_anothers(one: TritonRequest, around: _Around) -> bool:
    """True at another port for a path that no text on Triton has, or that a program of the text's own answers."""
    target = one.target
    if one.request.url.startswith("/") and not target.is_triton and around.has_a_base:
        return True
    if not one.request.url or target.path in ("", "/") or target.port == TRITON_PORT:
        return False
    is_named = around.names_triton or READ_ONLY.match(target.path) or SETTABLE.match(target.path) or target.verb
    return not is_named or (not target.is_triton and target.port in around.programs)


def _release_of(model: str, request: TritonRequest, platform: Platform) -> Release:
    """The release whose templates hold: the last one with an ensemble, where nobody says one and the body is of it."""
    last = template_releases()[-1]
    named = {*OF_TEMPLATES, "text_input"} if request.target.model else OF_TEMPLATES
    plainly = model in (ENSEMBLE, BLS) and named & request.values.keys()
    is_guess = platform.guessed or supposed(OURS)
    return load_release(last) if is_guess and plainly and not platform.release.builds_engines else platform.release


def _is_of_another_model(request: TritonRequest, inputs: tuple[TensorSpec, ...]) -> bool:
    """True for tensors of which none is one of the guessed model's, where the request names no model."""
    renamed = {name for pair in rule_data(FAMILY)["renamed"] for name in pair}
    known = {tensor.name for tensor in inputs} | renamed | rule_data(FAMILY)["elsewhere"].keys()
    return request.tensors and not request.target.model and not known & request.values.keys()


def _port(correction: _Correction, around: _Around) -> None:
    target = correction.request.target
    if is_through_gateway(correction.request.curl):
        return
    says_port = re.match(r"^(?:\w+://)?[^/:]*:", correction.url) is not None
    here = target.is_local or (target.is_open and around.serves and says_port)  # a placeholder may hold the port
    if not (target.is_triton and here) or target.port is None:
        return
    ports = around.ports
    if around.is_composed:
        return
    if target.port in ports or (target.port not in OTHER_PORTS and (not around.serves or around.is_piece)):
        return
    if any(re.search(rf"--http[-_]port[ =]+{target.port}\b", text) for _, text in around.document.texts):
        return  # of a server whose options stand in a variable
    right = next((port for port in ports if port != TRITON_PORT), TRITON_PORT)
    correction.url = re.sub(r"^((?:\w+://)?(?:\[[^\]]*\]|[^/:?]*))(?::\d*)?(?=/|$)", rf"\g<1>:{right}", correction.url)
    reason = OTHER_PORTS.get(target.port, "nothing in the text starts a server there")
    correction.add("wrong-port", correction.request.url, port=target.port, right=right, reason=reason)


def _path(correction: _Correction, around: _Around) -> None:
    one = correction.request
    path = one.target.path
    if not one.request.url or "${" in path:
        return
    posts = one.fields is not None or one.request.place is not one.url
    if one.target.verb:
        models = around.models(one.request.file)
        if not models or one.target.model in models or is_through_gateway(one.curl):
            return
        right = f"/v2/models/{ENSEMBLE if ENSEMBLE in models else sorted(models)[0]}/{one.target.verb}"
        problem = f"the repository has no model {one.target.model}"
    elif (READ_ONLY.match(path) and not posts) or SETTABLE.match(path):
        return
    else:
        match = re.match(r"^/v2/models/([^/]+)", path)
        model = match[1] if match else ENSEMBLE if around.platform.release.builds_engines else LLMAPI
        verb = "infer" if one.tensors else "generate_stream" if "stream" in path else "generate"
        right = HEALTH if "health" in path and not posts else f"/v2/models/{model}/{verb}"
        if LISTS.match(path) and not posts:
            right, correction.method = INDEX, "POST"
        problem = "it only describes the model" if READ_ONLY.match(path) else "Triton has no such path"
    correction.url = correction.url.replace(path, right, 1) if path else correction.url + right
    method = one.request.method or ("POST" if posts else "GET")
    correction.add("wrong-model-path", one.url, path=path or "/", problem=problem, right=right, method=method)


def _models(document: Document, platform: Platform, file: str) -> set[str]:
    """The models of the repository, where the text shows all of them; also what it calls so anywhere."""
    if len(document.configs) > 1:
        repositories = {posixpath.dirname(posixpath.dirname(one.path)) for one in document.configs if one.is_file}
        projects = {posixpath.dirname(one) for one in repositories}
        near = [one for one in projects if not one or file.startswith(f"{one}/")]
        if len(repositories) > 1 and (len(near) != 1 or near == [""]):
            return set()  # of several repositories, which one is meant is not told
        return {config.model for config in document.configs}
    if not document.of("fill_template.py") or platform.release.name not in template_releases():
        return set()
    named = {part for one in document.commands for word in one.words[1:] for part in word.text.split("/") if part}
    models = set(release_templates(platform.release.name).models)
    return set() if any("${" in part for part in named) else models | (named - {"v2"}) if _copies(document) else models


def _copies(document: Document) -> bool:
    return bool(document.of("cp")) or any(
        one.words[0].text in ("mv", "mkdir", "ln") for one in document.commands if one.words
    )


def _names(correction: _Correction, model: str, inputs: tuple[TensorSpec, ...], *, pictured: bool) -> None:
    one = correction.request
    names = {tensor.name for tensor in inputs}
    values = one.values
    renamed = {a: b for pair in rule_data(FAMILY)["renamed"] for a, b in (pair, pair[::-1])}
    for name in values:
        if name in names:
            continue
        known: dict[str, Any] = {"name": name, "model": model}
        if renamed.get(name) in names:
            correction.add("unknown-input", one.request.at(name), renamed=True, hint=renamed[name], **known)
            correction.rename(name, renamed[name])
            continue
        if pictured and OF_PICTURES.match(name):
            continue  # of all_models/multimodal, whose ensemble has other inputs
        meant = [other for other in rule_data(FAMILY)["elsewhere"].get(name, []) if other in names]
        new = meant[0] if meant and meant[0] not in values else ""
        hint = f"write {new}" if new else f"leave {name} out"
        correction.add("unknown-input", one.request.at(name), hint=hint, **known)
        correction.rename(name, new)
    required = [tensor.name for tensor in inputs if not tensor.optional]
    for name in required:
        if name not in values:
            word = one.request.place.part(0, 1)
            correction.add("missing-input", word, name=name, model=model, required=" and ".join(required))
            _add(correction, name)


def _add(correction: _Correction, name: str) -> None:
    body, value = correction.body, rule_data(FAMILY)["values"].get(name)
    if body is None or value is None or correction.request.tensors or name in input_values(body):
        return
    body[name] = value


def _stream(correction: _Correction) -> None:
    one = correction.request
    if one.target.verb != "generate" or not any(one.values.get(name) is True for name in ("stream", "streaming")):
        return
    correction.url = re.sub(r"/generate/?(?=$|\?)", "/generate_stream", correction.url)
    correction.add("stream-needs-generate-stream", one.request.at("stream"))


def _end(correction: _Correction, around: _Around, model: str) -> None:
    one = correction.request
    values = one.values
    if (
        one.fields is None
        or one.tensors
        or model not in (ENSEMBLE, BLS)
        or not isinstance(values.get("text_input"), str)
    ):
        return
    ends = [values.get("end_id"), values.get("stop_words")]
    if any(end not in (None, "", [], [""]) for end in ends):
        return
    if END_OF_TURN not in values["text_input"] and not around.is_instruct:
        return
    correction.add("no-end-id", one.request.place.part(0, 1))
    if correction.body is not None:
        correction.body["end_id"] = rule_data(FAMILY)["end_id"]


def _is_instruct(document: Document) -> bool:
    words = (word.text for one in document.invocations if one.tool != "curl" for word in one.arguments)
    return any(INSTRUCT.search(text) for text in (*words, *(config.text for config in document.configs)))


def _rename_tensor(body: dict[str, Any], name: str, new: str) -> None:
    body["inputs"] = [
        {**tensor, "name": new if tensor["name"] == name else tensor["name"]}
        for tensor in body["inputs"]
        if new or tensor["name"] != name
    ]
