"""What kind of text a file, a block of a page or a paste is: by its name, its fence, or as it looks."""

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from types import ModuleType
from typing import Literal, get_args

from trtllm_check.lint.carriers.dockerfile import DOCKERFILE
from trtllm_check.lint.carriers.literals import is_program
from trtllm_check.lint.carriers.notebooks import is_notebook
from trtllm_check.lint.carriers.python_code import parsed
from trtllm_check.lint.carriers.python_mending import is_mendable, is_nearly_python
from trtllm_check.lint.carriers.python_signs import lacks_signs
from trtllm_check.lint.carriers.requirements import is_conda, is_requirements
from trtllm_check.lint.carriers.systemd import is_unit
from trtllm_check.lint.carriers.terraform import is_terraform
from trtllm_check.lint.carriers.windows import ECHO_OFF, is_windows
from trtllm_check.lint.carriers.yaml_cut import with_keys_above
from trtllm_check.lint.carriers.yaml_documents import YAML_HEAD, is_yaml
from trtllm_check.lint.property_texts import LMI_SETTING
from trtllm_check.lint.shell.languages import COMMANDS, PYTHONS, SHELLS
from trtllm_check.lint.shell.pasted import DOCKERFILE_LINE, fences, has_fence
from trtllm_check.lint.vllm_files import is_lone_config

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
    r"|[ \t]*(?:subprocess|os|console|logger|logging)\.\w+\(|[ \t]*print\(f?[\"']|[ \t]*\w+ = [^\n]*[\[({][ \t]*$"
    r"|(?:async )?with [^\n]+:[ \t]*$|(?:pathlib\.)?(?:Path|open)\([^\n]*\)\.write(?:_text)?\("
    r"|[ \t]*(?:await )?\w+\.run\([\"'])",
    re.MULTILINE,
)
FILE_CELL = re.compile(r"(?<=\n)[ \t]*%%(?:writefile|file)[ \t][^\n]*\n(?:[^\n]*\S[^\n]*(?:\n|\Z))*")
ENVIRONMENT_LINE = re.compile(r"^(?:export\s+|-e\s+)?[A-Z][A-Z0-9_]*=.*$")
STARTS_A_PROGRAM = re.compile(
    r"^[A-Z][A-Z0-9_]*=(?:\S*[ \t]+(?:uvx?|conda|poetry|pipenv|pixi|nohup|exec|env)[ \t]"
    r"|(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s;&\"']*)[ \t]*(?:;|&&)[ \t]*[\w./$]+[ \t])",
    re.MULTILINE,
)
LONG_TEXT = re.compile(r"\b[rf]?(?:\"\"\"|''')[^\n]*\n")
COMMAND = re.compile(rf"^\s*(?:\$ )?(?:[A-Za-z_]\w*=\S* +)*{COMMANDS}", re.MULTILINE)
WRITES = re.compile(r"^[ \t]*(?:cat|tee|sudo tee)[ \t][^\n]*<<-?[ \t]*['\"]?\w", re.MULTILINE)
MANIFEST = re.compile(
    r'"(?:apiVersion|AWSTemplateFormatVersion|Resources|ProductionVariants|PrimaryContainer|containerDefinitions)"\s*:'
)
# What is no file of these kinds: a fence at the margin below a sentence of people.
NEVER_PAGES = frozenset(get_args(Kind)) - {"shell", "notebook"}
PAGE_FENCE = re.compile(r"^(?:`{3,}|~{3,})[ \t]*[\w+-]*[ \t\r]*$", re.MULTILINE)
FIRST_FENCE = re.compile(r"\A\s*(?:`{3,}|~{3,})[ \t]*[\w+-]*[ \t\r]*\n")
PROSE = re.compile(r"(?:#{1,6}[ ]|[-*>][ ]|\*\*)?[\"'(\[]?[^\W\d_][\w'’,.-]*(?:[ ]+\S+){2,}")
REQUIREMENTS = re.compile(
    r"requirements|constraints|(?:^|[/_.-])(?:reqs?|deps|dependencies)(?:$|[/_.-])", re.IGNORECASE
)
PROJECT = re.compile(r"^pyproject[_.-]|[_.-]pyproject\.toml$", re.IGNORECASE)


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


def kind_of_file(name: str, text: str) -> Kind | None:
    """The kind that a file's name tells; None where its text is a page, whatever it is called."""
    kind = kind_of_name(name)
    if kind == "shell" and name.endswith(".md") and not has_fence(text) and _is_no_page(text):
        return None
    return None if kind is not None and kind in NEVER_PAGES and is_page(text, kind) else kind


