"""Settings of LMI in the rows of a table and the items of a list, as the lines of a file: each at its place."""

import re

KEY = r"[`*]*(?P<key>option\.\w+|engine)[`*]*"
VALUE = r"[`\"*]*(?P<value>(?!option\.|[A-Z_]{4,}(?:\W|$))[A-Za-z0-9/][\w./:-]*)[`\"*]*"
ROW = re.compile(rf"[ \t]*\|[ \t]*{KEY}[ \t]*\|[ \t]*{VALUE}[ \t]*\|")
ITEM = re.compile(rf"[ \t]*(?:[-*+]|\d+[.)])[ \t]+{KEY}[ \t]*(?:[=:]|→|->)[ \t]*{VALUE}[.,;]?[ \t]*(?:$|[(—–#]|-[ ])")
FEWEST = 2
# Columns that tell what a key is by default, or what it may be.
REFERENCE = re.compile(
    r"^[ \t]*\|.*\b(?:default|type|required|possible|allowed|options)\b", re.IGNORECASE | re.MULTILINE
)


def with_plain_rows(text: str) -> str:
    """``text`` with ``| option.dtype | fp16 |`` as ``  option.dtype=  fp16  ``, at the same places."""
    if text.count("option.") < FEWEST or REFERENCE.search(text):
        return text
    return "\n".join(map(_plain, text.split("\n")))


def _plain(line: str) -> str:
    match = ROW.match(line) or ITEM.match(line)
    if match is None:
        return line
    letters = [" "] * len(line)
    for name in ("key", "value"):
        letters[match.start(name) : match.end(name)] = match[name]
    letters[match.end("key")] = "="
    return "".join(letters).rstrip()
