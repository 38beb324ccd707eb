"""What a load test asks of the server of the same text: prompts and answers of a length that it takes."""

import posixpath
from collections.abc import Iterator, Sequence
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.served import VLLM, ServedModel, served
from trtllm_check.lint.shell.words import ShellCommand, Word

RULE = "bench-length"
PROMPTS = ("--random-input-len", "--synthetic-input-tokens-mean", "--isl", "--prompt-tokens-mean")
ANSWERS = ("--random-output-len", "--output-tokens-mean", "--osl")
LENGTHS = ("max_model_len", "max_seq_len")
SCRIPTS = ("benchmark_serving.py", "genai-perf", "aiperf")
MODULES = ("tensorrt_llm.serve.scripts.benchmark_serving", "benchmark_serving")
AT_FIRST = 5  # words in which the program stands
LONGEST = 9


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    limits = [(one, name, number) for one in served(document) for name in LENGTHS if (number := one.number(name))]
    if len({number for _, _, number in limits}) != 1 or _is_of_several(document):
        return
    server, name, most = limits[0]
    for command in document.commands:
        words = [word.text for word in command.words]
        if not _is_load(words):
            continue
        prompt, answer = _number(command, PROMPTS), _number(command, ANSWERS)
        if prompt is None or answer is None or int(prompt.text) + int(answer.text) <= most:
            continue
        known: dict[str, Any] = {
            "tool": server.tool,
            "flag": server.flag(name),
            "most": most,
            "prompt": prompt.text,
            "answer": answer.text,
            "needed": int(prompt.text) + int(answer.text),
        }
        form = "refused" if server.engine == VLLM else ""
        yield from drafts(platform.release.name, RULE, prompt, form=form, file=command.file, **known)


def _is_of_several(document: Document) -> bool:
    """True where another server of the text says nothing of its length."""
    servers: list[ServedModel] = [one for one in served(document) if not one.is_part]
    return any(one.engine and not any(name in one.options for name in LENGTHS) for one in servers)


def _is_load(words: Sequence[str]) -> bool:
    if words[:3] == ["vllm", "bench", "serve"]:
        return True
    return any(posixpath.basename(word) in SCRIPTS or word in MODULES for word in words[:AT_FIRST])


def _number(command: ShellCommand, flags: Sequence[str]) -> Word | None:
    """The whole number of the first of ``flags`` that is given."""
    words = command.words
    for at, word in enumerate(words):
        name, sign, _ = word.text.replace("_", "-").partition("=")
        if name in flags:
            found = word.part(len(name) + 1) if sign else words[at + 1] if at + 1 < len(words) else None
            return found if found is not None and found.text.isdecimal() and len(found.text) < LONGEST else None
    return None
