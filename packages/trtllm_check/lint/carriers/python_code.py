"""Python: command lines that it starts, variables that it hands to containers, images, and files that it writes.

Read is what stands in literals, f-strings and names that are set once; any other value is unknown.
"""

import ast
import re
from functools import cached_property

from trtllm_check.lint.carriers.aws_calls import aws_calls
from trtllm_check.lint.carriers.dockerfile import DOCKERFILE
from trtllm_check.lint.carriers.literal_files import commented_configs
from trtllm_check.lint.carriers.loose_names import loose_names
from trtllm_check.lint.carriers.percent_cells import cells
from trtllm_check.lint.carriers.printed import is_sentence
from trtllm_check.lint.carriers.python_asks import asks
from trtllm_check.lint.carriers.python_calls import calls
from trtllm_check.lint.carriers.python_containers import container_commands, docker_workloads
from trtllm_check.lint.carriers.python_faults import json_words, refused
from trtllm_check.lint.carriers.python_given import entries, given_to
from trtllm_check.lint.carriers.python_grown import grown, is_command, perhaps
from trtllm_check.lint.carriers.python_mending import mended
from trtllm_check.lint.carriers.python_printed import printed
from trtllm_check.lint.carriers.python_properties import property_files
from trtllm_check.lint.carriers.python_requests import sent_requests
from trtllm_check.lint.carriers.python_signs import put_right
from trtllm_check.lint.carriers.python_slips import LEXICAL
from trtllm_check.lint.carriers.python_tensors import tensor_uses
from trtllm_check.lint.carriers.python_text import PythonText
from trtllm_check.lint.carriers.python_uses import uses
from trtllm_check.lint.carriers.python_words import PythonWords, called_name
from trtllm_check.lint.carriers.script import Carried, Script, dedented, joined, unknown
from trtllm_check.lint.carriers.used_names import used_names
from trtllm_check.lint.carriers.yaml_documents import YAML_HEAD, is_yaml
from trtllm_check.lint.programs import TOOL_NAMES
from trtllm_check.lint.shell import Word
from trtllm_check.serving_properties import ENVIRONMENT_NAMES, PREFIXES

STARTS = frozenset(
    {
        *("run", "call", "check_call", "check_output", "Popen", "system", "popen", "getoutput", "getstatusoutput"),
        *("sh", "bash", "execute", "run_command", "exec_run", "run_cmd", "run_shell", "create_subprocess_shell"),
        *("local", "run_commands", "dockerfile_commands"),
    }
)
IN_WORDS = frozenset({"create_subprocess_exec"})  # each argument is a word
OF_LINES = frozenset({"run_commands", "dockerfile_commands"})  # each argument is a line, of Modal's images
INSTALLS = frozenset({"pip_install", "uv_pip_install"})  # of Modal's images
IMAGE = re.compile(r"^\S*(?:djl-inference|tritonserver|tensorrt-llm/release|/lmi)[^\s:]*:[\w.-]+$")
TOOL_LINE = re.compile(
    rf"^[ \t]*(?:\S+/)?(?:{TOOL_NAMES}|docker run)\s|^\s*python3? (?:\S*\.py|-m (?:tensorrt_llm|vllm)\.\S+)\s"
    r"|(?:\bpip3? install|\bgit clone)\s[^\n]*tensorrt[-_]?llm",
    re.MULTILINE | re.IGNORECASE,
)
CONFIG = re.compile(
    r"^[ \t]*(?:backend|platform)[ \t]*:[ \t]*\"\w+\"[ \t]*$(?=[\s\S]*(?:\{|max_batch_size))", re.MULTILINE
)
OF_FORMAT = re.compile(r"\{\{|\}\}|\{[\w.!:\[\]]*\}")
OF_PERCENT = re.compile(r"%(?:\(\w+\))?[sdif]")
ONLY_UNKNOWN = re.compile(r"^[ \t]*\$\{\w+\}[ \t]*$", re.MULTILINE)  # lines that the program puts in, or none
VARIABLE = re.compile(r"[A-Za-z_]\w*")
OF_A_FILE = re.compile(r"^[ \t]*(?:FROM[ ]+\S+|[A-Za-z_]\w*:(?:[ ].*)?)[ \t]*$", re.MULTILINE)
FEWEST_LINES = 1  # line ends between the first and the last line
LLM_API = ("tensorrt_llm", "tensorrt_llm.llmapi")  # tensorrt_llm._tensorrt_engine has the engine's own
OUR_LLM = tuple(f"{module}.LLM" for module in LLM_API)
LLM_OPTIONS = "llm_options.yml"
TABLES = ("kv_cache_config", "cuda_graph_config", "moe_config")  # options that are tables, and dictionaries here
NOT_OPTIONS = ("backend",)  # the pages of the releases leave it out
LONGEST_TREE = 200_000
MARGIN = re.compile(r"(?:[ \t]*(?:#.*)?\n)*[ \t]+[^\s#]")


