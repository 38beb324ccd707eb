"""Reads the table: one file per topic, each a mapping of rule ids. A topic is read when it is first needed."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from serving_base.yaml_files import read_yaml
from trtllm_check.releases import Release
from trtllm_check.releases.ranges import in_range, range_in_words

RULES_DIR = Path(__file__).parent
TOPICS = {
    "attention": "FP8 attention and KV cache",
    "gemm": "GEMM, MLP and all-reduce",
    "parallelism": "Parallelism",
    "sizes": "Sizes",
    "memory": "Memory of one GPU",
    "quantization": "Quantization",
    "versions": "One release for everything",
    "templates": "Triton's model repository",
    "requests": "Requests",
    "lmi": "LMI",
    "containers": "Containers",
    "shell": "The shell",
    "arguments": "Arguments",
}
Severity = Literal["error", "warning", "info"]


class Entry(NamedTuple):
    """What a rule says in the releases ``since`` to ``until``.

    ``severity``: error (the tool refuses, or its result is wrong), warning (silently not what was meant, or not
    certain) or info (good to know). ``message``: what happens. ``{...}`` stand for what is known of one command.
    ``form``: the form of what is checked, where a rule says something else of it.
    """

    severity: Severity
    message: str
    form: str = ""
    since: str = ""
    until: str = ""
    why: str = ""
    fix: str = ""
    source: str = ""

    @property
    def releases(self) -> str:
        return range_in_words(self.since, self.until)


class Condition(NamedTuple):
    """When a rule speaks of a command of ``tool``: all of ``when`` has to hold, see :mod:`trtllm_check.rules.case`.

    ``at``: the flag that a finding stands at, else it stands at the tool's own word. ``put``, ``drop``: flags that
    mend the command, ``switch on`` as the release writes it; ``quantize``: flags of the command that made the
    checkpoint, if that is known, instead.
    """

    tool: str
    when: Mapping[str, Sequence[str | int] | int]
    at: str = ""
    since: str = ""
    until: str = ""
    put: Mapping[str, str] = MappingProxyType({})
    drop: Sequence[str] = ()
    quantize: Mapping[str, str] = MappingProxyType({})


class Rule(NamedTuple):
    """One rule. Of ``says`` the first entry in a release's range counts.

    ``about``: flags, and names of variables or options without dashes; :func:`trtllm_check.explain.explain` finds it by
    them. ``conditions``: when it speaks of a command; ``checked_by``: families of the checker that decide it in code.
    With neither it is advice that nothing checks. ``note``: what else is known.
    """

    id: str
    topic: str
    says: tuple[Entry, ...]
    about: tuple[str, ...] = ()
    checked_by: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    note: str = ""

    @property
    def is_checked(self) -> bool:
        return bool(self.checked_by or self.conditions)

    def entry(self, release: str, form: str = "") -> Entry | None:
        """What the rule says in ``release``; None where it does not hold."""
        fitting = (one for one in self.says if one.form == form and in_range(release, one.since, one.until))
        return next(fitting, None)

    def entries(self, release: Release) -> tuple[Entry, ...]:
        """What the rule says in ``release``, of every form; nothing if it is about flags that no tool there has."""
        flags = [name for name in self.about if name.startswith("-")]
        of_flags_only = bool(flags) and len(flags) == len(self.about)
        if of_flags_only and not any(tool.has(flag) for tool in release.tools.values() for flag in flags):
            return ()
        entries = (self.entry(release.name, form) for form in dict.fromkeys(entry.form for entry in self.says))
        return tuple(entry for entry in entries if entry)


@cache
def topic(name: str) -> tuple[Rule, ...]:
    """The rules of a topic, in their order."""
    return tuple(_rule(id_, name, **content) for id_, content in _content(name).items())


def all_rules() -> tuple[Rule, ...]:
    """All rules, topic by topic."""
    return tuple(rule for name in TOPICS for rule in topic(name))


@cache
def rule(id_: str) -> Rule:
    """The rule of this id; KeyError if there is none."""
    name = next((name for name in TOPICS if id_ in _content(name)), None)
    found = next((one for one in topic(name) if one.id == id_), None) if name else None
    if found is None:
        raise KeyError(id_)
    return found


def _rule(
    id_: str,
    topic: str,
    *,
    says: list[dict[str, Any]],
    about: Sequence[str] = (),
    checked_by: Sequence[str] = (),
    conditions: Sequence[dict[str, Any]] = (),
    note: str = "",
) -> Rule:
    entries = tuple(Entry(**one) for one in says)
    return Rule(
        id_, topic, entries, tuple(about), tuple(checked_by), tuple(Condition(**one) for one in conditions), note
    )


@cache
def _content(name: str) -> dict[str, dict[str, Any]]:
    content: dict[str, dict[str, Any]] = read_yaml(RULES_DIR / f"{name}.yml")
    return content
