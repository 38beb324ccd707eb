"""What an LMI container would do with serving.properties and with the variables that stand for it.

The options of the images are data of the releases: :mod:`trtllm_check.recipes.properties`.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from trtllm_check.lint.document import Document, PropertiesFile
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules import lmi_keys, lmi_words
from trtllm_check.lint.rules.lmi_images import UNKNOWN, around, image_of, of_its_kind
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import Word
from trtllm_check.serving_properties import environment_settings

if TYPE_CHECKING:
    from trtllm_check.recipes.properties import Kind, PropertyProblem

SERVER_PREFIX = "SERVING_"  # these set up the server, not the model
ENGINE = re.compile(r"^[ \t]*engine[ \t]*[=:][ \t]*(\S+)", re.MULTILINE)
ENGINES = ("Python", "MPI")
DEEPSPEED = "DeepSpeed"
ENTRY = re.compile(r"^[ \t]*option\.entryPoint[ \t]*[=:][ \t]*(\S+)", re.MULTILINE)
OWN_HANDLER = re.compile(r"^(?:async )?def handle\(", re.MULTILINE)
FRONT_END = re.compile(r"engine\b|option\.tensor_parallel_degree\b")  # what a handler of one's own does not read
BATCH = re.compile(r"^[ \t]*option\.rolling_batch\b", re.MULTILINE)
# Engines of LMI at large: which of them an image has is not known where no image is named.
ENGINE_CHOICE = re.compile(r"rolling_batch=(?:scheduler|lmi-dist|vllm|trtllm|deepspeed|neuronx|tnx)$")
NO_SETTING = re.compile(r"^\s*(?:```|~~~|%%)")  # a fence of Markdown, a magic of a notebook
PROSE = re.compile(r"^\s*[A-Z][\w ]*:\s*$")
CHOICE = re.compile(r"^<|^\(|^[\w ]*\(.*\)$|\w\|\w")
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
CLIPPED = re.compile(r"larger than max_seq_len \d+, clipping it|this model is compiled to take up to \d+ tokens")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """Every line that the image does not take as it is meant."""
    if not document.properties and not document.lmi_environment:
        return
    told = image_of(document, platform)
    if told.word is not None:
        yield from drafts(platform.release.name, "lmi-image-unknown", told.word, image=told.word.text)
    if not told.tag:
        for file in document.properties:
            yield from _syntax(file)
        yield from _unknown(document, told.said)
        if not around(told.said):
            yield from _of_no_image(document)
        return
    named = not platform.guessed or bool(told.said)
    said = {(draft.file, draft.place.line) for draft in lmi_keys.check(document, platform)}
    said |= {
        (file.path, one.value.line)
        for file in document.properties
        for one in lmi_keys.lines(file)
        if lmi_words.of_endpoint(one)
    }
    for file in document.properties:
        if not _is_another_engines(file, *told.tags):
            is_own = _has_own_handler(file, document)
            for draft in _file(file, told.tags, said, named=named):
                if not is_own or draft.rule == RULES["syntax"] or FRONT_END.match(draft.place.text):
                    yield draft if ENTRY.search(file.text) else _perhaps(draft, file, told.tag)
        else:
            yield from _syntax(file)
            yield from _engine(file, told.tags) if told.said else ()
    batch = document.lmi_environment.get("OPTION_ROLLING_BATCH")
    for name, value in document.lmi_environment.items():
        if not name.startswith(SERVER_PREFIX) and ("", value.line) not in said:
            yield from _variable(name, value, told.tags, batch.text if batch else "", named=named)
    if not told.others:
        yield from _room(document, told.tag, platform.release.name)


def _room(document: Document, image: str, release: str) -> Iterator[Draft]:
    """max_output_len of an image whose builder takes it for max_seq_len, as a log beside it may tell."""
    version = image.split("-")[0].split(".")
    is_new = "tensorrtllm" in image and version[1:] and SEQUENCE_FROM <= int(version[1]) < ASYNCHRONOUS_FROM
    if not is_new and not any(CLIPPED.search(text) for _, text in document.texts):
        return
    found = {name: word for name in LENGTHS if (word := document.lmi_environment.get(f"OPTION_{name.upper()}"))}
    for file in document.properties:
        for match in LENGTH.finditer(file.text):
            line = file.line_at(match.start("value"))
            found[match["name"]] = Word(match["value"], line, 1)
    if len(found) == len(LENGTHS) and all(word.text.isdecimal() for word in found.values()):
        longest, most = (int(found[name].text) for name in ("max_output_len", "max_input_len"))
        if longest <= most:
            place = found["max_output_len"]
            yield from drafts(release, "lmi-no-room", place, longest=longest, input=most, needed=most + ANSWER)


def _perhaps(draft: Draft, file: PropertiesFile, image: str) -> Draft:
    """A finding of DeepSpeed's time, when a model.py beside the file was as usual as the image's own handler."""
    is_unsure = draft.rule == RULES["refused"] and "deepspeed" in image and BATCH.search(file.text) is None
    return draft._replace(severity="warning") if is_unsure and not FRONT_END.match(draft.place.text) else draft


def _has_own_handler(file: PropertiesFile, document: Document) -> bool:
    """True where a handler of the reader's own reads the settings, and keys of its own among them."""
    entry = ENTRY.search(file.text)
    if entry is not None:
        return not entry[1].startswith(lmi_keys.HANDLER)
    return any(OWN_HANDLER.search(text) for _, text in document.texts)