def _is_no_page(text: str) -> bool:
    """True for a program or a manifest that somebody keeps under the name of a page."""
    kind = kind_of_text(text)
    return kind == "yaml" or (kind == "python" and parsed(text) is not None)


def is_page(text: str, kind: Kind) -> bool:
    """True for a fence at the top, or prose with one at the margin below, which no file of ``kind`` has."""
    fence = FIRST_FENCE.match(text) or PAGE_FENCE.search(text)
    if fence is None or (fence.start() and not any(map(PROSE.match, text[: fence.start()].split("\n")))):
        return False
    return kind != "python" or parsed(text) is None


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
    """A page for the reader of a shell: blank where Python with lines of a shell in it, or a unit, has its own."""
    for block in fences(text):
        inside = text[block.start : block.end]
        if is_unit(inside) or (block.language in (*PYTHONS, "", "text") and _is_mended(block.language, inside)):
            text = text[: block.start] + re.sub(r"[^\n]", " ", inside) + text[block.end :]
    return text


def _is_mended(language: str, inside: str) -> bool:
    if language not in PYTHONS:
        return "import " in inside and kind_of_text(inside) == "python" and parsed(inside) is None
    return parsed(inside) is None and is_mendable(inside)


def _fits(kind: Kind, inside: str) -> bool:
    """False where a block cannot be what it is called."""
    if kind == "yaml":
        return (is_yaml(inside) or is_yaml(with_keys_above(inside))) and kind_of_text(inside) != "config.pbtxt"
    if kind == "request":
        return inside.lstrip().startswith(("{", "[", '"', "//", "/*", "#"))
    if kind == "python":
        return parsed(inside) is not None or (LONG_TEXT.search(inside) is not None and is_mendable(inside))
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
    if "\n%%" in text and not is_notebook(text):
        text = FILE_CELL.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)  # a file among other cells
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
    if is_options(text) or is_lone_config(text):
        return "yaml"
    if COMMAND.search(text) or WRITES.search(text):
        return "windows" if is_windows(text) and not has_fence(text) else "shell"
    fields = len(CONFIG_FIELD.findall(text))
    enough = fields > (0 if STRING_PARAMETER.search(text) else 1) or (fields == 1 and _fields().is_piece(text))
    if enough and not YAML_BLOCK.search(text) and not has_fence(text) and _is_mostly_fields(lines):
        return "config.pbtxt"
    settings = sum(SETTING.match(line) is not None for line in lines)
    is_plain = not has_fence(text) and all(line.isascii() for line in lines)
    if LMI_SETTING.search(text) and 2 * settings > len(lines) and is_plain:
        return "serving.properties"
    is_of_variables = bool(lines) and all(ENVIRONMENT_LINE.match(line) for line in lines)
    if is_of_variables and not STARTS_A_PROGRAM.search(text) and not text.startswith("#!"):
        return "environment"
    return "windows" if ECHO_OFF.match(text) else "shell"


def _is_mostly_fields(lines: Sequence[str]) -> bool:
    """True for a configuration by itself, not for a page with one, nor for settings of another program."""
    if SHOWS.match(lines[0]) or sum(CONFIG_LINE.match(line) is not None for line in lines) <= 0.75 * len(lines):
        return False
    return not _fields().are_of_others(lines)


def _fields() -> ModuleType:
    from trtllm_check.lint import pbtxt_schema  # protobuf, which few texts need

    return pbtxt_schema


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
    if text[:1] in " \n" and (whole := with_keys_above(text)) != text and is_yaml(whole):
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
    if PYTHON_HEAD.search(text) and (parsed(text) is not None or is_nearly_python(text) or lacks_signs(text)):
        return "python"
    return "windows" if text.lstrip().startswith(("PS ", "C:\\", "D:\\")) and is_windows(text) else None


def _begins_as_yaml(text: str) -> bool:
    """True for a text whose first line is a key of YAML and that has several of the keys that such files have."""
    first = next((line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")), "")
    if not YAML_FIRST.match(first):
        return False
    keys = {match["key"] for match in YAML_KEY.finditer(text)}
    return len(keys) >= FEWEST_YAML_KEYS and not keys.isdisjoint(STARTING_KEYS)


def is_options(text: str) -> bool:
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
