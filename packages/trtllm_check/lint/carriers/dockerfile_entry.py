"""What the last stage of a Dockerfile starts: CMD behind its base's entry point, and the port that a check asks.

Source: Docker's Dockerfile reference, "Understand how CMD and ENTRYPOINT interact", HEALTHCHECK.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from trtllm_check.lint.carriers.dockerfile_faults import DockerStep
from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.programs import SERVER_ENTRIES, VLLM_IMAGE
from trtllm_check.lint.shell.words import Word

STARTERS = frozenset(
    {
        "standard-supervisor",
        "tini",
        "dumb-init",
        "supervisord",
        "python",
        "python3",
        "bash",
        "sh",
        "vllm",
        "uvicorn",
        "gunicorn",
        "ray",
        "sleep",
        "env",
        "conda",
    }
)
OF_VLLM = re.compile(r"vllm(?:\.\w+)+")
STARTS_VLLM = re.compile(r"\bvllm serve\b|vllm\.entrypoints\.openai\.api_server")
ITEM_OF_TWO = re.compile(r"(?P<flag>--[a-z][a-z-]+)[ ]+(?P<value>[^{}\[]+)")
ASKED = re.compile(r"https?://(?:localhost|127\.0\.0\.1|0\.0\.0\.0):(?P<port>\d{2,5})(?=[/\s\"']|$)")
PORT = re.compile(r"--port[= ]+[\"']?(?P<port>[^\s\"']+)")
VLLM_PORT = "8000"


def goes_behind(image: str, command: Sequence[Word]) -> bool:
    """True for a CMD of options, which the entry point of vLLM's own image gets."""
    return VLLM_IMAGE.search(image) is not None and bool(command) and command[0].text.startswith("-")


class _Last:
    """The last stage: its base, and the last of the instructions that start something."""

    def __init__(self, steps: Sequence[DockerStep]) -> None:
        self.image = ""
        self.started: dict[str, DockerStep] = {}
        for step in steps:
            if step.name == "FROM":
                self.image, _ = step.stage()
                self.started = {}
            elif step.name in ("CMD", "ENTRYPOINT", "HEALTHCHECK"):
                self.started[step.name] = step


def entry_faults(steps: Sequence[DockerStep]) -> Iterator[FormFault]:
    """The faults of one Dockerfile."""
    last = _Last(steps)
    command = last.started.get("CMD")
    program = next((program for image, program in SERVER_ENTRIES if image.search(last.image)), "")
    if program and command is not None and "ENTRYPOINT" not in last.started:
        yield from _behind(command, last.image, program)
    yield from _health(last)


def _behind(command: DockerStep, image: str, program: str) -> Iterator[FormFault]:
    words = command.form if command.form is not None else _first(command.argument)
    if not words:
        return
    first = words[0].text
    if first.startswith("-"):
        for word in command.form or () if VLLM_IMAGE.search(image) else ():
            if match := ITEM_OF_TWO.fullmatch(word.text):
                known = (("flag", match["flag"]), ("value", match["value"]), ("tool", "vllm"))
                yield FormFault("option-in-one-word", word, "", known)
        return
    if PurePosixPath(first).name in STARTERS or OF_VLLM.fullmatch(first) or first.endswith((".sh", ".py")):
        yield FormFault(
            "image-entry-kept", command.argument, "", (("first", first), ("image", image), ("program", program))
        )


def _first(argument: Word) -> tuple[Word, ...]:
    parts = argument.text.split()
    return (Word(parts[0], argument.line, argument.column),) if parts else ()


def _health(last: _Last) -> Iterator[FormFault]:
    """A check that asks its own container at a port where vLLM does not listen."""
    check, command, entry = (last.started.get(name) for name in ("HEALTHCHECK", "CMD", "ENTRYPOINT"))
    asked = ASKED.search(check.argument.text) if check is not None else None
    if asked is None or check is None:
        return
    started = " ".join(
        " ".join(word.text for word in step.form) if step.form is not None else step.argument.text
        for step in (entry, command)
        if step is not None
    )
    behind = VLLM_IMAGE.search(last.image) is not None and entry is None and command is not None
    first = started.split(" ")[0]
    if not (behind and first.startswith("-")) and len(STARTS_VLLM.findall(started)) != 1:
        return
    if command is None and STARTS_VLLM.search(f"{started} ") and not re.search(r"(?:serve|api_server)\s+\S", started):
        return  # whose arguments docker run gives
    given = PORT.findall(started)
    if "--config" in started or "&" in started or ".sh" in started or len(given) > 1:
        return
    port = given[0] if given else VLLM_PORT
    if port.isdecimal() and port != asked["port"]:
        place = check.argument.part(asked.start(), asked.end())
        yield FormFault("dockerfile-refused", place, "health port", (("asked", asked["port"]), ("port", port)))
