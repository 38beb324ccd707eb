"""Sees what kind of text something is: by its file name, else by its looks."""

import json
import re
from pathlib import PurePosixPath
from typing import Literal

from trtllm_check.lint.shell.pasted import COMMANDS

Kind = Literal["shell", "config.pbtxt", "serving.properties", "environment", "request", "config.json"]
SUFFIXES: dict[str, Kind] = {
    ".pbtxt": "config.pbtxt",
    ".properties": "serving.properties",
    ".env": "environment",
    ".json": "request",
    ".sh": "shell",
    ".bash": "shell",
    ".md": "shell",
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
}
CONFIG_FIELD = re.compile(
    r"^\s*(?:(?:name|platform|backend|max_batch_size)\s*:"
    r"|(?:input|output|parameters|instance_group|ensemble_scheduling|dynamic_batching|model_transaction_policy)\s*:?\s*[\[{])",
    re.MULTILINE,
)
SETTING = re.compile(r"^\s*[\w.-]+\s*(?:=|:(?!\s)).*$", re.ASCII)  # `key: value` is YAML
LMI_SETTING = re.compile(r"^\s*(?:option\.\w+|engine)\s*[=:]", re.MULTILINE)
ENVIRONMENT_LINE = re.compile(r"^(?:export\s+|-e\s+)?[A-Z][A-Z0-9_]*=.*$")
COMMAND = re.compile(rf"^\s*(?:\$ )?(?:[A-Za-z_]\w*=\S* +)*{COMMANDS}", re.MULTILINE)


def kind_of_name(name: str) -> Kind | None:
    """The kind that a file's name tells."""
    path = PurePosixPath(name)
    if path.name == "config.json":
        return "config.json"
    return "environment" if path.name == ".env" else SUFFIXES.get(path.suffix.lower())


def kind_of_text(text: str) -> Kind:
    """The kind that a text looks like; shell if nothing else."""
    lines = [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith(("#", "!"))]
    if text.lstrip().startswith("{") and '"' in text:
        return "environment" if _all_upper(text) else "request"
    if COMMAND.search(text):
        return "shell"
    if len(CONFIG_FIELD.findall(text)) > 1:
        return "config.pbtxt"
    settings = sum(SETTING.match(line) is not None for line in lines)
    if LMI_SETTING.search(text) and 2 * settings > len(lines) and all(line.isascii() for line in lines):
        return "serving.properties"
    if lines and all(ENVIRONMENT_LINE.match(line) for line in lines):
        return "environment"
    return "shell"


def _all_upper(text: str) -> bool:
    """A JSON object of environment variables, as SageMaker's model has."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return bool(content) and isinstance(content, dict) and all(key.isupper() for key in content)
