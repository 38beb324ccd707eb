"""Lines of one command that a shell takes for two: a comment or a blank behind a backslash, a footnote mark."""

import re
from collections.abc import Iterator

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, Swap
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.shell.words import ShellCommand, Word, lines_of, word_at

# Lines of one command, and one with further arguments alone that no backslash joins to them.
ARGUMENTS_ALONE = re.compile(
    r"\\[ \t]*\n(?P<last>[ \t]+-[^\n]*[^\\\s])[ \t]*\n"
    r"[ \t]+(?P<line>\{\{(?!-?[ ]*(?:if|end|else|range|with)\b)[^{}\n]*\}\}"
    r"|\"?\$(?:@|\{?\w*(?:ARGS|OPTS|FLAGS|EXTRA)\w*(?:\[@\])?\}?)\"?)[ \t]*(?:\\?\n|\Z)",
    re.IGNORECASE,
)
TEMPLATE = re.compile(r"\{%-?\s")
OPENED = re.compile(r"<<-?[ ]?(?P<mark>[A-Za-z_]\w*)[ \t]*(?:>\s*\S+[ \t]*)?$", re.MULTILINE)
SWALLOWED = re.compile(r"\n\s*--?[A-Za-z][\w-]*")
COLUMNS = re.compile(r"\S.*[ ]{4,}$")
REMARK, OF_A_LIST = re.compile(r"\s#\s*\w"), 3
ITEM = re.compile(r"[ \t]*(?:[-*+]|\d+[.)])[ ]+(?=[^\n`]*[^\W\d_]{2,} [^\W\d_]{2,})[^\n]*:[ \t]*$")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """What a real shell ends a command at, although it goes on."""
    del platform  # shells are alike in all releases
    for file, text in document.texts:
        yield from _arguments_alone(text, file)
    seen: set[int] = set()
    texts = dict(document.texts)
    for invocation in document.invocations:
        command = invocation.command
        if id(command) in seen:
            continue
        seen.add(id(command))
        if command.cuts and _is_made(dict(document.texts).get(command.file, ""), command):
            continue
        if command.cuts and _is_of_a_table(command, invocation, texts.get(command.file, "")):
            continue
        if command.cuts and _is_wrapped(command, texts.get(command.file, "")):
            continue
        if _is_annotated(command, texts.get(command.file, "")):
            continue
        swallowed = any(SWALLOWED.search(word.text) for word in command.words)  # by a quote that nothing closes
        ends = [cut for cut in command.cuts if not cut.text.strip()]
        marks = [[cut] for cut in command.cuts if cut.text.strip()]
        for cuts in sorted([*marks, *([ends] if ends else [])], key=lambda group: group[0].line):
            yield Draft(
                "broken-continuation",
                "info" if _is_of_a_list(command, texts.get(command.file, "")) else "warning",
                cuts[0],
                _broken(command, cuts[0], more=len(cuts) - 1),
                _why_broken(command, cuts[0]),
                "POSIX.1-2017, Shell Command Language, 2.2.1",
                edits=() if swallowed else tuple(Swap(cut, "") for cut in cuts),
                action="close the quote, and end each line but the last with a backslash" if swallowed else "",
                invocation=None if swallowed else invocation,
                file=command.file if swallowed else "",
            )


def _is_annotated(command: ShellCommand, text: str) -> bool:
    """True for options that a page explains one by one: a remark behind nearly each, and no backslash anywhere."""
    lines = lines_of(text)[command.line - 1 : command.end_line]
    remarks = sum(REMARK.search(line) is not None for line in lines)
    return (
        len(lines) >= OF_A_LIST and remarks * 2 > len(lines) and not any(line.rstrip().endswith("\\") for line in lines)
    )


def _is_of_a_list(command: ShellCommand, text: str) -> bool:
    """True for lines of an item between words, right below its own: nobody pastes those into a shell as they stand."""
    lines = lines_of(text)
    above = ITEM.match(lines[command.line - 2]) if 1 < command.line <= len(lines) else None
    return above is not None and len(lines[command.line - 1]) > len(lines[command.line - 1].lstrip()) > 0


def _is_of_a_table(command: ShellCommand, invocation: Invocation, text: str) -> bool:
    """True for a tool in the second column of a drawing, behind words and many blanks."""
    lines = lines_of(text)
    line = lines[command.line - 1] if 0 < command.line <= len(lines) else ""
    return invocation.path.line == command.line and COLUMNS.search(line[: invocation.path.column - 1]) is not None


def _is_wrapped(command: ShellCommand, text: str) -> bool:
    """True for code within a sentence that goes over the end of a line: "it is `vllm serve x\\n--port 1`"."""
    lines = lines_of(text)
    if not 0 < command.line <= len(lines):
        return False
    before = lines[command.line - 1][: command.words[0].column - 1] if command.words else ""
    behind = lines[command.end_line - 1] if command.end_line <= len(lines) else ""
    return before.count("`") % 2 == 1 and "``" not in before and "`" in behind


def _arguments_alone(text: str, file: str) -> Iterator[Draft]:
    """``--port 8000`` without a backslash, and ``{{ extra_args }}`` on the next line."""
    for match in ARGUMENTS_ALONE.finditer(text):
        last = match["last"].strip()
        yield Draft(
            "broken-continuation",
            "warning",
            word_at(text, match.start("last") + len(match["last"]) - len(last), last),
            f"A shell ends the command here, with no backslash (\\): {match['line']} runs as a command of its own.",
            "The lines above are continued, and this one is not.",
            "POSIX.1-2017, Shell Command Language, 2.2.1",
            action="end this line with a backslash, too",
            file=file,
        )


def _is_made(text: str, command: ShellCommand) -> bool:
    """True for lines of a template, and for those that the shell prints, which takes a backslash off."""
    lines = lines_of(text)
    if any(TEMPLATE.search(line) for line in lines[command.line - 1 : command.end_line + 1]):
        return True
    if not any("\\\\" in cut.text for cut in command.cuts):
        return False
    above = "\n".join(lines[: command.line - 1])
    opened = list(OPENED.finditer(above))
    return bool(opened) and re.search(rf"^\s*{opened[-1]['mark']}$", above[opened[-1].end() :], re.MULTILINE) is None


def _broken(command: ShellCommand, cut: Word, *, more: int) -> str:
    if more:
        lines = f"{more} of the lines behind" if more > 1 else "one of the lines behind"
        return f"A shell ends the command here, and again at {lines}: each runs as a command of its own."
    if cut.line < command.end_line or not cut.text.strip():
        return "A shell ends the command here; the lines behind run as a command of their own."
    return f"A shell takes {cut.text.strip()} for one more argument: here it is a footnote mark."


def _why_broken(command: ShellCommand, cut: Word) -> str:
    if cut.text.startswith("#"):
        return "A comment ends the command that it stands in."
    if cut.line < command.end_line or "*" not in cut.text:
        return "A line goes on only if the backslash is its very last character."
    return "It becomes the names of all files of the folder, and the tool stops at the first of them."
