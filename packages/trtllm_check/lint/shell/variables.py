"""What the variables of a script hold as far as its text tells, along each way through it.

A variable without an entry is unknown. One that two ways set to different values is unknown behind them; of an array
that they make longer, what stands in front is known.
"""

import re
from collections.abc import Iterable, Sequence

LONGEST_VALUE = 10_000
TO_BE_FILLED = re.compile(r"\s*<[A-Za-z][\w ./-]*>\s*")  # by the reader


class Variables:
    """``values``: name -> its value, or the elements of an array. ``exported``: names that reach the tools."""

    def __init__(self, values: dict[str, list[str]] | None = None, exported: frozenset[str] = frozenset()) -> None:
        self.values = values or {}
        self.exported = exported

    def copy(self) -> "Variables":
        return Variables(dict(self.values), self.exported)

    def get(self, name: str) -> Sequence[str] | None:
        return self.values.get(name)

    def set(self, name: str, values: Sequence[str], *, more: bool = False) -> None:
        """``more``: behind what the variable holds, as ``+=`` does."""
        kept = self.values.get(name, []) if more else []
        joined = [*kept, *values][:LONGEST_VALUE]
        if sum(map(len, joined)) > LONGEST_VALUE or (len(values) == 1 and TO_BE_FILLED.fullmatch(values[0])):
            self.forget(name)
        else:
            self.values[name] = joined

    def positional(self, words: Sequence[str]) -> None:
        """``$1``, ``$2`` and so on, and ``$@``."""
        for name in [name for name in self.values if name.isdecimal() or name in ("@", "*")]:
            self.values.pop(name)
        for number, word in enumerate(words, 1):
            self.values[str(number)] = [word]
        self.values["@"] = self.values["*"] = list(words)

    def append(self, name: str, text: str) -> None:
        """``NAME+=text`` of a variable that is no array."""
        before = self.values.get(name)
        self.set(name, [(f"${{{name}}}" if before is None else "".join(before[:1])) + text])

    def forget(self, name: str) -> None:
        self.values.pop(name, None)

    def export(self, name: str) -> None:
        self.exported |= {name}

    @property
    def environment(self) -> dict[str, str]:
        """What reaches a tool that is started."""
        return {name: self.values[name][0] for name in sorted(self.exported) if self.values.get(name)}

    def meet(self, ways: Iterable["Variables"], before: "Variables") -> None:
        """Take over what holds whichever of ``ways`` was gone.

        A value that one way gives to a variable that was unknown before is its default: ``[ -z "$X" ] && X=1``.
        """
        ways = list(ways)
        for name in {name for way in ways for name in way.values}:
            found = [way.values.get(name) for way in ways]
            known = [value for value in found if value is not None]
            same = all(value == known[0] for value in known)
            if same and (len(known) == len(found) or name not in before.values):
                self.values[name] = known[0]
            elif len(known) == len(found) and (begin := common(known)):
                more = f"${{{name}}}"
                self.values[name] = begin if begin[-1] == more else [*begin, more]
            else:
                self.values.pop(name, None)
        for name in [name for name in self.values if not any(name in way.values for way in ways)]:
            self.values.pop(name)
        self.exported = frozenset().union(*(way.exported for way in ways))


def common(values: Sequence[Sequence[str]]) -> list[str]:
    """What several arrays begin with alike."""
    begin: list[str] = []
    for one in zip(*values, strict=False):
        if any(other != one[0] for other in one[1:]):
            break
        begin.append(one[0])
    return begin
