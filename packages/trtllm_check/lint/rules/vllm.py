"""vLLM's server: its options, the values that are JSON, and an image that starts it already.

The engine's arguments are data of the LMI images, which hand them on; what the front end adds stands in vllm.yml.
"""

import json
import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import DOCKER_VALUED, PYTHON, SHELLS, VLLM_IMAGE, Given
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import Word

FAMILY = "vllm"
NEAR = 0.8
LONG = 60
QUOTES_LOST = re.compile(r"\{\s*[\w-]+\s*:(?![^{}]*\.\.\.)[^\"'$<`]*\}")
VARIABLE = re.compile(r":\s*\"(?P<name>\$[A-Z_]\w*)\"")
VERSIONS = (
    re.compile(r"vllm-openai(?:-[a-z]+)?:v?(?P<version>\d+\.\d+\.\d+)"),
    re.compile(r"\bvllm(?:\[\w+\])?={2,3}(?P<version>\d+\.\d+\.\d+)"),
)
Version = tuple[int, ...]
MODULE_UNTIL = (0, 10, 0)  # the image's entry point is the module up to here: vllm#22072


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    told = version_told(document)
    for one in document.of("vllm"):
        first = one.positional[:1]
        yield from _model_place(one, platform.release.name)
        if first and first[0].text != "serve":
            continue
        version = version_of(one.image) or told
        yield from _entry(one, platform.release.name)
        for given in one.given:
            if given.flag.startswith("-"):
                yield from _option(one, given, version, platform.release.name)
                yield from _json(one, given, version, platform.release.name)
                yield from _not_expanded(document, one, given, platform.release.name)


@cache
def _known() -> dict[str, str]:
    """Option without dashes -> field of the engine's arguments, "" where it is none of them or an earlier one's."""
    from trtllm_check.releases.lmi import lmi_facts

    data = rule_data(FAMILY)
    others = dict.fromkeys((*data["frontend"].split(), *data["earlier"].split()), "")
    return others | {name.replace("_", "-"): name for name in lmi_facts().engine_args.fields}


def engine_arguments() -> set[str]:
    """The engine's arguments as Python writes them, of every version that is known."""
    return {name.replace("-", "_") for name in _known()}


def engine_left(name: str) -> tuple[str, str]:
    """The first version without this argument of the engine and what to do instead; nothing for one that is there."""
    from trtllm_check.releases.lmi import lmi_facts

    data, facts = rule_data(FAMILY), lmi_facts().engine_args
    option = name.replace("_", "-")
    instead = data["gone"].get(option) or data["moved"].get(option, "")
    if not instead or name in facts.of(facts.versions[-1]).names:
        return "", ""
    without = [one for one in facts.versions if name not in facts.of(one).names]
    return without[0], instead if " " in instead and not instead.startswith("--") else f"write {instead}"


def is_vllm_option(name: str) -> bool:
    """True for the name, without dashes, of an option that some version has; ``x.y`` sets a part of ``x``."""
    return f"-{name}" not in rule_data(FAMILY)["short"] and name.partition(".")[0].replace("_", "-") in _known()


def _model_place(serve: Invocation, release: str) -> Iterator[Draft]:
    """``vllm serve --model X``, and ``python3 -m vllm.entrypoints.openai.api_server X``."""
    words = serve.arguments
    given = serve.find("--model")
    if serve.path.text == "vllm" and serve.positional[:1] and serve.positional[0].text == "serve":
        if given and given.values and len(serve.positional) == 1 and not VLLM_IMAGE.search(serve.image):
            model = given.values[0].text
            yield from drafts(release, "vllm-model-place", given.word, invocation=serve, model=model)
    elif _is_official(serve) and given is None and () < version_of(serve.path.text) <= MODULE_UNTIL:
        operands = [word for word in serve.positional[1:2] if not is_open(word.text)]
        for word in operands if "/" in serve.positional[-1].text and len(serve.positional) == 2 else ():
            known: dict[str, Any] = {"model": word.text, "image": serve.path.text}
            yield from drafts(release, "vllm-model-place", word, form="of the image", invocation=None, **known)
    elif serve.path.text.startswith("vllm.entrypoints.openai") and words and given is None:
        first = words[0].text
        if "/" in first and not first.startswith("-") and not is_open(first):
            yield from drafts(
                release, "vllm-model-place", words[0], form="of the module", invocation=serve, model=first
            )


