"""What a test of a program has in it: words that it compares, and what it breaks on purpose. Nobody runs them."""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft

TESTS = re.compile(r"^[ \t]*(?:async )?def test_", re.MULTILINE)
COMPARES = re.compile(r"^[ \t]*assert\b|\bself\.assert[A-Z]|\bpytest\.raises\(", re.MULTILINE)
STARTS = re.compile(
    r"\bsubprocess\b|\bPopen\(|\bos\.system\(|\bcheck_(?:call|output)\(|\bRemote\w*Server\(|\bLLM\(|\.run\(|requests\.|httpx\.|\bOpenAI\("
)
OF_SERVERS = re.compile(r"\*\*\* ?(?:Test Failed|Failed|Test FAILED)|\bcheck_test_results\b")
REFUSES = frozenset({"config-refused", "config-syntax"})


def is_tested(draft: Draft, document: Document) -> bool:
    """True for the words of a function that compares them and starts nothing, and for a server's own tests."""
    text = dict(document.texts).get(draft.invocation.command.file if draft.invocation else draft.file, "")
    if draft.rule in REFUSES and OF_SERVERS.search(text):
        return True
    return any(first <= draft.place.line <= last for first, last in _compared(text))


@lru_cache(maxsize=4)
def _compared(text: str) -> tuple[tuple[int, int], ...]:
    """The first and last line of each such function."""
    if not TESTS.search(text) or not COMPARES.search(text):
        return ()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(_functions(tree, text.split("\n")))


def _functions(tree: ast.Module, lines: list[str]) -> Iterator[tuple[int, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            last = node.end_lineno or node.lineno
            written = "\n".join(lines[node.lineno - 1 : last])
            if COMPARES.search(written) and not STARTS.search(written):
                yield node.lineno, last
