"""Makes pasted text fit for a shell reader, character by character, so that every place stays what it was.

Web pages, terminals, notebooks and Markdown put things around commands that no shell takes: prompts, fences, footnote
marks, typographic quotes, ``<placeholders>``. The mask has them replaced by characters of the same number.
"""

import ast
import re
from bisect import bisect_right
from functools import lru_cache
from typing import NamedTuple

from trtllm_check.lint.shell.cut_pages import is_cut_out
from trtllm_check.lint.shell.languages import COMMANDS, PYTHONS, SHELLS, spoken
from trtllm_check.lint.shell.tables import without_tables

INLINE_LINE = re.compile(
    rf"^[ \t]*(?:(?:[-*+]|\d+[.)])[ \t]+)?(?P<mark>`{{1,3}})(?={COMMANDS})(?P<command>[^`\n]+)(?P=mark)[ \t]*$",
    re.MULTILINE,
)
LABELLED = re.compile(
    rf"^[ \t]*(?:(?:[-*+]|\d+[.)])[ \t]+)?(?:[\w()-]+[ ]){{0,4}}(?:commands?|cmd|usage|script|reproduc\w+|run|used?)"
    rf"(?:[ ][\w()-]+){{0,3}}[ ]?:[ \t]+(?=(?:[A-Z_]+=\S+ )*{COMMANDS}(?![^\n]*\[options\]))|^[ \t]*\d+[.)][ \t]+"
    r"(?:(?:run|start|launch|build|execute|use|then|first|with|by|it|using)[ ]){0,3}"
    rf"(?={COMMANDS}[^\n]*[ ]-)",
    re.MULTILINE | re.IGNORECASE,
)
"""What stands in front of a command that a page tells in a line: ``1. Docker command: docker run ...``."""
TOLD_OF = (
    r"\bnot\b|n't\b|\bno\b|instead|remov|deprecat|\bold|fail|error|wrong|never|avoid|previous|before|\bif\b|\bwas\b"
    r"|replac|chang|formerly|rather|unlike|\bsame\b|without|\bgone\b"
)
INLINE = rf"`(?P<command>(?:[A-Z_]+=\S+ )*{COMMANDS}[^`\n]*[ ]--?[A-Za-z][^`\n]*)`"
TOLD = re.compile(
    rf"^(?![^\n]*(?:{TOLD_OF}))(?P<before>[^`\n|]{{0,60}}\b(?:run|start|launch|execute|try|with|using|by|command)\b"
    r"(?:[ ](?:it|this|the|following|server|with|using|by|like|command|e\.g\.)){0,3}[ :,(*]*)"
    rf"{INLINE}(?P<behind>[^`\n]*)$",
    re.MULTILINE | re.IGNORECASE,
)
"""A sentence that says to run a command: ``Start it with `vllm serve ...`.``"""
MENTIONED = re.compile(
    rf"^(?=[^`\n]*(?:{TOLD_OF})|[^\n]*`[^`\n]*(?:{TOLD_OF})[^`\n]*$)[A-Z][a-z]+[ ][^`\n|]*{INLINE}[^`\n]*$",
    re.MULTILINE,
)
"""A sentence about a command that is not to be run: ``It does not start with `vllm serve ...`.``"""
REFUSED = re.compile(r"^[ \t>]*(?:[\w.-]+(?:[ ][a-z-]+)?: error: |usage: )[^\n]*", re.MULTILINE)
"""What argparse prints of the words that it does not take, which may look like commands."""
REMARK = re.compile(r"<!--(?:[^`]{0,4000}?|[^\n]*?)-->")  # of HTML, on a page
QUOTED = re.compile(rf"^[ \t]*>[ \t]+(?=(?:[A-Z_]+=\S+ )*{COMMANDS}[^\n]*[ ]--?[A-Za-z])", re.MULTILINE)
"""What a reply quotes."""
FENCE = re.compile(r"[ \t>]*(`{3,}(?![^\n]*`)|~{3,})[ \t]*\{?[ \t]*([\w+-]*)")
ANY_FENCE = re.compile(r"^[ \t>]*(?:`{3,}|~{3,})", re.MULTILINE)
BEGINS_A_BLOCK = re.compile(r"^[ \t>]*(?:`{3,}|~{3,})[ \t]*\{?[ \t]*[A-Za-z][\w+-]*[ \t]*$", re.MULTILINE)
DOCKERS = ("docker", "dockerfile")
DOCKERFILE_LINE = re.compile(r"^(?:FROM|RUN|COPY|ENV|ARG|CMD|ENTRYPOINT|WORKDIR|ADD|LABEL)[ \t]+\S", re.MULTILINE)
MOST_ABOVE = 400  # lines of a string
QUOTE = re.compile(r'(?<!\\)"')
OPENS_A_STRING = re.compile(r'(?:^|\s)-\w*c[ ]+"(?:[^"\\]|\\.)*\\?$')
FOOTNOTE = re.compile(r"(?<!=)\\((?:[ \t]*+\\?[*†‡¹²³]++)+[ \t]*|[ \t]+(?:#.*)?)$")
DOUBLED = re.compile(r"(\\\\)[ \t]*$")  # of a page that escapes its backslashes
COMMENT = re.compile(r"(?<=\s)#[^'\"]*$")
SWALLOWED = re.compile(r"(?<=\s)#[ \t]?[^'\"]*\\[ \t]*$")  # a comment behind words, with the line's backslash in it
ONLY_A_BACKSLASH = re.compile(r"[ \t]*\\[ \t]*")
LONE_FOOTNOTE = re.compile(r"(?<=\s)(\\?(?:\*{2,}|[†‡¹²³]+))[ \t]*$|^\s*--\S.*\s(\*)[ \t]*$")
SECRET = re.compile(r"(?:token|password|secret|key)(?:[ \t]+|=)\*{2,}", re.IGNORECASE)
FLAG_LINE = re.compile(r"\s*[-–—−]{1,2}[A-Za-z]")
GOES_ON = re.compile(r"(?:\\|[|&;(]|&&)\s*$")
OLD = re.compile(
    r"^(?:===?[!+]?[ ]+\"|[#*_\s>-]*)(?:(?:the )?(?:old|before|legacy|deprecated|previous(?:ly)?|outdated)\b"
    r"|\w+[ ]?(?:v|version )?[012](?:\.x)?[ ](?:code|way|style)\b|v[012](?:\.x)?\b)[^.\n]{0,60}$",
    re.IGNORECASE,
)
HEADING = re.compile(r"^#{1,6}[ \t]+\S", re.MULTILINE)
PROMPT = re.compile(
    r"\s*(?:\([\w.-]+\)[ \t]*)?(?:[\w.-]+@[\w.-]+(?:[: ][^\s$#]*)?|\[[^\]\n@]{1,80}@[^\]\n]{1,200}\]|(?:ba)?sh-[\d.]+)"
    r"[ \t]?[$#][ \t]+|\s*(?:[\w.-]+@[\w.-]+[ ]\S+[ ]%|(?:\([\w.-]+\)[ \t]*)?[❯➜λ](?:[ ]+(?:~|/)\S*)?)[ ]+"
    r"|\s*(?:\([\w.-]+\)[ \t]*)?\$[ \t]+|\s*(?:\([\w.-]+\)[ \t]*)?[\w.-]+@[\w.-]+:[~/][^\s$#>]*>[ \t]+"
)
REDIRECTION = re.compile(r"\s*>[ ]+(?:[$/~.]\S*|\S+\.(?:log|txt|out|json))(?:\s+2>\s*&1)?\s*&?\s*$")
ROOT_PROMPT = re.compile(rf"^[ \t]*#[ \t]+(?={COMMANDS})", re.MULTILINE)
OUTSIDE_COMMAND = re.compile(rf"^[ \t]*(?:[A-Z_]+=\S+ )*{COMMANDS}.*(?:\s-|/|\\[ \t*]*$|==)", re.MULTILINE)
MARKED = re.compile(r"\*\*\S|`[^`]+`[^\n]*`")  # words of Markdown: a sentence that begins with a command's name
BOLD_LINE = re.compile(r"^[^\n]*\*\*(?:`|[A-Za-z][^*\n]*\*\*)[^\n]*$", re.MULTILINE)
# A sentence with words of code.
LIST_ITEM = re.compile(r"^[ \t]*[-*+][ ]+(?:`[^`\n]+`[ ]+(?=[a-z]))?[^\s`-][^`\n]*`[^`\n]+`[^\n]*$", re.MULTILINE)
OUTSIDE_SETTING = re.compile(r"[ \t]*(?:export[ \t]+)?[A-Za-z_]\w*=\S+[ \t]*")
TABLE_ROW = re.compile(r"^[ \t]*\|(?![|&]).*\|[ \t]*$", re.MULTILINE)  # of Markdown
PARAGRAPH = re.compile(r"(?:.*\S.*(?:\n|$))+")
BARE_COMMAND = re.compile(rf"^[ \t]*(?:[A-Z_]+=\S+ )*{COMMANDS}", re.MULTILINE)
COMMENTED = re.compile(
    r"^[ \t]*#[ \t]+(?=(?:trtllm-\w+|tritonserver|vllm serve|docker run|mpirun|python3? \S+\.py) [^\n]*(?:--\w|\\$))",
    re.MULTILINE,
)
GOES_ON_COMMENTED = re.compile(r"[ \t]*#[ \t]+(?=--?\w)")
NOTEBOOK_MAGIC = re.compile(r"\s*%%(?:bash|sh|script)\b.*")
NOTEBOOK_MARK = re.compile(r"\s*[!%](?=[a-z./])")
PYTHON_PROMPT = re.compile(r"\s*(?:>>>|\.\.\.)(?:\s|$)(?!.*\\(?:[ \t]+#.*)?$).*")
ELISION = re.compile(r"(?<=\s)(?:-[A-Za-z][ ]+)?(?:\.{3}|…)(?=\s|$)")
TEMPLATE = re.compile(r"\$?\{\{.{0,2000}?\}\}")
LINK = re.compile(r"!?\[[^\]\n]{1,200}\]\([^()\s]{1,400}\)")  # of Markdown
OBJECT_BY_DEFAULT = re.compile(r"(\$\{\w+:?[-=+])\{")  # ${LIMITS:-{\"image\":0}}: the grammar takes no bracket there
PLACEHOLDER = re.compile(r"<(?<![<\w]<)(?=[^\W\d]|/)[^<>\n|;&\"'`$]{0,80}(?<![ \t])>")
DOUBLE_QUOTES = re.compile(r"[“”„][^“”„]{0,2000}[“”]")
SINGLE_QUOTES = re.compile(r"(?<!\w)[‘’‚][^‘’‚]{0,4000}[‘’](?!\w)")
BLANKS = str.maketrans({"\u00a0": " ", "\u202f": " ", "\r": " ", "\v": " ", "\f": " ", "\ufeff": " ", "\u200b": " "})


