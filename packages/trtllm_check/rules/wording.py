"""The texts of a rule without a command: what stands in braces becomes words."""

import re
from collections.abc import Iterator

from trtllm_check.rules.table import Entry, Rule

PLAIN_WORD = re.compile(r"[a-z]+[ ,:']")
BRACES = re.compile(r"\{(\w+)[^{}]*\}")


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
    flags = " or ".join(dict.fromkeys(condition.at for condition in rule.conditions))
    labels = {"": entry.message, "Why: ": entry.why, "Do: ": entry.fix}
    for label, text in labels.items():
        if says_something(text):
            words = worded(text.replace("{flag}", flags) if flags else text, mark)
            yield f"{label}{words.rstrip('.')}." if label else sentence(words)


def sentence(text: str) -> str:
    """With a capital, unless it begins with a tool's or a flag's name, and one full stop."""
    start = text[:1].upper() if PLAIN_WORD.match(text) else text[:1]
    return f"{start}{text[1:].rstrip('.')}."