def _is_another_engines(file: PropertiesFile, *images: str) -> bool:
    """True for a file of DJL Serving's other engines, such as PyTorch or OnnxRuntime, or DeepSpeed where it is gone."""
    engine = ENGINE.search(file.text)
    if engine is None or engine[1] in ENGINES or is_open(engine[1]):
        return False
    return engine[1] != DEEPSPEED or bool(images and _problems(f"engine={DEEPSPEED}", *images))


def _engine(file: PropertiesFile, images: tuple[str, ...]) -> Iterator[Draft]:
    """The engine DeepSpeed in an image that has none."""
    match = ENGINE.search(file.text)
    if match is None or match[1] != DEEPSPEED:
        return
    line = file.line_at(match.start(1))
    for problem in _problems(f"engine={DEEPSPEED}", *images):
        place = Word(match[0].strip(), line, 1)
        yield _draft(problem, place, problem.message, file.path, named=True)


def _is_open(value: str) -> bool:
    """True for a value that the reader fills in: ``<a|b>``, ``{x}``, ``max(8, n)``, a template."""
    return is_open(value) or CHOICE.search(value) is not None


def _problems(text: str, *images: str) -> "list[PropertyProblem]":
    """What all of the images find wrong with the text, in the words of the first."""
    from trtllm_check.recipes.properties import check_properties

    first, *others = images
    found = check_properties(text, first)
    for other in others if found else ():
        same = {(one.line, one.kind) for one in check_properties(text, other)}
        found = [one for one in found if (one.line, one.kind) in same]
    return found


def _any_takes(line: str) -> bool:
    """True if an image of some release takes the line, so that it is wrong only for the image that was guessed."""
    from trtllm_check.releases.lmi import lmi_facts

    return any(not _problems(line, one.tag) for one in lmi_facts().images)


def _syntax(file: PropertiesFile) -> Iterator[Draft]:
    """What Java reads otherwise than it was written, whatever the image and the engine."""
    from trtllm_check.recipes.properties import syntax_problems

    yield from _placed(file, syntax_problems(file.text))


def _unknown(document: Document, tag: str) -> Iterator[Draft]:
    """What the images around an unknown one do not take, and so most likely that one, too."""
    near = around(tag)
    for file, line, value in _settings(document) if near else ():
        if not value.text or UNKNOWN in line or _is_open(value.text):
            continue
        found = [problem for image in near if (problem := _told(line, image))]
        if len(found) < len(near) or (len(near) == 1 and found[0].kind != "refused"):
            continue
        if all((problem := _told(line, image)) and problem.kind == "refused" for image in of_its_kind(tag)):
            yield _draft(found[-1], value, f"every image of its kind that is known refuses {line}", file, named=True)
        elif len({problem.kind for problem in found}) == 1:
            message = f"{found[-1].kind} by {' and '.join(near)}, the known images around this one: {line}"
            yield _draft(found[-1], value, message, file, named=True)._replace(severity="warning")


