"""Whether a text is a serving.properties: by its lines and by the keys in them."""

import re

LMI_KEY = re.compile(
    r"^\s*(?:options?[._]\w|engine\s*[=:]|\w*rolling_batch|tensor_parallel_degree)", re.MULTILINE | re.IGNORECASE
)
SECTION = re.compile(r"^\[[\w .:@/\"-]+\][ \t\r]*$", re.MULTILINE)
LMI_SETTING = re.compile(r"^\s*(?:option\.\w+|engine)\s*[=:]", re.MULTILINE)
FEWEST_OTHERS = 5


def is_mostly_settings(text: str) -> bool:
    """False for a page with a serving.properties in it: many of its lines set nothing."""
    lines = [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith(("#", "!"))]
    others = sum("=" not in line for line in lines)
    return others < FEWEST_OTHERS or 4 * others < len(lines)


def is_properties(text: str) -> bool:
    """True for what may be a serving.properties: no file of sections, and a key of LMI's, right or nearly, in it."""
    return LMI_SETTING.search(text) is not None or (LMI_KEY.search(text) is not None and not SECTION.search(text))
