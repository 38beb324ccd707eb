"""The kinds of text, what stands on a page between commands, and which lines the checker did not understand."""

import ast
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import PurePosixPath
from textwrap import dedent
from typing import Any, Literal, NamedTuple

from trtllm_check.lint.carriers.dockerfile import DOCKERFILE
from trtllm_check.lint.carriers.literals import is_program
from trtllm_check.lint.carriers.notebooks import is_notebook
from trtllm_check.lint.carriers.python_code import parsed
from trtllm_check.lint.carriers.python_faults import comma_missing
from trtllm_check.lint.carriers.python_mending import is_mendable, is_nearly_python
from trtllm_check.lint.carriers.requirements import is_conda, is_requirements
from trtllm_check.lint.carriers.systemd import is_unit
from trtllm_check.lint.carriers.terraform import is_terraform
from trtllm_check.lint.carriers.windows import is_windows
from trtllm_check.lint.carriers.yaml_files import YAML_HEAD, is_yaml
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import HOLDERS, MENTIONS, WRAPPERS
from trtllm_check.lint.programs import SHELLS as SHELL_PROGRAMS
from trtllm_check.lint.shell.languages import COMMANDS, PYTHONS, SHELLS
from trtllm_check.lint.shell.pasted import DOCKERFILE_LINE, FENCE, fences, has_fence
from trtllm_check.lint.shell.words import ShellCommand, Word

