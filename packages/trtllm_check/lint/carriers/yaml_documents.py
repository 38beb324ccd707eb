"""Texts of YAML as trees: templates masked, nested no deeper than anything could read."""

import re
from collections.abc import Iterator
from typing import Any

from serving_base.yaml_files import values_of
from trtllm_check.lint.carriers import compose_parts, yaml_faults

YAML_HEAD = re.compile(
    r"^(?:apiVersion|services|jobs|stages|on|AWSTemplateFormatVersion|Resources|kind|spec|image|containers|servingEngineSpec|routerSpec|trt_llm|kv_cache_config|cuda_graph_config):(?:\s|$)"
    r"|^(?:-[ ]|[ ]{2})hosts:[ ]+\S",  # a play of Ansible's
    re.MULTILINE,
)
TEMPLATE = re.compile(r"\$?\{\{.*?\}\}")
# A line that is nothing but actions of Go's or Jinja's templates, with or without a dash, and comments of Jinja's.
CONTROL = re.compile(
    r"^[ \t]*\{\{[ ]?-?[ \t]*(?:if|else|end|with|range|define|template|toYaml|include|tpl|block|nindent|indent|/\*"
    r"|\$\w+[ \t]*:?=)(?:[^\n{}]|\{(?!\{)|\}(?!\}))*\}\}[ \t\r]*$"
    r"|^[ \t]*\{%.*%\}[ \t\r]*$|^[ \t]*\{#.*#\}[ \t\r]*$",
    re.MULTILINE,
)
GO_COMMENT = re.compile(r"\{\{-?[ ]?/\*(?:.|\n)*?\*/[ ]?-?\}\}")
# Dots for what a page leaves out: where more of the block follows they end no document.
LEFT_OUT = re.compile(r"^(?:\.\.\.|…)(?=[ \t\r]*\n(?:[ \t\r]*\n)*[ ]+\S)", re.MULTILINE)
DOTS = re.compile(r"^([ ]*)(?:\.\.\.|…)(?=[ \t\r]*$)", re.MULTILINE)
DOTS_WITHIN = re.compile(r"^(?:[ ]+\.\.\.|[ ]*…)[ \t\r]*$", re.MULTILINE)
OF_EXCERPTS = re.compile(
    r"^[^\n#]*#[^\n]*(?:\.\.\.|…|\b(?:excerpts?|snippets?|patch\w*|overlays?|kustom\w*|rest of|omitted|unchanged"
    r"|abridged|partial\w*|relevant|shortened|simplified|etc|fragment|others?)\b)",
    re.MULTILINE | re.IGNORECASE,
)
BLANK_LINE = re.compile(r"^[ \r]+$", re.MULTILINE)
INLINE_CONTROL = re.compile(r"\{%.*?%\}")  # of Jinja, within a line
DEEPEST = 100
MOST_NODES = 200_000


def is_multiplied(node: Any) -> bool:
    """True where aliases of aliases stand for so much that nothing could read it as what it stands for."""
    try:
        return values_of(node) > MOST_NODES
    except RecursionError:
        return True


def is_yaml(text: str) -> bool:
    """True if it parses, to a mapping or a list."""
    return any(True for _ in documents(masked(text)))


def masked(text: str) -> str:
    """Helm's and GitHub's templates as plain letters of the same number; their control lines blank."""
    text = GO_COMMENT.sub(
        lambda match: re.sub(r"[^\n]", " ", match[0]), yaml_faults.starts_at_margin(yaml_faults.without_output(text))
    )
    text = LEFT_OUT.sub(lambda match: "#" + " " * (len(match[0]) - 1), text)
    text = CONTROL.sub(lambda match: " " * len(match[0]), text)
    text = INLINE_CONTROL.sub(lambda match: " " * len(match[0]), text)
    return TEMPLATE.sub(lambda match: "x" * len(match[0]), text)


def documents(text: str) -> Iterator[Any]:
    """The mappings and lists of a text whose templates are masked; nothing where it does not parse."""
    import yaml

    if "\t" in text:
        text = "\n".join(line.replace("\t", " ") for line in text.split("\n"))
    if _depth(f"\n{text}") > DEEPEST:
        return
    text = BLANK_LINE.sub("", text)  # one that is longer than what follows it ends a block before it begins
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        nodes: list[Any] = _composed(text, loader)
        yield from [compose_parts.whole(node) for node in nodes if node is not None and node.id != "scalar"]
    except (yaml.YAMLError, ValueError, RecursionError):
        return


def _composed(text: str, loader: Any) -> list[Any]:
    """The documents; of a text that only dots within it keep from being YAML those without them."""
    import yaml

    try:
        return list(yaml.compose_all(text, loader))
    except yaml.YAMLError:
        if (without := DOTS.sub(r"\1#", text)) == text:
            raise
        return list(yaml.compose_all(without, loader))


def leaves_out(text: str) -> bool:
    """True for a text with such dots."""
    return LEFT_OUT.search(text) is not None or DOTS_WITHIN.search(text) is not None


def is_excerpt(text: str) -> bool:
    """True for a text whose comments or dots say that it does not show all."""
    return leaves_out(text) or OF_EXCERPTS.search(text) is not None


def _depth(text: str) -> int:
    """How deep brackets and lists on one line are nested."""
    depth = deepest = 0
    for match in re.finditer(r"[\[{]|[\]}]|\n[ ]*(?:-[ ]+)+", text):
        if match[0] in "[{":
            depth += 1
        elif match[0] in "]}":
            depth = max(depth - 1, 0)
        deepest = max(deepest, depth, match[0].count("-"))
    return deepest
