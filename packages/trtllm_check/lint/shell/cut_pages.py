"""Pages that begin within a block of code: what stands before their first fence."""

import re

CUT = re.compile(r"(?:[ \t]*\n)*(?:[ ]{4,}|\t+)(?:- )?[\"']?[\w-][\w.-]*[\"']?[ ]?(?::[ ]|:$|=|,|\()", re.MULTILINE)
"""The first line of what was cut out of the middle of a block: a field or a setting far from the margin."""
SENTENCE = re.compile(
    r"^(?:#{2,6}[ ]|[-*>][ ](?![-\"'\w.]+:)|\*\*|[A-Z][\w'’]+[ ][a-z]+[ ][\w ,'’]+[.:]?$)", re.MULTILINE
)


def is_cut_out(before: str) -> bool:
    """True for the rest of a block, which has no sentence in it."""
    return CUT.match(before) is not None and not SENTENCE.search(before)
