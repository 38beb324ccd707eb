"""Options of vLLM's server without their dashes: ``vllm serve MODEL port 8000``, ``api_server model NAME``."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.vllm import is_vllm_option
from trtllm_check.lint.shell.words import Word

SERVER = "serve"
WORD = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
# Options that take several words, one of which may be called so.
SEVERAL = re.compile(r"--(?:served[-_]model[-_]name|middleware|lora[-_]modules|allowed|compilation|hf)|--$")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family: the first word of a command."""
    for one in document.of("vllm"):
        if any(SEVERAL.match(given.flag or given.word.text) for given in one.given):
            continue
        word = next((word for word in _behind(one) if WORD.fullmatch(word.text) and is_vllm_option(word.text)), None)
        if word is not None:
            known: dict[str, Any] = {"tool": "vllm serve", "written": word.text, "meant": f"--{word.text}"}
            yield from drafts(platform.release.name, "option-dashes", word, form="bare", invocation=one, **known)


def _behind(one: Invocation) -> Iterator[Word]:
    """Words that are neither an option, its value nor the model."""
    words = one.positional
    is_module = one.path.text.startswith("vllm.entrypoints")
    if not is_module and [word.text for word in words[:1]] != [SERVER]:
        return
    is_name = not is_module and len(words) > 2 and words[1].text == "model"
    yield from words if is_module else words[1:] if is_name or one.has("--model") else words[2:]
    for given in one.given:
        if given.flag:
            yield from given.values[1:]