class Block(NamedTuple):
    """A fenced block of Markdown: its language and where it begins and ends."""

    language: str
    start: int
    end: int


class Pasted(NamedTuple):
    """``mask`` is as long as the text. ``cuts``: start and end of what a shell would stumble on."""

    mask: str
    cuts: dict[int, int]


def prepare(text: str, *, is_built: bool = False) -> Pasted:
    """The mask of ``text``: what it means as shell input; ``is_built``: a doubled backslash is meant."""
    mask = _typographic(text.replace("\\\r\n", " \\\n").translate(BLANKS))
    mask = INLINE_LINE.sub(_unmarked, mask) if "`" in mask else mask
    if "`" in mask:
        mask = MENTIONED.sub(_blank, TOLD.sub(_only_the_command, mask))
    mask = QUOTED.sub(_blank, mask) if ">" in mask else mask
    mask = REMARK.sub(_blank, mask) if "<!--" in mask else mask
    mask = LABELLED.sub(_blank, mask)
    mask = REFUSED.sub(_blank, mask) if ": error: " in mask or "usage: " in mask else mask
    mask = LINK.sub(lambda match: "x" * len(match[0]), mask) if "](" in mask else mask
    mask = TEMPLATE.sub(lambda match: "x" * len(match[0]), mask) if "{{" in mask else mask
    mask = OBJECT_BY_DEFAULT.sub(lambda match: f"{match[1]}x", mask)
    mask = PLACEHOLDER.sub(lambda match: "x" * len(match[0]), mask)
    mask = _without_tables(mask, text)
    mask = SECRET.sub(lambda match: match[0].replace("*", "x"), mask) if "**" in mask else mask
    mask = _only_shell(mask, fences(text))
    if not BARE_COMMAND.search(mask):
        mask = ROOT_PROMPT.sub(_blank, mask)
    lines = _without_prompts(mask.split("\n"))
    return _join(lines, is_built)