def _named(given: Given) -> str:
    """``--no_enable-x`` and ``--x.y`` as the option that they set."""
    name = given.name.lstrip("-").partition(".")[0].replace("_", "-")
    return name.removeprefix("no-") if name not in _known() else name


def _option(serve: Invocation, given: Given, version: Version, release: str) -> Iterator[Draft]:
    name = _named(given)
    if is_open(given.name) or serve.has("--omni") or "vllm-omni" in serve.image:
        return  # vllm-omni has options of its own
    if not given.name.startswith("--"):
        return
    if name not in _known():
        if any(one.startswith(name) for one in _known()):
            return  # argparse takes the beginning of an option for it
        close = get_close_matches(name, _known(), 1, NEAR)
        instead = f"write --{close[0]}" if close else "leave it out, or take the version that has it"
        if given.name in DOCKER_VALUED and _is_official(serve):
            instead = f"put {given.name} in front of the image: it is an option of docker"
        form = "" if _is_official(serve) or close else "not certain"
        yield from drafts(
            release, "vllm-option", given.word, form=form, invocation=serve, flag=given.name, instead=instead
        )
    elif (field := _known()[name]) and version:
        yield from _of_another_version(serve, given, field, version, release)
    elif field:
        yield from _left(serve, given, field, release)
    else:
        yield from _gone(serve, given, name, version, release)


def _gone(serve: Invocation, given: Given, name: str, version: Version, release: str) -> Iterator[Draft]:
    """An option that vLLM no longer has: an error where the version is told, a warning where the newest is meant."""
    data = rule_data(FAMILY)
    first = _parts(_first_read())
    instead = data["gone"].get(name, "")
    if name in data["left"]:
        first, instead = _parts(data["left"][name]["since"]), data["left"][name]["instead"]
    if not instead or (version and version < first):
        return
    yield from drafts(
        release,
        "vllm-option-gone",
        given.word,
        form="" if version else "not certain",
        invocation=serve,
        flag=given.name,
        since=".".join(map(str, first)),
        instead=instead if " " in instead and not instead.startswith("--") else f"write {instead}",
    )


def _first_read() -> str:
    from trtllm_check.releases.lmi import lmi_facts

    return lmi_facts().engine_args.versions[0]


def _of_another_version(serve: Invocation, given: Given, field: str, version: Version, release: str) -> Iterator[Draft]:
    """An option that exactly this version does not have, where it was read."""
    from trtllm_check.releases.lmi import lmi_facts

    facts = lmi_facts().engine_args
    written = ".".join(map(str, version))
    if written not in facts.versions or field in facts.of(written).names:
        return
    has = [one for one in facts.versions if field in facts.of(one).names]
    yield from drafts(
        release,
        "vllm-option-of-another-version",
        given.word,
        invocation=serve,
        flag=given.name,
        version=written,
        has=f"{has[0]} to {has[-1]}" if len(has) > 1 else has[0],
    )


def _left(serve: Invocation, given: Given, field: str, release: str) -> Iterator[Draft]:
    """An engine's option that the newest versions have no more, where something took its place."""
    from trtllm_check.releases.lmi import lmi_facts

    facts = lmi_facts().engine_args
    instead = rule_data(FAMILY)["moved"].get(field.replace("_", "-"), "")
    if not instead or field in facts.of(facts.versions[-1]).names:
        return
    last = [one for one in facts.versions if field in facts.of(one).names][-1]
    yield from drafts(
        release, "vllm-option-left", given.word, invocation=serve, flag=given.name, last=last, instead=instead
    )


