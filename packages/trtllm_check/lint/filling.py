"""fill_template.py's commands, and the requests and prompts that depend on what they fill in."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, Put, Swap, drafts, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases import Release
from trtllm_check.releases.load import in_range
from trtllm_check.releases.templates import release_templates, template_releases

FILL = "fill_template.py"
FAMILY = "templates"
ENGINE_MODEL = "tensorrt_llm"
BEGIN_OF_TEXT = "<|begin_of_text|>"
NO_SPECIAL_TOKENS = "--no_add_special_tokens"
TRUE = ("true", "True", "TRUE")
FALSE = ("false", "False", "FALSE")


class Filling(NamedTuple):
    """One fill_template.py. ``broken``: variables whose value the tool cuts at a comma or a colon.

    ``known`` is False where a part of the substitutions is a shell variable that the text does not set.
    """

    invocation: Invocation
    path: str
    word: Word
    values: Mapping[str, str]
    broken: tuple[str, ...]
    known: bool
    escapes: bool

    @property
    def model(self) -> str:
        return PurePosixPath(self.path).parent.name

    def at(self, variable: str) -> Word:
        """The last pair that sets ``variable``, in its own line; all substitutions where none does."""
        found = list(re.finditer(rf"(?:^|(?<=,))[ ]*({re.escape(variable)}:[^,]*)", self.word.text))
        return self.word.part(*found[-1].span(1)) if found else self.word

    def with_values(self, changes: Mapping[str, str | None]) -> Swap:
        """The substitutions with ``changes``: a value sets a variable, None takes it out."""
        values = {name: value for name, value in {**self.values, **changes}.items() if value is not None}
        return Swap(self.word, ",".join(f"{name}:{self.written(value)}" for name, value in values.items()))

    def written(self, value: str) -> str:
        """A value as the tool reads it back."""
        if not self.escapes:
            return value
        return _backslash(_backslash(value, ":\\"), ",\\")


def fillings(document: Document, release: Release) -> list[Filling]:
    """All fill_template.py of ``document`` with a file and substitutions."""
    escapes = release.behaviour.fill_template_escapes.value
    found = []
    for invocation in document.of(FILL):
        operands = _joined(invocation.positional)
        if len(operands) == 2:
            values, broken, known = _values(operands[1].text, escapes)
            found.append(Filling(invocation, operands[0].text, operands[1], values, broken, known, escapes))
    return found


def _joined(operands: Sequence[Word]) -> Sequence[Word]:
    """Substitutions on several lines as one word: a page that is indented shows blanks that are not there."""
    if len(operands) < 3 or not all(one.text.endswith(",") and ":" in one.text for one in operands[1:-1]):
        return operands
    text, places = "".join(one.text for one in operands[1:]), tuple(at for one in operands[1:] for at in one.places)
    return [operands[0], Word(text, operands[1].line, operands[1].column, places)]


def needed_strings(model: str, release: str) -> list[dict[str, str]]:
    """The strings of ``model`` that have no default in ``release``."""
    return [
        entry
        for entry in rule_data("templates")["needed"]
        if entry["model"] == model and in_range(release, entry.get("since", ""), entry.get("until", ""))
    ]


def filled_by_default(release: str) -> frozenset[str]:
    """The variables that fill_template.py of ``release`` fills where nobody names them."""
    entries = rule_data("templates")["filled_by_default"]
    return frozenset(entry["variable"] for entry in entries if in_range(release, entry.get("since", "")))


def _values(text: str, escapes: bool) -> tuple[dict[str, str], tuple[str, ...], bool]:
    values: dict[str, str] = {}
    broken: list[str] = []
    known = True
    name = ""
    for pair in _split(text, ",", escapes) if text else []:
        parts = _split(pair, ":", escapes)
        if len(parts) == 1 and "${" in pair:
            known = False
        elif len(parts) == 1:
            broken.append(name or pair)
            if name:
                values[name] += f",{parts[0]}"
        else:
            name = parts[0]
            values[name] = ":".join(parts[1:])
            if len(parts) > 2:
                broken.append(name)
    return values, tuple(dict.fromkeys(broken)), known


def _split(text: str, sign: str, escapes: bool) -> list[str]:
    if not escapes or "\\" not in text:
        return text.split(sign)
    parts = [""]
    for match in re.finditer(r"\\(.?)|(.)", text, re.DOTALL):
        if match[2] == sign:
            parts.append("")
        else:
            parts[-1] += match[2] if match[1] is None else match[1]
    return parts


def _backslash(text: str, special: str) -> str:
    return "".join(f"\\{character}" if character in special else character for character in text)


def prompt_drafts(document: Document, platform: Platform, commands: Sequence[Filling]) -> Iterator[Draft]:
    """The drafts of all requests, and of run.py's prompts. ``commands``: the fill_template.py of ``document``."""
    yield from _streams(document, platform, commands)
    yield from _begin_of_text(document, platform, commands)
    tool = platform.release.tools.get("run.py")
    for run in document.of("run.py") if tool and tool.has(NO_SPECIAL_TOKENS) else []:
        texts = [word for word in run.values("--input_text") if word.text.startswith(BEGIN_OF_TEXT)]
        if texts and not run.has(NO_SPECIAL_TOKENS):
            yield from drafts(
                platform.release.name,
                "bos-twice",
                texts[0],
                edits=(Put(NO_SPECIAL_TOKENS),),
                invocation=run,
                adds="run.py",
                instead=f"add {NO_SPECIAL_TOKENS}",
            )


