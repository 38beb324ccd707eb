"""Python: command lines that it starts, variables that it hands to containers, images, and files that it writes.

Read is what stands in literals, f-strings and names that are set once; any other value is unknown.
"""

import ast
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from trtllm_check.lint.carriers.aws_calls import aws_calls
from trtllm_check.lint.carriers.python_calls import calls
from trtllm_check.lint.carriers.python_faults import comma_missing, json_words
from trtllm_check.lint.carriers.python_text import PythonText
from trtllm_check.lint.carriers.python_uses import uses
from trtllm_check.lint.carriers.script import Carried, Script, aligned, joined, unknown
from trtllm_check.lint.carriers.used_names import used_names
from trtllm_check.lint.programs import ALIASES, PYTHON, TOOL_NAMES, TOOLS
from trtllm_check.lint.shell import Word
from trtllm_check.serving_properties import ENVIRONMENT_NAMES, PREFIXES

STARTS = frozenset(
    {
        *("run", "call", "check_call", "check_output", "Popen", "system", "popen", "getoutput", "getstatusoutput"),
        *("sh", "bash", "execute", "run_command", "exec_run", "run_cmd", "run_shell", "create_subprocess_shell"),
    }
)
INSTALLS = frozenset({"pip_install", "uv_pip_install"})  # of Modal's images
IMAGE = re.compile(r"^\S*(?:djl-inference|tritonserver|tensorrt-llm/release|/lmi)[^\s:]*:[\w.-]+$")
TOOL_LINE = re.compile(
    rf"^[ \t]*(?:\S+/)?(?:{TOOL_NAMES}|docker run)\s|^\s*python3? \S*\.py\s"
    r"|(?:\bpip3? install|\bgit clone)\s[^\n]*tensorrt[-_]?llm",
    re.MULTILINE | re.IGNORECASE,
)
CONFIG = re.compile(
    r"^[ \t]*(?:backend|platform)[ \t]*:[ \t]*\"\w+\"[ \t]*$(?=[\s\S]*(?:\{|max_batch_size))", re.MULTILINE
)
VARIABLE = re.compile(r"[A-Za-z_]\w*")
FIELD = re.compile(r"\{[^{}]*\}|%\(?\w*\)?[sdif]")
MARKS = re.compile(r"[rbfuRBFU]*(\"\"\"|'''|\"|')")
LLM_API = ("tensorrt_llm", "tensorrt_llm.llmapi")  # tensorrt_llm._tensorrt_engine has the engine's own
LLM_OPTIONS = "llm_options.yml"
NOT_OPTIONS = ("backend",)  # the pages of the releases leave it out
LONGEST_TREE = 200_000
MARGIN = re.compile(r"\s*^[ \t]+[^\s#]", re.MULTILINE)
STARTERS = frozenset({"docker", "mpirun", "tritonserver", "bash", "sh", "git", "pip", "curl"})


def carried(word: Word) -> Carried:
    """What the code starts and sets; nothing where it is no Python."""
    tree = parsed(word.text)
    if tree is None:
        return Carried(faults=tuple(comma_missing(word)))
    reader = _Reader(word, tree)
    reader.read()
    return reader.found