def has_fence(text: str) -> bool:
    """True for a page with a fence in it."""
    return ("```" in text or "~~~" in text) and any(map(FENCE.match, text.split("\n")))


def fences(text: str) -> list[Block]:
    """The fenced blocks of ``text``, the last one perhaps without its end, the first one without its begin."""
    blocks, whole = _blocks(text, 0)
    if (other := _shifted(text, blocks)) is not None:
        return other
    first = blocks[0] if blocks and not blocks[0].language else None
    if first is None or (whole and not BEGINS_A_BLOCK.search(text, first.start, first.end)):
        return blocks
    before = text[: text.rfind("\n", 0, first.start - 1) + 1]
    following = ANY_FENCE.search(text, first.start)
    others, paired = _blocks(text, first.start)
    prose = text[first.start : following.start() if following else len(text)]
    begins_inside = paired and BARE_COMMAND.search(before) and not BARE_COMMAND.search(prose)
    begins_inside = begins_inside or is_cut_out(before)
    return [Block("", 0, len(before)), *others] if begins_inside else blocks


def _shifted(text: str, blocks: list[Block]) -> list[Block] | None:
    """The blocks of a page that was cut out of the middle of one: then what begins a block stands inside another."""
    plain = [one for one in blocks if not one.language]
    if not any(BEGINS_A_BLOCK.search(text, one.start, one.end) for one in plain) or blocks[0].language:
        return None
    first = text.rfind("\n", 0, blocks[0].start - 1) + 1
    others, whole = _blocks(text, blocks[0].start)
    nested = any(BEGINS_A_BLOCK.search(text, one.start, one.end) for one in others if not one.language)
    return [Block("", 0, first), *others] if whole and not nested else None


