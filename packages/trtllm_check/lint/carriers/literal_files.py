"""Files that stand in the texts and comments of a program: manifests, Triton's configurations, serving.properties."""

import re
from collections.abc import Iterable, Iterator

from trtllm_check.lint.carriers.dockerfile import DOCKERFILE
from trtllm_check.lint.carriers.script import joined
from trtllm_check.lint.carriers.yaml_documents import YAML_HEAD, is_yaml
from trtllm_check.lint.shell.words import Word

FEWEST_LINES = 2  # line ends
MANIFEST = re.compile(r"^(?:apiVersion|services):", re.MULTILINE)
CONFIG = re.compile(r"^[ \t]*(?:backend|platform)[ \t]*:[ \t]*\"\w+\"", re.MULTILINE)
PROPERTY = re.compile(r"^[ \t]*option\.\w+[ \t]*=", re.MULTILINE)
FEW = 2
LAST_COMMA = re.compile(r",\s*\]\s*$")
COMMENTS = re.compile(r"(?:^[ \t]*#[^\n]*(?:\n|$)){3,}", re.MULTILINE)
COMMENT = re.compile(r"^[ \t]*#[ \t]?(?P<text>[^\n]*(?:\n|$))", re.MULTILINE)
FIRST_FIELD = re.compile(
    r"^[ \t]*(?:name|backend|platform|max_batch_size|parameters|instance_group)[ \t]*[:\[{]", re.MULTILINE
)
BACKEND = re.compile(r"\bbackend[ \t]*:[ \t]*\"\w+\"")


def files_in(texts: Iterable[Word]) -> Iterator[tuple[str, Word]]:
    """The name that tells the kind of a file, and its content."""
    for text in texts:
        content = text.text
        if content.strip().count("\n") < FEWEST_LINES:
            continue
        if MANIFEST.search(content) and YAML_HEAD.search(content) and is_yaml(content):
            yield "manifest.yaml", text
        elif CONFIG.search(content) and "{" in content:
            yield "config.pbtxt", text
        elif len(PROPERTY.findall(content)) >= FEW:
            yield "serving.properties", text
        elif "FROM" in content and DOCKERFILE.search(content) and content.lstrip().startswith(("FROM", "ARG", "#")):
            yield "Dockerfile", text


def commented_configs(word: Word) -> Iterator[tuple[str, Word]]:
    """Triton's configurations in lines that are all comments."""
    if "backend" not in word.text or "{" not in word.text:
        return
    for block in COMMENTS.finditer(word.text):
        lines = [word.part(*one.span("text")) for one in COMMENT.finditer(word.text, *block.span())]
        whole = joined(lines)
        first = FIRST_FIELD.search(whole.text)
        if first is None or BACKEND.search(whole.text) is None:
            continue
        content = whole.part(first.start(), max(whole.text.rfind("]"), whole.text.rfind("}")) + 1)
        if comma := LAST_COMMA.search(content.text):
            content = joined([content.part(0, comma.start()), content.part(comma.start() + 1)])
        yield "config.pbtxt", content
