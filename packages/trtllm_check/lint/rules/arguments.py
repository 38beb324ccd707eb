"""Does the release's tool take these arguments, and is the tool where the command looks for it?"""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import PurePosixPath

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Drop, Edit, Platform, Put, Swap, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import Given
from trtllm_check.lint.rewriting import arguments
from trtllm_check.lint.rules.names import (
    NO,
    Unknown,
    corrected_value,
    examples,
    foreign_folders,
    is_absent,
    is_open,
    positional_names,
    tool_drafts,
    unknown,
)
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases import Argument, Release, Tool
from trtllm_check.releases.clients import example_script, example_scripts
from trtllm_check.releases.history import takes, tool_history, with_flag
from trtllm_check.releases.load import load_release

HELP = ("-h", "--help", "--version")
FOR_THE_READER = re.compile(r"your|YOUR")  # your model here
PLACEHOLDER = re.compile(r"[A-Z]{1,2}|[A-Z][A-Z_]+|[xX]+|\?+")  # N, XX, MAX_TOKENS
CLICK = ("trtllm-serve",)  # no abbreviations; its sub-command `serve` is what runs without one
CONVERTER = "convert_checkpoint.py"
SCRIPTS_OF_MODELS = (CONVERTER, "run.py", "summarize.py")
LLAMA = re.compile(r"llama|mi[sx]tral", re.IGNORECASE)
THERE = "."  # in the tables of the examples: the script itself
OF_TABLES = ("examples/llama/convert_checkpoint.py", "examples/run.py", "examples/summarize.py")
FIRST_SERVE = "serve"
UNKNOWN_FLAG = "unknown-flag"


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """Unknown, removed and misspelt flags, refused values, missing arguments, moved scripts."""
    for invocation in document.invocations:
        yield from tool_drafts(invocation, platform.release)
        if is_checked(invocation, platform.release):
            yield from _Arguments(invocation, platform.release).drafts()
        elif invocation.tool in CLICK and is_absent(invocation.tool, platform.release):
            yield from _of_no_release(invocation)


def of_the_first_build(document: Document, platform: Platform) -> Iterator[Draft]:
    """Options of the trtllm-build of 0.7, of which there are no other facts, that neither it nor a later one has."""
    first = rule_data("arguments")["first_build"].split()
    for invocation in document.of("trtllm-build"):
        if not is_checked(invocation, platform.release):
            continue
        for draft in _Arguments(invocation, platform.release).drafts():
            flag = draft.place.text.partition("=")[0]
            if draft.rule == UNKNOWN_FLAG and flag not in first and not with_flag(invocation.tool, flag):
                said = draft.message.replace(f" of {platform.release.name} ", " of 0.7 and of later releases ")
                yield draft._replace(message=said)


def _of_no_release(invocation: Invocation) -> Iterator[Draft]:
    """Options that no release has, of a tool that came after the one that the text is read for."""
    first = next(name for name, tool in tool_history(invocation.tool) if tool)
    if is_checked(invocation, load_release(first)):
        for draft in _Arguments(invocation, load_release(first)).drafts():
            if draft.rule == UNKNOWN_FLAG and not with_flag(invocation.tool, draft.place.text.partition("=")[0]):
                yield draft


def is_checked(invocation: Invocation, release: Release) -> bool:
    """True if the release has facts on this tool, and it is not another model's script of the same name."""
    folders = _folders(invocation.path.text) or (invocation.folder,)
    foreign = bool(folders) and folders[-1] in foreign_folders()
    foreign = foreign or (invocation.tool == "quantize.py" and folders[-1:] == ("llama",))  # of releases before 0.8
    if folders[-2:-1] in (("core",), ("contrib",)) and invocation.tool in SCRIPTS_OF_MODELS:
        foreign = foreign or folders[-1] != "llama"
    if invocation.tool in CLICK and (first := invocation.positional[:1]):
        foreign = foreign or first[0].text in ("disaggregated", "disaggregated_mpi_worker", "mm_embedding_serve")
    if invocation.tool in SCRIPTS_OF_MODELS and not _is_of_llama(invocation, folders):
        flags = frozenset(one.flag for one in invocation.given) - {""}
        foreign = foreign or _of_another_model(invocation.tool, flags, release.name)
    return invocation.tool in release.tools and not foreign and not any(map(invocation.has, HELP))


def _is_of_llama(invocation: Invocation, folders: tuple[str, ...]) -> bool:
    """True for a converter of a Llama or of one like it; the other scripts' options tell it by themselves."""
    words = (*folders, *(word.text for word in invocation.arguments))
    return invocation.tool == CONVERTER and any(LLAMA.search(word) for word in words)


@lru_cache(maxsize=1024)
def _of_another_model(tool: str, flags: frozenset[str], release: str) -> bool:
    """True for options that the script of that name in another folder has, all of them, and the known one has not.

    Gemma's convert_checkpoint.py has --model-dir, and run.py of the encoder-decoder models --engine_name.
    """
    own = {name for _, one in tool_history(tool) if one for name in one.arguments}
    if all(with_flag(tool, flag) or any(name.startswith(flag) for name in own) for flag in flags):
        return False
    return any(_takes_all(path, flags, release) for path in example_scripts(tool) if path not in OF_TABLES)


