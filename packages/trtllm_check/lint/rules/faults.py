"""What the readers of YAML and Dockerfiles saw: files that do not parse, fields in the wrong place, wrong forms."""

from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for one in document.faults:
        known: dict[str, Any] = dict(one.known)
        for draft in drafts(platform.release.name, one.rule, one.place, form=one.form, file=one.file, **known):
            yield draft._replace(source=one.source) if one.source else draft
