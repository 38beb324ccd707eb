"""Pages of other markup than Markdown's: what marks a block of code there becomes a fence, line by line.

Lines stay lines. Within a line of HTML the tags go, and an entity becomes its character and blanks.
"""

import re
from collections.abc import Callable

from trtllm_check.lint.shell.languages import COMMANDS

HTML_OPENS = re.compile(r"<(?P<tag>pre|syntaxhighlight|source)\b(?P<attributes>[^<>]{0,300})>", re.IGNORECASE)
LANGUAGE = re.compile(
    r"(?:lang(?:uage)?|highlight|brush)[-=:][ \"']*(?P<name>[\w+#-]+)|class=[\"'](?P<class>[\w+-]+)[\"']"
)
TAG = re.compile(r"</?[a-zA-Z][\w-]*(?:\s[^<>\n]{0,300})?/?>")
TAGS_ONLY = re.compile(r"\s*(?:</?[a-zA-Z][^<>]{0,300}>\s*)*")
OF_HTML = re.compile(
    r"</?(?:code|span|br|b|i|em|strong|a|div|p|button|font|samp|kbd|var)\b[^<>\n]{0,300}>", re.IGNORECASE
)
LONE_CODE = re.compile(r"^[ \t]*<code>[^<>\n]+</code>[ \t]*$", re.MULTILINE)
OF_PROSE = re.compile(
    r"</?(?:code|span|br|b|i|em|strong|a|div|p|h\d|ul|ol|li|section|article|table|tr|td|th|html|body|main|figure)"
    r"(?:\s[^<>\n]{0,300})?/?>",
    re.IGNORECASE,
)
PLACEHOLDER = re.compile(r"&lt;(?P<name>[\w ./-]{1,60}?)&gt;")
ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#39|#x27|#34);")
CHARACTERS = {
    "lt": "<",
    "gt": ">",
    "amp": "&",
    "quot": '"',
    "apos": "'",
    "nbsp": " ",
    "#39": "'",
    "#x27": "'",
    "#34": '"',
}
ESCAPED = re.compile(rf"^[ \t]*(?:[$#] )?{COMMANDS}[^\n]*&(?:lt|gt|amp|quot|#39);", re.MULTILINE)
# Lines that begin and end a block: AsciiDoc, Org, Jira, forums, Hugo and Jekyll.
PAIRS = (
    (
        re.compile(r"[ \t]*#\+begin_(?:src|example)\b[ \t]*(?P<name>[\w+-]*)[^\n]*", re.IGNORECASE),
        re.compile(r"[ \t]*#\+end_(?:src|example)[ \t]*", re.IGNORECASE),
    ),
    (
        re.compile(r"[ \t]*\{(?:code|noformat)(?::(?:language=|title=[^|}\n]*\|)?(?P<name>[\w+-]*)[^}\n]*)?\}[ \t]*"),
        re.compile(r"[ \t]*\{(?:code|noformat)\}[ \t]*"),
    ),
    (
        re.compile(r"[ \t]*\[code(?:=[\"']?(?P<name>[\w+-]*)[\"']?)?\][ \t]*", re.IGNORECASE),
        re.compile(r"[ \t]*\[/code\][ \t]*", re.IGNORECASE),
    ),
    (
        re.compile(r"[ \t]*\{[{%][<-]?[ ]*highlight[ ]+[\"']?(?P<name>[\w+-]*)[^\n]*[}%]\}[ \t]*"),
        re.compile(r"[ \t]*\{[{%][<-]?[ ]*(?:/[ ]*|end)highlight[ ]*[>-]?[}%]\}[ \t]*"),
    ),
)
ASCIIDOC = re.compile(r"[ \t]*\[(?:source)?(?:%\w+)*[ ]*(?:,[ ]*(?P<name>[\w+-]*))?[^\]\n]*\][ \t]*")
RULER = re.compile(r"[ \t]*(?:-{4,}|\.{4,})[ \t]*")
DIRECTIVE = re.compile(
    r"(?P<margin>[ \t]*)\.\.[ ]+(?:code-block|code|sourcecode|parsed-literal|prompt)::[ \t]*(?P<name>[\w+-]*)[^\n]*"
)
LITERAL = re.compile(r"(?P<margin>[ \t]*)(?!\.\.[ ])\S[^\n]*(?<!:)::[ \t]*")
FIELD = re.compile(r"[ \t]+:[\w-]+:[^\n]*")
FENCED = re.compile(r"^[ \t>]*(?:`{3,}|~{3,})", re.MULTILINE)
# A heading, a sentence or an empty line, and below it a block that a backtick begins and another one ends.
SPAN = re.compile(
    r"^(?:[ \t]*|[*#]*[^\W\d][^\n`$={}\d]*)\n(?P<open>`)(?=[^`\n]*\S)[^`\n]+\n(?:[^`\n]*\n){1,200}?"
    r"[^`\n]*(?P<close>`)[ \t\r]*$",
    re.MULTILINE,
)
NAMES = {
    "prompt": "bash",
    "example": "",
    "default": "",
    "prettyprint": "",
    "highlight": "",
    "hljs": "",
    "programlisting": "",
}
FENCE = "```"
LONGEST_TAG = 600  # a block's tag and the one of the code in it


