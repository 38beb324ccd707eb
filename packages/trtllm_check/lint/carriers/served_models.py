"""Models that a controller starts vLLM for: KServe's server of Hugging Face's models, and Ray Serve's llm_configs."""

from collections.abc import Callable, Iterator
from typing import Any

from trtllm_check.lint.carriers.python_calls import Call
from trtllm_check.lint.carriers.script import Script
from trtllm_check.lint.carriers.yaml_entries import entries_of, text_of
from trtllm_check.lint.shell import Place, Word
from trtllm_check.releases.vllm import options_of

DEEPEST = 20
OF_HUB = "hf://"
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