def _blocks(text: str, position: int) -> tuple[list[Block], bool]:
    """The blocks behind ``position``, and whether all of them end."""
    blocks: list[Block] = []
    if not has_fence(text):
        return blocks, True
    opened = ""
    language, start = "", 0
    for line in text[position:].split("\n"):
        match = FENCE.match(line)
        if match and not opened:
            opened, language, start = match[1], match[2].lower(), position + len(line) + 1
        elif match and not match[2] and (match[1].startswith(opened) or _is_the_end(text, position, opened, match[1])):
            blocks.append(Block(spoken(language, text[start:position]), start, position))
            opened = ""
        position += len(line) + 1
    if opened and start <= len(text):
        blocks.append(Block(spoken(language, text[start:]), start, len(text)))
    return blocks, not opened


def _is_the_end(text: str, position: int, opened: str, mark: str) -> bool:
    """True for a mark that is shorter than the one that begins the block, where none as long follows."""
    return opened.startswith(mark) and text.find(f"\n{opened}", position) < 0


@lru_cache(maxsize=8)
def _headings(text: str) -> tuple[int, ...]:
    """The lines of a page of Markdown that begin a section."""
    blocks = fences(text)
    starts = [one.start for one in blocks]
    found: list[int] = []
    line, position = 1, 0
    for match in HEADING.finditer(text) if blocks else ():
        line += text.count("\n", position, match.start())
        position = match.start()
        before = bisect_right(starts, position) - 1
        if before < 0 or position >= blocks[before].end:
            found.append(line)
    return tuple(found)


def is_of_another_section(text: str, first: int, last: int) -> bool:
    """True where a heading of Markdown stands between two lines: what one section sets, another need not have."""
    headings = _headings(text)
    return bisect_right(headings, first) != bisect_right(headings, last)


