"""Dockerfiles: RUN, CMD and ENTRYPOINT in both forms, ENV, ARG, WORKDIR and FROM.

Source: Docker's Dockerfile reference, "Shell and exec form", "Understand how CMD and ENTRYPOINT interact".
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from trtllm_check.lint.carriers.dockerfile_entry import entry_faults, goes_behind
from trtllm_check.lint.carriers.dockerfile_faults import DockerStep, faults
from trtllm_check.lint.carriers.dockerfile_runs import (
    NAMES,
    lost_faults,
    program_faults,
    run_faults,
    unknown_instruction,
)
from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.script import Carried, Script
from trtllm_check.lint.shell import Word

DOCKERFILE = re.compile(r"\A(?:[^\S\n]*+(?:#.*+)?\n)*+\s*+(?:ARG|FROM)[ \t]+\S")
INSTRUCTION = re.compile(r"[ \t]*(?P<name>[A-Za-z]+)[ \t]+(?=\S)")
OPTION = re.compile(r"(?:--[a-z]+=\S+[ \t\\\n]+)+")
PAIR = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>\"(?:[^\"\\]|\\.)*\"|'[^']*'|(?:[^\s\\]|\\.)*)", re.DOTALL)
SEPARATE = re.compile(r"(?P<name>[A-Za-z_]\w*)[ \t]+(?P<value>.+)", re.DOTALL)
BASE = re.compile(r"(?:--platform=\S+\s+)?(?P<image>\S+)")
VARIABLE = re.compile(r"\$\{?(\w+)(?::?-([^}]*))?\}?")
BLANKS_BEHIND = re.compile(r"\\([ \t]+)(?=\r?$)", re.MULTILINE)  # which docker's own reader takes away
MOST_STRANGE = 2
HEREDOC = re.compile(r"<<-?[\"']?(?P<name>\w+)[\"']?")


COPIES = ("COPY", "ADD")


class Instruction(NamedTuple):
    name: str
    argument: Word


def carried(word: Word) -> Carried:
    """The commands of a Dockerfile, one script for each stage."""
    word = replace(word, text=BLANKS_BEHIND.sub(lambda match: f"{match[1]}\\", word.text))
    found = Carried()
    stage = _Stage("")
    arguments: dict[str, str] = {}
    steps: list[DockerStep] = []
    for name, argument in _instructions(word):
        form = _form(argument) if name in ("RUN", "CMD", "ENTRYPOINT") else argument
        steps.append(DockerStep(name, argument, form if isinstance(form, tuple) else None))
        if name == "FROM":
            match = BASE.match(argument.text)
            image = _filled(match["image"], arguments) if match else ""
            found = found.with_(stage.carried())
            stage = _Stage(image)
            start = match.start("image") if match else 0
            place = argument.part(start, start + 1)
            images = (Word(image, place.line, place.column),) if image else ()
            found = found.with_(Carried(images=images))
        else:
            if name == "ARG" and (match := PAIR.match(argument.text)):
                arguments[match["name"]] = match["value"].strip("\"'")
            stage.read(name, argument)
            if name in COPIES and (file := _written(argument)):
                found = found.with_(Carried(texts=(file,)))
    return found.with_(stage.carried()).with_(
        Carried(
            faults=(
                *faults(steps, word.text),
                *run_faults(steps),
                *program_faults(steps),
                *lost_faults(steps),
                *entry_faults(steps),
                *_strange(word),
            )
        )
    )


def _written(argument: Word) -> tuple[str, Word] | None:
    """``COPY <<EOF /app/app.py``: the file, and the lines that are written there."""
    first, _, _ = argument.text.partition("\n")
    heredocs = list(HEREDOC.finditer(first))
    begin, end = len(first) + 1, argument.text.rfind(heredocs[0]["name"]) if heredocs else 0
    name = first.split()[-1] if heredocs else ""
    return (name, argument.part(begin, end)) if len(heredocs) == 1 and begin < end and "<<" not in name else None


def _strange(word: Word) -> Iterator[FormFault]:
    """Lines that no instruction holds and that begin none."""
    if HEREDOC.search(word.text) or "escape=`" in word.text[:200]:
        return
    every = list(_instructions(word))
    held = {line for one in every if one.name in NAMES for line, _ in one.argument.places}
    found: list[FormFault] = []
    for number, (start, written) in enumerate(_lines(word.text)):
        line = word.part(start, start + len(written))
        if written.strip() and not written.lstrip().startswith("#") and word.line + number not in held:
            found += unknown_instruction(line)
    if len(found) <= MOST_STRANGE:  # else it is no Dockerfile, or a page about one
        yield from found


def _lines(text: str) -> Iterator[tuple[int, str]]:
    position = 0
    for written in text.split("\n"):
        yield position, written
        position += len(written) + 1


class _Stage:
    def __init__(self, image: str) -> None:
        self.image = image
        self.script = Script()
        self.entry: tuple[Word, ...] | Word | None = None
        self.command: tuple[Word, ...] | Word | None = None

    def read(self, name: str, argument: Word) -> None:
        if name == "RUN":
            options = OPTION.match(argument.text)
            self.run(_form(argument.part(options.end()) if options else argument))
        elif name in ("ENV", "ARG"):
            for key, value in _settings(argument):
                self.script.variable(key, value, exported=name == "ENV")
        elif name == "WORKDIR":
            self.script.add("cd ", (argument.line, argument.column))
            self.script.line(argument)
        elif name == "ENTRYPOINT":
            self.entry, self.command = _form(argument), None
        elif name == "CMD":
            self.command = _form(argument)

    def run(self, form: tuple[Word, ...] | Word) -> None:
        if isinstance(form, Word):
            self.script.line(form)
        else:
            self.script.words(form)

    def carried(self) -> Carried:
        if isinstance(self.entry, tuple) and self.entry:
            self.run((*self.entry, *(self.command if isinstance(self.command, tuple) else ())))
        elif self.entry is None and isinstance(self.command, tuple) and goes_behind(self.image, self.command):
            place = (self.command[0].line, self.command[0].column)
            start = (Word(text, *place, (place,) * len(text)) for text in ("vllm", "serve"))
            self.run((*start, *self.command))
        else:
            for form in (self.entry, self.command):
                if form is not None:
                    self.run(form)
        word = self.script.word()
        return Carried(scripts=((word, self.image),)) if word.text else Carried()


def _instructions(word: Word) -> Iterator[Instruction]:
    """Each instruction with its lines, without the comments and blank lines between them."""
    position = 0
    lines = word.text.split("\n")
    starts = []
    for written in lines:
        starts.append(position)
        position += len(written) + 1
    number = 0
    while number < len(lines):
        match = INSTRUCTION.match(lines[number])
        first = number
        number += 1
        if match is None or lines[first].lstrip().startswith("#"):
            continue
        script = Script()
        line = word.part(starts[first] + match.end(), starts[first] + len(lines[first]))
        while True:
            script.take(line)
            if not line.text.rstrip().endswith("\\") or number >= len(lines):
                break
            while number < len(lines) - 1 and (not lines[number].strip() or lines[number].lstrip().startswith("#")):
                number += 1
            script.end()
            line = word.part(starts[number], starts[number] + len(lines[number]))
            number += 1
        if match["name"].upper() in ("RUN", *COPIES) and (heredoc := HEREDOC.search(script.word().text)):
            while number < len(lines):
                script.end()
                script.take(word.part(starts[number], starts[number] + len(lines[number])))
                number += 1
                if lines[number - 1].strip() == heredoc["name"]:
                    break
        yield Instruction(match["name"].upper(), script.word())


def _form(argument: Word) -> tuple[Word, ...] | Word:
    """Words of the exec form, shell text of the other."""
    text = argument.text.strip()
    heredoc = HEREDOC.match(text)
    if heredoc:  # RUN <<EOF: the lines are the script
        begin = argument.text.find("\n") + 1
        return argument.part(begin, argument.text.rfind(heredoc["name"]))
    if not text.startswith("["):
        return argument
    try:
        words = json.loads(re.sub(r"\\\n", " \n", text))
    except (ValueError, RecursionError):
        return argument
    found: list[Word] = []
    position = 0
    for one in words:
        begin = argument.text.find(json.dumps(one, ensure_ascii=False)[1:-1], position)
        begin = max(begin, 0)
        place = argument.part(begin, begin + len(str(one)))
        found.append(place if place.text == one else Word(str(one), place.line, place.column))
        position = begin + len(str(one))
    return tuple(found)


def _settings(argument: Word) -> Iterator[tuple[str, Word]]:
    pairs = list(PAIR.finditer(argument.text))
    if not pairs or pairs[0].start() > 0:
        match = SEPARATE.match(argument.text)
        if match:
            yield match["name"], _plain(argument.part(match.start("value"), match.end("value")))
        return
    for match in pairs:
        yield match["name"], _plain(argument.part(match.start("value"), match.end("value")))


def _plain(value: Word) -> Word:
    text = value.text
    return value.part(1, len(text) - 1) if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else value


def _filled(image: str, arguments: dict[str, str]) -> str:
    """The image with the defaults of ARG; one that stays unknown keeps its variable."""
    return VARIABLE.sub(lambda match: arguments.get(match[1]) or match[2] or match[0], image)
