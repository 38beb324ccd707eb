"""A format of numbers that a line of prose, a comment or a table has run on GPUs without it: "FP8 (for A100/H100)".

A line counts that is about one format, and that neither compares nor forbids; one with a GPU that has the format counts
where both stand as one list behind the format. vLLM has weights of both formats on earlier GPUs, so the text is about
TensorRT-LLM.
"""

import re
from collections.abc import Iterator
from itertools import islice, pairwise

from trtllm_check.lint.card_names import KIND, capability_of, kind_of
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import word_at

RULE = "told-format"
FORMAT = re.compile(r"(?<![A-Za-z0-9])(?:(?P<fp8>FP8)|(?P<fp4>(?:NV)?FP4))(?![A-Za-z0-9])", re.IGNORECASE)
LEAST = {"fp8": (89, "FP8", "Ada and Hopper"), "fp4": (100, "NVFP4", "Blackwell")}
GENERATIONS = {"ampere": 80, "ada": 89, "hopper": 90, "blackwell": 100}
OURS = re.compile(r"tensorrt[-_ ]?llm|trt-?llm", re.IGNORECASE)
OTHERS = re.compile(r"vllm|sglang|lmdeploy|transformer[ _-]engine", re.IGNORECASE)
OTHER_FORMAT = re.compile(
    r"INT[48]|AWQ|GPTQ|B?F(?:P|loat)16|TF32|FP32|W[48]A|KV|weight[- _]only|marlin|smooth|16[- ]bit|gguf", re.IGNORECASE
)
NOT_SO = re.compile(
    r"\b(?:not?|non|never|without|unless|unlike|lacks?|only|instead|emulat\w*|fall\w*|falls? back|vs|versus|than|over"
    r"|compared?|requires?|needs?|from|newer|later|if|when|while|but|cannot|unsupported|unavailable|n/a|error|fails?"
    r"|why|slow\w*|faster|instead|before|deprecated|skip\w*|disabled?|warn\w*|remove\w*|avoid)\b|n't\b|\?|≥|>=|[❌✗✘×](?!\w)"
    r"|\|[ ]*[-–—][ ]*(?=\|)|不|无|非|需要|以上|仅|只",
    re.IGNORECASE,
)
BETWEEN = re.compile(r"[ ]?(?:[/,&+、和]|or|and|and the)[ ]?(?:NVIDIA )?")
STOPS = re.compile(r"[.;。；](?:\s|$)")
FURTHEST, LONGEST, MOST = 40, 300, 3


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for file, text in document.texts:
        if not FORMAT.search(text) or len(OURS.findall(text)) <= 2 * len(OTHERS.findall(text)):
            continue
        yield from islice(_of_text(text, file, platform.release.name), MOST)


def _of_text(text: str, file: str, release: str) -> Iterator[Draft]:
    start = 0
    for line in text.split("\n"):
        found = _claim(line)
        if found is not None:
            index, card, form = found
            _, kind, first = LEAST[form]
            place = word_at(text, start + index, card)
            yield from drafts(release, RULE, place, file=file, card=card, kind=kind, first=first)
        start += len(line) + 1


def _claim(line: str) -> tuple[int, str, str] | None:
    """Where a GPU stands that lacks the format of the line, how it is written, and the format."""
    if len(line) > LONGEST or OTHERS.search(line) or OTHER_FORMAT.search(line) or NOT_SO.search(line):
        return None
    formats = list(FORMAT.finditer(line))
    cards = list(KIND.finditer(line)) if formats else []
    kinds = {one.lastgroup or "" for one in formats}
    if not cards or len(kinds) != 1:
        return None
    (form,) = kinds
    sizes = [_capability(one["kind"]) for one in cards]
    if not all(sizes):
        return None
    old = [one for one, size in zip(cards, sizes, strict=True) if size < LEAST[form][0]]
    if not old:
        return None
    before = [one for one in formats if one.end() <= cards[0].start()]
    if len(old) < len(cards):
        listed = all(BETWEEN.fullmatch(line, one.end(), other.start()) for one, other in pairwise(cards))
        if not listed or not before:
            return None
    nearest = min(_apart(line, one, cards[0], cards[-1]) for one in formats)
    return (old[0].start(), old[0]["kind"], form) if nearest <= FURTHEST else None


def _apart(line: str, form: re.Match[str], first: re.Match[str], last: re.Match[str]) -> int:
    """The letters between a format and the cards; more than :data:`FURTHEST` where a sentence ends between them."""
    start, end = (form.end(), first.start()) if form.end() <= first.start() else (last.end(), form.start())
    return FURTHEST + 1 if end < start or STOPS.search(line, start, end) else end - start


def _capability(name: str) -> int:
    return GENERATIONS.get(name.lower()) or capability_of(kind_of(name))
