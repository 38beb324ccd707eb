"""Options of ``hf download`` and ``huggingface-cli download`` that are written as no version takes them."""

from collections.abc import Iterator
from difflib import get_close_matches

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, Swap, drafts, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.names import is_open

FAMILY = "hub_cli"
NEAR = 0.8
TOOLS = ("hf", "huggingface-cli")
COMMANDS = ("download", "upload")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for one in document.of(*TOOLS):
        command = one.arguments[0].text if one.arguments else ""
        if command in COMMANDS:
            yield from _options(one, command, platform.release.name)


def _options(one: Invocation, command: str, release: str) -> Iterator[Draft]:
    known = rule_data(FAMILY)[command].split()
    for word in one.arguments:
        name, sign, value = word.text.partition("=")
        if not name.startswith("--") or name in known or is_open(name) or name == "--":
            continue
        if any(full.startswith(name) for full in known):
            continue  # argparse completes it
        plain = name.replace("_", "-")
        close = [plain] if plain in known else get_close_matches(name, known, 1, NEAR)
        if close:
            edits = (Swap(word, f"{close[0]}{sign}{value}"),)
            about = {"tool": one.tool, "command": command, "name": name, "instead": close[0]}
            yield from drafts(release, "hub-option", word, edits=edits, invocation=one, **about)