def carried(word: Word) -> Carried:
    """What the code starts and sets; nothing where it is no Python, or nested deeper than a walk of it can go."""
    try:
        return cells(word).with_(_carried(word)).with_(Carried(texts=tuple(commented_configs(word))))
    except RecursionError:
        return Carried()


def _carried(word: Word) -> Carried:
    tree = parsed(word.text)
    if tree is not None:
        reader = _Reader(word, tree)
        reader.read()
        return reader.found
    right = put_right(word)
    if right is not None and (tree := parsed(right.mended.text)) is not None:
        reader = _Reader(right.mended, tree)
        reader.read()
        kept = tuple(one for one in reader.found.faults if one.rule in LEXICAL)
        return reader.found._replace(faults=(*right.faults, *kept))
    found = mended(word)
    if found is None or not found.is_code:
        return Carried()
    reader = _Reader(found.code, found.tree)
    reader.read()
    shell = Carried(scripts=((found.shell, ""),)) if found.shell.text else Carried()
    kept = tuple(one for one in reader.found.faults if one.rule in LEXICAL)
    return shell.with_(reader.found)._replace(faults=kept)


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


def _imports_ours(node: ast.AST) -> bool:
    """``from tensorrt_llm import LLM`` and ``import tensorrt_llm``."""
    if isinstance(node, ast.ImportFrom):
        return node.module in LLM_API
    return isinstance(node, ast.Import) and any(one.name in LLM_API for one in node.names)


def _filled(text: Word) -> Word:
    """A template of Python, which ``%`` or ``.format`` fills in: its fields are unknown."""
    is_format = "{{" in text.text and "}}" in text.text
    if not is_format and "%" not in text.text:
        return text
    parts: list[Word] = []
    position = 0
    for match in (OF_FORMAT if is_format else OF_PERCENT).finditer(text.text):
        here = text.part(match.start(), match.start() + 1)
        known = here if match[0] in ("{{", "}}") else unknown(match[0], (here.line, here.column))
        parts += [text.part(position, match.start()), known]
        position = match.end()
    return joined([*parts, text.part(position)])


def _is_yaml(text: str) -> bool:
    """True for a manifest, a file of compose or options of TensorRT-LLM's API."""
    if YAML_HEAD.search(text) and is_yaml(text):
        return True
    from trtllm_check.flows.options import looks_like_options, may_be_options  # which few texts need

    return may_be_options(text) and looks_like_options(text)


