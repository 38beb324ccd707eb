"""Fences of a page that show options alone: ``--enforce-eager false`` under "Disable eager mode".

Each line is one for the server that the page is about, vLLM's or that of TensorRT-LLM.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from trtllm_check.lint.held_arguments import ABOUT, OTHERS, SAME_MODEL, served_with
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import TOOLS
from trtllm_check.lint.shell import ShellCommand, Word
from trtllm_check.lint.shell.pasted import fences, has_fence, is_shell, is_shown_as_old
from trtllm_check.lint.shell.words import word_at
from trtllm_check.releases.history import with_flag
from trtllm_check.releases.vllm import options_of

VALUE = r"(?:'[^'\n]*'|\"[^\"\n]*\"|[^\s'\"#|<>.…`][^\s'\"#|<>…`]*)"
LINE = re.compile(
    rf"[ \t]*(?P<given>(?P<flag>--(?P<name>[a-z][\w-]*))(?:[ =](?P<value>{VALUE}))?)[ \t]*\\?[ \t]*(?:#[^\n]*)?"
)
COMMENT = re.compile(r"[ \t]*(?:#.*|\\)?[ \t]*")
PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*|[xXnN]|your[\w-]*|path|\$.*")
# What a page says of options that nobody is to give.
ADVISED_AGAINST = re.compile(
    r"wrong|instead|remov|deprecat|\bold\b|\bbad\b|avoid|never|\bnot\b|n't\b|before|fail|error|invalid|unsupported|gone"
    r"|no longer|without|earlier|older|until|prior|❌|✗|🚫|[<≤]",
    re.IGNORECASE,
)
OURS = ("trtllm-serve", "trtllm-build")
MOST = 60


def option_fences(sources: Sequence[tuple[str, str]], found: Sequence[Invocation]) -> Iterator[ShellCommand]:
    """A command for each such line, whose model and other arguments are not known."""
    for file, text in sources:
        if not has_fence(text) or not (tool := _tool(text, [one for one in found if one.command.file == file])):
            continue
        others = {given.name for one in found if one.command.file == file and one.tool != tool for given in one.given}
        for place in [*_lines(text, tool)][:MOST]:
            if re.split(r"[ =]", place.text)[0] not in others:  # an option of another program of the page
                yield from served_with(place, file, tool, SAME_MODEL)


def _tool(text: str, found: Sequence[Invocation]) -> str:
    """The one server that the page starts, or is about; "" for a page of several."""
    tools = {one.tool for one in found if one.tool in TOOLS} - {"hf", "huggingface-cli"}
    if len(tools) == 1 and (tool := tools.pop()) in (*OURS, "vllm"):
        is_bench = any(word.text == "bench" for one in found if one.tool == "vllm" for word in one.arguments[:1])
        return "" if is_bench or (tool == "vllm" and OTHERS.search(text)) else tool
    return "vllm" if not tools and ABOUT.search(text) and not OTHERS.search(text) else ""


def _lines(text: str, tool: str) -> Iterator[Word]:
    for block in fences(text):
        inside = text[block.start : block.end]
        if not is_shell(block.language, inside) or "--" not in inside:
            continue
        lines = inside.split("\n")
        matches = [LINE.fullmatch(line) for line in lines]
        if not all(match or COMMENT.fullmatch(line) for match, line in zip(matches, lines, strict=True)):
            continue
        given = {number: match for number, match in enumerate(matches) if match}
        known = [match for match in given.values() if _is_known(match["name"], tool)]
        above = text[: text.rfind("\n", 0, max(block.start - 1, 0)) + 1].rstrip().rpartition("\n")[2]
        first = text.count("\n", 0, block.start) + 1
        if len(known) * 2 <= len(given) or ADVISED_AGAINST.search(above) or is_shown_as_old(text, first):
            continue
        yield from _told(text, block.start, lines, given)


def _told(text: str, start: int, lines: Sequence[str], given: Mapping[int, re.Match[str]]) -> Iterator[Word]:
    """The lines that no comment advises against, with a value that stands for itself."""
    said = ""
    for number, line in enumerate(lines):
        match = given.get(number)
        if match is None:
            said = line if line.strip() else ""
        else:
            is_open = match["value"] is not None and PLACEHOLDER.fullmatch(match["value"]) is not None
            remark = line[match.end("given") :]
            if not is_open and not ADVISED_AGAINST.search(said) and not ADVISED_AGAINST.search(remark):
                yield word_at(text, start + match.start("given"), match["given"])
        start += len(line) + 1


def _is_known(name: str, tool: str) -> bool:
    if tool == "vllm":
        plain = name.replace("_", "-")
        return plain in options_of("serve") or plain.removeprefix("no-") in options_of("serve")
    return bool(with_flag(tool, f"--{name}"))
