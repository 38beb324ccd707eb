"""Names of models and endpoints that a program puts together over its cells, and a dot in a name's place of a bar."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.aws_programs import FREE, code_of, names_of
from trtllm_check.lint.rules.sagemaker import NAMED, TO_BE_FILLED, fitting_name
from trtllm_check.lint.shell.pasted import fences
from trtllm_check.lint.shell.words import Word

MODELS = ("HuggingFaceModel", "DJLModel", "Model", "ModelBuilder")
ARGUMENTS = ("endpoint_name", "EndpointName", "EndpointConfigName", "ModelName", "model_name")
FORBIDDEN = re.compile(r"[._/: ]")
PYTHON = ("python", "py", "python3", "ipython")
DEEPEST = 5


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for file, text in document.texts:
        if "sagemaker" not in text:
            continue
        code, unread = _code(text)
        if code is not None:
            yield from _made(code, text, file, release)
            yield from _dots(code, unread, text, file, release)


def _code(text: str) -> tuple[ast.Module | None, str]:
    """The program, the notebook, or the Python of a page; and what of the page does not parse."""
    blocks = [text[one.start : one.end] for one in fences(text) if one.language in PYTHON]
    if not blocks:
        return code_of(text), ""
    parts = [(code_of(one), one) for one in blocks]
    body = [node for code, _ in parts if code is not None for node in code.body]
    return ast.Module(body, []), "\n".join(one for code, one in parts if code is None)


def _made(code: ast.Module, text: str, file: str, release: str) -> Iterator[Draft]:
    """``name="llama-3.1" + time.strftime(...)``: the parts that are known have what no name may have."""
    once = _set_once(code)
    said: set[str] = set()
    for call in (one for one in ast.walk(code) if isinstance(one, ast.Call)):
        func = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        wanted = ("name",) if func in MODELS else ARGUMENTS if func in NAMED else ()
        for argument in call.keywords:
            if argument.arg not in wanted:
                continue
            parts = list(_parts(argument.value, once, 0))
            if len(parts) < 2 or any(TO_BE_FILLED.search(one) for one in parts):
                continue  # what is one word, the rule of SageMaker's calls reads
            for part in parts:
                at = re.search(rf"[\"']{re.escape(part)}", text) if part and FORBIDDEN.search(part) else None
                if at is not None and part not in said:
                    said.add(part)
                    known: dict[str, Any] = {"name": argument.arg, "value": part, "right": fitting_name(part)}
                    place = _place(text, at.start() + 1, part)
                    yield from drafts(release, "sagemaker-refuses", place, form="name", file=file, **known)


def _parts(node: ast.expr, once: dict[str, ast.expr], depth: int) -> Iterator[str]:
    """The texts that ``node`` is made of; an empty one for each part that nothing tells."""
    if isinstance(node, ast.Name) and node.id in once and depth < DEEPEST:
        yield from _parts(once[node.id], once, depth + 1)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _parts(node.left, once, depth + 1)
        yield from _parts(node.right, once, depth + 1)
    elif isinstance(node, ast.JoinedStr):
        for one in node.values:
            yield from _parts(one, once, depth + 1)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    else:
        yield ""


def _set_once(code: ast.Module) -> dict[str, ast.expr]:
    stored = [one.id for one in ast.walk(code) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
    return {
        node.targets[0].id: node.value
        for node in ast.walk(code)
        if isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
        and stored.count(node.targets[0].id) == 1
    }


def _dots(code: ast.Module, unread: str, text: str, file: str, release: str) -> Iterator[Draft]:
    """``test.dataset`` where there is a test_dataset and no test."""
    made, _, is_open = names_of(code)
    for node in () if is_open else ast.walk(code):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        first, right = node.value.id, f"{node.value.id}_{node.attr}"
        if first in made or first in FREE or right not in made or re.search(rf"\b{re.escape(first)}\b", unread):
            continue
        match = re.search(rf"(?<![\w.]){re.escape(first)}\.{re.escape(node.attr)}\b", text)
        if match is not None:
            place = _place(text, match.start(), match[0])
            yield from drafts(release, "name-slip", place, file=file, name=first, right=right)


def _place(text: str, start: int, word: str) -> Word:
    return Word(word, text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))