Kind = Literal[
    "shell",
    "config.pbtxt",
    "serving.properties",
    "environment",
    "request",
    "config.json",
    "dockerfile",
    "yaml",
    "makefile",
    "python",
    "notebook",
    "windows",
    "terraform",
    "requirements",
    "systemd",
    "program",
]
SUFFIXES: dict[str, Kind] = {
    ".pbtxt": "config.pbtxt",
    ".properties": "serving.properties",
    ".env": "environment",
    ".json": "request",
    ".sh": "shell",
    ".bash": "shell",
    ".md": "shell",
    ".yml": "yaml",
    ".yaml": "yaml",
    ".py": "python",
    ".ipynb": "notebook",
    ".dockerfile": "dockerfile",
    ".mk": "makefile",
    ".bat": "windows",
    ".cmd": "windows",
    ".ps1": "windows",
    ".tf": "terraform",
    ".hcl": "terraform",
    ".service": "systemd",
    **dict.fromkeys(
        (".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".go", ".rs", ".rb", ".java", ".kt", ".kts"), "program"
    ),
    **dict.fromkeys(
        (".scala", ".groovy", ".cs", ".php", ".lua", ".toml", ".conf", ".ini", ".cfg", ".nomad"), "program"
    ),
    ".container": "program",
}
NAMES: dict[str, Kind] = {
    "config.json": "config.json",
    "hf_quant_config.json": "config.json",
    ".env": "environment",
    "Dockerfile": "dockerfile",
    "Containerfile": "dockerfile",
    "Makefile": "makefile",
    "GNUmakefile": "makefile",
    "makefile": "makefile",
    "pyproject.toml": "requirements",
    **dict.fromkeys(("Jenkinsfile", "Procfile", "Vagrantfile", "Rakefile"), "program"),
}
FENCES: dict[str, Kind] = {
    "pbtxt": "config.pbtxt",
    "protobuf": "config.pbtxt",
    "prototxt": "config.pbtxt",
    "proto": "config.pbtxt",
    "textproto": "config.pbtxt",
    "properties": "serving.properties",
    "ini": "serving.properties",
    "json": "request",
    "env": "environment",
    "dotenv": "environment",
    "yaml": "yaml",
    "yml": "yaml",
    "dockerfile": "dockerfile",
    "docker": "dockerfile",
    "makefile": "makefile",
    "make": "makefile",
    "python": "python",
    "py": "python",
    "powershell": "windows",
    "ps1": "windows",
    "bat": "windows",
    "batch": "windows",
    "cmd": "windows",
    "hcl": "terraform",
    "terraform": "terraform",
    "tf": "terraform",
    "systemd": "systemd",
    "service": "systemd",
    **dict.fromkeys(
        ("javascript", "js", "typescript", "ts", "tsx", "go", "golang", "rust", "rs", "ruby", "rb"), "program"
    ),
    **dict.fromkeys(("java", "kotlin", "scala", "groovy", "csharp", "cs", "php", "lua", "jenkinsfile"), "program"),
}
SURE_FENCES = frozenset({"markdown", "md", "diff", "patch", "html", "xml", "rst", "tex", "latex", "mermaid", "toml"})
FOUND_IN_FENCES = frozenset(
    {
        "config.pbtxt",
        "serving.properties",
        "environment",
        "request",
        "dockerfile",
        "yaml",
        "python",
        "terraform",
        "systemd",
        "program",
    }
)
CONFIG_FIELD = re.compile(
    r"^\s*(?:(?:name|platform|backend|max_batch_size)\s*:"
    r"|(?:input|output|parameters|instance_group|ensemble_scheduling|dynamic_batching|model_transaction_policy)\s*:?\s*[\[{])",
    re.MULTILINE,
)
TENSOR = re.compile(r"^[ \t]*data_type[ \t]*:[ \t]*TYPE_[A-Z]", re.MULTILINE)
STRING_PARAMETER = re.compile(r"\bkey\s*:\s*\"\w+\"[\s,]*value\s*:?\s*\{\s*string_value\s*:")
CONFIG_LINE = re.compile(r"\s*(?:[\w.]+\s*(?::|[\[{<])|[\[\]{}<>\"'$.-]|\d+,?\s*(?:#|$)|#)")
SHOWS = re.compile(r"[^\n{\"]{0,80}\b(?:cat|less|more|vim?|nano|head)[ ]+[\w./-]+\s*$")
SETTING = re.compile(r"^\s*[\w.-]+\s*(?:=|:(?!\s)).*$", re.ASCII)  # `key: value` is YAML
# Keys of CI, SkyPilot, dstack, cog, KubeAI and of pieces of manifests; two of them make a text one that may be YAML.
YAML_KEY = re.compile(
    r"^[ ]*(?:- )?(?P<key>script|before_script|run|setup|commands|command|args|entrypoint|resources|accelerators|envs?"
    r"|image|build|stage|tags|variables|python_packages|modelSpec|vllmConfig|resourceProfile|engine_kwargs|limits|ports"
    r"|containers|file_mounts|service|name|type|port|gpu):(?:[ ]|$)",
    re.MULTILINE,
)
STARTING_KEYS = frozenset(
    {"python_packages", "script", "before_script", "run", "setup", "commands", "command", "args", "entrypoint"}
)
FEWEST_YAML_KEYS = 2
YAML_FIRST = re.compile(r"[ ]*(?:- )?[\w./-]+:(?:[ ]+\S|[ ]*$)|---$")
YAML_LINE = re.compile(r"\s*(?:- )*(?:[\w./\"'-]+:(?:\s|$)|- )|---$|\s*- ?\S+$")
OPTION_LINE = re.compile(r"^[a-z]+(?:_[a-z0-9]+)+:(?:[ \t\r]|$)", re.MULTILINE)
YAML_BLOCK = re.compile(r"^[ ]*(?:- )?[\w.-]+:[ ]*\r?\n[ ]+(?:- )?[\w.-]+:|^---$", re.MULTILINE)
MAKEFILE_RULE = re.compile(r"^[\w./-]+:(?:[ \t]+[\w./-]+)*[ \t]*\n\t\S", re.MULTILINE)
MAKEFILE_HEAD = re.compile(r"^\.PHONY:|^[A-Z_]+ *[:?]= ", re.MULTILINE)
PYTHON_HEAD = re.compile(
    r"^(?:(?:>>> )?[ \t]*import [\w.]+|(?:>>> )?[ \t]*from [\w.]+ import |(?:async )?def \w+\(|class \w+|[ \t]*\w+ = \["
    r"|[ \t]*[\w.]+(?:\[[^\]\n]+\])? = [rf]?(?:\"\"\"|''')|[ \t]*(?:(?:el)?if [^\n]+|else|try|except\b[^\n]*):[ \t]*$"
    r"|[ \t]*(?:subprocess|os|console|logger|logging)\.\w+\(|[ \t]*print\(f?[\"']|[ \t]*\w+ = [^\n]*[\[({][ \t]*$)",
    re.MULTILINE,
)
LMI_KEY = re.compile(
    r"^\s*(?:options?[._]\w|engine\s*[=:]|\w*rolling_batch|tensor_parallel_degree)", re.MULTILINE | re.IGNORECASE
)
SECTION = re.compile(r"^\[[\w .:@/\"-]+\][ \t\r]*$", re.MULTILINE)
LMI_SETTING = re.compile(r"^\s*(?:option\.\w+|engine)\s*[=:]", re.MULTILINE)
IMPORTS = re.compile(r"^(?:import [\w.]+[ \t]*$|from [\w.]+ import [\w, ]+[ \t]*$)", re.MULTILINE)
SENTENCE = re.compile(r"^[A-Z][^\n]* [^\n]* [^\n]*[.:][ \t]*$", re.MULTILINE)
OPTION = re.compile(r"[ \t]*(?:- )?[a-z][a-z0-9]*(?:_[a-z0-9]+)*:(?:[ \t]+\S.*)?[ \t]*")
ENVIRONMENT_LINE = re.compile(r"^(?:export\s+|-e\s+)?[A-Z][A-Z0-9_]*=.*$")
COMMAND = re.compile(rf"^\s*(?:\$ )?(?:[A-Za-z_]\w*=\S* +)*{COMMANDS}", re.MULTILINE)
WRITES = re.compile(r"^[ \t]*(?:cat|tee|sudo tee)[ \t][^\n]*<<-?[ \t]*['\"]?\w", re.MULTILINE)
LMI_LINE = re.compile(r"[ \t]*(?:option\.\w+|engine)[ \t]*=[ \t]*\S", re.ASCII)
PROPERTY = re.compile(r"[ \t]*[A-Za-z][\w.-]*[ \t]*=.*", re.ASCII)
VARIABLE = re.compile(
    r"[ \t]*(?P<name>[a-z][a-z0-9]*(?:_[a-z0-9]+)+):(?P<value>[^\s:/][^\s]*(?:[ \t]+\*+)?|/\S*)[ \t]*", re.ASCII
)
MANIFEST = re.compile(
    r'"(?:apiVersion|AWSTemplateFormatVersion|Resources|ProductionVariants|PrimaryContainer|containerDefinitions)"\s*:'
)
REQUIREMENTS = re.compile(
    r"requirements|constraints|(?:^|[/_.-])(?:reqs?|deps|dependencies)(?:$|[/_.-])", re.IGNORECASE
)
PROJECT = re.compile(r"^pyproject[_.-]|[_.-]pyproject\.toml$", re.IGNORECASE)
POST = re.compile(r"\b(?:requests|httpx|session|client)\.post\(")
ASSIGNED = re.compile(r"^[ \t]*(?P<name>[A-Za-z_]\w*)[ \t]*=[ \t]*(?=[\"'{])", re.MULTILINE)
BLANKS = str.maketrans({"\u00a0": " ", "\u202f": " "})
LONGEST = 20_000
FEWEST_KEYS = 2  # of LMI's in a block
Found = tuple[Any, tuple[int, int]]
"""A value, and the start and end of its literal."""
# What shells do themselves, and programs that say nothing of a model.
HARMLESS = frozenset(
    {
        *("cd", "pushd", "popd", "source", ".", "set", "unset", "exit", "return", "wait", "sleep", "trap", "read"),
        *("export", "declare", "local", "readonly", "typeset", "for", "while", "if", "case", "function", "[[", "true"),
        *("mkdir", "touch", "pwd", "kill", "conda", "nvidia-smi", "unzip", "aws", "ulimit", "alias", "shift", "eval"),
    }
)
REQUEST_FIELDS = frozenset({"text_input", "inputs", "prompt", "messages", "input_ids", "parameters", "instances"})


def kind_of_name(name: str) -> Kind | None:
    """The kind that a file's name tells."""
    path = PurePosixPath(name)
    stem = path.name.partition(".")[0]
    if path.name in NAMES or stem in ("Dockerfile", "Containerfile"):
        return NAMES.get(path.name, "dockerfile")
    if path.suffix in (".txt", ".in") and REQUIREMENTS.search(f"{path.parent.name}/{stem}"):
        return "requirements"
    if path.suffix == ".toml" and PROJECT.search(path.name):
        return "requirements"
    return SUFFIXES.get(path.suffix.lower())


def is_called_a_shell(language: str, inside: str) -> bool:
    """True for a configuration or Python that a page calls bash."""
    if language not in SHELLS or language in ("", "text"):
        return False
    found = kind_of_text(inside)
    return found == "config.pbtxt" or (found == "python" and parsed(inside) is not None)


def kind_of_fence(language: str, inside: str) -> Kind:
    """The kind of a block of Markdown: as it is called, or as it is where the name means nothing or another thing."""
    named = FENCES.get(language)
    if language in ("", "text"):
        return kind_of_text(inside)
    if is_called_a_shell(language, inside):
        return kind_of_text(inside)
    if language in SHELLS or language in SURE_FENCES or (named is not None and _fits(named, inside)):
        return named or "shell"
    found = kind_of_text(inside)
    if found == "request" and not _is_json(inside):
        found = "shell"
    if named is not None and named != "program":
        return found if found in ("config.pbtxt", "yaml", "dockerfile") else named
    return found if found in FOUND_IN_FENCES else named or "shell"


def without_python(text: str) -> str:
    """A page for the reader of a shell: blank where Python with lines of a shell in it has a reader of its own."""
    for block in fences(text):
        inside = text[block.start : block.end]
        if (block.language in PYTHONS or block.language in ("", "text")) and _is_mended(block.language, inside):
            text = text[: block.start] + re.sub(r"[^\n]", " ", inside) + text[block.end :]
    return text


def _is_mended(language: str, inside: str) -> bool:
    if language not in PYTHONS:
        return "import " in inside and kind_of_text(inside) == "python" and parsed(inside) is None
    return parsed(inside) is None and is_mendable(inside)


def _fits(kind: Kind, inside: str) -> bool:
    """False where a block cannot be what it is called."""
    if kind == "yaml":
        return is_yaml(inside) and kind_of_text(inside) != "config.pbtxt"
    if kind == "request":
        return inside.lstrip().startswith(("{", "[", '"', "//", "/*", "#"))
    if kind == "python":
        return parsed(inside) is not None
    if kind == "dockerfile":
        return DOCKERFILE_LINE.search(inside) is not None
    if kind == "program":
        return parsed(inside) is None and not CONFIG_FIELD.search(inside)
    return kind != "serving.properties" or not CONFIG_FIELD.search(inside)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


@lru_cache(maxsize=64)
def kind_of_text(text: str) -> Kind:
    """The kind that a text looks like; shell if nothing else."""
    lines = [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith(("#", "!"))]
    if is_notebook(text):
        return "notebook"
    is_tensor = TENSOR.search(text) is not None
    if (
        text.lstrip().startswith("{")
        and not text.lstrip().startswith(("{{", "{%", "{#"))
        and '"' in text
        and not is_tensor
    ):
        return "environment" if _all_upper(text) else "yaml" if MANIFEST.search(text) else "request"
    if kind := _program_text(text):
        return kind
    if _is_options(text):
        return "yaml"
    if COMMAND.search(text) or WRITES.search(text):
        return "windows" if is_windows(text) and not has_fence(text) else "shell"
    fields = len(CONFIG_FIELD.findall(text))
    enough = fields > (0 if STRING_PARAMETER.search(text) else 1) or (fields == 1 and _is_piece(text))
    if enough and not YAML_BLOCK.search(text) and not has_fence(text) and _is_mostly_fields(lines):
        return "config.pbtxt"
    settings = sum(SETTING.match(line) is not None for line in lines)
    if LMI_SETTING.search(text) and 2 * settings > len(lines) and all(line.isascii() for line in lines):
        return "serving.properties"
    if lines and all(ENVIRONMENT_LINE.match(line) for line in lines):
        return "environment"
    return "shell"


def _is_mostly_fields(lines: Sequence[str]) -> bool:
    """True for a configuration by itself, not for a page with one."""
    return not SHOWS.match(lines[0]) and sum(CONFIG_LINE.match(line) is not None for line in lines) > 0.75 * len(lines)


def _is_piece(text: str) -> bool:
    """True for one field of a configuration, as a page shows it."""
    from trtllm_check.lint.pbtxt_schema import is_piece  # protobuf, which few texts need

    return is_piece(text)


def _program_text(text: str) -> Kind | None:
    """The kind of a whole file of another language that was pasted; None for a page, a script or a configuration."""
    if has_fence(text):
        return None
    if DOCKERFILE.search(text) and len(DOCKERFILE_LINE.findall(text)) > 1 and re.search(r"^FROM\s", text, re.MULTILINE):
        return "dockerfile"
    if YAML_HEAD.search(text) and (is_yaml(text) or _is_broken_yaml(text)):
        return "yaml"
    if is_conda(text) and is_yaml(text):
        return "yaml"
    if _begins_as_yaml(text) and is_yaml(text):
        return "yaml"
    if is_terraform(text):
        return "terraform"
    if is_unit(text):
        return "systemd"
    if is_requirements(text):
        return "requirements"
    if MAKEFILE_RULE.search(text) and MAKEFILE_HEAD.search(text):
        return "makefile"
    if is_program(text):
        return "program"
    if PYTHON_HEAD.search(text) and (parsed(text) is not None or is_nearly_python(text)):
        return "python"
    return "windows" if text.lstrip().startswith(("PS ", "C:\\", "D:\\")) and is_windows(text) else None


def _begins_as_yaml(text: str) -> bool:
    """True for a text whose first line is a key of YAML and that has several of the keys that such files have."""
    first = next((line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")), "")
    if not YAML_FIRST.match(first):
        return False
    keys = {match["key"] for match in YAML_KEY.finditer(text)}
    return len(keys) >= FEWEST_YAML_KEYS and not keys.isdisjoint(STARTING_KEYS)


def _is_options(text: str) -> bool:
    """True for a file of options of TensorRT-LLM's LLM API; what tells one is read when it may be needed."""
    if not OPTION_LINE.search(text):
        return False
    from trtllm_check.flows.options import looks_like_options, may_be_options

    return may_be_options(text) and looks_like_options(text)


def _is_broken_yaml(text: str) -> bool:
    """True for what begins as a file of YAML does, and is one but for a slip."""
    lines = [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    return YAML_HEAD.match(lines[0]) is not None and sum(map(bool, map(YAML_LINE.match, lines))) > 0.8 * len(lines)


def _all_upper(text: str) -> bool:
    """A JSON object of environment variables, as SageMaker's model has."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return bool(content) and isinstance(content, dict) and all(key.isupper() for key in content)


class Lines(NamedTuple):
    """Lines ``first`` to ``last`` of a text, counted from 1, that belong together."""

    first: int
    last: int
    text: str


class Post(NamedTuple):
    """One ``requests.post``: URL and JSON body where the text says them, and where each of them begins and ends."""

    url: str
    url_span: tuple[int, int]
    fields: Mapping[str, Any]
    body_span: tuple[int, int]


def is_properties(text: str) -> bool:
    """True for what may be a serving.properties: no file of sections, and a key of LMI's, right or nearly, in it."""
    return LMI_SETTING.search(text) is not None or (LMI_KEY.search(text) is not None and not SECTION.search(text))


def properties_blocks(text: str) -> list[Lines]:
    """Runs of ``key=value`` lines, comments among them, with two of LMI's keys or more."""
    if _lmi_lines(text) < FEWEST_KEYS:
        return []
    return [run for run in _runs(text, _is_property) if _lmi_lines(run.text) >= FEWEST_KEYS]


def variable_lists(text: str) -> list[Lines]:
    """Runs of ``template_variable:value`` lines, as pages list what to fill in."""
    return [run for run in _runs(text, lambda line: ":" in line and VARIABLE.fullmatch(line)) if run.last > run.first]


def python_behind_words(text: str) -> Lines | None:
    """The Python that begins below a sentence, on a page without fences; None where there is none."""
    match = None if has_fence(text) or text.startswith("#!") else IMPORTS.search(text)
    if match is None or not SENTENCE.search(text, 0, match.start()):
        return None
    piece = text[match.start() :].rstrip()
    place = Word(piece, 1, 1, ((1, 1),) * len(piece))
    if parsed(piece) is None and not any(True for _ in comma_missing(place)) and not is_nearly_python(piece):
        return None
    first = text.count("\n", 0, match.start()) + 1
    return Lines(first, first + piece.count("\n"), piece)


def option_runs(text: str) -> list[Lines]:
    """Options of the LLM API between commands: runs of ``name: value``."""
    return [
        run
        for run in _runs(text, lambda line: OPTION.fullmatch(line))
        if run.last > run.first and _is_options(dedent(run.text))
    ]


def posts(text: str) -> Iterator[Post]:
    """The requests of Python code whose URL and body are literals, or names of literals."""
    if ".post(" not in text:
        return
    text = text.translate(BLANKS)
    values = {match["name"]: found for match in ASSIGNED.finditer(text) if (found := _literal(text, match.end()))}
    for match in POST.finditer(text):
        call = text[match.end() : _closing(text, match.end() - 1)]
        url = _argument(re.match(r"\s*(?:url\s*=\s*)?", call), call, match.end(), text, values)
        body = _argument(re.search(r"\b(?:json|data)\s*=\s*", call), call, match.end(), text, values)
        if url and body and isinstance(url[0], str) and isinstance(body[0], dict):
            yield Post(url[0], url[1], body[0], body[1])


def _argument(
    match: re.Match[str] | None, call: str, begin: int, text: str, values: Mapping[str, Found]
) -> Found | None:
    """The value of one argument of a call, given there or by its name."""
    if match is None:
        return None
    name = re.match(r"[A-Za-z_]\w*", call[match.end() :])
    return values.get(name[0]) if name else _literal(text, begin + match.end())


def _literal(text: str, begin: int) -> Found | None:
    """The string or dictionary that begins at ``begin``."""
    if text[begin : begin + 1] == "{":
        end = _closing(text, begin) + 1
    else:
        quoted = re.match(r"\"[^\"\n]*\"|'[^'\n]*'", text[begin:])
        end = begin + (quoted.end() if quoted else 0)
    try:
        return ast.literal_eval(text[begin:end]), (begin, end)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _closing(text: str, begin: int) -> int:
    """Where the bracket at ``begin`` is closed; strings may hold others."""
    depth = 0
    for match in re.finditer(r"\"[^\"\n]*\"|'[^'\n]*'|[(\[{]|[)\]}]", text[begin : begin + LONGEST]):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return begin + match.start()
    return begin


def _is_property(line: str) -> bool:
    return (PROPERTY.fullmatch(line) is not None and not line.rstrip().endswith("\\")) or line.lstrip().startswith("#")


def _lmi_lines(text: str) -> int:
    return sum(LMI_LINE.match(line) is not None for line in text.split("\n"))


def _runs(text: str, belongs: Any) -> Iterator[Lines]:
    """Lines one after the other that ``belongs`` takes."""
    lines = text.split("\n")
    start = 0
    for number in range(len(lines) + 1):
        if number < len(lines) and belongs(lines[number].rstrip("\r")):
            continue
        if number > start:
            yield Lines(start + 1, number, "\n".join(lines[start:number]))
        start = number + 1


class Unread(NamedTuple):
    """Lines ``first`` to ``last`` of ``file`` (empty for a single text) that say nothing to the checker."""

    first: int
    last: int
    file: str = ""

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def unread(
    text: str, commands: Sequence[ShellCommand], invocations: Iterable[Invocation], read: Collection[int], file: str
) -> list[Unread]:
    """The lines of shell ``text`` that are neither blank, comments, part of a known command nor in ``read``."""
    known = {one.command.line for one in invocations if one.command.file == file and not is_strange(one)}
    covered = set(read)
    for command in commands:
        if command.line in known or is_harmless(command):
            covered |= set(range(command.line, command.end_line + 1)) | heredoc_lines([command])
    says = [_says_something(line) for line in text.split("\n")]
    left = [n for n, something in enumerate(says, 1) if n not in covered and something]
    blank = {n for n, something in enumerate(says, 1) if not something} - covered
    return [Unread(first, last, file) for first, last in _ranges(left, blank)]


def is_strange(invocation: Invocation) -> bool:
    """True for Python that runs somebody's own script."""
    return invocation.tool == "python" and not invocation.has("-c", "-m")


def is_harmless(command: ShellCommand) -> bool:
    """True for settings of variables, and for what does nothing to a model."""
    name = command.words[0].text.rpartition("/")[2] if command.words else ""
    return (
        not command.words
        or command.words[0].text.startswith("cd..")
        or name in HARMLESS | MENTIONS
        or name in SHELL_PROGRAMS | WRAPPERS.keys() | HOLDERS
    )


def heredoc_lines(commands: Iterable[ShellCommand]) -> set[int]:
    """The lines of the texts that go into ``commands``."""
    bodies = [one.target for command in commands for one in command.redirects if one.operator == "<<"]
    return {line for body in bodies for line, _ in body.places} | {body.line for body in bodies}


def is_request(fields: Mapping[str, Any] | None) -> bool:
    """True for a body that some server of a model takes."""
    return fields is not None and bool(REQUEST_FIELDS & fields.keys())


def _says_something(line: str) -> bool:
    stripped = line.strip()
    return bool(stripped) and not stripped.startswith("#") and not FENCE.match(line)


def _ranges(numbers: Sequence[int], between: Collection[int]) -> list[tuple[int, int]]:
    """First and last of each run of ``numbers``; those of ``between`` do not end a run."""
    found: list[tuple[int, int]] = []
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        if found and all(number in between for number in range(found[-1][1] + 1, run[0])):
            found[-1] = (found[-1][0], run[-1])
        else:
            found.append((run[0], run[-1]))
    return found