def parsed(text: str) -> ast.Module | None:
    """The tree of a text, or of one that was cut out of a function with its margin; None for what is no Python."""
    import warnings

    if len(text) > LONGEST_TREE:
        return None
    cut_out = MARGIN.match(text) is not None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(f"if 1:\n{text}" if cut_out else text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if cut_out:
        (block,) = (one for one in tree.body[:1] if isinstance(one, ast.If))
        tree.body = [*block.body, *tree.body[1:]]
        ast.increment_lineno(tree, -1)
    return tree


class _Reader:
    def __init__(self, word: Word, tree: ast.Module) -> None:
        self.word, self.tree = word, tree
        self.lines = word.text.split("\n")
        self.starts: list[int] = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.found = Carried()
        self.names: dict[str, ast.expr] = {}
        self.changed: set[str] = set()
        self.docstrings: set[int] = set()
        self.done: set[int] = set()
        self.depth = 0

    def read(self) -> None:
        nodes = list(ast.walk(self.tree))
        for node in nodes:
            self.note(node)
            if isinstance(node, ast.Assert):  # what a test expects is not run
                self.done |= {id(one) for one in ast.walk(node)}
        script = Script()
        for node in nodes:
            self.command(node, script)
        found = calls(self.tree, self.word, self.starts)
        aws = aws_calls(self.tree, self.word.text, self.place)
        is_script = self.word.places[:1] == ((1, 1),)
        text = PythonText(self.tree, self.word, self.starts)
        faults = (*json_words(self.tree, self.word, self.starts), *uses(text, is_script=is_script))
        names = tuple(used_names(text))
        self.found = self.found.with_(Carried(calls=tuple(found), aws_calls=tuple(aws), faults=faults, names=names))
        if any(isinstance(node, ast.ImportFrom) and node.module in LLM_API for node in nodes):
            for node in nodes:
                if isinstance(node, ast.Call) and _called(node) == "LLM":
                    self.options(node)
        for node in nodes:
            if isinstance(node, ast.Dict):
                self.environment(node, script)
            elif isinstance(node, ast.Assign):
                self.setting(node, script)
        if (word := script.word()).text:
            self.found = self.found.with_(Carried(scripts=((word, ""),)))
        for node in nodes:
            self.string(node)

    def note(self, node: ast.AST) -> None:
        """Names that are set once, and lists that grow."""
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in self.names:
                self.changed.add(name)
            self.names[name] = node.value
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self.changed.add(node.target.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("append", "extend", "insert") and isinstance(node.func.value, ast.Name):
                self.changed.add(node.func.value.id)
        elif isinstance(node, ast.For | ast.AsyncFor):
            self.changed |= {one.id for one in ast.walk(node.target) if isinstance(one, ast.Name)}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                self.docstrings.add(id(first.value))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                arguments = node.args
                every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
                self.changed |= {one.arg for one in every}

    def command(self, node: ast.AST, script: Script) -> None:
        if isinstance(node, ast.List | ast.BinOp | ast.Tuple) and id(node) not in self.done:
            words = self.listed(node)
            if words and _is_command(words):
                self.done |= {id(one) for one in ast.walk(node)}
                grows = any(value is node and name in self.changed for name, value in self.names.items())
                script.words([*words, unknown("more", self.place(node))] if grows else words)
        elif isinstance(node, ast.Call) and node.args and _called(node) in INSTALLS:
            self.installed(node, script)
        elif isinstance(node, ast.Call) and node.args and _called(node) in STARTS:
            first = node.args[0]
            if isinstance(first, ast.Constant | ast.JoinedStr | ast.Name | ast.BinOp | ast.Call):
                text = self.value(first)
                if text is not None and " " in text.text.strip() and not self.listed(first):
                    self.done |= {id(one) for one in ast.walk(first)}
                    script.line(text)

    def installed(self, node: ast.Call, script: Script) -> None:
        """``image.pip_install("vllm==0.9.1", "torch==2.7.0")``: the arguments of one pip install."""
        words: list[Word] = []
        for one in node.args:
            words += self.listed(one) or [self.value(one) or unknown("value", self.place(one))]
        place = (words[0].line, words[0].column) if words else self.place(node)
        flags: list[Word] = []
        for keyword in node.keywords:
            value = self.value(keyword.value)
            if keyword.arg in ("index_url", "extra_index_url", "find_links") and value is not None:
                flags += [Word(f"--{keyword.arg.replace('_', '-')}", *place, (place,) * (len(keyword.arg) + 2)), value]
        self.done |= {id(one) for one in ast.walk(node)}
        script.words([*(Word(text, *place, (place,) * len(text)) for text in ("pip", "install")), *flags, *words])

    def listed(self, node: ast.AST) -> list[Word]:
        """The words of a list, () for what is none."""
        if isinstance(node, ast.List | ast.Tuple):
            words: list[Word] = []
            for one in node.elts:
                if isinstance(one, ast.Starred):
                    words.append(unknown("more", self.place(one)))
                else:
                    words.append(self.value(one) or unknown("value", self.place(one)))
            return words
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.listed(node.left), self.listed(node.right)
            if left or right:
                return [*(left or [unknown("more", self.place(node))]), *(right or [unknown("more", self.place(node))])]
        return []

    def environment(self, node: ast.Dict, script: Script) -> None:
        """A dictionary with names of LMI's variables among its keys."""
        keys = [one.value for one in node.keys if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if not any(key in ENVIRONMENT_NAMES or key.startswith(tuple(PREFIXES)) for key in keys):
            properties = [key for key in keys if key.startswith("option.")]
            if properties:
                self.properties(node)
            return
        for key, value in zip(node.keys, node.values, strict=True):
            if (
                isinstance(key, ast.Constant)
                and isinstance(key.value, str)
                and re.fullmatch(r"[A-Za-z_]\w*", key.value)
            ):
                script.variable(key.value, self.value(value) or unknown("value", self.place(value)))

    def options(self, node: ast.Call) -> None:
        """The names of ``LLM(...)``'s arguments, as a file of options without values."""
        script = Script()
        for one in node.keywords:
            if one.arg is not None and one.arg not in NOT_OPTIONS:
                line = one.lineno
                index = self.starts[line - 1] + one.col_offset
                place = self.word.places[min(index, len(self.word.places) - 1)]
                script.add(f"{one.arg}: null\n", place)
        if script.characters:
            self.found = self.found.with_(Carried(texts=((LLM_OPTIONS, script.word()),)))

    def properties(self, node: ast.Dict) -> None:
        """A dictionary of serving.properties."""
        script = Script()
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                found = self.value(value)
                script.add(f"{key.value}=", self.place(value))
                script.line(found or unknown("value", self.place(value)))
        self.found = self.found.with_(Carried(texts=(("serving.properties", script.word()),)))

    def setting(self, node: ast.Assign, script: Script) -> None:
        """``env["OPTION_X"] = "y"``."""
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            name = target.slice.value
            if isinstance(name, str) and (name in ENVIRONMENT_NAMES or name.startswith("OPTION_")):
                script.variable(name, self.value(node.value) or unknown("value", self.place(node)))

    def string(self, node: ast.AST) -> None:
        """Images, scripts and files among the texts."""
        if not isinstance(node, ast.Constant | ast.JoinedStr) or id(node) in self.done | self.docstrings:
            return
        text = self.value(node)
        if text is None:
            return
        self.done |= {id(one) for one in ast.walk(node)}
        if IMAGE.match(text.text):
            self.found = self.found.with_(Carried(images=(text,)))
        elif text.text.count("option.") > 1 and "\n" in text.text.strip():
            self.found = self.found.with_(Carried(texts=(("serving.properties", text),)))
        elif CONFIG.search(text.text) and "\n" in text.text.strip():
            self.found = self.found.with_(Carried(texts=(("config.pbtxt", text),)))
        elif ("\n" in text.text.strip() or " --" in text.text) and TOOL_LINE.search(text.text):
            self.found = self.found.with_(Carried(scripts=((text, ""),)))

    def value(self, node: ast.AST) -> Word | None:
        """A text at its places; what is not known in it is a shell's unknown variable. None for no text."""
        self.depth += 1
        try:
            return self._value(node) if self.depth < 50 else None
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
        if isinstance(node, ast.Name):
            value = self.names.get(node.id)
            known = (
                value is not None and node.id not in self.changed and isinstance(value, ast.Constant | ast.JoinedStr)
            )
            found = self.value(value) if known and value is not None else None
            return found or unknown(node.id, self.place(node))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.value(node.left), self.value(node.right)
            return joined([left, right]) if left and right else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return self.open_fields(node.left)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
                return self.value(node.args[0])
            if isinstance(node.func, ast.Attribute) and node.func.attr == "format":
                return self.open_fields(node.func.value)
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("strip", "split", "dedent"):
                return self.value(node.args[0] if node.func.attr == "dedent" and node.args else node.func.value)
        return unknown(ast.unparse(node)[:60], self.place(node)) if isinstance(node, ast.expr) else None

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
                name = self.value(one.value) if isinstance(one.value, ast.Name) else None
                parts.append(name or unknown(ast.unparse(one.value)[:60], self.place(node)))
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


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _is_command(words: Sequence[Word]) -> bool:
    names = [PurePosixPath(word.text).name for word in words[:4]]
    first = ALIASES.get(names[0], names[0])
    if first in TOOLS or (first in STARTERS and len(words) > 1):
        return True
    return (PYTHON.fullmatch(first) is not None or words[0].text.startswith("${sys")) and any(
        name in TOOLS or name == "-m" for name in names[1:]
    )
