"""What an LMI container would do with serving.properties and with the variables that stand for it.

The options of the images are data of the releases: :mod:`trtllm_check.recipes.properties`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from serving_base.errors import UsageError
from trtllm_check.lint.document import Document, PropertiesFile
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import Word
from trtllm_check.serving_properties import environment_settings

if TYPE_CHECKING:
    from trtllm_check.recipes.properties import Kind, PropertyProblem

REPOSITORY = "djl-inference"
SERVER_PREFIX = "SERVING_"  # these set up the server, not the model
UNKNOWN = "$"  # of a variable that the text does not set
RULES: dict["Kind", str] = {
    "syntax": "lmi-properties-syntax",
    "refused": "lmi-value-refused",
    "ignored": "lmi-key-ignored",
    "undocumented": "lmi-key-undocumented",
}


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """Every line that the image does not take as it is meant."""
    if not document.properties and not document.lmi_environment:
        return
    image, unknown = _image(document, platform)
    if unknown is not None:
        yield from drafts(platform.release.name, "lmi-image-unknown", unknown, image=unknown.text)
    if image:
        for file in document.properties:
            yield from _file(file, image)
        for name, value in document.lmi_environment.items():
            if not name.startswith(SERVER_PREFIX):
                yield from _variable(name, value, image)


def _file(file: PropertiesFile, image: str) -> Iterator[Draft]:
    from trtllm_check.recipes.properties import check_properties

    lines = file.text.split("\n")
    for finding in check_properties(file.text, image):
        line = lines[finding.line - 1]
        if UNKNOWN not in line:
            place = Word(line.strip(), file.line + finding.line - 1, len(line) - len(line.lstrip()) + 1)
            yield _draft(finding, place, finding.message, file.path)


def _variable(name: str, value: Word, image: str) -> Iterator[Draft]:
    from trtllm_check.recipes.properties import check_properties

    if not value.text or UNKNOWN in value.text:
        return
    for key, text in environment_settings({name: value.text}).items():
        for finding in check_properties(f"{key}={text}", image):
            yield _draft(finding, value, f"{name}: {finding.message}")


def _image(document: Document, platform: Platform) -> tuple[str, Word | None]:
    """The image of the text, else the release's; empty, and the text's word, if nothing is known of the one there."""
    from trtllm_check.recipes.lmi import recommended_image
    from trtllm_check.releases.lmi import lmi_image

    named = [word for word in document.images if REPOSITORY in word.text]
    if not named:
        return recommended_image(platform.release.name).tag, None
    try:
        return lmi_image(named[0].text).tag, None
    except UsageError:
        return "", None if UNKNOWN in named[0].text else named[0]


def _draft(finding: "PropertyProblem", place: Word, message: str, file: str = "") -> Draft:
    rule = RULES[finding.kind]
    return Draft(rule, finding.severity, place, message, finding.why, finding.source, action=finding.fix, file=file)
