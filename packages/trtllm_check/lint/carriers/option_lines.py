"""The lines of a file that ``vllm serve --config`` reads, and such a file with lines that are none of YAML."""

import re

from trtllm_check.releases.vllm import options_of

ENTRY = re.compile(r"^(?P<key>[A-Za-z][\w-]*)[ \t]*:(?:[ \t]+(?P<value>[^#\n]*?))?[ \t]*(?:#.*)?$")
ITEM = re.compile(r"^[ \t]*-[ \t]+(?P<value>[^#\n]+?)[ \t]*(?:#.*)?$")
AS_WORDS = re.compile(r"(?:--)?[a-z]+(?:[_-][a-z]+)+(?:[ \t]+[\w./-]+)?[ \t]*(?:#.*)?$")
SERVE = "serve"
ENOUGH, MOST_UNKNOWN = 2, 1
MOST_BROKEN = 3


def is_broken_config(text: str) -> bool:
    """True for such a file, where a line or two of it are written as on a command line: ``--enable-lora true``."""
    lines = [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    keys = [match["key"].replace("_", "-") for line in lines if (match := ENTRY.match(line))]
    others = [line for line in lines if not ENTRY.match(line) and not ITEM.match(line)]
    known = sum(key in options_of(SERVE) for key in keys)
    is_broken = 0 < len(others) <= MOST_BROKEN and all(map(AS_WORDS.match, others))
    return is_broken and known > ENOUGH and len(keys) - known <= MOST_UNKNOWN