def _streams(document: Document, platform: Platform, commands: Sequence[Filling]) -> Iterator[Draft]:
    filling = next((one for one in commands if one.model == ENGINE_MODEL and "decoupled_mode" in one.values), None)
    refused = filling is not None and filling.values["decoupled_mode"] in FALSE
    if not refused and not _answers_once(document):
        return
    for request in document.requests:
        if (request.fields or {}).get("stream") is not True or "/v1/" in request.url:
            continue
        edits = (filling.with_values({"decoupled_mode": "true"}),) if filling and refused else ()
        yield from drafts(
            platform.release.name,
            "decoupled-needed",
            request.at("stream"),
            edits=edits,
            invocation=filling.invocation if filling and refused else None,
            file=request.file,
        )


def _answers_once(document: Document) -> bool:
    """True if a config.pbtxt says that the engine's model gives one answer to a request."""
    from trtllm_check.lint.pbtxt import ConfigError, read_config

    for config in document.configs:
        if config.model != ENGINE_MODEL:
            continue
        try:
            policies = read_config(config.text).messages("model_transaction_policy")
        except ConfigError:
            continue
        if policies and policies[-1].text("decoupled").lower() in ("false", "f", "0"):
            return True
    return False


def _begin_of_text(document: Document, platform: Platform, commands: Sequence[Filling]) -> Iterator[Draft]:
    """A prompt in chat format for a tokenizer that adds special tokens."""
    filling = next((one for one in commands if one.model == "preprocessing"), None)
    if filling is None or not filling.known or platform.release.name not in template_releases():
        return
    spec = release_templates(platform.release.name).models.get("preprocessing")
    releases = template_releases()
    default = releases.index(platform.release.name) >= releases.index(rule_data(FAMILY)["adds_special_tokens_since"])
    value = filling.values.get("add_special_tokens", "")
    if spec is None or "add_special_tokens" not in spec.free or value in FALSE or not (default or value in TRUE):
        return
    for request in document.requests:
        prompt = (request.fields or {}).get("text_input")
        if isinstance(prompt, str) and prompt.startswith(BEGIN_OF_TEXT):
            yield from drafts(
                platform.release.name,
                "bos-twice",
                request.at("text_input"),
                edits=(filling.with_values({"add_special_tokens": "false"}),),
                invocation=filling.invocation,
                file=request.file,
                adds="preprocessing (add_special_tokens)",
                instead="fill add_special_tokens:false in preprocessing",
            )
