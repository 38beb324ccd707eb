"""What must not leave the machine of a run: its paths, secrets, addresses and serial numbers, taken out of outputs."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

Replacement = str | Callable[[re.Match[str]], str]

START = r"(?:(?<![\w.~}-])|(?<=\dm)|(?<=\\[ntr]))"
"""Where an absolute path begins: after no word; after a terminal's colour; after an escaped end of line."""
END = r"(?![\w-])"
VERSION = r"(?<!==)(?<![\w.-])(?<!version )(?<!TensorRT )(?<!TensorRT-LLM )"
"""What stands before four numbers that are an address, and no version such as TensorRT's 10.13.3.9."""
OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
OPEN_ADDRESSES = ("127.", "0.0.0.0")
"""Addresses that are the same on every machine, by their beginning."""

SECRETS = (
    r"\bhf_[A-Za-z0-9]{16,}",
    r"\bnvapi-[\w-]{16,}",
    r"\bgh[pousr]_[A-Za-z0-9]{20,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"(?<=Signature=)[0-9a-f]{64}",
    r"(?i:(?<=bearer )|(?<=basic ))[\w.~+/=-]{12,}",
)
PATTERNS: tuple[tuple[str, Replacement], ...] = (
    *((pattern, "[secret]") for pattern in SECRETS),
    (r"\b(?:GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b", "[GPU id]"),
    (r"\bip(?:-\d{1,3}){4}(?:\.[\w.-]+)?", "[host]"),
    (r"\b[\w-]+(?:\.[\w-]+)*\.(?:compute(?:-1)?|ec2)\.(?:internal|amazonaws\.com)\b", "[host]"),
    (rf"{VERSION}{OCTET}(?:\.{OCTET}){{3}}(?![\w.-]*\w)", lambda match: _address(match[0])),
    (rf"{START}/[^\s\"'<>()\[\]:,;\\]*?/(?:site|dist)-packages{END}", "site-packages"),
    (rf"{START}/(?:home|Users)/[\w.-]+", "~"),
    (rf"{START}/root{END}", "~"),
    (rf"{START}(?:/private)?/(?:var/)?tmp{END}", "temp"),
    (rf"{START}(?:/private)?/var/folders{END}", "temp"),
)
"""Looked for in this order."""
NOT_TEXT = ("image/png", "image/jpeg", "image/webp", "image/gif", "application/pdf")


def _address(found: str) -> str:
    return found if found.startswith(OPEN_ADDRESSES) else "[address]"


class Scrubber:
    """Takes out of texts what :data:`PATTERNS` find, and what is known of one machine.

    ``paths``: absolute path -> what stands for it, such as the workspace's; the longest goes first, relative ones and
    ``/`` are left out. ``words``: such as the machine's name; those of under four letters are left out.
    """

    def __init__(self, paths: Mapping[str, str], words: Iterable[str] = ()) -> None:
        known = sorted((path.rstrip("/") for path in paths if len(PurePosixPath(path).parts) > 1), key=len)[::-1]
        names = {path.rstrip("/"): name for path, name in paths.items()}
        rules: list[tuple[str, Replacement]] = [
            (f"{START}{re.escape(path)}{END}", _always(names[path])) for path in known if path.startswith("/")
        ]
        rules += [(rf"(?<!\w){re.escape(word)}(?!\w)", "[host]") for word in words if len(word) > 3]
        self._rules = [(re.compile(pattern), by) for pattern, by in (*rules, *PATTERNS)]

    def text(self, text: str) -> str:
        for pattern, by in self._rules:
            text = pattern.sub(by, text)
        return text

    def data(self, value: Any) -> Any:
        """JSON with its texts scrubbed, keys not; what is bytes in base64 by its MIME type stays."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.data(each) for each in value]
        if isinstance(value, Mapping):
            return {name: each if name in NOT_TEXT else self.data(each) for name, each in value.items()}
        return value


def _always(text: str) -> Callable[[re.Match[str]], str]:
    """A backslash in a replacement stands for itself."""
    return lambda _: text
