"""Options that later releases took away, in a text that does not tell its release: today's tool stops at them."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.evidence import told
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.arguments import is_checked
from trtllm_check.lint.supposing import supposed
from trtllm_check.releases import load_release
from trtllm_check.releases.guide import counterparts
from trtllm_check.releases.history import tool_history, with_flag
from trtllm_check.releases.sagemaker import numbers

OURS = "tensorrt_llm"
SPAN = re.compile(  # TensorRT-LLM v0.9.x to v0.12.x
    r"(?:TensorRT|TRT)-LLM[*` ]+(?:versions? |releases? )?v?(?P<first>\d+\.\d+)(?:\.[\dx*]+)?[ ]*"
    r"(?:~|-|–|—|to|through|until|up to|至|到)[ ]*v?(?P<last>\d+\.\d+)(?:\.[\dx*]+)?",
    re.IGNORECASE,
)
SUMS = {("--max_output_len", "--max_seq_len"): " (it is the prompt and the answer together)"}


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """One draft for each option of a tool, at its first place."""
    if not (platform.guessed or supposed(OURS)) or platform.earlier:
        return
    seen: set[tuple[str, str]] = set()
    for one in document.invocations:
        holding = [name for name, tool in tool_history(one.tool) if tool]
        tool = platform.release.tools.get(one.tool)
        asked = [given for given in one.given if tool is not None and tool.has(given.name)]  # else arguments.py says it
        gone = {given.name: given for given in asked if holding and _is_gone(one.tool, given.name, holding[-1])}
        gone = {name: given for name, given in gone.items() if not _is_told(document, one.tool, name)}
        if not gone or _is_in_a_folder(document):
            continue
        lasts = {name: with_flag(one.tool, name)[-1] for name in gone}
        first = min(lasts.values(), key=holding.index)
        if not is_checked(one, load_release(first)):
            continue
        for name, given in gone.items():
            if (one.tool, name) in seen:
                continue
            seen.add((one.tool, name))
            known: dict[str, Any] = {"tool": one.tool, "flag": name, "last": lasts[name], "pin": first}
            known["instead"] = _instead(one.tool, name, holding[-1])
            yield from drafts(
                platform.release.name, "flag-removed", given.word, form="in later releases", invocation=one, **known
            )


def _is_in_a_folder(document: Document) -> bool:
    """True where the path of a checkout names the release that the text is for."""
    found = told(document)
    return found is not None and found.kind == "folder"


def _is_told(document: Document, tool: str, flag: str) -> bool:
    """True where the text says that it is for releases of which one has the flag."""
    spans = [(match["first"], match["last"]) for _, text in document.texts for match in SPAN.finditer(text)]
    return any(
        tuple(map(int, first.split("."))) <= numbers(name)[:2] <= tuple(map(int, last.split(".")))
        for first, last in spans
        for name in with_flag(tool, flag)
    )


def _is_gone(tool: str, flag: str, newest: str) -> bool:
    having = with_flag(tool, flag) if flag.startswith("--") else ()
    return bool(having) and having[-1] != newest


def _instead(tool: str, flag: str, newest: str) -> str:
    now = next((name for name in counterparts(tool, flag) if newest in with_flag(tool, name)), "")
    how = SUMS.get((flag, now), "")
    return f"write {now} for {flag}{how}" if now else f"leave {flag} out"
