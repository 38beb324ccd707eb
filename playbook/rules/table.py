"""Reads the table: one file per topic, each a mapping of rule ids. A topic is read when it is first needed."""

from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from playbook.releases import Release
from playbook.releases.ranges import Ranged
from playbook.yaml_files import read_yaml

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


class Entry(Ranged):
    """What a rule says in its range of releases.

    ``severity``: error (the tool refuses, or its result is wrong), warning (silently not what was meant, or not
    certain) or info (good to know). ``message``: what happens. ``{...}`` stand for what is known of one command.
    ``form``: the form of what is checked, where a rule says something else of it.
    """

    severity: Severity
    form: str = ""
    message: str
    why: str = ""
    fix: str = ""
    source: str = ""


class Condition(Ranged):
    """When a rule speaks of a command of ``tool``: all of ``when`` has to hold, see :mod:`playbook.rules.case`.

    ``at``: the flag that a finding stands at, else it stands at the tool's own word.
    """

    tool: str
    at: str = ""
    when: dict[str, tuple[str | int, ...] | int]
    put: dict[str, str] = Field({}, description="flags that mend the command; `switch on`: as the release writes it")
    drop: tuple[str, ...] = Field((), description="flags that are taken out of the command")
    quantize: dict[str, str] = Field({}, description="put into the command that made the checkpoint, if it is known")


class Rule(BaseModel):
    """One rule. Of ``says`` the first entry in a release's range counts.

    ``about``: flags, and names of variables or options without dashes; :func:`playbook.explain.explain` finds it by
    them. ``conditions``: when it speaks of a command; ``checked_by``: families of the checker that decide it in code.
    With neither it is advice that nothing checks. ``note``: what else is known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    id: str
    topic: str
    about: tuple[str, ...] = ()
    checked_by: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    says: tuple[Entry, ...]
    note: str = ""

    @property
    def is_checked(self) -> bool:
        return bool(self.checked_by or self.conditions)

    def entry(self, release: str, form: str = "") -> Entry | None:
        """What the rule says in ``release``; None where it does not hold."""
        return next((entry for entry in self.says if entry.form == form and entry.in_range(release)), None)

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
    return tuple(Rule.model_validate({"id": id_, "topic": name, **content}) for id_, content in _content(name).items())


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


@cache
def _content(name: str) -> dict[str, dict[str, Any]]:
    content: dict[str, dict[str, Any]] = read_yaml(RULES_DIR / f"{name}.yml")
    return content
