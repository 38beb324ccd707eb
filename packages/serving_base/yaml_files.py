"""Reading the YAML files of the package and of users."""

import re
from pathlib import Path
from typing import Any

import yaml12

from serving_base.errors import NotYaml

ALIAS = re.compile(r"(?:^|[\s\[,{:-])\*[A-Za-z0-9_-]")
MOST_VALUES = 1_000_000
ENDLESS = 10**9


def refuse_multiplied(text: str, what: str) -> None:
    """:class:`NotYaml` for a text of few lines whose aliases stand for more values than memory holds."""
    if len(ALIAS.findall(text)) > 1 and _values(text) > MOST_VALUES:
        raise NotYaml(
            f"{what} stands for more than {MOST_VALUES} values",
            why="its aliases name lists of aliases",
            fix="write out what is meant",
        )


def read_yaml(path: Path) -> Any:
    """The file's content, by the rules of YAML 1.2, as plain Python values; :class:`NotYaml` for anything else."""
    text = path.read_text(encoding="utf-8")
    refuse_multiplied(text, str(path))
    try:
        documents = yaml12.parse_yaml(text, multi=True)
    except ValueError as error:
        raise NotYaml(f"{path} is not valid YAML", why=str(error), fix="mend the line it names") from error
    if len(documents) > 1:
        raise NotYaml(f"{path} holds {len(documents)} documents", fix="keep one, and take out the lines of ---")
    return documents[0] if documents else None


def values_of(node: Any) -> int:
    """How many values a composed document has once every alias is replaced by what it names.

    ``ENDLESS`` and more for one that stands inside itself.
    :class:`RecursionError` for one nested deeper than Python goes.
    """
    sizes: dict[int, int] = {}

    def size(one: Any) -> int:
        if id(one) not in sizes:
            sizes[id(one)] = ENDLESS  # what an alias inside this node finds
            pairs = one.value if one.id != "scalar" else []
            inside = [part for pair in pairs for part in (pair if isinstance(pair, tuple) else (pair,))]
            sizes[id(one)] = 1 + sum(map(size, inside))
        return sizes[id(one)]

    return size(node)


def _values(text: str) -> int:
    """The same of all documents of a text; 0 for what is no YAML."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return sum(values_of(node) for node in yaml.compose_all(text, loader) if node is not None)
    except (yaml.YAMLError, RecursionError):
        return 0