def _json(serve: Invocation, given: Given, version: Version, release: str) -> Iterator[Draft]:
    wanted = rule_data(FAMILY)["json"].get(_named(given))
    if wanted is None or not given.values or "." in given.name.lstrip("-"):
        return
    value = " ".join(word.text for word in given.values)
    if _is_object(value):
        yield from _settings(serve, given, wanted.get("needs", {}), json.loads(value), release)
        return
    if is_open(value) and not QUOTES_LOST.fullmatch(value):
        return
    value = value if QUOTES_LOST.fullmatch(value) else given.values[0].text
    since = _parts(wanted["since"]) if "since" in wanted else ()
    is_earlier = "earlier" in wanted and re.fullmatch(wanted["earlier"], value) is not None
    if is_earlier and version and version < since:
        return
    form = "" if version or not is_earlier else "not certain"
    shown = value if len(value) < LONG else f"{value[: LONG - 3]}..."
    yield from drafts(release, "vllm-json", given.values[0], form=form, invocation=serve, flag=given.name, value=shown)


def _settings(
    serve: Invocation, given: Given, needs: dict[str, str], settings: object, release: str
) -> Iterator[Draft]:
    """Settings that want another one beside them, and a variable that no shell replaces."""
    if not isinstance(settings, dict):
        return
    for name, other in needs.items():
        if settings.get(name) is not None and settings.get(other) is None:
            yield from drafts(
                release,
                "vllm-json",
                given.values[0],
                form="one needs the other",
                invocation=serve,
                flag=given.name,
                value=name,
                needs=other,
            )


def _not_expanded(document: Document, serve: Invocation, given: Given, release: str) -> Iterator[Draft]:
    """A variable in single quotes, which no shell replaces; not in YAML, whose readers may do it."""
    value = given.values[0] if given.values else None
    match = VARIABLE.search(value.text) if value is not None and value.text.startswith("{") else None
    file = serve.command.file
    if value is None or match is None or file.endswith((".yaml", ".yml")):
        return
    if any(_single_quoted(text, value, given.name) for name, text in document.texts if name == file):
        yield from drafts(
            release,
            "vllm-json",
            value,
            form="not expanded",
            invocation=serve,
            flag=given.name,
            value=match["name"],
        )


def _single_quoted(text: str, word: Word, flag: str) -> bool:
    """True where ``word`` begins with a single quote, behind its option or in a line that goes on."""
    before, line = ["", *text.split("\n")][word.line - 1 : word.line + 1]
    goes_on = flag in line or before.endswith("\\")
    return goes_on and "'{" in line


def _is_object(value: str) -> bool:
    try:
        return isinstance(json.loads(value), dict | list)
    except (ValueError, RecursionError):
        return False


def _entry(serve: Invocation, release: str) -> Iterator[Draft]:
    """A program as an argument of the server."""
    operands = serve.positional
    if len(operands) < 2 or operands[0].text != "serve":
        return
    word = operands[1]
    name = word.text.rpartition("/")[2]
    if word.text in ("vllm", "serve") or name in SHELLS or PYTHON.fullmatch(name):
        yield from drafts(release, "vllm-entry-twice", word, invocation=None, file=serve.command.file, word=word.text)


def _is_official(serve: Invocation) -> bool:
    return VLLM_IMAGE.search(serve.image) is not None and "vllm/vllm-openai" in serve.image


def version_of(text: str) -> Version:
    for pattern in VERSIONS:
        if match := pattern.search(text):
            return _parts(match["version"])
    return ()


def version_told(document: Document) -> Version:
    """The version that the text tells, where it tells one only."""
    found = {
        _parts(match["version"])
        for _, text in document.texts
        for pattern in VERSIONS
        for match in pattern.finditer(text)
    }
    return found.pop() if len(found) == 1 else ()


def _parts(version: str) -> Version:
    return tuple(int(part) for part in version.split("."))
