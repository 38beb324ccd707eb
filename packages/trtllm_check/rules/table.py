"""Reads the table: one file per topic, each a mapping of rule ids. A topic is read when it is first needed."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from serving_base.yaml_files import read_yaml
from trtllm_check.releases import Release, Tool
from trtllm_check.releases.load import in_range, range_in_words

RULES_DIR = Path(__file__).parent
TOPICS = {
    "attention": "FP8 attention and KV cache",
    "gemm": "GEMM, MLP and all-reduce",
    "parallelism": "Parallelism",
    "sizes": "Sizes",
    "memory": "Memory of one GPU",
    "quantization": "Quantization",
    "versions": "One release for everything",
    "installs": "Packages, wheels and images",
    "templates": "Triton's model repository",
    "requests": "Requests",
    "serving": "trtllm-serve",
    "vllm": "vLLM",
    "lmi": "LMI",
    "sagemaker": "SageMaker",
    "options": "Options of the LLM API",
    "containers": "Containers",
    "manifests": "Manifests of Kubernetes and docker compose",
    "shell": "The shell",
    "arguments": "Arguments",
}
Severity = Literal["error", "warning", "info"]
Wanted = Sequence[str | int] | int
PLAIN_WORD = re.compile(r"[a-z]+[ ,:']")
BRACES = re.compile(r"\{(\w+)[^{}]*\}")


class Entry(NamedTuple):
    """What a rule says in the releases ``since`` to ``until``.

    ``severity``: error (the tool refuses, or its result is wrong), warning (silently not what was meant, or not
    certain) or info (good to know). ``message``: what happens. ``{...}`` stand for what is known of one command.
    ``form``: which form of the rule this is, where one rule says several things; conditions and code name it.
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
    """When a rule speaks of a command of ``tool``: all of ``when`` has to hold.

    A key of ``when``, and what it compares:

    - ``--flag``: its value as written, ``switch`` for a bare one, ``absent`` without it, ``given`` for all but disable
    - ``effective --flag``: its value, or the release's default
    - ``weights``, ``kv_cache``, ``tp``, ``arch``, ``max_batch_size``: what is known; what is not known fits nothing
    - ``<fact> not``: any known value but these; ``<fact> above``: more than that

    ``at``: the flag that a finding stands at, else it stands at the tool's own word. ``form``: the entries that it is
    about. ``put``, ``drop``: flags that correct the command, ``switch on`` as the release writes it; ``quantize``:
    flags of the command that made the checkpoint, if that is known, instead.
    """

    tool: str
    when: Mapping[str, Sequence[str | int] | int]
    at: str = ""
    since: str = ""
    until: str = ""
    form: str = ""
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


@cache
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
    return Rule(id_, topic, entries, tuple(about), tuple(checked_by), tuple(map(_condition, conditions)), note)


def _condition(content: dict[str, Any]) -> Condition:
    """``when`` with tuples for lists: each is compared with every command, and worked out once."""
    when = {key: tuple(wanted) if isinstance(wanted, list) else wanted for key, wanted in content["when"].items()}
    return Condition(**{**content, "when": when})


@cache
def _content(name: str) -> dict[str, dict[str, Any]]:
    content: dict[str, dict[str, Any]] = read_yaml(RULES_DIR / f"{name}.yml")
    return content


