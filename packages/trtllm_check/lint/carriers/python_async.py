"""Coroutines around clients: an answer that nobody waits for, one that is no coroutine, a loop of the other kind."""

import ast
from collections.abc import Iterator

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.python_text import PythonText, fault

WAITING, PLAIN = "openai.AsyncOpenAI", "openai.OpenAI"
METHODS = ("chat.completions.create", "completions.create", "embeddings.create", "models.list")
OF_AN_ANSWER = ("choices", "data", "usage", "model")
FEW = 1


def async_faults(text: PythonText) -> Iterator[FormFault]:
    """All faults of the kind."""
    waiting, plain = text.made_by(WAITING), text.made_by(PLAIN)
    yield from _never_run(text)
    for node in text.nodes:
        if isinstance(node, ast.Await) and (written := _asks(node.value, plain)):
            yield fault(text, node, "await plain client", written=written)
        elif isinstance(node, ast.Assign) and (written := _asks(node.value, waiting)):
            yield from _not_awaited(text, node, written)
        elif isinstance(node, ast.For) and (written := _awaited(node.iter, waiting)):
            yield fault(text, node.iter, "plain loop of a client", written=written)
        elif isinstance(node, ast.AsyncFor) and (written := _asks(node.iter, plain)):
            yield fault(text, node.iter, "async loop of a client", written=written)


def _asks(node: ast.expr, clients: set[str]) -> str:
    """``client.chat.completions.create`` for a call of it; "" for all else."""
    path = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    owner, _, method = path.partition(".")
    return path if owner in clients and method in METHODS else ""


def _awaited(node: ast.expr, clients: set[str]) -> str:
    return _asks(node.value, clients) if isinstance(node, ast.Await) else ""


def _not_awaited(text: PythonText, node: ast.Assign, written: str) -> Iterator[FormFault]:
    """``answer = client....create(...)`` of which nothing but ``answer.choices`` is taken."""
    target = node.targets[0]
    if not isinstance(target, ast.Name) or len(text.values_of(target.id)) > FEW:
        return
    loads = [one for one in text.nodes if isinstance(one, ast.Name) and one.id == target.id]
    owners = {id(one.value): one for one in text.nodes if isinstance(one, ast.Attribute)}
    used = [owners.get(id(one)) for one in loads if isinstance(one.ctx, ast.Load)]
    if used and all(one is not None and one.attr in OF_AN_ANSWER for one in used):
        yield fault(text, node.value, "not awaited", written=written, name=target.id)


def _never_run(text: PythonText) -> Iterator[FormFault]:
    """``main()`` at the end of a program, where ``main`` is an ``async def``."""
    made: dict[str, list[bool]] = {}
    for node in text.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            made.setdefault(node.name, []).append(isinstance(node, ast.AsyncFunctionDef) and not node.decorator_list)
    methods = {id(one) for node in text.nodes if isinstance(node, ast.ClassDef) for one in node.body}
    inside = {one.name for one in text.nodes if id(one) in methods and isinstance(one, ast.AsyncFunctionDef)}
    for node in text.nodes:
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            name = call.func.id
            if all(made.get(name, [False])) and name not in inside and not text.values_of(name):
                yield fault(text, call, "never run", name=name)
