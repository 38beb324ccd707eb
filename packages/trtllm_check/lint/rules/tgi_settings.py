"""TGI on SageMaker: variables of its container that exclude each other, and what requests give it in vain."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.carriers.aws_calls import AwsCall
from trtllm_check.lint.carriers.notebooks import without_outputs
from trtllm_check.lint.carriers.settings import Setting
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.matching import OF_CHECKPOINTS, PLAIN
from trtllm_check.lint.rules.sagemaker import INSTANCE
from trtllm_check.lint.shell.words import Word

FAMILY = "tgi_settings"
OPTIONS = "tgi"
ENVIRONMENTS = ("env", "environment")
MODELS = ("HuggingFaceModel", "Model", "create_model")
TGI = re.compile(
    r"get_huggingface_llm_image_uri|tgi-inference:|text-generation-inference|huggingface-llm|SM_NUM_GPUS|HF_MODEL_QUANTIZE"
)
EARLIER = re.compile(  # than the releases that were read: quantize was a switch
    r"text-generation-inference:v?0\.[0-7](?!\d)|get_huggingface_llm_image_uri\([^()]*version\s*=\s*\W*0\.[0-7](?!\d)"
)
OTHERS = re.compile(
    r"huggingface-pytorch-inference:|djl-inference|djl-lmi|djl-tensorrtllm|vllm-openai"
    r"|image_uris\.retrieve\(\s*framework=[\"']djl"
)
MESSAGES = "MESSAGES_API_ENABLED"  # the bodies are OpenAI's
PARAMETERS = re.compile(r"[\"']parameters\\?[\"']\s*:|^\s*\"?parameters\s*=", re.MULTILINE)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    texts = dict(document.texts)
    for call in document.aws_calls:
        text = texts.get(call.file) or "\n".join(texts.values())
        if call.name in MODELS and TGI.search(text) and not OTHERS.search(text):
            for name, table in call.settings.items:
                if name in ENVIRONMENTS and table.kind == "table":
                    for draft in _variables(table, call, text, release):
                        yield draft._replace(severity="info") if EARLIER.search(text) else draft
    for file, text in document.texts:
        if TGI.search(text) and not OTHERS.search(text) and "predict(" in text and MESSAGES not in text:
            yield from _parameters(without_outputs(text), file, release)


def _option(name: str) -> str:
    known: str = rule_data(FAMILY)["variables"].get(name, name.lower().replace("_", "-"))
    return known


def _variables(table: Setting, call: AwsCall, text: str, release: str) -> Iterator[Draft]:
    given = {_option(value.written): value for _, value in table.items}
    numbers = {name: int(one.text) for name, one in given.items() if one.kind == "text" and one.text.isdecimal()}
    for limit in rule_data(OPTIONS)["limits"]:
        for name in limit["less"]:
            if name not in numbers or limit["more"] not in numbers or "until" in limit:
                continue
            less, more = numbers[name], numbers[limit["more"]]
            if less > more or (limit.get("strictly") and less == more):
                known: dict[str, Any] = {
                    "less": given[name].written,
                    "small": less,
                    "more": given[limit["more"]].written,
                    "large": more,
                    "sign": "<" if limit.get("strictly") else "<=",
                }
                place = given[limit["more"]].place
                yield from drafts(release, "tgi-variable", place, file=call.file, **known)
    quantize = given.get("quantize")
    values = rule_data(FAMILY)["quantize"]
    if quantize is not None and quantize.kind == "text" and quantize.text and quantize.text not in values:
        known = {"name": quantize.written, "value": quantize.text, "values": ", ".join(values)}
        yield from drafts(release, "tgi-variable", quantize.place, form="quantize", file=call.file, **known)
    model = given.get("model-id")
    is_plain = model is not None and model.kind == "text" and PLAIN.fullmatch(model.text) is not None
    if quantize is not None and model is not None and quantize.text in OF_CHECKPOINTS and is_plain:
        known = {"name": quantize.written, "value": quantize.text, "model": model.text}
        yield from drafts(release, "tgi-variable", quantize.place, form="no checkpoint", file=call.file, **known)
    yield from _shards(given.get("num-shard"), call, text, release)


def _shards(shards: Setting | None, call: AwsCall, text: str, release: str) -> Iterator[Draft]:
    """More shards than the largest instance of the text has GPUs."""
    families = rule_data("sagemaker")["gpus"]
    gpus: list[tuple[int, str]] = []
    for match in INSTANCE.finditer(text):
        family = families.get(match["family"])
        if family is None or match["size"] not in family["sizes"]:
            return
        gpus.append((family["sizes"][match["size"]], match[0]))
    if shards is None or not shards.text.isdecimal() or not gpus:
        return
    most, instance = max(gpus)
    if int(shards.text) > most:
        known: dict[str, Any] = {"name": shards.written, "value": shards.text, "instance": instance, "gpus": most}
        yield from drafts(release, "tgi-variable", shards.place, form="shards", file=call.file, **known)


def _parameters(text: str, file: str, release: str) -> Iterator[Draft]:
    """Settings of the launcher, and names of other servers, among the parameters of a request."""
    data = rule_data(FAMILY)
    for block in PARAMETERS.finditer(text):
        start = text.find("{", block.end())
        if start < 0 or text[block.end() : start].strip(" =:\n"):
            continue
        end = text.find("}", start)
        for match in re.finditer(r"\\?[\"'](?P<name>[a-z_]+)\\?[\"']\s*:", text[start : end if end > 0 else None]):
            name = match["name"]
            form = "launcher" if name in data["launcher"].split() else "meant" if name in data["meant"] else ""
            if not form:
                continue
            at = start + match.start("name")
            place = Word(name, text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
            known: dict[str, Any] = {"name": name, "right": data["meant"].get(name, name.upper())}
            yield from drafts(release, "tgi-parameter", place, form=form, file=file, **known)