class CommandFacts(NamedTuple):
    """One command as the conditions see it, in a text or about to be written.

    ``value``: a flag as written, "" for a bare one, None without it. ``facts``: by name.
    """

    tool_name: str
    tool: Tool
    value: Callable[[str], str | None]
    facts: Mapping[str, str | int | None]

    def meets(self, condition: Condition) -> bool:
        """True where all holds that a condition on this tool asks for."""
        return all(self.holds(key, wanted) for key, wanted in condition.when.items())

    def known(self, condition: Condition) -> dict[str, Any]:
        """What the texts of the condition's rule may name."""
        return {**self.facts, "flag": condition.at, "value": self.value(condition.at)}

    def holds(self, key: str, wanted: Wanted) -> bool:
        name, _, how = key.partition(" ")
        if name == "effective":
            return self.effective(how) in _texts(wanted)
        if name.startswith("-"):
            return not _texts(wanted).isdisjoint(self.written(name))
        value = self.facts[name]
        if value in ("", None):
            return False
        if how == "above":
            return isinstance(value, int) and isinstance(wanted, int) and value > wanted
        return (str(value) in _texts(wanted)) != (how == "not")

    def written(self, flag: str) -> set[str]:
        """What may stand in the table for how ``flag`` is written."""
        argument, value = self.tool.argument(flag), self.value(flag)
        if value is None:
            return {"absent"}
        if argument is None:
            return set()
        if argument.is_switch:
            return {"switch", "given"}
        if not value or not self.tool.accepts(flag, value):
            return set()
        return {value} if value == "disable" else {value, "given"}

    def effective(self, flag: str) -> str:
        argument, value = self.tool.argument(flag), self.value(flag)
        return "" if argument is None else str(argument.default) if value is None else value


def met(topics: Iterable[str], case: CommandFacts, release: str) -> Iterator[tuple[Rule, Condition]]:
    """The rules of ``topics`` that speak of ``case`` in ``release``, each with the condition that it meets."""
    for rule, condition in _speaking(tuple(topics), case.tool_name, release):
        if case.meets(condition):
            yield rule, condition


@cache
def _speaking(topics: tuple[str, ...], tool: str, release: str) -> tuple[tuple[Rule, Condition], ...]:
    """The rules of ``topics`` that may speak of a command of ``tool``, with their conditions on it."""
    return tuple(
        (rule, condition)
        for name in topics
        for rule in topic(name)
        for condition in rule.conditions
        if condition.tool == tool
        and in_range(release, condition.since, condition.until)
        and rule.entry(release, condition.form)
    )


def objections(subject: str, case: CommandFacts, release: str, *, advice: bool = False) -> list[str]:
    """Why ``case`` should not be written: what the rules of a topic say of it, with their sources.

    ``advice``: also what is only good to know.
    """
    found = (
        (rule.entry(release, condition.form), case.known(condition))
        for rule, condition in met((subject,), case, release)
    )
    texts = (
        f"{entry.message}: {entry.why} ({entry.source})".format(**known)
        for entry, known in found
        if entry and (advice or entry.severity != "info")
    )
    return list(dict.fromkeys(texts))


@cache
def _texts(wanted: Wanted) -> frozenset[str]:
    return frozenset([str(wanted)] if isinstance(wanted, int) else map(str, wanted))


def worded(text: str, mark: str = "<{}>") -> str:
    """``text`` with the names of what a command would fill in; ``mark`` says how a name is shown."""
    text = text.replace("{{", "\0").replace("}}", "\1")
    text = BRACES.sub(lambda match: mark.format(match[1].replace("_", " ")), text)
    return text.replace("\0", "{").replace("\1", "}")


def says_something(text: str) -> bool:
    """False for a text that a command fills in whole."""
    return bool(BRACES.sub("", text).strip())


def sentences(rule: Rule, entry: Entry, mark: str = "<{}>") -> Iterator[str]:
    """What happens, why, and what to do, as sentences."""
    conditions = (condition for condition in rule.conditions if condition.form == entry.form)
    flags = " or ".join(dict.fromkeys(condition.at for condition in conditions))
    labels = {"": entry.message, "Why: ": entry.why, "Do: ": entry.fix}
    for label, text in labels.items():
        if says_something(text):
            words = worded(text.replace("{flag}", flags) if flags else text, mark)
            yield f"{label}{words.rstrip('.')}." if label else sentence(words)


def sentence(text: str) -> str:
    """With a capital, unless it begins with a tool's or a flag's name, and one full stop."""
    start = text[:1].upper() if PLAIN_WORD.match(text) else text[:1]
    return f"{start}{text[1:].rstrip('.')}."
