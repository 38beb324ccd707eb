"""Commands that run in no release: two flags that never were together, or a flag that went before the model came."""

import re

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft
from trtllm_check.lint.models_told import model_told
from trtllm_check.releases.history import with_flag

FLAG = re.compile(r": (--[\w-]+)$")
REMOVED, TOO_NEW = "flag-removed", "flag-too-new"
OF_ONE_SCRIPT = frozenset({"trtllm-build", "trtllm-serve", "trtllm-bench"})  # no other program has its name


def in_no_release(draft: Draft, document: Document) -> str:
    """What every release lacks that has the flag: another flag of the command, or the model; "" for none."""
    match, one = FLAG.search(draft.message), draft.invocation
    if draft.rule not in (REMOVED, TOO_NEW) or match is None or one is None or one.tool not in OF_ONE_SCRIPT:
        return ""
    there = set(with_flag(one.tool, match[1]))
    model = model_told(document)
    if draft.rule == REMOVED and model is not None and model.certain and not there & set(model.releases):
        return f"{model.name} came with {model.releases[0]}: no release has both."
    for given in one.given:
        other = with_flag(one.tool, given.name) if given.name.startswith("--") else ()
        if other and there and not there.intersection(other):
            how = f"came with {other[0]}" if draft.rule == REMOVED else f"went with {other[-1]}"
            return f"{given.name} {how}: no release has both."
    return ""
