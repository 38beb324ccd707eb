"""The texts of the rules: ``rules/<family>.yml``, read when the first of them is needed.

A rule is a list of entries, each for a range of releases; of those in range the first counts.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from playbook.check.drafts import Draft, Edit
from playbook.check.finding import Severity
from playbook.check.invocations import Invocation
from playbook.check.words import Word
from playbook.releases.ranges import Ranged
from playbook.yaml_files import read_yaml

RULES_DIR = Path(__file__).parent / "rules"


class RuleText(Ranged):
    """What a rule says in the releases ``since`` to ``until``. ``{...}`` stand for what the rule's function knows.

    ``form``: the form of what is checked, where a rule says something else of it.
    """

    severity: Severity
    form: str = ""
    message: str
    why: str
    fix: str
    source: str


@cache
def rule_texts(family: str) -> dict[str, tuple[RuleText, ...]]:
    """Rule id -> its entries."""
    content = _read(family)["rules"]
    return {rule: tuple(RuleText.model_validate(entry) for entry in entries) for rule, entries in content.items()}


@cache
def rule_data(family: str) -> dict[str, Any]:
    """What else the family's file holds for its functions."""
    return {key: value for key, value in _read(family).items() if key != "rules"}


def drafts(
    family: str,
    release: str,
    rule: str,
    place: Word,
    *,
    form: str = "",
    edits: tuple[Edit, ...] = (),
    invocation: Invocation | None = None,
    file: str = "",
    **known: Any,
) -> Iterator[Draft]:
    """The rule's draft at ``place``, with ``known`` put into its texts; none where it does not apply to the release."""
    texts = (text for text in rule_texts(family)[rule] if text.form == form and text.in_range(release))
    text = next(texts, None)
    if text is None:
        return
    known = {"release": release, **known}
    yield Draft(
        rule,
        text.severity,
        place,
        message=text.message.format(**known),
        why=text.why.format(**known),
        source=text.source,
        edits=edits,
        action=text.fix.format(**known),
        invocation=invocation,
        file=file,
    )


@cache
def _read(family: str) -> dict[str, Any]:
    content: dict[str, Any] = read_yaml(RULES_DIR / f"{family}.yml")
    return content