def is_shown_as_old(text: str, number: int) -> bool:
    """True for a line of a block that its caption calls the old code: ``**V2 code:**``, ``### Before``."""
    start = next((one.start for one in fences(text) if one.start <= _offset(text, number) < one.end), None)
    above = text[:start].rstrip("\n").rpartition("\n")[0].rstrip() if start else ""
    return OLD.search(above.rpartition("\n")[2]) is not None


def _offset(text: str, number: int) -> int:
    """Where line ``number``, from 1, begins."""
    at = 0
    for _ in range(number - 1):
        at = text.find("\n", at) + 1
    return at


def is_shell(language: str, inside: str) -> bool:
    """True also for commands of docker that a page calls docker, which means a Dockerfile."""
    return language in SHELLS or (language in DOCKERS and not DOCKERFILE_LINE.search(inside))


def _typographic(text: str) -> str:
    """Typographic quotes that come in pairs do what plain ones would."""
    if text.isascii():
        return text
    text = SINGLE_QUOTES.sub(lambda match: f"'{match[0][1:-1]}'", text)
    return DOUBLE_QUOTES.sub(lambda match: f'"{match[0][1:-1]}"', text)


def _only_shell(mask: str, blocks: list[Block]) -> str:
    if not blocks:
        mask = BOLD_LINE.sub(_blank, mask) if "**" in mask else mask
        return LIST_ITEM.sub(_blank, mask)
    parts: list[str] = []
    end = 0
    for block in blocks:
        inside = mask[block.start : block.end]
        if block.language in PYTHONS and not (BARE_COMMAND.search(inside) and not is_python(inside)):
            marked = "\n".join(line if NOTEBOOK_MARK.match(line) else " " * len(line) for line in inside.split("\n"))
            inside = _commented_out(inside) if not marked.strip() and COMMENTED.search(inside) else marked
        elif not is_shell(block.language, inside) and block.language not in PYTHONS:
            inside = _blanked(inside)
        parts += [_commands_only(mask[end : block.start]), inside]
        end = block.end
    return "".join(parts) + _commands_only(mask[end:])


def _commented_out(text: str) -> str:
    """Commands that a block of Python shows in its comments, with the lines that go on with them."""
    kept: list[str] = []
    goes_on = False
    for line in text.split("\n"):
        match = COMMENTED.match(line) if not goes_on else GOES_ON_COMMENTED.match(line)
        goes_on = match is not None and line.rstrip().endswith("\\")
        kept.append(" " * match.end() + line[match.end() :] if match else " " * len(line))
    return "\n".join(kept)


def _without_tables(mask: str, text: str) -> str:
    """Rows of a table between fences are no commands, whatever tools they name."""
    inside = [(block.start, block.end) for block in fences(text)]
    return TABLE_ROW.sub(
        lambda row: row[0] if any(start <= row.start() < end for start, end in inside) else _blanked(row[0]), mask
    )


