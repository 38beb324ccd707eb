"""Models that a controller starts vLLM for: KServe's server of Hugging Face's models, and Ray Serve's llm_configs."""

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.python_calls import Call
from trtllm_check.lint.carriers.script import Script
from trtllm_check.lint.carriers.yaml_entries import entries_of, text_of
from trtllm_check.lint.shell import Place, Word
from trtllm_check.releases.vllm import options_of

DEEPEST = 20
OF_HUB = "hf://"
OF_KSERVE = "huggingfaceserver"
NEAR, SHORT = 0.88, 8
# kserve python/huggingfaceserver/huggingfaceserver/__main__.py (parse_known_args) and kserve/model_server.py.
KSERVE_OWN = frozenset(
    {
        *("model-dir", "model-id", "model-name", "model-revision", "tokenizer-revision", "max-length", "max-model-len"),
        *("disable-lower-case", "disable-special-tokens", "tensor-input-names", "task", "backend", "dtype"),
        *("return-token-type-ids", "return-probabilities", "return-raw-logits", "disable-log-requests", "max-log-len"),
        *("http-port", "grpc-port", "workers", "max-threads", "max-asyncio-workers", "enable-grpc", "enable-docs-url"),
        *("enable-latency-logging", "configure-logging", "log-config-file", "access-log-format", "predictor-host"),
        *("predictor-protocol", "predictor-use-ssl", "predictor-request-timeout-seconds", "trust-remote-code"),
    }
)
RAY_CONFIG, RAY_LIST = "LLMConfig", "llm_configs"
Argument = Callable[[Any], Word]


def kserve_command(node: Any, argument: Argument, place_of: Callable[[Any], Place]) -> Word | None:
    """``vllm serve`` with what of the server's arguments goes to vLLM; None for any other document."""
    top = entries_of(node)
    predictor = entries_of(entries_of(top.get("spec")).get("predictor"))
    model = entries_of(predictor.get("model"))
    is_of_hub = text_of(entries_of(model.get("modelFormat")).get("name")) == "huggingface"
    arguments = model.get("args")
    if text_of(top.get("kind")) != "InferenceService" or not is_of_hub or arguments is None:
        return None
    nodes = [one for one in arguments.value if one.id == "scalar"] if arguments.id == "sequence" else []
    options: list[Word] = []
    named: Word | None = None
    position = 0
    while position < len(nodes):
        word = argument(nodes[position])
        position += 1
        flag, sign, value = word.text.partition("=")
        given = [word]
        if not sign and position < len(nodes) and not text_of(nodes[position]).startswith("--"):
            given.append(argument(nodes[position]))
            position += 1
        name = flag.lstrip("-").replace("_", "-")
        if name == "model-id":
            named = given[1] if len(given) > 1 else word.part(len(flag) + 1) if value else None
        elif name == "backend" and "huggingface" in (value, given[-1].text):
            return None
        elif name in options_of("serve") and name not in ("port", "host", "model"):
            options += given
    uri = model.get("storageUri")
    if named is None and uri is not None and text_of(uri).startswith(OF_HUB):
        named = argument(uri).part(len(OF_HUB))
    if named is None or not options:
        return None
    place = place_of(nodes[0])
    script = Script()
    script.words([*(Word(text, *place, (place,) * len(text)) for text in ("vllm", "serve")), named, *options])
    return script.word()


def ignored_arguments(node: Any, argument: Argument, at: Callable[[Any], Word]) -> Iterator[FormFault]:
    """Arguments of that server which are nearly vLLM's: it takes what it knows, and says nothing of the rest."""
    top = entries_of(node)
    spec = entries_of(top.get("spec"))
    model = entries_of(entries_of(spec.get("predictor")).get("model"))
    is_of_hub = text_of(entries_of(model.get("modelFormat")).get("name")) == "huggingface"
    lists = [model.get("args")] if is_of_hub else []
    containers = spec.get("containers")
    for one in containers.value if containers is not None and containers.id == "sequence" else ():
        entries = entries_of(one)
        lists += [entries.get("args")] if OF_KSERVE in text_of(entries.get("image")) else []
    for listed in lists:
        for one in listed.value if listed is not None and listed.id == "sequence" else ():
            word = argument(one) if one.id == "scalar" else None
            flag = word.text.partition("=")[0] if word is not None else ""
            name = flag.removeprefix("--").replace("_", "-")
            if not flag.startswith("--") or name in KSERVE_OWN or name in options_of("serve") or len(name) < SHORT:
                continue
            near = get_close_matches(name, [*options_of("serve"), *KSERVE_OWN], 1, NEAR)
            if near:
                known = (("flag", flag), ("near", f"--{near[0]}"))
                yield FormFault("manifest-unlikely", at(one), "ignored argument", known)


def ray_calls(node: Any, argument: Argument, depth: int = 0) -> Iterator[Call]:
    """``LLMConfig(...)`` of each entry of ``llm_configs``, as the call of the engine that it comes to."""
    if node.id == "scalar" or depth > DEEPEST:
        return
    entries = entries_of(node)
    listed = entries.get(RAY_LIST)
    if listed is not None and listed.id == "sequence":
        for one in listed.value:
            yield from _ray_call(entries_of(one), argument)
        return
    for one in node.value if node.id == "sequence" else entries.values():
        yield from ray_calls(one, argument, depth + 1)


def _ray_call(entries: dict[str, Any], argument: Argument) -> Iterator[Call]:
    loading = entries_of(entries.get("model_loading_config"))
    model = loading.get("model_source") or loading.get("model_id")
    engine = entries.get("engine_kwargs")
    if model is None or model.id != "scalar" or engine is None or engine.id != "mapping":
        return
    pairs = [(key, value) for key, value in engine.value if key.id == "scalar"]
    values = [("model", argument(model))]
    values += [(str(key.value), argument(value)) for key, value in pairs if value.id == "scalar"]
    arguments = (argument(model), *(argument(key) for key, _ in pairs))
    yield Call(
        "vllm",
        RAY_CONFIG,
        (Word("model", arguments[0].line, arguments[0].column), *arguments[1:]),
        values=tuple(values),
    )