def _of_no_image(document: Document) -> Iterator[Draft]:
    """``option.rolling_batch=trt-llm`` and variables that every known image refuses."""
    from trtllm_check.releases.lmi import lmi_facts

    known = [one.tag for one in lmi_facts().images]
    for file, line, value in _settings(document):
        key, _, text = line.partition("=")
        if not text or UNKNOWN in line or _is_open(text) or (file and key != lmi_keys.BATCH):
            continue
        if key == lmi_keys.BATCH and text in rule_data("lmi_keys")["batches"]:
            continue  # of an earlier version
        found = [problem for tag in known if (problem := _told(line, tag)) and problem.kind == "refused"]
        if len(found) == len(known):
            yield _draft(found[-1], value, f"every image that is known refuses {line}", file, named=True)


def _settings(document: Document) -> Iterator[tuple[str, str, Word]]:
    """Of files and of the environment: the file, the line as it is written in a file, and the value at its place."""
    for file in document.properties:
        if not _is_another_engines(file):
            for line in lmi_keys.lines(file):
                yield file.path, f"{line.key}={line.value.text}", line.value
    for name, value in document.lmi_environment.items():
        if not name.startswith(SERVER_PREFIX):
            for key, text in environment_settings({name: value.text}).items():
                yield "", f"{key}={text}", value


def _told(line: str, image: str) -> "PropertyProblem | None":
    return next((one for one in _problems(line, image) if one.kind in ("refused", "ignored")), None)


def _is_open_choice(finding: "PropertyProblem", line: str) -> bool:
    """True where no image is named and the line may be right for the one that is meant: nothing spells it wrong."""
    return ENGINE_CHOICE.search(line) is not None or (
        finding.kind == "ignored" and (finding.fix.find("did you mean") < 0 or _any_takes(line))
    )


def _file(
    file: PropertiesFile, images: tuple[str, ...], said: Collection[tuple[str, int]], *, named: bool
) -> Iterator[Draft]:
    """``said``: files and lines that another rule has spoken about."""
    found = []
    lines = file.text.split("\n")
    for finding in _problems(file.text, *images):
        line = lines[finding.line - 1]
        value = line.partition("=")[2].strip()
        if finding.kind == "refused" and (_is_open(value) or (not named and _any_takes(line.strip()))):
            continue
        if not named and _is_open_choice(finding, re.sub(r"\s*=\s*", "=", line.strip())):
            continue
        if finding.kind == "syntax" or (file.path, file.line_of(finding.line - 1)) not in said:
            found.append(finding)
    yield from _placed(file, found, named=named)


def _placed(file: PropertiesFile, found: "Iterable[PropertyProblem]", *, named: bool = True) -> Iterator[Draft]:
    lines = file.text.split("\n")
    for finding in found:
        line = lines[finding.line - 1]
        if UNKNOWN in line or (finding.kind == "syntax" and NO_SETTING.search(line)):
            continue
        if finding.kind == "syntax" and not file.path and PROSE.search(line):
            continue
        place = Word(line.strip(), file.line_of(finding.line - 1), len(line) - len(line.lstrip()) + 1)
        yield _draft(finding, place, finding.message, file.path, named=named)


def _variable(name: str, value: Word, images: tuple[str, ...], batch: str, *, named: bool) -> Iterator[Draft]:
    """``batch``: the rolling batch of the same environment."""
    if not value.text or UNKNOWN in value.text or _is_open(value.text):
        return
    for key, text in environment_settings({name: value.text}).items():
        if key == "engine" and text not in (*ENGINES, DEEPSPEED):
            continue
        beside = f"\n{lmi_keys.BATCH}={batch}" if batch and key != lmi_keys.BATCH else ""
        for finding in _problems(f"{key}={text}{beside}", *images):
            if finding.line > 1:
                continue
            if finding.kind == "refused" and not named and _any_takes(f"{key}={text}"):
                continue
            if not named and _is_open_choice(finding, f"{key}={text}"):
                continue
            yield _draft(finding, value, f"{name}: {finding.message}", named=named)


def _draft(finding: "PropertyProblem", place: Word, message: str, file: str = "", *, named: bool) -> Draft:
    rule = RULES[finding.kind]
    guessed = finding.kind == "refused" and not named and ENGINE_CHOICE.search(message) is not None
    severity = "info" if finding.kind == "undocumented" else "warning" if guessed else finding.severity
    return Draft(rule, severity, place, message, finding.why, finding.source, action=finding.fix, file=file)
