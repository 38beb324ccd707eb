"""vLLM's server: its options by release, the values that are JSON, and an image that starts it already.

What each release has is ``releases/data/vllm``; vllm.yml holds what other programs call these options.
"""

import json
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cache, lru_cache
from typing import Any

from packaging.version import Version

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, Swap, drafts, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import DOCKER_VALUED, OPENAI_SERVER, PLAIN_SERVER, PYTHON, SHELLS, VLLM_IMAGE, Given
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.vllm_table import absence, command_of, instead_of, release_for
from trtllm_check.lint.shell.words import Word, lines_of
from trtllm_check.lint.vllm_release import image_release, is_of_a_month
from trtllm_check.releases.nearest import nearest
from trtllm_check.releases.vllm import Changes, VllmRelease, options_of, together, vllm_facts

FAMILY = "vllm"
NEAR = 0.8
ALMOST = 0.85
OF_ITS_OWN = 3  # options
LONG = 60
QUOTES_LOST = re.compile(r"\{\s*[\w-]+\s*:(?![^{}]*\.\.\.)[^\"'$<`]*\}")
VARIABLE = re.compile(r":\s*\"(?P<name>\$[A-Z_]\w*)\"")
MODULE_UNTIL = Version("0.11.0")  # the image's entry point is the module up to here: vllm@d00d6529, vllm#27389
SERVE_SINCE = Version("0.5.3")  # setup.py's console script: vllm#5090
LOOKED_FOR_SINCE = Version("0.9.0")  # the parser looks for the word --model; before, at what args.model has become
COMMAND_WORDS = re.compile(r"(?<![\w/-])vllm[\"']?[\s,-]+[\"']?serve\b")
DEFAULT_MODEL = "facebook/opt-125m"
OTHER_COMMANDS = ("bench serve", "bench throughput", "run-batch")
PLACEHOLDER = re.compile(
    r"--(?:your|my|some|any|more|other|additional|extra|custom)-(?:[\w-]*-)?(?:args?|arguments?|options?|flags?|params?)"
)
EDITION = re.compile(  # a plugin for other hardware, and what only Gaudi's fork reads
    r"\bvllm[-_](?:rbln|gaudi|ascend|neuron|spyre|gcu|mindspore|qaic|kunlun|fl|metal|musa|maca|hpu)\b"
    r"|\bPT_HPU_|--weights-load-device|--use-padding-aware-scheduling|--max-num-prefill-seqs|VLLM_(?:PROMPT|DECODE)_\w+_BUCKET"
    r"|\bPYTHONPATH=\S*/vllm\b"  # a tree of somebody's own
)
DEVICE = re.compile(r"auto|cuda|neuron|cpu|openvino|tpu|xpu|hpu|\W.*")
Release = VllmRelease | None
# Words that a model is never called, and that people put behind an image that starts a server by itself.
CALL = re.compile(r"json\.dumps\(")
OTHERS = frozenset(
    {"vllm", "serve", "tail", "sleep", "ls", "nvidia-smi", "env", "ray", "torchrun", "uvicorn", "uv", "pip", "pip3"}
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for one in document.of("vllm"):
        command = command_of(one)
        told = release_for(document, one)
        if command == "serve":
            yield from _model_place(document, one, told, release)
            entries = list(_entry(one, release))
            yield from entries
            if entries and any(word.text.endswith((".py", ".sh")) for word in one.positional):
                continue  # what stands behind is the script's
        if command in ("", "bench serve"):
            continue  # the tool that loads a server is load_tools'
        strange = _strange(one, command)
        is_own = _is_a_build_of_its_own(one, command, strange, OF_ITS_OWN) or _is_an_edition(document.texts)
        # With one option of somebody's own, what today's release has lost may be there as well.
        is_changed = told is None and _is_a_build_of_its_own(one, command, strange, 1)
        is_own = is_own or any(_is_described(document.texts, flag) for flag in strange)
        for given in one.given:
            if (
                given.flag.startswith("-")
                and one.path.text == PLAIN_SERVER
                and (plain := _of_openai(given)) is not None
            ):
                yield from _of_the_plain_server(one, given, release) if plain else ()
            elif given.flag.startswith("-"):
                for draft in _option(document, one, given, command, told, release):
                    is_doubtful = is_own or (is_changed and draft.rule == "vllm-option-gone")
                    yield draft._replace(severity="info") if is_doubtful and draft.severity == "warning" else draft
                yield from _json(one, given, told, release)
                yield from _not_expanded(document, one, given, release)


@cache
def _own() -> frozenset[str]:
    """What the parser itself takes, and what plugins add."""
    data = rule_data(FAMILY)
    return frozenset((*data["parser"].split(), *data["plugins"].split()))


@cache
def _known(command: str = "serve") -> dict[str, Changes]:
    return {**dict.fromkeys(_own(), Changes(())), **options_of(command)}


@cache
def engine_arguments() -> frozenset[str]:
    """The engine's arguments as Python writes them, of every release."""
    facts = vllm_facts()
    names = {*facts.table("options", "engine"), *facts.table("options", "async"), *facts.table("options", "fields")}
    return frozenset(name.replace("-", "_") for name in names)


def argument_changes(name: str) -> Changes | None:
    """What the engine's argument ``name`` was in each release."""
    facts = vllm_facts()
    own = (facts.table("options", "fields").get(name), facts.table("names", "LLM").get(name))
    return together(options_of("run-batch").get(name.replace("_", "-")), *own)


def is_vllm_option(name: str) -> bool:
    """True for the name, without dashes, of an option that some version has; ``x.y`` sets a part of ``x``."""
    return f"-{name}" not in rule_data(FAMILY)["short"] and name.partition(".")[0].replace("_", "-") in _known()


def _model_place(document: Document, serve: Invocation, told: Release, release: str) -> Iterator[Draft]:
    """``vllm serve --model X``, and ``python3 -m vllm.entrypoints.openai.api_server X``."""
    if serve.has("--omni"):
        return
    words = serve.arguments
    given = serve.find("--model")
    image = image_release(serve.path.text)
    if serve.path.text == "vllm" and serve.positional[:1] and serve.positional[0].text == "serve":
        if not VLLM_IMAGE.search(serve.image) or _is_typed(document, serve):
            yield from _sub_command(serve, given, told, release)
    elif _is_official(serve) and given is None and image and Version(image.written) <= MODULE_UNTIL:
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


def _is_typed(document: Document, serve: Invocation) -> bool:
    """True where the words stand in the text, and are no other way to write what the image's entry point gets."""
    text = dict(document.texts).get(serve.command.file, "")
    lines = lines_of(text)[serve.path.line - 1 : (serve.arguments[-1].line if serve.arguments else serve.path.line)]
    return COMMAND_WORDS.search("\n".join(lines)) is not None


def _sub_command(serve: Invocation, given: Given | None, told: Release, release: str) -> Iterator[Draft]:
    """``vllm serve`` of a release: before there was one, with --model, and with the model both ways."""
    version = Version(told.written) if told is not None else None
    known: dict[str, Any] = {"version": told.written if told else ""}
    named = given.values[0].text if given and given.values else ""
    is_refused = version is not None and version <= MODULE_UNTIL
    if given and version is not None and LOOKED_FOR_SINCE <= version <= MODULE_UNTIL and "=" in given.word.text:
        return  # --model=X in one word is not seen
    if version is not None and version < LOOKED_FOR_SINCE and named == DEFAULT_MODEL:
        return
    operands = [word.text for word in serve.positional[1:]]
    if version is not None and version < SERVE_SINCE:
        known["model"] = named or (operands[:1] or ["MODEL"])[0]
        yield from drafts(release, "vllm-model-place", serve.path, form="no command", invocation=serve, **known)
    elif given and named and not operands:
        known["model"] = named
        form = "refused" if is_refused else ""
        for draft in drafts(release, "vllm-model-place", given.word, form=form, invocation=serve, **known):
            is_taken = version is not None and not is_refused  # with a line in the log
            yield draft._replace(severity="info") if is_taken else draft
    elif given and named and len(operands) == 1 and not any(map(is_open, (named, *operands))):
        known |= {"model": operands[0], "other": named}
        if is_refused:
            yield from drafts(release, "vllm-model-place", given.word, form="both", invocation=serve, **known)
        elif named != operands[0]:
            yield from drafts(release, "vllm-model-place", given.word, form="two models", invocation=serve, **known)


def _named(given: Given, command: str = "serve") -> str:
    """``--no_enable-x`` and ``--x.y`` as the option that they set."""
    name = given.name.lstrip("-").partition(".")[0].replace("_", "-")
    return name.removeprefix("no-") if name not in _known(command) else name


def _strange(serve: Invocation, command: str) -> list[str]:
    """The options that no release has."""
    known = _known(command)
    names = {_named(given, command) for given in serve.given if given.name.startswith("--")}
    return sorted(one for one in names if one not in known and one not in _own() and not is_open(one))


@lru_cache(maxsize=8)
def _is_an_edition(texts: tuple[tuple[str, str], ...]) -> bool:
    """True for vLLM with a plugin for other hardware, which goes with a release of its own."""
    return any(EDITION.search(text) for _, text in texts)


@lru_cache(maxsize=64)
def _is_described(texts: tuple[tuple[str, str], ...], name: str) -> bool:
    """True for an option that the page itself explains: ``the `--gateway` flag starts ...``."""
    words = re.compile(rf"`--{re.escape(name)}`\s+(?:flag|option|switch|argument)\b")
    return any(words.search(text) for _, text in texts)


def _is_a_build_of_its_own(serve: Invocation, command: str, strange: list[str], least: int) -> bool:
    """True for ``least`` options that no release has and that look like none of theirs: of somebody's own vLLM."""
    known = _known(command)
    return (
        len(strange) >= least
        and not _is_official(serve)
        and not any(nearest(one, frozenset(known), NEAR) or _of_another_command(one, command) for one in strange)
    )


def _option(
    document: Document, serve: Invocation, given: Given, command: str, told: Release, release: str
) -> Iterator[Draft]:
    """An option that the release of the text, or none, or today's vLLM has not."""
    if is_open(given.name) or not given.name.startswith("--"):
        return
    if serve.has("--omni") or "vllm-omni" in serve.image:
        return  # vllm-omni has options of its own
    name, known = _named(given, command), _known(command)
    if name == "device" and given.values and not DEVICE.fullmatch(given.values[0].text):
        return  # of an edition for other hardware: --device gcu
    tool = f"vllm {command}"
    if name in _own():
        return
    if name not in known:
        if not any(one.startswith(name) for one in known):  # argparse takes the beginning of an option for it
            yield from _unknown(serve, given, name, command, release)
        return
    lacking = absence(known[name], told)
    if lacking is None or (told is None and is_of_a_month(document)):
        return
    about: dict[str, Any] = {"flag": given.name, "has": lacking.has, "tool": tool}
    if told is not None and not lacking.gone:
        about |= {"version": told.written, "since": lacking.edge}
        yield from drafts(release, "vllm-option-of-another-version", given.word, invocation=serve, **about)
        return
    about |= {"since": lacking.edge, "instead": instead_of("options", name)}
    if told is not None:
        about["version"] = told.written
        yield from drafts(release, "vllm-option-gone", given.word, invocation=serve, **about)
    else:
        yield from drafts(release, "vllm-option-gone", given.word, form="not certain", invocation=serve, **about)


def _of_openai(given: Given) -> bool | None:
    """True for an option of OpenAI's server that the plain one has not, False for its own; None for the engine's."""
    name, facts = _named(given), vllm_facts()
    if name in rule_data(FAMILY)["plain_server"].split():
        return False
    is_engine = any(name in facts.table("options", section) for section in ("engine", "async"))
    return True if name in facts.table("options", "frontend") and not is_engine else None


def _of_the_plain_server(serve: Invocation, given: Given, release: str) -> Iterator[Draft]:
    edits = (Swap(serve.path, OPENAI_SERVER),)
    known: dict[str, Any] = {"tool": PLAIN_SERVER, "flag": given.name, "module": OPENAI_SERVER}
    yield from drafts(
        release, "vllm-option", given.word, form="of OpenAI's server", edits=edits, invocation=serve, **known
    )


def _unknown(serve: Invocation, given: Given, name: str, command: str, release: str) -> Iterator[Draft]:
    """An option that no release has: misspelt, of docker, of another command or of another program."""
    if PLACEHOLDER.fullmatch(given.name):
        return  # of a template: --your-custom-args
    close = nearest(name, frozenset(_known(command)), NEAR)
    other = _of_another_command(name, command)
    meant = rule_data(FAMILY)["elsewhere"].get(name, "")
    instead = f"write --{close}" if close else "leave it out, or take the version that has it"
    certain = bool(close or other or meant) or _is_official(serve)
    if (
        serve.path.text == serve.image
        and not _is_official(serve)
        and SequenceMatcher(None, name, close).ratio() < ALMOST
    ):
        return  # an image of somebody's own may have a plugin's options
    if serve.image and not certain and VLLM_IMAGE.search(serve.image) is None:
        return  # and one that it starts itself those of its own build
    if meant:
        instead = f"write --{meant}"
    elif f"-{name}" in rule_data(FAMILY)["short"]:
        instead, certain = f"write -{name} with one dash", True
    elif other:
        instead = f"give it to vllm {other}"
    if given.name in DOCKER_VALUED and _is_official(serve):
        instead = f"put {given.name} in front of the image: it is an option of docker"
    about: dict[str, Any] = {"flag": given.name, "instead": instead, "tool": f"vllm {command}"}
    form = "" if certain else "not certain"
    yield from drafts(release, "vllm-option", given.word, form=form, invocation=serve, **about)


def _of_another_command(name: str, command: str) -> str:
    """The command of vLLM that has the option, and this one not."""
    found = [other for other in OTHER_COMMANDS if other != command and name in options_of(other)]
    return found[0] if found else ""


def _json(serve: Invocation, given: Given, told: Release, release: str) -> Iterator[Draft]:
    wanted = rule_data(FAMILY)["json"].get(_named(given))
    if wanted is None or not given.values or "." in given.name.lstrip("-"):
        return
    value = " ".join(word.text for word in given.values)
    if _is_object(value):
        yield from _settings(serve, given, wanted.get("needs", {}), json.loads(value), release)
        return
    if (is_open(value) and not QUOTES_LOST.fullmatch(value)) or CALL.match(value):
        return
    value = value if QUOTES_LOST.fullmatch(value) else given.values[0].text
    is_earlier = "earlier" in wanted and re.fullmatch(wanted["earlier"], value) is not None
    if is_earlier and told and Version(told.written) < Version(wanted["since"]):
        return
    form = "" if told or not is_earlier else "not certain"
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
    before, line = ["", *lines_of(text)][word.line - 1 : word.line + 1]
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
    if word.text in OTHERS or name in SHELLS or PYTHON.fullmatch(name):
        yield from drafts(release, "vllm-entry-twice", word, invocation=None, file=serve.command.file, word=word.text)


def _is_official(serve: Invocation) -> bool:
    return VLLM_IMAGE.search(serve.image) is not None and "vllm/vllm-openai" in serve.image
