"""What a page shows as it was, or as it is wrong: the first of two pieces, ``# Before`` and ``# After``.

The reader has the second, and the first is there to be compared with it: nobody is to run it.
"""

import re
from bisect import bisect_right
from functools import lru_cache

from trtllm_check.lint.shell.words import lines_of

BEFORE = (
    r"(?:common )?mistakes?|wrong|incorrect|bad|before|old(?:er)?|previous(?:ly)?|original(?:ly)?|formerly"
    r"|eski|旧|之前|修改前|변경 전|vorher|alt|avant|antes"
)
AFTER = (
    r"correct|right|good|fixed|after(?:wards)?|new(?:er)?|now|current(?:ly)?"
    r"|yeni|新|之后|修改后|변경 후|nachher|neu|après|después|depois"
)
OF = r"(?: (?:version|config\w*|code|setup|way|file|image|command|approach|behaviou?r))?"
MARK = re.compile(rf"(?:(?P<before>{BEFORE})|(?P<after>{AFTER})){OF}(?: \([^)\n]{{0,60}}\))?", re.IGNORECASE)
"""What such a line says without its marks, and nothing else: ``# Before (wrong)``, ``**Old (vLLM):**``."""
SIGN, AROUND = re.compile(r"[#*_:：/(]"), re.compile(r"^[^\w(]+|[\s*_:：]+$")
LONGEST = 100
FARTHEST = 60  # lines between the two


def is_replaced(text: str, line: int) -> bool:
    """True for a line that stands below such a mark of what was, which one of what is comes after."""
    marks = _marks(text)
    at = bisect_right(marks, (line, True)) - 1
    if at < 0 or at + 1 >= len(marks):
        return False
    (first, is_before), (second, goes_on) = marks[at], marks[at + 1]
    return is_before and not goes_on and second - first <= FARTHEST


@lru_cache(maxsize=16)
def _marks(text: str) -> list[tuple[int, bool]]:
    """The lines of the marks, in order, and whether each is of what was."""
    lines = enumerate(lines_of(text), 1)
    marked = [(number, line) for number, line in lines if len(line) <= LONGEST and SIGN.search(line)]
    found = [(number, MARK.fullmatch(AROUND.sub("", line))) for number, line in marked]
    return [(number, match["before"] is not None) for number, match in found if match is not None]