def as_markdown(text: str) -> str:
    """``text`` with its blocks of code in fences; as it is where it has none of another markup."""
    changes: tuple[tuple[str, Callable[[str], str]], ...] = (
        ("::", _restructured),
        ("\n----", _asciidoc),
        ("</", _html),
        ("<code", _lone_code),
        ("", _pairs),
        ("&", _entities),
        ("`", _spans),
    )
    for sign, change in changes:
        if sign in text:
            text = change(text)
    return text


def _fence(name: str | None) -> str:
    name = (name or "").lower()
    return FENCE + NAMES.get(name, name)


def _html(text: str) -> str:
    """Each block between fences where its tags stand on lines of their own, or beside blank lines or other tags."""
    parts: list[str] = []
    end = 0
    lower = text.lower()
    missing: set[str] = set()
    for match in HTML_OPENS.finditer(text):
        tag = match["tag"].lower()
        closing = -1 if match.start() < end or tag in missing else lower.find(f"</{tag}>", match.end())
        if closing < 0:
            missing |= {tag} if match.start() >= end else set()
            continue
        before, content = text[end : match.start()], text[match.end() : closing]
        behind = closing + len(tag) + len("</>")
        after = text[behind : behind + LONGEST_TAG].partition("\n")[0]
        named = LANGUAGE.search(text[match.start() : match.end() + LONGEST_TAG])
        name = (named["name"] or named["class"]) if named else ""
        inside = _plain(content)
        head, _, line = before.rpartition("\n")
        above, _, last = head.rpartition("\n")
        if FENCED.search(content):
            parts.append(text[end:behind])
        elif TAGS_ONLY.fullmatch(line) and inside.startswith("\n"):  # the tag has the line
            parts += [head, "\n" if "\n" in before else "", _fence(name), _ended(inside, after)]
        elif TAGS_ONLY.fullmatch(line) and "\n" in before and TAGS_ONLY.fullmatch(last):
            parts += [above, "\n" if "\n" in head else "", _fence(name), "\n", _ended(inside, after)]
        else:
            parts += [OF_PROSE.sub("", before), inside]
        end = behind
    return "".join(parts) + text[end:]


def _lone_code(text: str) -> str:
    """Lines that are nothing but code between tags."""
    return LONE_CODE.sub(lambda match: _decoded(OF_HTML.sub("", match[0])), text)


def _ended(inside: str, after: str) -> str:
    """The lines of a block, the last one blank or behind it, with the fence that ends them."""
    body, _, last = inside.rpartition("\n")
    if not last.strip():
        return f"{body}\n{FENCE}"
    return f"{inside}\n{FENCE}" if not after.strip() else inside


