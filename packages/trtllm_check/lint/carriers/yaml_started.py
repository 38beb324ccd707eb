"""What one mapping of YAML or JSON starts besides a container, and the file that it writes."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from trtllm_check.lint.carriers.python_words import split
from trtllm_check.lint.carriers.script import Script
from trtllm_check.lint.carriers.yaml_entries import listed
from trtllm_check.lint.programs import ALIASES, PROGRAMS, PYTHON, TOOLS
from trtllm_check.lint.shell import Word

PROGRAM = re.compile(r"[\w./-]+(?:[ ](?:-[mu]|serve|[\w.]+))*")
CONTENTS = ("content", "contents", "inline")
PATHS = ("dest", "path", "destination", "filename", "name", "target")
FILE = re.compile(r"config\.pbtxt|serving\.properties|[\w.-]+\.(?:ya?ml|env|sh|py)|Dockerfile")

Read = Callable[[Any], Word]


def launched(
    entries: Mapping[str, Any], scalar: Read, argument: Read, place: Callable[[Any], tuple[int, int]]
) -> Word | None:
    """The command of debuggers and pm2: ``module`` or ``script`` with ``args``."""
    started = next((entries[name] for name in ("module", "script") if name in entries), None)
    given = entries.get("args")
    if started is None or given is None or started.id != "scalar" or "command" in entries:
        return None
    at = place(started)
    front = [Word(text, *at, (at,) * len(text)) for text in ("python3", "-m")] if "module" in entries else []
    words = [*front, scalar(started)]
    for one in listed(given):
        words += split(scalar(one)) if given.id == "scalar" else [argument(one)]
    if not PROGRAM.fullmatch(str(started.value)) or not starts_command(words):
        return None
    script = Script()
    script.words(words)
    return script.word()


def written_files(entries: Mapping[str, Any], scalar: Read) -> Iterator[tuple[str, Word]]:
    """``dest: /models/x/config.pbtxt`` beside ``content: |``, as Ansible and cloud-init write files."""
    content = next((entries[name] for name in CONTENTS if name in entries), None)
    if content is None or content.id != "scalar" or "\n" not in str(content.value):
        return
    paths = (str(entries[name].value) for name in PATHS if name in entries and entries[name].id == "scalar")
    for path in paths:
        name = PurePosixPath(path).name
        if FILE.fullmatch(name):
            yield f"{PurePosixPath(path).parent.name}/{name}", scalar(content)
            return


def starts_command(words: Sequence[Word]) -> bool:
    """True for a list that begins with a program, not with the arguments of an image's own entry point."""
    return not words[0].text.startswith("-") or any(_is_program(word.text) for word in words)


def _is_program(text: str) -> bool:
    name = PurePosixPath(text).name
    name = ALIASES.get(name, name)
    return name in TOOLS or name in PROGRAMS or PYTHON.fullmatch(name) is not None
