"""One command as the conditions of the rules see it, whether it stands in a text or is about to be written.

A key of a condition's ``when``, and what it compares:

- ``--flag``: its value as written, ``switch`` for a bare one, ``absent`` without it, ``given`` for all but disable
- ``effective --flag``: its value, or the release's default
- ``weights``, ``kv_cache``, ``tp``, ``arch``, ``max_batch_size``: what is known; what is not known fits nothing
- ``<fact> not``: any known value but these; ``<fact> above``: more than that
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from trtllm_check.releases import Tool
from trtllm_check.releases.ranges import in_range
from trtllm_check.rules.table import Condition, Rule

Wanted = Sequence[str | int] | int


class Case(NamedTuple):
    """One command of a tool. ``value``: a flag as written, "" for a bare one, None without it. ``facts``: by name."""

    tool_name: str
    tool: Tool
    value: Callable[[str], str | None]
    facts: Mapping[str, str | int | None]

    def meets(self, condition: Condition, release: str) -> bool:
        return (
            condition.tool == self.tool_name
            and in_range(release, condition.since, condition.until)
            and all(self.holds(key, wanted) for key, wanted in condition.when.items())
        )

    def known(self, condition: Condition) -> dict[str, Any]:
        """What the texts of the condition's rule may name."""
        return {**self.facts, "flag": condition.at, "value": self.value(condition.at)}

    def holds(self, key: str, wanted: Wanted) -> bool:
        name, _, how = key.partition(" ")
        if name == "effective":
            return self.effective(how) in _texts(wanted)
        if name.startswith("-"):
            return self.written(name) & _texts(wanted) != set()
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


def met(rules: Iterable[Rule], case: Case, release: str) -> Iterator[tuple[Rule, Condition]]:
    """The rules that speak of ``case`` in ``release``, each with the condition that it meets."""
    for rule in rules:
        for condition in rule.conditions:
            if case.meets(condition, release) and rule.entry(release):
                yield rule, condition


def objections(rules: Iterable[Rule], case: Case, release: str) -> list[str]:
    """Why ``case`` should not be written: what the rules that are more than advice say of it, with their sources."""
    found = ((rule.entry(release), case.known(condition)) for rule, condition in met(rules, case, release))
    texts = (
        f"{entry.message}: {entry.why} ({entry.source})".format(**known)
        for entry, known in found
        if entry and entry.severity != "info"
    )
    return list(dict.fromkeys(texts))


def _texts(wanted: Wanted) -> set[str]:
    return {str(wanted)} if isinstance(wanted, int) else {str(one) for one in wanted}
