"""What an LMI container would do with serving.properties and with the variables that stand for it.

The options of the images are data of the releases: :mod:`trtllm_check.recipes.properties`.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from serving_base.errors import UsageError
from trtllm_check.lint.document import Document, PropertiesFile
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import Word
from trtllm_check.serving_properties import environment_settings

if TYPE_CHECKING:
    from trtllm_check.recipes.properties import Kind, PropertyProblem

REPOSITORY = "djl-inference"
SERVER_PREFIX = "SERVING_"  # these set up the server, not the model
ENGINE = re.compile(r"^[ \t]*engine[ \t]*[=:][ \t]*(\S+)", re.MULTILINE)
ENGINES = ("Python", "MPI")
# Engines of LMI at large: which of them an image has is not known where no image is named.
ENGINE_CHOICE = re.compile(r"rolling_batch=(?:scheduler|lmi-dist|vllm|trtllm|deepspeed|neuronx|tnx)$")
PROSE = re.compile(r"^\s*[A-Z][\w ]*:\s*$")
CHOICE = re.compile(r"^<|^\(|^[\w ]*\(.*\)$|\w\|\w")
# An image in a comment, or in a text that no reader takes for one.
COMMENTED = re.compile(r"(?<![\d.])0\.\d+\.\d+-(?:deepspeed|lmi|tensorrtllm|neuronx|fastertransformer)[\w.-]*\w")
UNKNOWN = "$"  # of a variable that the text does not set
RULES: dict["Kind", str] = {
    "syntax": "lmi-properties-syntax",
    "refused": "lmi-value-refused",
    "ignored": "lmi-key-ignored",
    "undocumented": "lmi-key-undocumented",
}
LENGTHS = ("max_input_len", "max_output_len")
LENGTH = re.compile(
    r"^[ \t]*option\.(?P<name>max_input_len|max_output_len)[ \t]*[=:][ \t]*(?P<value>\S+)", re.MULTILINE
)
SEQUENCE_FROM, ASYNCHRONOUS_FROM = 29, 33  # minor versions of LMI: its builder's max_seq_len, and no builder
ANSWER = 1024
TRTLLM_BATCH = re.compile(r"^\s*option\.rolling_batch\s*[=:]\s*trtllm\s*$", re.MULTILINE)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """Every line that the image does not take as it is meant."""
    if not document.properties and not document.lmi_environment:
        return
    image, unknown = image_of(document, platform)
    if unknown is not None:
        yield from drafts(platform.release.name, "lmi-image-unknown", unknown, image=unknown.text)
        for name, value in document.lmi_environment.items():
            yield from _refused_everywhere(name, value)
    if not image:
        for file in document.properties:
            yield from _syntax(file)
    if image:
        named = not platform.guessed or any(REPOSITORY in word.text for word in document.images)
        for file in document.properties:
            if not _is_another_engines(file):
                yield from _file(file, image, named=named)
        for name, value in document.lmi_environment.items():
            if not name.startswith(SERVER_PREFIX):
                yield from _variable(name, value, image, named=named)
        yield from _room(document, image, platform.release.name)


def _room(document: Document, image: str, release: str) -> Iterator[Draft]:
    """max_output_len of an image whose builder takes it for max_seq_len."""
    version = image.split("-")[0].split(".")
    if "tensorrtllm" not in image or not version[1:] or not SEQUENCE_FROM <= int(version[1]) < ASYNCHRONOUS_FROM:
        return
    found = {name: word for name in LENGTHS if (word := document.lmi_environment.get(f"OPTION_{name.upper()}"))}
    for file in document.properties:
        for match in LENGTH.finditer(file.text):
            line = file.line + file.text.count("\n", 0, match.start("value"))
            found[match["name"]] = Word(match["value"], line, 1)
    if len(found) == len(LENGTHS) and all(word.text.isdecimal() for word in found.values()):
        longest, most = (int(found[name].text) for name in ("max_output_len", "max_input_len"))
        if longest <= most:
            place = found["max_output_len"]
            yield from drafts(release, "lmi-no-room", place, longest=longest, input=most, needed=most + ANSWER)


def _is_another_engines(file: PropertiesFile) -> bool:
    """True for a file of DJL Serving's other engines, such as PyTorch or OnnxRuntime."""
    engine = ENGINE.search(file.text)
    return engine is not None and engine[1] not in ENGINES and not is_open(engine[1])


def _is_open(value: str) -> bool:
    """True for a value that the reader fills in: ``<a|b>``, ``{x}``, ``max(8, n)``, a template."""
    return is_open(value) or CHOICE.search(value) is not None


def _any_takes(line: str) -> bool:
    """True if an image of some release takes the line, so that it is wrong only for the image that was guessed."""
    from trtllm_check.recipes.properties import check_properties
    from trtllm_check.releases.lmi import lmi_facts

    return any(not check_properties(line, one.tag) for one in lmi_facts().images)


def _refused_everywhere(name: str, value: Word) -> Iterator[Draft]:
    """A value that every known image refuses, so that the one there will, too."""
    from trtllm_check.recipes.properties import check_properties
    from trtllm_check.releases.lmi import lmi_facts

    if not value.text or UNKNOWN in value.text or _is_open(value.text):
        return
    for key, text in environment_settings({name: value.text}).items():
        found = [check_properties(f"{key}={text}", one.tag) for one in lmi_facts().images]
        if all(any(problem.kind == "refused" for problem in one) for one in found):
            problem = found[-1][0]
            yield _draft(problem, value, f"{name}: every image that is known refuses {key}={text}", named=True)


