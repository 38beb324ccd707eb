"""Requirements that pip cannot read, that it builds without what they need, or that the next command undoes."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.installs import Requirement, requirements
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.shell.words import Word, lines_of

GLUED = re.compile(r"(?P<one>(?:>=|<=|~=|!=|==|<|>)\s*\d[\w.*]*)\s*(?P<two>(?:>=|<=|~=|!=|==|<|>)\s*\d)")
LOCAL = re.compile(r"(?P<operator>>=|<=|~=|<|>)\s*\d[\w.]*\+(?P<local>[\w.]+)")
SINGLE = re.compile(r"(?P<name>[A-Za-z][\w.-]*(?:\[[\w,-]+\])?)=(?P<value>[^=].*)")
LINKED = re.compile(r"(?P<name>[A-Za-z][\w.-]*)={1,3}(?P<address>https?://\S+|\S+\.whl)")
ADDRESS = re.compile(r"^[ \t]*(?P<word>(?P<name>[A-Za-z][\w.-]*)(?P<sign>={1,2})(?P<address>git\+\S+))", re.MULTILINE)
OPTION = re.compile(
    r"^(?P<name>[A-Za-z][\w.-]*(?:\[[\w,-]+\])?[ \t]*(?:[<>=~!]=?[^\s#]+)?)[ \t]+"
    r"(?P<option>--(?:index-url|extra-index-url|find-links|no-deps|pre|no-build-isolation|upgrade)\b)[^\n]*$",
    re.MULTILINE,
)
COMMAND = re.compile(r"^[ \t]*(?:RUN|pip|uv|python3?|conda|\$|sudo|!)\b|^```", re.MULTILINE)
# Packages whose setup.py imports torch and says nothing of it.
IMPORTS_TORCH = frozenset({"flash-attn", "mamba-ssm"})
NOT_ISOLATED = re.compile(
    r"no-build-isolation|^\[(?:project|tool\.)|extra-build-dependencies|PIP_NO_BUILD_ISOLATION|FLASH_ATTENTION_SKIP",
    re.MULTILINE,
)
# NVIDIA's images have wheel and a pip before 25.3, which build what has no pyproject.toml beside what is installed.
OLD_PIP = re.compile(r"nvcr\.io/nvidia/")
BESIDE_TORCH = ("torchvision", "torchaudio")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    wanted = [one for one in requirements(document) if one.name]
    for pip in document.of("pip"):
        yield from _words(pip, release)
    for one in wanted:
        yield from _bounds(one, release)
    for file, text in document.texts:
        yield from _lines(file, text, release)
    yield from _isolated(document, wanted, release)
    yield from _order(wanted, release)


def _words(pip: Invocation, release: str) -> Iterator[Draft]:
    operands = pip.positional
    if not operands or operands[0].text != "install":
        return
    for word in operands[1:]:
        if word.text == "install":
            yield from drafts(release, "requirement-invalid", word, form="install", invocation=pip)
        if match := LINKED.fullmatch(word.text):
            known: dict[str, Any] = {"word": word.text, "right": f"{match['name']} @ {match['address']}"}
            yield from drafts(release, "requirement-invalid", word, form="address", invocation=pip, **known)
            continue
        match = SINGLE.fullmatch(word.text)
        if (
            match
            and "/" not in match["name"]
            and not match["name"].isupper()
            and not match["value"].startswith(("git+", "http"))
        ):
            known = {"word": word.text, "right": f"{match['name']}=={match['value']}"}
            yield from drafts(release, "requirement-invalid", word, form="single", invocation=pip, **known)


def _bounds(one: Requirement, release: str) -> Iterator[Draft]:
    known: dict[str, Any] = {"word": one.word.text}
    if match := GLUED.search(one.specifier):
        right = one.word.text.replace(match["one"], f"{match['one']},", 1)
        yield from drafts(
            release, "requirement-invalid", one.word, form="comma", invocation=one.pip, right=right, **known
        )
    elif match := LOCAL.search(one.specifier):
        right = one.word.text.replace(f"+{match['local']}", "")
        known |= {"local": match["local"], "right": right}
        yield from drafts(release, "requirement-invalid", one.word, form="local", invocation=one.pip, **known)


def _lines(file: str, text: str, release: str) -> Iterator[Draft]:
    for match in ADDRESS.finditer(text) if "=git+" in text else ():
        known: dict[str, Any] = {"word": match["word"], "right": f"{match['name']} @ {match['address']}"}
        yield from drafts(
            release, "requirement-invalid", _place(text, match, "word"), form="address", file=file, **known
        )
    if COMMAND.search(text):
        return
    for match in OPTION.finditer(text):
        known = {"option": match["option"]}
        place = _place(text, match, "option")
        yield from drafts(release, "requirement-invalid", place, form="option", file=file, **known)
        return


def _is_of_a_file(pip: Invocation, document: Document) -> bool:
    """True for a file of requirements, which is read as what pip installs."""
    lines = lines_of(dict(document.texts).get(pip.command.file, ""))
    return "pip" not in "".join(lines[pip.command.line - 1 : pip.command.line])


def _isolated(document: Document, wanted: list[Requirement], release: str) -> Iterator[Draft]:
    at_sagemaker = any("sagemaker" in text for _, text in document.texts)
    for one in wanted:
        if at_sagemaker and one.pip is not None and _is_of_a_file(one.pip, document):
            continue  # for a training container, which has torch and flash-attn
        if one.name in IMPORTS_TORCH and one.pip is not None and not one.pip.has("--no-build-isolation", "--no-deps"):
            if any(NOT_ISOLATED.search(text) for _, text in document.texts):
                return
            if OLD_PIP.match(one.pip.image):
                return
            known: dict[str, Any] = {"name": one.word.text}
            for draft in drafts(
                release, "requirement-invalid", one.word, form="isolation", invocation=one.pip, **known
            ):
                # A list of an environment may have been written down from one that has it.
                yield draft._replace(severity="info") if _is_of_a_file(one.pip, document) else draft
            return


def _order(wanted: list[Requirement], release: str) -> Iterator[Draft]:
    """torchvision first, and torch in a later command."""
    for number, one in enumerate(wanted):
        if one.name not in BESIDE_TORCH or one.specifier or one.pip is None:
            continue
        later = [other for other in wanted[number + 1 :] if other.name == "torch" and other.exact]
        if (
            len(later) == 1
            and later[0].pip is not one.pip
            and later[0].pip is not None
            and later[0].pip.image == one.pip.image
            and not any(other.name == "torch" for other in wanted[:number] if other.pip is not one.pip)
            and not any(other.pip is one.pip and other.name == "torch" for other in wanted)
            and not any(other.pip is later[0].pip and other.name == one.name for other in wanted)
        ):
            known: dict[str, Any] = {"name": one.word.text, "other": later[0].word.text}
            yield from drafts(release, "requirement-invalid", one.word, form="order", invocation=one.pip, **known)
            return


def _place(text: str, match: re.Match[str], group: str) -> Word:
    start = match.start(group)
    return Word(match[group], text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))
