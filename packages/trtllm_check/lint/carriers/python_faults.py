"""What stops Python before or while it runs a text that parses: JSON's words for True, False, None, and what the
compiler refuses; and what the parser says of one that does not.
"""

import ast
import re
import warnings
from collections.abc import Iterator

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.shell import Word

OF_JSON = {"true": "True", "false": "False", "null": "None"}
REFUSED = re.compile(  # words of CPython's compiler, in all versions that run TensorRT-LLM
    r"'return' with value in async generator|keyword argument repeated|duplicate argument"
    r"|'yield from' inside async function"
)


def json_words(tree: ast.Module, word: Word, starts: list[int]) -> Iterator[FormFault]:
    """``true`` where nothing of the text makes such a name."""
    nodes = list(ast.walk(tree))
    if not any(isinstance(node, ast.Call | ast.Import | ast.ImportFrom) for node in nodes):
        return  # a body of JSON that a page shows as Python
    if any(isinstance(node, ast.ImportFrom) and any(one.name == "*" for one in node.names) for node in nodes):
        return
    made = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    made |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in nodes:
        if isinstance(node, ast.alias):
            made.add(node.asname or node.name)
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in OF_JSON and node.id not in made:
            lines = word.text.split("\n")
            before = lines[node.lineno - 1].encode()[: node.col_offset].decode(errors="replace")
            index = starts[node.lineno - 1] + len(before)
            known = (("name", node.id), ("right", OF_JSON[node.id]))
            yield FormFault("python-stops", word.part(index, index + len(node.id)), "name", known)
            made.add(node.id)


def refused(tree: ast.Module, word: Word, starts: list[int]) -> Iterator[FormFault]:
    """What parses, and what the compiler refuses wherever the text stands: the file cannot be loaded."""
    if not (any(isinstance(node, ast.Call | ast.AsyncFunctionDef | ast.FunctionDef) for node in ast.walk(tree))):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(tree, "text", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        if error.lineno is None or not REFUSED.match(error.msg) or error.lineno > len(starts):
            return
        lines = word.text.split("\n")
        line = lines[error.lineno - 1]
        begin = starts[error.lineno - 1] + len(line) - len(line.lstrip())
        known = (("problem", error.msg),)
        yield FormFault("python-stops", word.part(begin, begin + len(line.strip())), "refused", known)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return


def syntax_problem(text: str) -> SyntaxError | None:
    """What the parser says of ``text``; an error without words where it gives up, None for Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError):
        return SyntaxError()
    return None
