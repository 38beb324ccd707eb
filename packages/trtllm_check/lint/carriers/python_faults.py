"""What stops Python before or while it runs a text: a comma that is missing, JSON's words for True, False, None, and
what the compiler refuses.
"""

import ast
import re
import warnings
from collections.abc import Iterator

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.shell import Word

OF_JSON = {"true": "True", "false": "False", "null": "None"}
BACK = 4  # lines above the one that the parser names: where it stops depends on its release
LONGEST = 20_000
LEFT_OUT = re.compile(r"^[ \t]*(?:\.\.\.|…)", re.MULTILINE)  # a text that leaves something out is no whole program
REFUSED = re.compile(  # words of CPython's compiler, in all versions that run TensorRT-LLM
    r"'return' with value in async generator|keyword argument repeated|duplicate argument"
    r"|'yield from' inside async function"
)
ENDS_OPEN = re.compile(r"(?:^|[,([{:=\\])\s*$|#")


def comma_missing(word: Word) -> Iterator[FormFault]:
    """The line of a text that does not parse, and parses as a whole with one comma at its end."""
    text = word.text
    if len(text) > LONGEST or LEFT_OUT.search(text):
        return
    problem = _problem(text)
    if problem is None or problem.lineno is None:
        return
    lines = text.split("\n")
    for number in range(min(problem.lineno, len(lines)), max(0, problem.lineno - BACK), -1):
        line = lines[number - 1]
        if ENDS_OPEN.search(line):
            continue
        if _problem("\n".join([*lines[: number - 1], f"{line.rstrip()},", *lines[number:]])) is None:
            index = sum(len(one) + 1 for one in lines[: number - 1]) + len(line) - len(line.lstrip())
            known = (("line", line.strip()),)
            yield FormFault("python-stops", word.part(index, index + len(line.strip())), "comma", known)
            return


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


def _problem(text: str) -> SyntaxError | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError):
        return SyntaxError()
    return None