class _Reader(PythonWords):
    def __init__(self, word: Word, tree: ast.Module) -> None:
        super().__init__(word, tree)
        self.found = Carried()
        self.docstrings: set[int] = set()
        self.done: set[int] = set()

    def read(self) -> None:
        nodes = list(ast.walk(self.tree))
        for node in nodes:
            self.note(node)
            if isinstance(node, ast.Assert):  # what a test expects is not run
                self.done |= {id(one) for one in ast.walk(node)}
        if "option." in self.word.text:
            files = tuple(("serving.properties", one) for one in property_files(self, self.done))
            self.found = self.found.with_(Carried(texts=files))
        script = Script()
        self.done |= printed(self, script)
        self.done |= grown(self, script)
        for one in container_commands(self):
            if not self.done & {id(node) for node in one.nodes}:
                self.done |= {id(inner) for node in one.nodes for inner in ast.walk(node)}
                started = Script()
                started.words(list(one.words))
                self.found = self.found.with_(Carried(scripts=((started.word(), one.image),)))
        for node in nodes:
            self.command(node, script)
        found = [*calls(self.tree, self.word, self.starts, self.names)]
        aws = aws_calls(self.tree, self.word.text, self.place, self.names)
        is_script = self.word.places[:1] == ((1, 1),)
        text = PythonText(self.tree, self.word, self.starts, self.names)
        faults = (
            *json_words(self.tree, self.word, self.starts),
            *refused(self.tree, self.word, self.starts),
            *uses(text, is_script=is_script),
        )
        found += asks(text, self.value)
        names, tensors = (*used_names(text), *loose_names(text)), tuple(tensor_uses(text))
        self.found = self.found.with_(
            Carried(calls=tuple(found), aws_calls=tuple(aws), faults=faults, names=names, tensors=tensors)
        ).with_(Carried(requests=tuple(sent_requests(self)), workloads=tuple(docker_workloads(self))))
        if any(_imports_ours(node) for node in nodes):
            for call in text.calls:
                if (text.dotted(call.func) or called_name(call)) in (*OUR_LLM, "LLM"):
                    self.options(call)
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
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            for one in node.body:  # the first is a docstring, the others are comments
                if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
                    self.docstrings.add(id(one.value))

    def command(self, node: ast.AST, script: Script) -> None:
        if isinstance(node, ast.List | ast.BinOp | ast.Tuple) and id(node) not in self.done:
            words = self.listed(node)
            if words and is_command(words) and (len(words) > 1 or "/" not in words[0].text):  # else a list of files
                self.done |= {id(one) for one in ast.walk(node)}
                script.words(words)
                for line in perhaps(self, [node], words) if isinstance(node, ast.expr) else ():
                    script.words(line)
        elif isinstance(node, ast.Call) and node.args and called_name(node) in INSTALLS:
            self.installed(node, script)
        elif isinstance(node, ast.Call) and node.args and called_name(node) in IN_WORDS:
            words = [self.value(one) or unknown("value", self.place(one)) for one in node.args]
            if is_command(words):
                self.done |= {id(one) for one in ast.walk(node)}
                script.words(words)
        elif isinstance(node, ast.Call) and node.args and called_name(node) in STARTS:
            for first in node.args if called_name(node) in OF_LINES else node.args[:1]:
                self.started(first, script)

    def started(self, first: ast.expr, script: Script) -> None:
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
        for one in given_to(node, self.names)[0]:
            if one.name not in NOT_OPTIONS:
                index = self.starts[one.at.lineno - 1] + one.at.col_offset
                place = self.word.places[min(index, len(self.word.places) - 1)]
                inside = entries(one.value, self.names)[0] if one.name in TABLES else []
                script.add(f"{one.name}:{'' if inside else ' null'}\n", place)
                for each in inside:
                    script.add(f"  {each.name}: null\n", self.place(each.at))
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
        if id(node) in self.done or id(node) in self.docstrings:
            return
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            self.summed(node)
        if not isinstance(node, ast.Constant | ast.JoinedStr):
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
            text = _filled(text) if isinstance(node, ast.Constant) else text
            plain = ONLY_UNKNOWN.sub(lambda match: " " * len(match[0]), text.text)
            config = Word(plain, text.line, text.column, text.places)
            self.found = self.found.with_(Carried(texts=(("config.pbtxt", config),)))
        elif file := self.file_in(text, id(node)):
            self.found = self.found.with_(Carried(texts=(file,)))
        elif "\n" not in text.text.strip() and is_sentence(text.text):
            pass
        elif ("\n" in text.text.strip() or " --" in text.text) and TOOL_LINE.search(text.text):
            self.found = self.found.with_(Carried(scripts=((text, ""),)))

    def file_in(self, text: Word, node: int) -> tuple[str, Word] | None:
        """The file that a text of several lines is: its name, where the code tells it, and its content."""
        if text.text.strip().count("\n") < FEWEST_LINES or not OF_A_FILE.search(text.text):
            return None
        content = dedented(text)
        is_file = DOCKERFILE.search(content.text) if "FROM" in content.text else _is_yaml(content.text)
        return (self.files.get(node, ""), content) if is_file else None

    @cached_property
    def files(self) -> dict[int, str]:
        """``files["options.yaml"] = text``: the text -> its name."""
        found: dict[int, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
                key = node.targets[0].slice
                if isinstance(key, ast.Constant) and isinstance(key.value, str) and "." in key.value:
                    found[id(node.value)] = key.value
        return found

    def summed(self, node: ast.BinOp) -> None:
        """``"trtllm-build --checkpoint_dir " + path``."""
        text = self.value(node)
        if text is not None and " --" in text.text and TOOL_LINE.search(text.text):
            self.done |= {id(one) for one in ast.walk(node)}
            self.found = self.found.with_(Carried(scripts=((text, ""),)))