def _takes_all(path: str, flags: frozenset[str], release: str) -> bool:
    """True if the release's script at ``path``, or the last that was read, takes every one of ``flags``."""
    table = example_script(path)
    if table is None:
        return False
    version = release if table.near_releases(release) else table.releases[-1]
    options = [option for option in table.calls[path] if table.judge_keyword(path, option, version) is None]
    return table.judge_command(path, THERE, version) is None and all(
        any(option.startswith(flag) for option in options) for flag in flags
    )


@lru_cache(maxsize=1024)
def _folders(path: str) -> tuple[str, ...]:
    return PurePosixPath(path).parent.parts


def missing(invocation: Invocation, release: Release) -> list[str]:
    """Required arguments that are not there; none if something unknown may hold them."""
    return _Arguments(invocation, release).missing() if is_checked(invocation, release) else []


class _Arguments:
    """The arguments of one command, against one release's tool."""

    def __init__(self, invocation: Invocation, release: Release) -> None:
        self.invocation = invocation
        self.release = release
        self.name = invocation.tool
        self.tool: Tool = release.tools[invocation.tool]
        self.given = arguments(invocation, release)

    def drafts(self) -> Iterator[Draft]:
        before: Given | None = None
        positionals = [name for name in self.tool.arguments if not name.startswith("-")]
        for given in self.given:
            if given.flag:
                yield from self.flag(given)
            elif is_open(given.word.text) or self.is_sub_command(given):
                pass
            elif positionals:
                positionals.pop(0)
            else:
                yield from self.stray(given.word, before)
            before = given
        for name in self.missing():
            yield self.lacks(name)

    def is_sub_command(self, given: Given) -> bool:
        return self.name in CLICK and given.word is self.invocation.arguments[0] and given.word.text == FIRST_SERVE

    def missing(self) -> list[str]:
        if any(not given.flag and is_open(given.word.text) for given in self.given):
            return []
        words = sum(not given.flag and not self.is_sub_command(given) for given in self.given)
        words += sum(given.flag in positional_names(self.name) and bool(given.values) for given in self.given)
        positionals = [name for name in self.tool.arguments if not name.startswith("-")]
        swallowed = sum(
            len(given.values) - 1
            for given in self.given
            if len(given.values) > 1 and given.flag not in self.tool.arguments
        )  # by a flag that the tool does not have
        lacking = positionals[words + swallowed :]
        names = {self.full(given.name) for given in self.given if given.flag}
        for name, argument in self.tool.arguments.items():
            if argument.required and name.startswith("-") and not names & {name, *argument.aliases}:
                lacking.append(name)
        return lacking

    def full(self, flag: str) -> str:
        """The flag that ``flag`` is meant as a beginning of, or itself."""
        found = self.prefixed(flag)
        return found if found and not with_flag(self.name, flag) else flag

    def prefixed(self, flag: str) -> str:
        """The only flag that begins with ``flag``, which argparse takes it for; "" for none."""
        if self.name in CLICK or self.tool.has(flag) or not flag.startswith("--"):
            return ""
        return self.tool.begun(flag)

    def flag(self, given: Given) -> Iterator[Draft]:
        name = given.name
        written = given.word.part(0, len(given.flag))
        if not given.flag.isascii():
            yield self.draft(
                "typographic-dash",
                written,
                self.refuses(given.flag),
                f"It begins with a dash of typography; the flag is {name} with two hyphens.",
                (Swap(written, name),),
            )
        full = self.full(name)
        if full != name:
            yield Draft(
                "abbreviated-flag",
                "info",
                written,
                f"{self.name} takes {name} for {full}.",
                "argparse takes the beginning of a flag if no other flag has the same; a later release may have one.",
                "Python documentation, argparse, allow_abbrev",
                edits=(Swap(written, full),),
                invocation=self.invocation,
            )
            name = full
        argument = self.tool.argument(name)
        if argument is None:
            yield self.unknown(unknown(self.invocation, self.release, given, self.given), written, name)
        else:
            yield from self.unsure(written, name, argument)
            yield from self.value(given, name, argument)

    def unknown(self, found: Unknown, written: Word, name: str) -> Draft:
        message = self.refuses(name)
        if other := self.prefixed(name):
            message = f"{self.of} takes {name} for {other}"
        return self.draft(found.rule, written, message, found.why, found.edits, found.source)

    def unsure(self, written: Word, name: str, argument: Argument) -> Iterator[Draft]:
        if argument.confidence == "low":
            yield self.doubt(written, f"{self.of} may not take {name}", argument)

    def value(self, given: Given, name: str, argument: Argument) -> Iterator[Draft]:
        values = given.values
        if argument.is_switch:
            if values:
                yield self.no_value(given, name, values[0])
            return
        wanted = argument.nargs if isinstance(argument.nargs, int) else 1 if argument.nargs in (None, "+") else 0
        if len(values) < wanted and not any(is_open(word.text) for word in values):
            edits: tuple[Edit, ...] = (Drop(given.name),)
            if "enable" in argument.choices:
                edits = (Put(given.name, "enable"),)
            elif argument.type == "bool":
                edits = (Put(given.name, "true"),)
            elif name in examples():
                edits = (Put(given.name, examples()[name]),)
            message = f"{self.of} stops: argument {name}: expected one argument"
            yield self.draft("needs-value", given.word, message, f"It takes {takes(argument)}.", edits)
        for word in values:
            if is_open(word.text):
                continue
            if not _fits(word.text, argument):
                yield self.bad_value(given, name, word, argument)
            elif word.text in map(str, argument.unconfirmed):
                yield self.doubt(word, f"{self.of} may not take {name} {word.text}", argument)

    def no_value(self, given: Given, name: str, value: Word) -> Draft:
        edits: tuple[Edit, ...] = (Drop(given.name) if value.text.lower() in NO else Put(given.name),)
        if value not in given.values:
            edits = (*edits, Swap(value, ""))
        return self.draft(
            "takes-no-value",
            given.word,
            f"{self.of} stops: unrecognized arguments: {value.text} (after {name})",
            f"In this release {name} is a bare switch.",
            edits,
        )

    def bad_value(self, given: Given, name: str, word: Word, argument: Argument) -> Draft:
        value = corrected_value(word.text, argument)
        why = f"It takes {takes(argument)}."
        edits: tuple[Edit, ...] = ()
        if value is not None:
            edits = (Put(given.name, value) if len(given.values) == 1 else Swap(word, value),)
        elif (value := _stand_in(name, word.text, argument)) is not None:
            edits = (Put(given.name, value),)
            why += f" {value} stands in the fix for a value of yours."
        return self.draft(
            "bad-value",
            word,
            f"{self.of} stops: argument {name}: invalid value: {word.text!r}",
            why,
            edits,
            action=f"write a value of yours: {name} takes {takes(argument)}",
        )

    def stray(self, word: Word, before: Given | None) -> Iterator[Draft]:
        if word.text.count(":") and any(one.text.endswith(",") for one in self.invocation.arguments):
            return  # substitutions of fill_template.py over several lines: a page shows them further in than they are
        argument = self.tool.argument(self.full(before.name)) if before and before.flag else None
        if any(FOR_THE_READER.fullmatch(one.text) for one in self.invocation.arguments):
            return  # your model here
        if word.text == "+":
            return  # trtllm-build + {the options}, as people say it
        if before is not None and argument is not None and argument.is_switch and not before.values:
            yield self.no_value(before, self.full(before.name), word)
            return
        yield self.draft(
            "stray-word",
            word,
            f"{self.of} stops: unrecognized arguments: {word.text}",
            "It belongs to no flag.",
            (Swap(word, ""),),
        )

    def lacks(self, name: str) -> Draft:
        known = name in examples()
        what = "the following arguments are required"
        return self.draft(
            "missing-flag",
            self.invocation.path,
            f"{self.of} stops: {what}: {name}",
            "It has no default.",
            (Put(name, examples()[name]),) if known else (),
            action="" if known else f"add {name} ({takes(self.tool.arguments[name])})",
        )

    @property
    def of(self) -> str:
        return f"{self.name} of {self.release.name}"

    def refuses(self, name: str) -> str:
        said = "No such option" if self.name in CLICK else "unrecognized arguments"
        return f"{self.of} stops: {said}: {name}"

    def doubt(self, place: Word, message: str, argument: Argument) -> Draft:
        return Draft(
            "unsure-flag",
            "info",
            place,
            f"{message}: its files were not read, only those of other releases.",
            argument.note,
            self.tool.source,
            action=f"ask `{self.name} --help` in the release's container",
            invocation=self.invocation,
        )

    def draft(
        self,
        rule: str,
        place: Word,
        message: str,
        why: str,
        edits: tuple[Edit, ...],
        source: str = "",
        action: str = "",
    ) -> Draft:
        source = source or self.tool.source
        return Draft(rule, "error", place, message, why, source, edits, action, self.invocation)


def _stand_in(name: str, text: str, argument: Argument) -> str | None:
    """A value to start from where none can be told from what is written: an example, or the default."""
    placeholder = PLACEHOLDER.fullmatch(text)
    if name in examples() and (placeholder or not argument.choices):
        return examples()[name]
    placeholder = None if argument.choices else placeholder
    is_default = argument.default is not None and not isinstance(argument.default, list)
    return str(argument.default) if is_default and placeholder else None


def _fits(text: str, argument: Argument) -> bool:
    if argument.choices:
        return text in map(str, argument.choices)
    try:
        {"int": int, "float": float}.get(argument.type, str)(text)
    except ValueError:
        return False
    return True
