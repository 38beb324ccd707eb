"""Files that stand in the texts of a program: manifests, Triton's configurations, serving.properties, Dockerfiles."""

import re
from collections.abc import Iterable, Iterator

from trtllm_check.lint.carriers.dockerfile import DOCKERFILE
from trtllm_check.lint.carriers.yaml_documents import YAML_HEAD, is_yaml
from trtllm_check.lint.shell.words import Word

FEWEST_LINES = 2  # line ends
MANIFEST = re.compile(r"^(?:apiVersion|services):", re.MULTILINE)
CONFIG = re.compile(r"^[ \t]*(?:backend|platform)[ \t]*:[ \t]*\"\w+\"", re.MULTILINE)
PROPERTY = re.compile(r"^[ \t]*option\.\w+[ \t]*=", re.MULTILINE)
FEW = 2


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
