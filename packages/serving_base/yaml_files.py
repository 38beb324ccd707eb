"""Reading the YAML files of the package and of users."""

import re
from pathlib import Path
from typing import Any

import yaml12

from serving_base.errors import NotYaml

ALIAS = re.compile(r"(?:^|[\s\[,{:-])\*[A-Za-z0-9_-]")
MOST_VALUES = 1_000_000


def read_yaml(path: Path) -> Any:
    """The file's content, by the rules of YAML 1.2, as plain Python values; :class:`NotYaml` for anything else."""
    text = path.read_text(encoding="utf-8")
    if len(ALIAS.findall(text)) > 1 and _values(text) > MOST_VALUES:
        raise NotYaml(
            f"{path} stands for more than {MOST_VALUES} values",
            why="its aliases name lists of aliases",
            fix="write out what is meant",
        )
    try:
        documents = yaml12.parse_yaml(text, multi=True)
    except ValueError as error:
        raise NotYaml(f"{path} is not valid YAML", why=str(error), fix="mend the line it names") from error
    if len(documents) > 1:
        raise NotYaml(f"{path} holds {len(documents)} documents", fix="keep one, and take out the lines of ---")
    return documents[0] if documents else None


def _values(text: str) -> int:
    """How many values the text has once every alias is replaced by what it names; 0 for what is no YAML."""
    import yaml

    sizes: dict[int, int] = {}

    def size(node: Any) -> int:
        if id(node) not in sizes:
            sizes[id(node)] = 1  # an alias of a node inside itself counts once
            pairs = node.value if isinstance(node, yaml.CollectionNode) else []
            inside = [one for pair in pairs for one in (pair if isinstance(pair, tuple) else (pair,))]
            sizes[id(node)] = 1 + sum(map(size, inside))
        return sizes[id(node)]

    try:
        return sum(size(node) for node in yaml.compose_all(text, yaml.SafeLoader) if node is not None)
    except (yaml.YAMLError, RecursionError):
        return 0
