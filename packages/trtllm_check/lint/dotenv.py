"""Variables of ``.env``, which docker compose fills into its file: as a file of its own, or as a block of a page."""

import re
from collections.abc import Mapping

from trtllm_check.lint.shell.pasted import fences

LANGUAGES = ("env", "dotenv")
NAMED = re.compile(r"(?<![\w.])\.env(?![\w.-])")
LINE = re.compile(r"[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_]\w*)=(?P<value>[^\n]*)")
COMMENT = re.compile(r"[ \t]+#.*")
COMPOSE = re.compile(r"^services:", re.MULTILINE)


def of_file(text: str) -> dict[str, str]:
    """The values of lines of NAME=value; none for a text with other lines."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = LINE.fullmatch(line.rstrip())
        if match is None:
            return {}
        value = COMMENT.sub("", match["value"]).strip()
        found[match["name"]] = value.strip("\"'")
    return found


def of_page(text: str) -> dict[str, str]:
    """The same of the one block of a page that is a ``.env``; of several nobody knows which counts."""
    if not COMPOSE.search(text) or not NAMED.search(text):
        return {}
    found = []
    for block in fences(text):
        inside = text[block.start : block.end]
        above = text[: block.start].rstrip().split("\n")[-2:]
        first = inside.lstrip().split("\n")[0]
        if block.language in LANGUAGES or any(map(NAMED.search, [*above, first])):
            found += [values] if (values := of_file(inside)) else []
    return found[0] if len(found) == 1 else {}


def reaches(text: str, variables: Mapping[str, str]) -> Mapping[str, str]:
    """``variables`` for a file of compose; none for other YAML."""
    return variables if variables and COMPOSE.search(text) else {}
