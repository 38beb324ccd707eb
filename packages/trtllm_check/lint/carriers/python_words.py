"""Words and texts of a shell in Python's expressions: literals, f-strings, and names whose value the code tells."""

import ast
import re
from collections.abc import Sequence
from functools import cached_property

from trtllm_check.lint.carriers.python_built import pairs_of
from trtllm_check.lint.carriers.python_values import Values
from trtllm_check.lint.carriers.script import aligned, joined, unknown, unknown_arguments
from trtllm_check.lint.shell import Place, Word

DEEPEST = 50
MOST_STEPS = 100_000
LONGEST = 20_000
TEXTS = (ast.Constant, ast.JoinedStr, ast.BinOp, ast.Call, ast.Name, ast.Attribute, ast.Subscript)
UNKNOWN = re.compile(r"\$\{\w+\}")
SCRIPT = re.compile(r"[\w-]+\.py")
QUOTES = re.compile(r"[\"'\\\n]")
FIELD = re.compile(r"\{[^{}]*\}|%\(?\w*\)?[sdif]")
MARKS = re.compile(r"[rbfuRBFU]*(\"\"\"|'''|\"|')")


class PythonWords:
    """The expressions of one text."""

    def __init__(self, word: Word, tree: ast.Module) -> None:
        self.word, self.tree = word, tree
        self.lines = word.text.split("\n")
        self.starts: list[int] = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.names = Values(tree)
        self.bound: dict[str, ast.expr] = {}
        self.depth = 0
        self.steps = 0
        self.inside: set[int] = set()  # what names are set to, while their values are read

    def listed(self, node: ast.AST | None) -> list[Word]:
        """The words of a list, () for what is none."""
        self.depth += 1
        try:
            return self._listed(node) if node is not None and self.depth < DEEPEST and self.goes_on() else []
        finally:
            self.depth -= 1

    def _listed(self, node: ast.AST) -> list[Word]:
        if isinstance(node, ast.List | ast.Tuple):
            words: list[Word] = []
            for one in node.elts:
                if isinstance(one, ast.Starred):
                    words += self.listed(one.value) or [unknown_arguments(self.place(one))]
                else:
                    words.append(self.value(one) or unknown("value", self.place(one)))
            return words
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.listed(node.left), self.listed(node.right)
            if left or right:
                other = [unknown_arguments(self.place(node))]
                return [*(left or other), *(right or other)]
        if isinstance(node, ast.Name):
            known = self.named(node)
            is_list = isinstance(known, ast.List | ast.Tuple | ast.BinOp | ast.ListComp)
            if known is None or not is_list or id(known) in self.inside:
                return []
            self.inside.add(id(known))
            found = self.listed(known)
            self.inside.discard(id(known))
            return found
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return self.comprehended(node)
        if isinstance(node, ast.Call) and called_name(node) == "split" and isinstance(node.func, ast.Attribute):
            is_shlex = ast.unparse(node.func) == "shlex.split"
            source = node.args[0] if is_shlex and node.args else node.func.value if not node.args else None
            text = self.value(source) if source is not None else None
            return split(text) if text is not None and not QUOTES.search(text.text) else []
        return []

    def comprehended(self, node: ast.ListComp | ast.GeneratorExp) -> list[Word]:
        """``[word for key, value in flags.items() for word in (key, str(value))]``, and the same with one word each."""
        words: list[Word] = []
        for turn in pairs_of(node, self.dicts):
            before, self.bound = self.bound, {**self.bound, **turn}
            if len(node.generators) == 1:
                words.append(self.value(node.elt) or unknown("value", self.place(node)))
            elif len(node.generators) == 2 and isinstance(node.generators[1].iter, ast.Tuple | ast.List | ast.Name):
                words += self.listed(node.generators[1].iter)
            self.bound = before
        return words

    @cached_property
    def dicts(self) -> dict[str, ast.Dict]:
        """The dictionaries that the text sets once."""
        return self.names.dicts()

    def goes_on(self) -> bool:
        """False once the text has taken too many steps."""
        self.steps += 1
        return self.steps < MOST_STEPS

    def named(self, node: ast.AST) -> ast.expr | None:
        if isinstance(node, ast.Name) and node.id in self.bound:
            return self.bound[node.id]
        return self.names.known(node)

    def value(self, node: ast.AST) -> Word | None:
        """A text at its places; what is not known in it is a shell's unknown variable. None for no text."""
        self.depth += 1
        try:
            return self._value(node) if self.depth < DEEPEST and self.goes_on() else None
        finally:
            self.depth -= 1

    def _value(self, node: ast.AST) -> Word | None:
        if isinstance(node, ast.Constant):
            if isinstance(node.value, bool) or node.value is None or isinstance(node.value, bytes):
                place = self.place(node)
                text = str(node.value)
                return Word(text, *place, (place,) * len(text)) if isinstance(node.value, bool) else None
            return self.literal(str(node.value), node, 0)[0]
        if isinstance(node, ast.JoinedStr):
            return self.formatted(node)
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.executable":
            place = self.place(node)
            return Word("python3", *place, (place,) * len("python3"))
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            known = self.named(node)
            found = self.once(known) if isinstance(known, TEXTS) else None
            if found is not None and not UNKNOWN.fullmatch(found.text) and len(found.text) < LONGEST:
                return found
        if isinstance(node, ast.Name) and (script := self.same_file(node)) is not None:
            return script
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.value(node.left), self.value(node.right)
            return joined([self.here(left, node.left), self.here(right, node.right)]) if left and right else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return self.path([node.left, node.right])
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return self.open_fields(node.left)
        if isinstance(node, ast.Call) and (found := self.called(node)) is not None:
            return found
        if isinstance(node, ast.Call) and called_name(node) in ("format", "strip", "split", "dedent"):
            return None
        return unknown(ast.unparse(node)[:60], self.place(node)) if isinstance(node, ast.expr) else None

    def here(self, word: Word, node: ast.expr) -> Word:
        """A part of a longer text, where it is a name."""
        return placed(word, self.place(node)) if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) else word

    def same_file(self, node: ast.Name) -> Word | None:
        """A script that each branch takes from another folder: its name alone is told."""
        found = [self.once(one) for one in self.names.several(node)]
        names = {one.text.rpartition("/")[2] if one is not None else "" for one in found}
        last = found[-1] if len(names) == 1 and found else None
        if last is None or not SCRIPT.fullmatch(next(iter(names))):
            return None
        folder = unknown(node.id, self.place(node))
        return joined([folder, last.part(len(last.text) - len(next(iter(names))) - 1)]) if "/" in last.text else last

    def once(self, node: ast.expr) -> Word | None:
        """The value of what a name is set to; None for a name that is made of itself."""
        if id(node) in self.inside:
            return None
        self.inside.add(id(node))
        try:
            return self.value(node)
        finally:
            self.inside.discard(id(node))

    def called(self, node: ast.Call) -> Word | None:
        """``str(x)``, ``" ".join(words)``, ``os.path.join(a, b)``, ``os.getenv("A", "default")`` and their like."""
        name, func = called_name(node), ast.unparse(node.func)
        if name in ("str", "Path", "PosixPath") and len(node.args) == 1:
            return self.value(node.args[0])
        if name == "format" and isinstance(node.func, ast.Attribute):
            return self.open_fields(node.func.value)
        if func in ("os.path.join", "path.join", "osp.join") and node.args and not node.keywords:
            return self.path(node.args)
        if func in ("os.getenv", "os.environ.get", "getenv") and len(node.args) == 2:
            return self.value(node.args[1]) if isinstance(node.args[1], ast.Constant) and node.args[1].value else None
        if func == "shlex.join" and node.args:
            return spaced(self.listed(node.args[0]), " ")
        if name == "join" and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Constant):
            return spaced(self.listed(node.args[0]), str(node.func.value.value)) if node.args else None
        if name in ("strip", "split", "dedent") and isinstance(node.func, ast.Attribute):
            return self.value(node.args[0] if name in ("dedent", "split") and node.args else node.func.value)
        if name == "replace" and isinstance(node.func, ast.Attribute) and len(node.args) == 2:
            return self.replaced(node.func.value, node.args)
        if name in ("as_posix", "absolute", "resolve", "quote") and isinstance(node.func, ast.Attribute):
            return self.value(node.args[0] if node.args else node.func.value)
        return None

    def replaced(self, node: ast.expr, args: Sequence[ast.expr]) -> Word | None:
        """``name.replace("_", "-")``, letter by letter."""
        old, new = (one.value if isinstance(one, ast.Constant) else None for one in args)
        word = self.value(node)
        if word is None or UNKNOWN.fullmatch(word.text) or not isinstance(old, str) or not isinstance(new, str):
            return None
        is_alike = len(old) == len(new)
        text = word.text.replace(old, new)
        return Word(text, word.line, word.column, word.places) if is_alike and len(old) == 1 else None

    def path(self, nodes: Sequence[ast.expr]) -> Word | None:
        parts = [self.here(self.value(one) or unknown("value", self.place(one)), one) for one in nodes]
        whole = spaced([one.part(0, len(one.text.rstrip("/")) or 1) for one in parts[:-1]] + parts[-1:], "/")
        return None if any(one.text.startswith("/") for one in parts[1:]) else whole

    def open_fields(self, node: ast.AST) -> Word | None:
        """``"--n {}".format(n)``: each field is unknown."""
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            return None
        text = self.literal(node.value, node, 0)[0]
        parts: list[Word] = []
        position = 0
        for match in FIELD.finditer(text.text):
            place = text.part(match.start(), match.start() + 1)
            parts += [text.part(position, match.start()), unknown(match[0], (place.line, place.column))]
            position = match.end()
        return joined([*parts, text.part(position)])

    def formatted(self, node: ast.JoinedStr) -> Word:
        parts: list[Word] = []
        skip = 0
        for one in node.values:
            if isinstance(one, ast.Constant):
                part, skip = self.literal(str(one.value), node, skip)
                parts.append(part)
            elif isinstance(one, ast.FormattedValue):
                place = max(self.place(node), self.place(one.value))  # 3.11 knows no places inside of f-strings
                name = self.value(one.value)
                parts.append(placed(name, place) if name else unknown(ast.unparse(one.value)[:60], place))
        return joined(parts)

    def literal(self, value: str, node: ast.expr, skip: int) -> tuple[Word, int]:
        """``value`` in the source of ``node``, behind its first ``skip`` characters; how many it takes with it."""
        start, end = self.span(node)
        marks = MARKS.match(self.word.text, start, end)
        begin = max(start + skip, marks.end() if marks else start)
        head = value[:20].split("\n")[0]
        found = self.word.text.find(head, begin, end) if head else -1
        word = aligned(value, self.word, found if found >= 0 else begin, end)
        last = found + len(value) if found >= 0 else begin
        return word, max(last - start, skip)

    def span(self, node: ast.expr) -> tuple[int, int]:
        def index(line: int, column: int) -> int:
            text = self.lines[line - 1]
            characters = column if text.isascii() else len(text.encode()[:column].decode(errors="ignore"))
            return self.starts[line - 1] + characters

        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return index(node.lineno, node.col_offset), index(end_line, end_column)

    def place(self, node: ast.AST) -> tuple[int, int]:
        if not isinstance(node, ast.expr | ast.stmt):
            return self.word.line, self.word.column
        line = node.lineno
        index = self.starts[line - 1] + min(node.col_offset, len(self.lines[line - 1]))
        return self.word.places[index] if index < len(self.word.places) else (self.word.line, self.word.column)


def placed(word: Word, place: Place) -> Word:
    """What a name stands for at the place of the name, as a shell's variable; several words stay where they are."""
    return word if " " in word.text else Word(word.text, *place, (place,) * len(word.text))


def spaced(words: Sequence[Word], between: str) -> Word | None:
    """The words as one text, with ``between`` between them."""
    parts: list[Word] = []
    for word in words:
        if parts:
            place = parts[-1].places[-1] if parts[-1].places else (word.line, word.column)
            parts.append(Word(between, *place, (place,) * len(between)))
        parts.append(word)
    return joined(parts) if parts else None


def split(text: Word) -> list[Word]:
    """A text without quotes at its blanks."""
    return [text.part(match.start(), match.end()) for match in re.finditer(r"\S+", text.text)]


def called_name(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""