def is_python(text: str) -> bool:
    """True for a text that Python's parser takes."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _commands_only(text: str) -> str:
    """Of what stands outside of fences: the paragraphs that hold commands, or nothing but settings of variables."""
    return PARAGRAPH.sub(lambda match: match[0] if _has_commands(match[0]) else _blanked(match[0]), text)


def _has_commands(paragraph: str) -> bool:
    lines = [line for line in paragraph.split("\n") if line.strip() and not FENCE.match(line)]
    settings = bool(lines) and all(OUTSIDE_SETTING.fullmatch(line) for line in lines)
    return settings or any(not MARKED.search(match[0]) for match in OUTSIDE_COMMAND.finditer(paragraph))


def _without_prompts(lines: list[str]) -> list[str]:
    cleaned: list[str] = []
    continued = prompted = False
    for line in without_tables(lines):
        prompted = prompted and continued
        first = line.lstrip()[:1]
        if first in "%>." and (NOTEBOOK_MAGIC.match(line) or PYTHON_PROMPT.match(line) or line.strip() == "..."):
            line = " " * len(line)
        line = NOTEBOOK_MARK.sub(_blank, line, count=1) if first in "!%" and NOTEBOOK_MARK.match(line) else line
        if (first in "($❯➜λ" or "@" in line or "sh-" in line) and (match := PROMPT.match(line)):
            prompted = True
            line = " " * match.end() + line[match.end() :]
        elif continued and line.lstrip().startswith("> ") and (prompted or not REDIRECTION.match(line)):
            line = line.replace(">", " ", 1)
        cleaned.append(ELISION.sub(_blank, line) if "..." in line or "…" in line else line)
        continued = line.rstrip().endswith("\\")
    return cleaned


def _join(lines: list[str], is_built: bool) -> Pasted:
    """Lines that belong together although a shell would end the command between them."""
    cuts: dict[int, int] = {}
    joined: list[str] = []
    position = 0
    previous = ""
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if ONLY_A_BACKSLASH.fullmatch(following) and number + 2 < len(lines):
            following = lines[number + 2]
        end = "\n" if number + 1 < len(lines) else ""
        flags_follow = FLAG_LINE.match(following) is not None
        comment = line.lstrip().startswith("#")
        stripped = line.rstrip()
        if comment and previous.endswith("\\") and (flags_follow or stripped.endswith("\\")):
            cuts[position + len(line) - len(line.lstrip())] = position + len(stripped)
            line, end = " " * len(line), " "
            stripped = previous
        elif match := (_doubled(lines, number) if flags_follow and not is_built else None) or FOOTNOTE.search(line):
            if line[: match.start()].strip():  # else what the page left out stood there
                cuts[position + match.start(1)] = position + match.end(1)
            line, end = line[: match.start()] + " " * (len(line) - match.start()), " " if end else ""
            stripped = "\\"
        else:
            if ("*" in line or not line.isascii()) and (match := LONE_FOOTNOTE.search(line)):
                index = match.lastindex or 1
                cuts[position + match.start(index)] = position + match.end(index)
                line = line[: match.start(index)] + " " * (len(line) - match.start(index))
            goes_on = flags_follow or _is_alike(lines, number)
            if flags_follow and not comment and (match := SWALLOWED.search(line)):
                cuts[position + match.start()] = position + len(stripped)
                line, end = line[: match.start()] + " " * (len(line) - match.start()), " "
                stripped = "\\"
            elif goes_on and stripped and not comment and not GOES_ON.search(line):
                match = COMMENT.search(line)
                start = match.start() if match else len(line)
                if not (line.count("`") % 2 and "`" in following):  # code in a sentence may go over two lines
                    cuts[position + start] = position + len(line)
                line, end = line[:start] + " " * (len(line) - start), " "
        joined.append(line + end)
        position += len(line) + len(end)
        previous = stripped
    return Pasted("".join(joined), cuts)


def _is_alike(lines: list[str], number: int) -> bool:
    """True where the next line is indented like this one, the last of several of a command, and goes on itself."""
    start = number
    while start and lines[start - 1].rstrip().endswith("\\"):
        start -= 1
    if start == number or number + 1 >= len(lines) or lines[number + 1].lstrip().startswith("#"):
        return False
    if any(lines[number].count(quote) % 2 for quote in "'\""):
        return False  # a quote goes on over the line's end
    first, here, following = (_indent(lines[at]) for at in (start, number, number + 1))
    return first < here == following and lines[number + 1].rstrip().endswith("\\")


def _doubled(lines: list[str], number: int) -> re.Match[str] | None:
    """Two backslashes at a line's end, but below ``bash -c "...``, of which a shell makes one for the next."""
    match = DOUBLED.search(lines[number])
    return match if match is None or not _is_inside_a_string(lines, number) else None


def _is_inside_a_string(lines: list[str], number: int) -> bool:
    for line in reversed(lines[max(number - MOST_ABOVE, 0) : number]):
        if len(QUOTE.findall(line)) % 2:
            return OPENS_A_STRING.search(line) is not None
    return False


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip()) if line.strip() else -1


def _only_the_command(match: re.Match[str]) -> str:
    before, behind = (" " * (len(match[name]) + 1) for name in ("before", "behind"))
    return f"{before}{match['command']}{behind}"


def _unmarked(match: re.Match[str]) -> str:
    """A line that is nothing but a command between backticks: the command at its place."""
    start, end = match.start("command") - match.start(), match.end("command") - match.start()
    return " " * start + match["command"] + " " * (len(match[0]) - end)


def _blank(match: re.Match[str]) -> str:
    return _blanked(match[0])


def _blanked(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