def _is_open_choice(finding: "PropertyProblem", line: str) -> bool:
    """True where no image is named and the line may be right for the one that is meant: nothing spells it wrong."""
    return ENGINE_CHOICE.search(line) is not None or (
        finding.kind == "ignored" and finding.fix.find("did you mean") < 0
    )


def _syntax(file: PropertiesFile) -> Iterator[Draft]:
    """How any image reads the file, also one without facts."""
    from trtllm_check.recipes.properties import check_syntax

    yield from _found(file, check_syntax(file.text), named=True) if not _is_another_engines(file) else ()


def _file(file: PropertiesFile, image: str, *, named: bool) -> Iterator[Draft]:
    from trtllm_check.recipes.properties import check_properties

    yield from _found(file, check_properties(file.text, image), named=named)


def _found(file: PropertiesFile, found: Sequence["PropertyProblem"], *, named: bool) -> Iterator[Draft]:
    lines = file.text.split("\n")
    for finding in found:
        line = lines[finding.line - 1]
        value = line.partition("=")[2].strip()
        if finding.kind == "refused" and (_is_open(value) or (not named and _any_takes(line.strip()))):
            continue
        if not named and _is_open_choice(finding, re.sub(r"\s*=\s*", "=", line.strip())):
            continue
        if finding.kind == "syntax" and not file.path and PROSE.search(line):
            continue
        if UNKNOWN not in line:
            place = Word(line.strip(), file.line + finding.line - 1, len(line) - len(line.lstrip()) + 1)
            yield _draft(finding, place, finding.message, file.path, named=named)


def _variable(name: str, value: Word, image: str, *, named: bool) -> Iterator[Draft]:
    from trtllm_check.recipes.properties import check_properties

    if not value.text or UNKNOWN in value.text or _is_open(value.text):
        return
    for key, text in environment_settings({name: value.text}).items():
        for finding in check_properties(f"{key}={text}", image):
            if finding.kind == "refused" and not named and _any_takes(f"{key}={text}"):
                continue
            if not named and _is_open_choice(finding, f"{key}={text}"):
                continue
            yield _draft(finding, value, f"{name}: {finding.message}", named=named)


def image_of(document: Document, platform: Platform) -> tuple[str, Word | None]:
    """The image of the text, else the release's; empty, and the text's word, if nothing is known of the one there."""
    from trtllm_check.recipes.lmi import recommended_image
    from trtllm_check.releases.lmi import lmi_image

    named = [word for word in document.images if REPOSITORY in word.text]
    if not named and (tags := {match[0] for _, text in document.texts for match in COMMENTED.finditer(text)}):
        return _known_tag(tags), None
    retrieved = _retrieved(document) if not named else set()
    if retrieved:
        return _known_tag(retrieved), None
    if not named:
        wanted = _wanted_engine(document) if platform.guessed else ""
        return wanted or recommended_image(platform.release.name).tag, None
    tag = named[0].text.rpartition(":")[2]
    try:
        return lmi_image(named[0].text).tag, None
    except UsageError:
        return "", None if UNKNOWN in tag else named[0]


def _retrieved(document: Document) -> set[str]:
    """The images of ``image_uris.retrieve(framework="djl-deepspeed", version="0.24.0")``, as tags."""
    found = set()
    for call in document.aws_calls:
        framework, version = call.settings.get("framework"), call.settings.get("version")
        if framework is None or version is None or framework.kind != "text" or version.kind != "text":
            continue
        kind = framework.text.partition("djl-")[2]
        if kind:
            found |= set(_tags(kind, version.text)) or {f"{version.text}-{kind}"}
    return found


@cache
def _tags(kind: str, version: str) -> tuple[str, ...]:
    from trtllm_check.releases.lmi import lmi_facts

    tags = [one.tag for one in lmi_facts().images]
    return tuple(tag for tag in tags if tag.startswith(f"{version}-") and kind in tag)


def _known_tag(tags: set[str]) -> str:
    """The one image that a comment names, if there are facts on it; else empty."""
    from trtllm_check.releases.lmi import lmi_image

    try:
        return lmi_image(tags.pop()).tag if len(tags) == 1 else ""
    except UsageError:
        return ""


def _wanted_engine(document: Document) -> str:
    """The newest image that takes the rolling batch of the text, where that is TensorRT-LLM's; else empty."""
    from trtllm_check.recipes.properties import check_properties
    from trtllm_check.releases.lmi import lmi_facts

    if not any(TRTLLM_BATCH.search(file.text) for file in document.properties):
        value = document.lmi_environment.get("OPTION_ROLLING_BATCH")
        if value is None or value.text != "trtllm":
            return ""
    line = "option.rolling_batch=trtllm"
    found = [one.tag for one in lmi_facts().images if one.engine_release and not check_properties(line, one.tag)]
    return max(found, key=lambda tag: [int(part) for part in tag.split("-")[0].split(".")], default="")


def _draft(finding: "PropertyProblem", place: Word, message: str, file: str = "", *, named: bool) -> Draft:
    rule = RULES[finding.kind]
    guessed = finding.kind == "refused" and not named and ENGINE_CHOICE.search(message) is not None
    severity = "warning" if guessed else finding.severity
    return Draft(rule, severity, place, message, finding.why, finding.source, action=finding.fix, file=file)
