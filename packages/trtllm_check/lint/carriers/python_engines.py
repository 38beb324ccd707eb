"""How Python uses vLLM's asynchronous engine, whose ``generate`` is an asynchronous generator."""

import ast
from collections.abc import Iterator

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.python_text import PythonText, fault

ENGINES = ("AsyncLLMEngine", "AsyncLLM")
MAKERS = ("from_engine_args", "from_vllm_config")


def engine_faults(text: PythonText) -> Iterator[FormFault]:
    """``await engine.generate(...)``, and a plain loop over it."""
    engines = set(_engines(text))
    if not engines:
        return
    for node in text.nodes:
        if isinstance(node, ast.Await) and (owner := _generates(node.value, engines)):
            yield fault(text, node, "await generator", owner=owner)
        elif isinstance(node, ast.For) and (owner := _generates(node.iter, engines)):
            yield fault(text, node.iter, "plain loop", owner=owner)


def _engines(text: PythonText) -> Iterator[str]:
    """What is an asynchronous engine and nothing else: names and attributes of ``self``, as they are written."""
    made: dict[str, set[bool]] = {}
    for node in text.nodes:
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name | ast.Attribute):
                made.setdefault(ast.unparse(target), set()).add(_makes_one(text, node.value))
    yield from (name for name, kinds in made.items() if kinds == {True})


def _makes_one(text: PythonText, node: ast.expr) -> bool:
    dotted = text.dotted(node.func).split(".") if isinstance(node, ast.Call) else []
    return len(dotted) > 2 and dotted[0] == "vllm" and dotted[-1] in MAKERS and dotted[-2] in ENGINES


def _generates(node: ast.expr, engines: set[str]) -> str:
    """The engine whose ``generate`` is called; "" for any other call."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "generate":
        return ""
    owner = ast.unparse(node.func.value)
    return owner if owner in engines else ""
