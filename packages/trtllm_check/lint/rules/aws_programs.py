"""Programs and notebooks for AWS: services that boto3 does not have, and names that a slip made new."""

import ast
import builtins
import json
import re
from collections.abc import Iterator
from difflib import SequenceMatcher

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.shell.words import Word

FAMILY = "aws_programs"
CLIENT = re.compile(r"\.(?:client|resource)\(\s*\\?[\"'](?P<name>[a-z][\w-]*)\\?[\"']")
ABOUT = re.compile(r"\bboto3\b|\bsagemaker\b|\bvllm\b|tensorrt_llm|tritonclient")
MAGIC = re.compile(r"^([ \t]*)[%!?].*$", re.MULTILINE)
CELL_MAGIC = re.compile(r"\s*%%(?!time|capture)")
LIKE = 0.9
LEAST = 8
FREE = frozenset({*dir(builtins), "get_ipython", "display", "In", "Out", "__file__", "__name__"})


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    data = rule_data(FAMILY)
    for file, text in document.texts:
        for match in CLIENT.finditer(text) if "boto3" in text else ():
            name = match["name"]
            if name.startswith(tuple(data["about"])) and name not in data["services"].split():
                place = _place(text, match.start("name"), name)
                right = max(data["services"].split(), key=lambda one: SequenceMatcher(None, one, name).ratio())
                yield from drafts(release, "aws-service", place, file=file, name=name, right=right)
        if ABOUT.search(text):
            yield from _slips(text, file, release)


def _place(text: str, start: int, word: str) -> Word:
    return Word(word, text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))


def _slips(text: str, file: str, release: str) -> Iterator[Draft]:
    """A name that nothing makes, one letter or two beside one that is made."""
    code = code_of(text)
    if code is None:
        return
    made, used, is_open = names_of(code)
    if is_open:
        return
    for name in sorted(used - made - FREE):
        if len(name) < LEAST:
            continue
        like = {one: _alike(one, name) for one in made if len(one) >= LEAST}
        best = max(like.values(), default=0)
        near = [one for one, ratio in like.items() if ratio == best >= LIKE and _differ(one, name)]
        match = re.search(rf"(?<![\w.\"']){name}\b(?!\s*=[^=])", text)
        if len(near) == 1 and match is not None:
            place = _place(text, match.start(), name)
            yield from drafts(release, "name-slip", place, file=file, name=name, right=near[0])


def _alike(one: str, name: str) -> float:
    """How like two names are; 0 where that is quick to see to be too little."""
    matcher = SequenceMatcher(None, one, name)
    return matcher.ratio() if matcher.real_quick_ratio() >= LIKE and matcher.quick_ratio() >= LIKE else 0


def _differ(one: str, other: str) -> bool:
    """False for names that count: ``model_1`` and ``model_2`` are two things."""
    letters = re.compile(r"\d+")
    return letters.sub("", one) != letters.sub("", other)


def code_of(text: str) -> ast.Module | None:
    """The whole program; of a notebook all cells that are Python. None where a part is none."""
    if text.lstrip().startswith("{"):
        try:
            cells = json.loads(text)["cells"]
            sources = ["".join(one["source"]) for one in cells if one["cell_type"] == "code"]
        except (ValueError, KeyError, TypeError):
            return None
        text = "\n".join(one for one in sources if not CELL_MAGIC.match(one))
    try:
        return ast.parse(MAGIC.sub(r"\1pass", text))
    except (SyntaxError, ValueError, RecursionError):
        return None


def names_of(tree: ast.Module) -> tuple[set[str], set[str], bool]:
    """Names that are made, names that are used, and whether more may come from elsewhere."""
    made: set[str] = set()
    used: set[str] = set()
    is_open = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else made).add(node.id)
        elif isinstance(node, ast.arg):
            made.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            made.add(node.name)
        elif isinstance(node, ast.alias):
            is_open = is_open or node.name == "*"
            made.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            made.add(node.name)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            made |= set(node.names)
        elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
            made.add(node.name)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            is_open = is_open or node.func.id in ("exec", "eval", "globals", "locals")
    return made, used, is_open