def _plain(inside: str) -> str:
    """What a browser shows of a block."""
    shown = OF_HTML.sub("", inside)
    return "\n".join(_decoded(line) for line in shown.split("\n"))


def _decoded(line: str) -> str:
    line = PLACEHOLDER.sub(lambda match: f"<{match['name'].replace(' ', '_')}>", line)
    return ENTITY.sub(lambda match: CHARACTERS[match[0][1:-1]], line)


def _spans(text: str) -> str:
    """Several lines between single backticks, as people quote a file who know no fence."""
    if FENCED.search(text):
        return text
    lines = text.split("\n")
    for match in SPAN.finditer(text):
        first = text.count("\n", 0, match.start("open"))
        last = text.count("\n", 0, match.start("close"))
        if lines[last].strip() == "`":
            lines[last] = FENCE
        elif last + 1 < len(lines) and not lines[last + 1].strip():
            lines[last], lines[last + 1] = lines[last].rstrip("` \t\r"), FENCE
        else:
            continue
        lines[first - 1] = FENCE
        lines[first] = lines[first].replace("`", "", 1)
    return "\n".join(lines)


def _entities(text: str) -> str:
    """Commands as the source of a page has them, copied without its tags."""
    return "\n".join(map(_decoded, text.split("\n"))) if ESCAPED.search(text) else text


def _pairs(text: str) -> str:
    lines = text.split("\n")
    for begins, ends in PAIRS:
        opened = None
        for number, line in enumerate(lines):
            if opened is not None and ends.fullmatch(line):
                name = begins.fullmatch(lines[opened])
                lines[opened], lines[number] = _fence(name["name"] if name else ""), FENCE
                opened = None
            elif opened is None and begins.fullmatch(line):
                opened = number
    return "\n".join(lines)


def _asciidoc(text: str) -> str:
    lines = text.split("\n")
    number = 0
    while number + 1 < len(lines):
        match = ASCIIDOC.fullmatch(lines[number])
        begin = number + 1 if match and RULER.fullmatch(lines[number + 1]) else number + 2
        number += 1
        if match is None or begin >= len(lines) or not RULER.fullmatch(lines[begin]):
            continue
        mark = lines[begin].strip()
        end = next((one for one in range(begin + 1, len(lines)) if lines[one].strip() == mark), None)
        if end is None:
            continue
        lines[begin], lines[end] = _fence(match["name"]), FENCE
        number = end + 1
    return "\n".join(lines)


def _restructured(text: str) -> str:
    """Directives of code, and what is indented behind a paragraph that ends with two colons."""
    lines = text.split("\n")
    if not any(map(DIRECTIVE.fullmatch, lines)):
        return text
    fenced = False
    number = 0
    while number < len(lines):
        line = lines[number]
        fenced = fenced != (line.lstrip()[:3] in (FENCE, "~~~"))
        directive = DIRECTIVE.fullmatch(line)
        match = None if fenced else directive or LITERAL.fullmatch(line)
        number += 1
        if match is None:
            continue
        first = number
        while directive and first < len(lines) and FIELD.fullmatch(lines[first]):
            first += 1
        end = _indented(lines, first, len(match["margin"]))
        if end == first or (not directive and lines[first].strip()):
            continue
        begin = first - 1 if directive else first  # a blank line is behind the colons
        for one in range(number - 1, begin) if directive else ():
            lines[one] = ""
        lines[begin] = _fence(directive["name"] if directive else "")
        if end < len(lines) or not lines[end - 1].strip():
            lines[end - 1] = FENCE
        else:
            lines.append(FENCE)
        number = end
    return "\n".join(lines)


def _indented(lines: list[str], first: int, margin: int) -> int:
    """The line behind the block, the blank one that ends it included; ``first`` where nothing is indented more."""
    end = last = first
    while end < len(lines):
        line = lines[end]
        if line.strip() and len(line) - len(line.lstrip()) <= margin:
            break
        last = end if line.strip() else last
        end += 1
    if not lines[last].strip() if last < len(lines) else True:
        return first
    return min(last + 2, end) if last + 1 < end else end
