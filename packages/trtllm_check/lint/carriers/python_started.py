"""Programs that Python starts by subprocess: words that are no texts, a shell that is missing or one too much."""

import ast
import re
from collections.abc import Iterator, Sequence

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.python_text import PythonText, fault

STARTS = ("run", "Popen", "call", "check_call", "check_output")
NUMBERS = ("int", "float")
SERVERS = ("vllm", "trtllm-serve", "trtllm-build", "trtllm-bench", "tritonserver")
TOOLS = (*SERVERS, "python", "python3", "docker")
# Programs that no Windows has, where such a line would do.
OF_A_SERVER = re.compile(r"(?:\S*/)?(?:vllm|trtllm-\w+|tritonserver|python3? -m (?:vllm|tensorrt_llm)[.\w]*) \S")
DEEPEST = 20  # parts of one list that are added up


def start_faults(text: PythonText) -> Iterator[FormFault]:
    """``Popen(["vllm", "serve", model, "--port", 8000])`` and ``run("vllm serve x")``."""
    for call in text.calls:
        module, _, name = text.dotted(call.func).rpartition(".")
        if module != "subprocess" or name not in STARTS or not call.args:
            continue
        shell = next((one.value for one in call.keywords if one.arg == "shell"), None)
        is_open = any(one.arg is None for one in call.keywords)
        in_shell = isinstance(shell, ast.Constant) and shell.value is True
        without = not is_open and (shell is None or (isinstance(shell, ast.Constant) and shell.value is False))
        words = _words(text, call.args[0])
        if in_shell and len(words) > 1 and _tool(words[0]):
            yield fault(text, call.args[0], "list in a shell", tool=_tool(words[0]))
        for one in words if without else ():
            if written := _number(text, one):
                yield fault(text, one, "number among words", value=written)
        if without and (line := _line(text, call.args[0])):
            yield fault(text, call.args[0], "line without a shell", tool=line.split()[0], name=name)


def _words(text: PythonText, node: ast.expr) -> Sequence[ast.expr]:
    """The items of a list, of a name that is set once to one, and of ``[...] + [...]``."""
    if isinstance(node, ast.Name):
        values = text.values_of(node.id)
        node = values[0] if len(values) == 1 else node
    pending, found = [node], list[ast.List]()
    while pending and len(found) < DEEPEST:
        one = pending.pop()
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Add):
            pending += [one.right, one.left]
        elif isinstance(one, ast.List):
            found.append(one)
    return [item for one in found for item in one.elts]


def _tool(node: ast.expr) -> str:
    """The program that a word names, of those that are read."""
    written = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return written if written.rpartition("/")[2] in TOOLS else ""


def _number(text: PythonText, node: ast.expr) -> str:
    """A number, or a name that only numbers are given to; "" for a text and what is not told."""
    if isinstance(node, ast.Constant):
        return ast.unparse(node) if isinstance(node.value, int | float) else ""
    if not isinstance(node, ast.Name):
        return ""
    values = text.values_of(node.id)
    are = [_is_number(one) for one in values]
    are += [
        isinstance(one.annotation, ast.Name) and one.annotation.id in NUMBERS
        for one in text.nodes
        if isinstance(one, ast.arg) and one.arg == node.id
    ]
    others = sum(
        isinstance(one, ast.Name) and one.id == node.id and isinstance(one.ctx, ast.Store) for one in text.nodes
    )
    return node.id if are and all(are) and others == len(values) else ""


def _is_number(node: ast.expr) -> bool:
    """``8000`` and ``int(os.environ["PORT"])``."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in NUMBERS
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _line(text: PythonText, node: ast.expr) -> str:
    """A whole command line where a list of words, or the name of one program, is wanted."""
    if isinstance(node, ast.Name):
        values = text.values_of(node.id)
        node = values[0] if len(values) == 1 else node
    parts = node.values[:1] if isinstance(node, ast.JoinedStr) else [node]
    first = parts[0].value if parts and isinstance(parts[0], ast.Constant) else ""
    return first if isinstance(first, str) and OF_A_SERVER.match(first) else ""
