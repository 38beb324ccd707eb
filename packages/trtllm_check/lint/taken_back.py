"""What a text itself takes back, or leaves open: a comment, what stood before, a release that a variable holds."""

import re
from functools import lru_cache

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform
from trtllm_check.lint.replaced import is_replaced
from trtllm_check.lint.shell.words import lines_of
from trtllm_check.releases.clients import example_script, example_scripts
from trtllm_check.releases.history import with_flag

OF_A_VARIABLE = re.compile(r"\bgit checkout [\"']?\$\{?\w*(?:trt|tensorrt|llm|backend)\w*", re.IGNORECASE)
HEAD = 40  # lines of a script that tell how it is used
NO_INPUT = " reads no input "
RUNNER = "run.py"


def text_of(draft: Draft, document: Document) -> str:
    """The text that the finding stands in."""
    return dict(document.texts).get(draft.invocation.command.file if draft.invocation is not None else draft.file, "")


def is_taken_back(draft: Draft, document: Document, platform: Platform) -> bool:
    """True for a finding that says nothing against the text: not run, replaced, or of a release that is not known."""
    text = text_of(draft, document)
    if is_replaced(text, draft.place.line) or _is_commented_out(draft, text):
        return True
    if draft.rule == "flag-removed":
        return _is_of_a_variable(document.texts)
    if not platform.guessed:
        return False
    if draft.rule == "unknown-variable":  # another variable told the release, and a later one may have both
        return draft.severity == "warning" and not document.of("trtllm-build")
    if draft.rule == "engine-inputs":  # of a backend of somebody's own, or of a release that was not read
        return NO_INPUT in draft.message and draft.action.startswith("leave ")
    return draft.rule == "unknown-flag" and _is_of_another_folder(draft)


@lru_cache(maxsize=8)
def _is_of_a_variable(texts: tuple[tuple[str, str], ...]) -> bool:
    """True where the release is checked out by a variable's value."""
    return any(OF_A_VARIABLE.search(text) for _, text in texts)


def _is_commented_out(draft: Draft, text: str) -> bool:
    """True for a line below the head of a script that its author has made a comment."""
    if draft.place.line <= HEAD or "```" in text:
        return False
    return "".join(lines_of(text)[draft.place.line - 1 : draft.place.line]).lstrip().startswith("#")


def _is_of_another_folder(draft: Draft) -> bool:
    """True for a run.py without a folder that has an option of another model's, such as --model_name."""
    one = draft.invocation
    if one is None or one.tool != RUNNER or one.path.text.strip("./") != one.tool:
        return False
    strange = [each.flag for each in one.given if each.flag and not with_flag(one.tool, each.name)]
    tables = [(path, table) for path in example_scripts(one.tool) if (table := example_script(path))]
    return any(flag in table.calls[path] for path, table in tables for flag in strange)
