"""Requests beside the one server of a text, that its model or its options do not allow: length, images, tools, kind."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from serving_base.facts.published import published_model
from trtllm_check.lint.carriers.python_asks import ASKS
from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import ServerAddress
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.openai_page import PORT, PROXIES, SERVERS, server_of
from trtllm_check.lint.rules.openai_paths import CHAT, TEXT
from trtllm_check.lint.rules.served import VLLM, Around, ServedModel, served

RULE = "request-beyond-model"
EMBED = "/v1/embeddings"
LENGTHS = ("max_completion_tokens", "max_tokens")
LONGER = frozenset({"hf_overrides", "rope_scaling", "rope_theta", "config", "extra_llm_api_options"})
# Options that make another kind of server of a model, or come from elsewhere.
KINDS = re.compile(r"^(?:task|runner|convert|override_pooler_config|pooler_config|hf_overrides|config)$")
EMBEDDER = re.compile(
    r"(?:^|/)(?:bge-(?!reranker)|(?:multilingual-)?e5-|gte-|all-minilm|all-mpnet|jina-embeddings|nomic-embed|qwen3-embedding"
    r"|snowflake-arctic-embed|mxbai-embed)",
    re.IGNORECASE,
)
WITH_IMAGES = re.compile(
    r"vl\b|vision|multimodal|omni|llama-4|gemma-3|gemma-4|mistral-small|pixtral|llava|ocr|qwen3\.[5-9]|ministral",
    re.IGNORECASE,
)
PROXY = re.compile(r"litellm|nginx|haproxy|router|gateway", re.IGNORECASE)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    starts = [one for one in served(document) if one.tool in SERVERS and one.invocation and not one.is_part]
    if len(starts) != 1 or not starts[0].model:
        return
    if any(PROXY.search(text) or PROXIES.search(text) for _, text in document.texts):
        return
    server, release = starts[0], platform.release.name
    names = server_of(Around.of(document), server).names
    for request in document.requests:
        path = ServerAddress.of(request.url).path.rstrip("/") if request.url else ""
        fields = request.fields or {}
        if path in (CHAT, TEXT, EMBED) and fields.get("model", names[:1] and names[0]) in names:
            for form, name, known in _wrong(server, path, fields):
                yield from drafts(release, RULE, request.at(name), form=form, file=request.file, **known)
    for call in document.calls:
        path = f"/v1{call.name}" if call.api == "openai" and call.name in ASKS.values() else ""
        given = dict(call.values)
        base = next((given[name] for name in ("base_url", "address") if name in given), None)
        if path not in (CHAT, TEXT, EMBED) or "model" not in given or given["model"].text not in names:
            continue
        if base is not None and ServerAddress.of(base.text).port not in (server.number("port") or PORT, None):
            continue
        asked: dict[str, Any] = {name: int(one.text) for name, one in call.values if one.text.isdecimal()}
        asked |= {name: True for name in given if name == "tools"}
        choice = given.get("tool_choice")
        asked |= {"tool_choice": choice.text} if choice is not None else {}
        for form, name, known in _wrong(server, path, asked):
            place = given.get(name, given["model"])
            yield from drafts(release, RULE, place, form=form, file=call.file, **known)


def _wrong(server: ServedModel, path: str, fields: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The form of the rule, the field and what its text wants."""
    about = {"model": server.weights, "tool": server.tool, "line": server.at.line}
    length = _length(server) if server.engine == VLLM else 0  # TensorRT-LLM takes what is left of the sequence
    for name in LENGTHS:
        asked = fields.get(name)
        if isinstance(asked, int) and not isinstance(asked, bool) and 0 < length <= asked:
            yield "tokens", name, {**about, "name": name, "asked": asked, "most": length}
    if server.engine != VLLM:
        return
    is_plain = not any(KINDS.match(name) for name in server.options) and not server.is_open
    if path == CHAT and EMBEDDER.search(server.weights) and is_plain:
        yield "no chat", "model", about
        return
    model = published_model(server.weights)
    writes = model is not None and model.official and not EMBEDDER.search(server.weights)
    if path == EMBED and writes and is_plain:
        yield "no embeddings", "model", about
    if path == CHAT and writes and not WITH_IMAGES.search(server.weights) and _has_image(fields.get("messages")):
        yield "images", "image_url", about
    has_tools = bool(fields.get("tools")) and fields.get("tool_choice", "auto") == "auto"
    if has_tools and not server.is_open and "enable_auto_tool_choice" not in server.options and is_plain:
        yield "tools", "tools", about


def _length(server: ServedModel) -> int:
    """Tokens of the longest sequence; 0 where that is not known."""
    if "max_model_len" in server.options:
        return server.number("max_model_len") or 0
    model = published_model(server.weights) if LONGER.isdisjoint(server.options) else None
    return model.context if model is not None and model.official and model.context_read and not server.is_open else 0


def _has_image(messages: Any) -> bool:
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") == "image_url":
                return True
    return False
