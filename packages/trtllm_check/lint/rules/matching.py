"""What has to match the model that vLLM serves: its quantization, and the parsers of its answers."""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, drafts, rule_data
from trtllm_check.lint.rules.openai_clients import BASE_MODEL
from trtllm_check.lint.rules.served import LMI, VLLM, ServedModel, served
from trtllm_check.lint.vllm_release import vllm_told
from trtllm_check.releases.vllm import vllm_facts

FAMILY = "matching"
OLD_CARDS = re.compile(
    r"\b(?:tesla[- ]?)?(?:T4|V100)\b|\bg4dn\.|\bp3(?:dn)?\.\d*x?large|nvidia-tesla-t4|nvidia-tesla-v100"
)
# Checkpoints in bfloat16, by their names; quantized copies of them may be in float16.
OF_BFLOAT16 = re.compile(
    r"^(?!.*(?:awq|gptq|int4|int8|gguf|bnb|fp16|half))(?:meta-llama/(?:meta-)?llama-3|mistralai/mi[sx]tral-|qwen/qwen(?:2|3)"
    r"|google/gemma-|microsoft/phi-[34])",
    re.IGNORECASE,
)
# The same in a folder called as the model.
FOLDER_OF_BFLOAT16 = re.compile(
    r"^(?!.*(?:awq|gptq|int4|int8|gguf|bnb|fp16|half))[./~].*/(?:(?:meta-)?llama-3(?:\.\d)?-\d+b|mi[sx]tral-\d+b|qwen(?:2|2\.5|3)-\d"
    r"|gemma-\d|phi-[34])[\w.-]*/?$",
    re.IGNORECASE,
)
# Methods that want a checkpoint that was quantized so, and checkpoints of the makers that were not quantized.
OF_CHECKPOINTS = frozenset({"awq", "awq_marlin", "gptq", "gptq_marlin", "marlin", "squeezellm", "aqlm", "gptq_bitblas"})
PLAIN = re.compile(
    r"(?:meta-llama/(?:Meta-)?(?:Llama-[23]|CodeLlama)[\w.-]*|mistralai/[\w.-]+|google/gemma-[\w.-]+|microsoft/phi-[\w.-]+"
    r"|Qwen/Qwen(?!.*(?:awq|gptq|int4|int8|fp8))[\w.-]+|deepseek-ai/DeepSeek-(?:R1-Distill-|LLM-)[\w.-]+|tiiuae/falcon-[\w.-]+"
    r"|HuggingFaceH4/zephyr-[\w.-]+|lmsys/vicuna-[\w.-]+)",
    re.IGNORECASE,
)
FALLS_BACK = "0.8.0"  # 0.9 takes float16 by itself where a card lacks bfloat16; of 0.8 it was not read
BLACKWELL = re.compile(
    r"\b(?:RTX[ -]?50[6789]0|50[89]0(?= Ti| GPU|\b(?=[^\n]*\bGPU))|B[23]00|GB[23]00|RTX PRO 6000)\b", re.IGNORECASE
)
OLDER = re.compile(r"\b(?:A100|A10G?|L4|L40S?|H100|H200|H20|RTX[ -]?[34]0[6789]0)\b", re.IGNORECASE)
FIRST_OF_BLACKWELL = "0.9.0"  # the first image with CUDA 12.8 and PyTorch 2.7
OTHER_CARDS = re.compile(
    r"\b(?:A100|A10G?|L4|L40S?|H100|H200|H20|B200|RTX|A6000|MI\d{3}\w?|Gaudi)\b|\b(?:g5|g6e?|p4de?|p5e?n?)\.",
    re.IGNORECASE,
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    cards = _Cards("\n".join(text for _, text in document.texts))
    yield from _chats(document, release)
    for one in served(document):
        if one.engine != VLLM:
            continue
        yield from _quantization(one, release)
        yield from _parsers(one, release)
        yield from _thoughts(one, release)
        if one.tool == LMI:
            continue
        yield from _type(document, one, cards, release)
        yield from _kernels(document, one, cards, release)


def _chats(document: Document, release: str) -> Iterator[Draft]:
    """``LLM("owner/base-model").chat(...)``: its tokenizer has no template for a chat."""
    starts = [one for one in served(document) if one.tool == "LLM"]
    chats = [one for one in document.calls if one.name == "LLM.chat" and not one.is_open]
    if len(starts) != 1 or not BASE_MODEL.fullmatch(starts[0].model) or "tokenizer" in starts[0].options:
        return
    if chats and not any(word.text == "chat_template" for one in chats for word in one.arguments):
        one = starts[0]
        place = one.place("model")
        yield from drafts(release, "chat-without-template", place, form="Python", file=one.file, model=one.weights)


def _quantization(one: ServedModel, release: str) -> Iterator[Draft]:
    """``--quantization awq`` of a checkpoint whose name says GPTQ."""
    word = one.options.get("quantization")
    if word is None or not one.weights:
        return
    said = {
        mark: entry["takes"].split()
        for mark, entry in rule_data(FAMILY)["checkpoints"].items()
        if re.search(entry["name"], one.weights, re.IGNORECASE)
    }
    method = word.text.lower()
    if not said and method in OF_CHECKPOINTS and PLAIN.fullmatch(one.weights):
        yield from _say(one, "quantization", "no checkpoint", release, method=method)
    if len(said) != 1:
        return
    mark, takes = said.popitem()
    known = {each for entry in rule_data(FAMILY)["checkpoints"].values() for each in entry["takes"].split()}
    if method in known and method not in takes:
        yield from _say(one, "quantization", "quantization", release, name=mark, method=method)


def _parsers(one: ServedModel, release: str) -> Iterator[Draft]:
    """A parser of another family than the model's."""
    if not one.weights:
        return
    for option in ("tool_call_parser", "reasoning_parser"):
        word = one.options.get(option)
        if word is None:
            continue
        table = rule_data(FAMILY)[option]
        if not any(word.text in entry.split() for entry in table.values()):
            continue
        fitting = next((entry for name, entry in table.items() if re.search(name, one.weights, re.IGNORECASE)), None)
        if fitting is not None and word.text not in fitting.split():
            first = fitting.split()[0]
            edits = (Put(one.flag(option), first),)
            yield from _say(one, option, "parser", release, edits=edits, parser=word.text, instead=first)


def _thoughts(one: ServedModel, release: str) -> Iterator[Draft]:
    """``--reasoning-parser deepseek_r1`` of a model that writes no thoughts."""
    word, data = one.options.get("reasoning_parser"), rule_data(FAMILY)
    if (
        word is not None
        and word.text == data["takes_all"]
        and re.search(data["no_thoughts"], one.weights, re.IGNORECASE)
    ):
        yield from _say(one, "reasoning_parser", "no thoughts", release, parser=word.text)


class _Cards:
    """The cards that a text names, each kind looked for once."""

    def __init__(self, whole: str) -> None:
        self.whole = whole

    @cached_property
    def before_ampere(self) -> str:
        card = OLD_CARDS.search(self.whole)
        return card[0] if card and not OTHER_CARDS.search(self.whole) else ""

    @cached_property
    def of_blackwell(self) -> str:
        card = BLACKWELL.search(self.whole)
        return card[0] if card and not OLDER.search(self.whole) else ""


def _type(document: Document, one: ServedModel, cards: _Cards, release: str) -> Iterator[Draft]:
    """bfloat16 on cards before Ampere, asked for, or the checkpoint's own."""
    word = one.options.get("dtype")
    form = "type" if word is not None and word.text == "bfloat16" else ""
    if (
        (word is None or word.text == "auto")
        and "quantization" not in one.options
        and any(pattern.search(one.weights) for pattern in (OF_BFLOAT16, FOLDER_OF_BFLOAT16))
    ):
        form = "own type" if _is_before(document, FALLS_BACK) else ""
    if form and cards.before_ampere:
        edits = (Put(one.flag("dtype") if word else "--dtype", "half"),)
        place = "dtype" if word is not None else "model"
        yield from _say(one, place, form, release, edits=edits, card=cards.before_ampere)


def _kernels(document: Document, one: ServedModel, cards: _Cards, release: str) -> Iterator[Draft]:
    """Cards of Blackwell's, and an image of vLLM from before PyTorch had kernels for them."""
    told = vllm_told(document) if cards.of_blackwell else None
    if told and told.is_image and _is_before(document, FIRST_OF_BLACKWELL):
        known: dict[str, Any] = {
            "card": cards.of_blackwell,
            "version": told.release.written,
            "first": FIRST_OF_BLACKWELL,
        }
        yield from _say(one, "model", "kernels", release, **known)


def _is_before(document: Document, version: str) -> bool:
    """True where the text tells a release of vLLM before ``version``."""
    told, first = vllm_told(document), vllm_facts().release(version)
    return told is not None and first is not None and told.release.place < first.place


def _say(
    one: ServedModel, option: str, form: str, release: str, *, edits: tuple[Edit, ...] = (), **known: Any
) -> Iterator[Draft]:
    if one.invocation is None:
        edits = ()
    yield from drafts(
        release,
        "vllm-mismatch",
        one.place(option),
        form=form,
        edits=edits,
        invocation=one.invocation,
        file=one.file,
        tool=one.tool,
        flag=one.flag(option),
        model=one.weights,
        **known,
    )
