"""Signs of a shell in the wrong order: standard error sent after standard output, a brace in front of its dollar."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import lines_of, word_at

ORDER = re.compile(
    r"2>&1[ \t]+1?(?P<sign>>>?)[ \t]*(?P<file>(?!/dev/null)[\w./${}~\"'-]*[\w}\"'])[ \t]*(?:&(?![&>])|;|&&|$|\))"
)
CAPTURED = re.compile(r"\$\(|`|\|")
DATA = re.compile(r"\.(?:jsonl?|csv|tsv|ya?ml|xml|html?|md|pbtxt|properties)[\"']?$")  # which a traceback would spoil
BRACE = re.compile(r"(?<![\w$\\{])\{\$(?P<name>[A-Za-z_]\w*)(?P<rest>:?[-=?+][^{}\n]*)\}(?!\})")
OTHER_LANGUAGE = re.compile(r"\bf[\"'][^\"'\n]*$|<\?php|\{%|\{\{")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    texts = dict(document.texts)
    lines = {file: lines_of(text) for file, text in texts.items() if "2>&1" in text}
    seen: set[tuple[str, int]] = set()
    for command in document.commands:
        found = lines.get(command.file)
        at = command.end_line
        if found is None or at > len(found) or (command.file, at) in seen or not command.redirects:
            continue
        line = found[at - 1]
        match = ORDER.search(line) if "2>&1" in line else None
        if match and not DATA.search(match["file"]) and not CAPTURED.search(line[: match.start()]):
            seen.add((command.file, at))
            known: dict[str, Any] = {"target": match["file"], "right": f"{match['sign']} {match['file']} 2>&1"}
            place = word_at(texts[command.file], sum(len(one) + 1 for one in found[: at - 1]) + match.start(), "2>&1")
            yield from drafts(release, "command-form", place, form="streams", file=command.file, **known)
    for file, text in document.texts:
        for match in BRACE.finditer(text) if "{$" in text else ():
            line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
            if not OTHER_LANGUAGE.search(line):
                known = {"written": match[0], "right": f"${{{match['name']}{match['rest']}}}"}
                place = word_at(text, match.start(), match[0])
                yield from drafts(release, "dollar-missing", place, form="inside", file=file, **known)
