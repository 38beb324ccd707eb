"""Which Python an environment has, by what a text names: an image, conda, uv, a version that is installed."""

import re
from functools import lru_cache

from trtllm_check.lint.document import Document
from trtllm_check.lint.invocations import Invocation
from trtllm_check.releases.images import image_facts

NAMED = re.compile(
    r"(?:^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)?(?:\S*/)?python:"
    r"|(?:conda|mamba) create[^\n]*\bpython=+"
    r"|\buv (?:venv|sync|init)\b[^\n]*(?:--python[ =]|-p[ ])(?:python|cpython-?)?"
    r"|\buv python (?:install|pin)[ ]"
    r"|debian_slim\([^)\n]*python_version=[\"']|add_python=[\"']"
    r"|^[ \t]*-[ \t]+[\"']?python[ ]?={1,2}[ ]?"
    r"|^[ \t]*requires-python[ \t]*=[ \t]*[\"']==[ ]?)"
    r"(?P<version>3\.\d{1,2})",
    re.MULTILINE,
)
# What makes a Python of one's own in an image, so that the image's does not count.
OWN = re.compile(r"deadsnakes|conda|mamba|uv venv|uv python|uv sync|pyenv|python3\.\d{1,2}|virtualenv|-m venv|poetry")


def python_of(document: Document, pip: Invocation | None) -> str:
    """``3.12`` where exactly one is named, or where pip runs in an image whose Python is known; "" else."""
    named, has_own = _named(document.texts)
    if named:
        return next(iter(named)) if len(named) == 1 else ""
    if pip is None:
        return ""
    first = pip.command.words[0].text if pip.command.words else ""
    written = re.fullmatch(r"(?:python|pip)(3\.\d{1,2})", first.rpartition("/")[2])
    if written:
        return written[1]
    return "" if has_own else image_facts(pip.image).python


@lru_cache(maxsize=8)
def _named(texts: tuple[tuple[str, str], ...]) -> tuple[frozenset[str], bool]:
    """The Pythons that the texts name, and whether they make one of their own."""
    named = frozenset(match["version"] for _, text in texts for match in NAMED.finditer(text))
    return named, any(OWN.search(text) for _, text in texts)
