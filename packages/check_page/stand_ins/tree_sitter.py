"""``tree_sitter`` in the browser: web-tree-sitter parses, and its tree becomes Python objects.

As much of the package's API as ``trtllm_check.lint.shell`` uses. Texts are ASCII there, so that the UTF-16 units of
JavaScript and the bytes of Python count the same.
"""

import re
from collections.abc import Sequence

NUMBERS = 6
"""Of each node, in the order of the text: type, flags, start, end, parent (-1: none) and field."""
NAMED, HAS_ERROR, MISSING = 1, 2, 4
PATTERN = re.compile(r"\((\w+)\)")
CAPTURE = re.compile(r"@(\w+)\s*$")


class BashGrammar:
    """The grammar of ``name``; there is one, bash."""

    def __init__(self, name: str) -> None:
        self.name = name


Language = BashGrammar
"""The package's name for it."""


class Node:
    """One node of a tree, with offsets in bytes."""

    __slots__ = ("_source", "children", "end_byte", "field", "flags", "parent", "start_byte", "type")

    def __init__(
        self, source: bytes, type_: str, flags: int, start: int, end: int, parent: "Node | None", field: str
    ) -> None:
        self._source = source
        self.type = type_
        self.flags = flags
        self.start_byte = start
        self.end_byte = end
        self.parent = parent
        self.field = field
        self.children: list[Node] = []

    @property
    def text(self) -> bytes:
        """What it stands for."""
        return self._source[self.start_byte : self.end_byte]

    @property
    def is_named(self) -> bool:
        """False for a mark such as ``;``."""
        return bool(self.flags & NAMED)

    @property
    def has_error(self) -> bool:
        """True if something in it is an error or missing."""
        return bool(self.flags & HAS_ERROR)

    @property
    def is_missing(self) -> bool:
        """True if the text lacks it."""
        return bool(self.flags & MISSING)

    def child_by_field_name(self, name: str) -> "Node | None":
        """The first child in the field ``name``."""
        return next((child for child in self.children if child.field == name), None)

    def children_by_field_name(self, name: str) -> "list[Node]":
        """The children in the field ``name``."""
        return [child for child in self.children if child.field == name]


class Tree:
    """The tree of one text."""

    def __init__(self, root_node: Node) -> None:
        self.root_node = root_node


def tree_of(source: bytes, numbers: Sequence[int], types: Sequence[str], fields: Sequence[str]) -> Tree:
    """The tree that ``numbers`` spell, :data:`NUMBERS` a node."""
    nodes: list[Node] = []
    for at in range(0, len(numbers), NUMBERS):
        type_, flags, start, end, parent, field = numbers[at : at + NUMBERS]
        above = nodes[parent] if parent >= 0 else None
        node = Node(source, types[type_], flags, start, end, above, fields[field])
        if above is not None:
            above.children.append(node)
        nodes.append(node)
    return Tree(nodes[0])


class Parser:
    """Parses text of the one grammar."""

    def __init__(self, language: BashGrammar) -> None:
        self.language = language

    def parse(self, source: bytes) -> Tree:
        """The tree of ``source``, which has to be ASCII."""
        import bash_grammar

        found = bash_grammar.parse(source.decode("ascii"))
        return tree_of(source, found.numbers.to_py().tolist(), found.types.to_py(), found.fields.to_py())


class Query:
    """Nodes of some types under one name: ``[(string) (raw_string)] @quote``."""

    def __init__(self, language: BashGrammar, pattern: str) -> None:
        capture = CAPTURE.search(pattern)
        if capture is None:
            raise ValueError(f"no capture in {pattern!r}")
        self.language = language
        self.types = frozenset(PATTERN.findall(pattern))
        self.name: str = capture[1]


class QueryCursor:
    """Finds what a query asks for."""

    def __init__(self, query: Query) -> None:
        self.query = query

    def captures(self, node: Node) -> dict[str, list[Node]]:
        """The nodes below ``node`` by the name of their capture, in the order of the text."""
        found: list[Node] = []
        waiting = [node]
        while waiting:
            one = waiting.pop()
            if one.type in self.query.types and one.is_named:
                found.append(one)
            waiting += reversed(one.children)
        return {self.query.name: found} if found else {}
