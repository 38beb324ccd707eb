"""Modules of JavaScript as parts of one script: WebKit imports nothing into a page that is a file."""

import re
from collections.abc import Mapping

DEFAULT = re.compile(r"export default (?P<name>[\w$]+);\s*\Z")
LIST = re.compile(r"export ?\{(?P<names>[^}]*)\};\s*(?://[^\n]*\s*)?\Z")
DECLARED = re.compile(r"^export (?=(?:async )?function (?P<name>\w+))", re.MULTILINE)
INSIDE = "https://inside.invalid/"
"""Where a module believes to be; the worker answers for it."""


def joined(modules: Mapping[str, str], main: str) -> str:
    """One script: ``modules`` as functions that return what each exports, in the constant ``modules``, then ``main``.

    :class:`ValueError` for a module whose exports are written in a way that is not known.
    """
    parts = [f"{_quoted(name)}: () => {{\n{returning(text, INSIDE + name)}\n}}" for name, text in modules.items()]
    return "\n".join(["const modules = {", ",\n".join(parts), "};", main])


def returning(text: str, address: str) -> str:
    """The module as the body of a function."""
    text = text.replace("import.meta.url", _quoted(address))
    if match := DEFAULT.search(text):
        return f"{text[: match.start()]}\nreturn {{ default: {match['name']} }};"
    if match := LIST.search(text):
        pairs = (one.split(" as ") for one in (word.strip() for word in match["names"].split(",")) if one)
        exported = ", ".join(f"{pair[-1].strip()}: {pair[0].strip()}" for pair in pairs)
        return f"{text[: match.start()]}\nreturn {{ {exported} }};"
    names = [match["name"] for match in DECLARED.finditer(text)]
    if not names:
        raise ValueError(f"{address} exports nothing that is known")
    return f"{DECLARED.sub('', text)}\nreturn {{ {', '.join(names)} }};"


def _quoted(text: str) -> str:
    return f'"{text}"'
