"""The one machine that prose, comments and titles tell: "on 4x A100 40GB", "GPU: L4", "显卡是 RTX 4090", "two 3090s".

A card counts where the text names no other kind and no other number, and says it plainly: a line that compares,
forbids or supposes ("faster than", "not on", "if you have") tells nothing, and all of the text's GPUs are unknown then.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from trtllm_check.lint.card_names import KIND, kind_of

Texts = tuple[tuple[str, str], ...]
MOST_MATCHES = 200
ONE_BLOCK = 2  # fences
SHORT = 16  # letters behind a name that may tell how many
NUMBER_WORDS = {
    **dict.fromkeys(
        ("a", "an", "one", "single", "一", "单", "ein", "eine", "einer", "une", "un", "una", "одна", "одной"), 1
    ),
    **dict.fromkeys(("two", "dual", "两", "双", "二", "zwei", "deux", "dos", "две", "двух"), 2),
    **dict.fromkeys(("four", "quad", "四", "vier", "quatre", "cuatro"), 4),
    **dict.fromkeys(("eight", "八", "acht", "huit", "ocho"), 8),
}
WORDS = (
    "a single|an?|one|single|two|dual|four|quad|eight|ein(?:er?)?"
    "|une(?: seule)?(?: carte)?|un(?:e? seule?)?|una(?: sola)?"
    "|одн(?:а|ой)|две|двух|zwei|deux|dos|vier|quatre|cuatro|acht|huit|ocho"
)
COUNT_BEFORE = re.compile(
    rf"(?<![\w.-])(?P<count>\d{{1,2}}|{WORDS})(?:[- ]?[x×*])?[ ]?(?:NVIDIA[- ])?(?:Tesla |GeForce )?$"
    r"|(?<![\d.-])(?P<of_cards>\d{1,2}|[一单两双二四八])[ ]?[张块卡枚장個个台][的の]?[ ]?(?:NVIDIA )?(?:Tesla )?$"
    r"|(?<![\w.-])(?P<gpus>\d{1,2}) (?:(?:NVIDIA )?GPUs?|cards?)[ ]?[(（:,-]?[ ]?(?:NVIDIA )?(?:Tesla )?$",
    re.IGNORECASE,
)
COUNT_BEHIND = re.compile(
    r"^s?[)）]? ?[x×*] ?(?P<count>\d{1,2})(?![\w.])"
    r"|^[)）]?[ ]?[,，的が]?[ ]?(?P<of_cards>\d{1,2}|[一单两双二四八한두])[ ]?(?:[张块卡枚장個个]|GPUs\b)",
    re.IGNORECASE,
)
KOREAN = {"한": 1, "두": 2}
# What compares or leaves a choice; and what supposes, forbids or advises, which the title of a report does not.
COMPARES = (
    r"\b(?:than|or|vs|versus|compared?|like|such as|e\.g|etc|for example|example|between|any|most|typical\w*|price"
    r"|cost\w*|hour|buy|rent|benchmark\w*|results?|achiev\w*|throughput|tokens?|faster|slower|optimi[sz]ed|up to|per"
    r"|nodes|\d[- ]node|least|minimum|recommend\w*)\b|至少|建议|推荐|或|比|\$|[<>≥≤~?/|]"
)
SUPPOSES = (
    r"\b(?:not|no|never|unless|if|when|requires?|requirements?|prerequisites?|optional\w*|need(?:s|ed)?|instead|supports?"
    r"|supported|without|only|too|also|smaller|bigger|larger|slow|enough|previous(?:ly)?|before|upgraded?|replaced?|moved"
    r"|fits?|elsewhere|for display|would|could|should)\b|n't\b|需要|不|如果|够|之前|换"
)
NOT_PLAIN = re.compile(f"{SUPPOSES}|{COMPARES}", re.IGNORECASE)
OF_A_TITLE = re.compile(COMPARES, re.IGNORECASE)
# Advice to who has such a card; and a setting that is commented out.
ADVICE = re.compile(
    r"s?[^.;\n]{0,30}\b(?:use|set|add|try|change|lower|reduce|increase|switch|pass|choose|pick|users|owners)\b",
    re.IGNORECASE,
)
OFF = re.compile(r"[ \t]*#[ \t]*(?:export )?\w+=\S*[ \t]*")
TITLE = re.compile(r"#{1,2} [^\n]*\r?\n[ \t]*\r?\n")
# Several machines, whose GPUs no one line tells.
CLUSTER = re.compile(
    r"\bray start\b|\bRAY_|multi-?node|\bnodes\b|--nnodes|\bcluster\b|hostfile|LeaderWorkerSet", re.IGNORECASE
)
MAKER = r"(?:an? )?(?:NVIDIA )?(?:Tesla |GeForce )?$"
ITS_KIND = re.compile(
    r"(?:\b(?:gpus?|hardware|machine|server|card|box|host|node|vm|accelerator|device|env(?:ironment)?"
    r"|graphics card|video card|vram"
    r"|runs? on|running on|deployed on|Grafikkarte|carte graphique|tarjeta(?: gráfica)?|видеокарта|карта)"
    rf"(?:[ _]?(?:name|type|model))?\**|显卡|显存|环境|机器|配置|卡)[ \t]*(?:[:=：]|是|为)?\**[ \t]*{MAKER}"
    rf"|\b(?:runs|running|deployed|served|hosted) on (?:the |my |our )?{MAKER}"
    rf"|\b(?:my|our|use|used|using|have|got|with) (?:the |my |our )?{MAKER}|\bGPU[はが는은]?[ ]?{MAKER}"
    rf"|(?:使用|用|采用|用的是|用的|单卡|在)[ ]?{MAKER}",
    re.IGNORECASE,
)
ON = re.compile(rf"\bon (?:the |my |our )?{MAKER}|上?在[ ]?{MAKER}", re.IGNORECASE)
SAYS = re.compile(r"[ \t]*(?:echo|printf|print|log\w*)\b")
ALONE = re.compile(
    r"^[ \t]*(?:#|//|[-*>])*[ \t]*(?:NVIDIA )?(?:Tesla )?|[ \t.]+$"
)  # around a card that is all of a line
# A line that lists a machine: its system, its driver, its memory.
SURROUNDINGS = re.compile(
    r"\b(?:CUDA|Ubuntu|driver|VRAM|OS|Debian|CentOS|WSL2?|python ?3)\b|显存|显卡|驱动", re.IGNORECASE
)
# A row of a table of two columns, which tells the one machine: | GPU | 1x L4 |
TWO_CELLS = re.compile(
    r"[ \t]*\|[ \t]*\**(?:gpus?|hardware|machine|accelerators?|instance|gpu type|显卡)\**[ \t]*"
    r"(?P<cell>\|[^|]*)\|[ \t]*\r?",
    re.IGNORECASE,
)
OF_THE_HUB = re.compile(r"(?<![\w./-])[A-Za-z][\w.-]*/[\w.-]*\d[\w.-]*")  # a model, whose slash offers no choice
TWO_LANGUAGES = re.compile(r"(?<=\w) / (?=[^\x00-\x7f])")  # a heading in two languages
CELL = re.compile(r"\|[ \t]*\**(?:NVIDIA )?(?:Tesla )?$")
AS_NVIDIA_SMI = re.compile(r"(?:^|[\s#|:*-])NVIDIA $")  # before a name with its form, as the driver prints it
BEHIND_CODE = re.compile(r"(?<=\S)[ \t]+#[ ]")
# A card that is told by its memory alone, or by the line in which its memory ran out.
MEMORY_ALONE = re.compile(
    r"\b(?:my|the|a|one|single) (?:gpu|card|graphics card)\b[^\n.]{0,20}?\b(?P<told>\d{1,3}) ?GB\b"
    r"|\b(?:single|one|an?) (?P<gpu>\d{1,3}) ?GB (?:gpu|card|vram)\b"
    r"|\bGPU \d has a total capacity of (?P<capacity>[\d.]+) GiB|\(GPU \d; (?P<total>[\d.]+) GiB total capacity",
    re.IGNORECASE,
)


GIGABYTES = re.compile(r"\d ?GB\b", re.IGNORECASE)


# A number of GPUs without their kind: "GPU Count: 4", "a server with 4 GPUs", what PyTorch and nvidia-smi topo print.
COUNT_ALONE = re.compile(
    r"^(?:[-*#|>][^\S\n]*)*\**(?:number of gpus|#?gpu(?:s| count| num(?:ber)?|数量|数)?|num[_ ]gpus"
    r"|显卡数量|gpu_count)\**"
    r"(?:[^\S\n]*\||:[^\S\n]|：)[^\S\n]*\**(?P<listed>\d{1,2})\**(?=[^\S\n]*(?:\||\(|$))"
    r"|\b(?:has|have|having|with|of|got) (?P<has>\d{1,2}|one|two|four|eight) (?:NVIDIA )?(?:GPUs?|graphics cards)\b"
    r"|^>>> torch\.cuda\.device_count\(\)\n(?P<printed>\d{1,2})$",
    re.IGNORECASE | re.MULTILINE,
)
TOPOLOGY = re.compile(r"^[ \t]+GPU0(?P<rest>(?:[ \t]+GPU\d+)*)[ \t]", re.MULTILINE)
TABLE_ROW = re.compile(r"[ \t]*\|[^|\n]*\|[^|\n]*\|[ \t]*")


class ToldInWords(NamedTuple):
    """``kind``: as :func:`~trtllm_check.lint.card_names.kind_of` names it; ``memory``: GB as told, or ""."""

    kind: str
    memory: str
    number: int | None = None
    line: int = 0


def kinds(text: str) -> Iterator[re.Match[str]]:
    """The cards and other accelerators that a text names."""
    return islice(KIND.finditer(text), MOST_MATCHES)


def told_in_words(texts: Texts) -> ToldInWords | None:
    """``# on 4x A100 40GB``."""
    found: set[str] = set()
    memories: set[str] = set()
    counts: dict[int, int] = {}  # how many -> the line
    is_told = False
    for _, text in texts:
        is_page = text.count("```") > ONE_BLOCK  # which may be about several
        title = found_title.end() if (found_title := TITLE.match(text)) is not None else 0
        for match in kinds(text):
            start = text.rfind("\n", 0, match.start()) + 1
            end = text.find("\n", match.end())
            line, ahead = text[start : end if end >= 0 else len(text)], text[start : match.start()]
            line, ahead = _piece(line, ahead)
            form = (match["form"] or "")[1:].lower()
            found.add(kind_of(f"{match['kind']} {form}" if form in ("pcie", "nvl") else match["kind"]))
            if len(found) > 1:
                return None
            memories |= {match["memory"]} if match["memory"] else set()
            behind = text[match.end() : match.end() + SHORT].partition("\n")[0]
            if not _is_plain(line, line[len(ahead) + len(match[0]) :], is_title=start < title):
                if is_page:
                    return None
                continue  # it tells of no machine, and of no other kind
            number = _number(ahead, behind)
            is_told = is_told or number is not None or _is_its_own(match, line, ahead, is_title=start < title)
            if number is not None:
                counts.setdefault(number, text.count("\n", 0, start) + 1)
    if any(CLUSTER.search(text) for _, text in texts):
        return None
    alone = _counts_alone(texts)
    if alone is None:
        return None
    for number, line_number in alone.items():
        counts.setdefault(number, line_number)
    if not found:
        return _by_memory(texts) or (ToldInWords("", "", *counts.popitem()) if len(counts) == 1 else None)
    if not is_told or len(memories) > 1 or len(counts) > 1 or 0 in counts:
        return None
    return ToldInWords(found.pop(), memories.pop() if memories else "", *(counts.popitem() if counts else (None, 0)))


def _piece(line: str, ahead: str) -> tuple[str, str]:
    """Of a row of a table its cell, and of code the comment behind it."""
    cells = TWO_CELLS.fullmatch(line)
    if cells is not None and len(ahead) >= cells.start("cell"):
        return cells["cell"][1:], ahead[cells.start("cell") :]
    for comment in BEHIND_CODE.finditer(ahead):
        return line[comment.end() :], ahead[comment.end() :]
    return line, ahead


def _is_plain(line: str, behind: str, *, is_title: bool) -> bool:
    plain = TWO_LANGUAGES.sub(" ", OF_THE_HUB.sub("", line))
    if is_title:
        return OF_A_TITLE.search(plain) is None
    return NOT_PLAIN.search(plain) is None and ADVICE.match(behind) is None and OFF.fullmatch(line) is None


def _number(ahead: str, behind: str) -> int | None:
    found = COUNT_BEFORE.search(ahead) or COUNT_BEHIND.match(behind)
    if found is None:
        return None
    word = next(one for one in found.groups() if one).lower().removeprefix("a ")
    if word.isdecimal():
        return int(word)
    return NUMBER_WORDS.get(word.split()[0]) or KOREAN.get(word)


def _is_its_own(match: re.Match[str], line: str, ahead: str, *, is_title: bool) -> bool:
    """True for a card that the line gives to the machine of the text."""
    if match["form"] and match["memory"] and AS_NVIDIA_SMI.search(ahead):
        return True  # as the driver prints it
    if ITS_KIND.search(ahead) or CELL.search(ahead):
        return True
    if (is_title or SAYS.match(line)) and ON.search(ahead):
        return True
    if not ALONE.sub("", ahead + line[len(ahead) + len(match[0]) :]):
        return True
    return bool(match["memory"]) and SURROUNDINGS.search(line) is not None


def _counts_alone(texts: Texts) -> dict[int, int] | None:
    """Numbers of GPUs without a kind, and their lines; None where a line supposes one."""
    found: dict[int, int] = {}
    for _, text in texts:
        for match in islice(COUNT_ALONE.finditer(text), MOST_MATCHES):
            line = text[text.rfind("\n", 0, match.start() + 1) + 1 :].partition("\n")[0]
            if match["has"] and NOT_PLAIN.search(OF_THE_HUB.sub("", line)):
                return None
            if match["listed"] and "|" in line and not TABLE_ROW.fullmatch(line):
                continue
            word = next(one for one in match.groups() if one).lower()
            number = NUMBER_WORDS.get(word) or int(word)
            found.setdefault(number, text.count("\n", 0, match.end()) + 1)
        for topology in TOPOLOGY.finditer(text):
            found.setdefault(1 + len(topology["rest"].split()), text.count("\n", 0, topology.start()) + 1)
    return found


def _by_memory(texts: Texts) -> ToldInWords | None:
    """ "My GPU has 24GB": of a card without a name."""
    found: set[str] = set()
    for _, text in texts:
        for match in islice(MEMORY_ALONE.finditer(text), MOST_MATCHES):
            line = text[text.rfind("\n", 0, match.start()) + 1 :].partition("\n")[0]
            is_printed = match["capacity"] or match["total"]
            if not is_printed and (NOT_PLAIN.search(OF_THE_HUB.sub("", line)) or len(GIGABYTES.findall(line)) > 1):
                return None
            found.add(str(round(float(next(one for one in match.groups() if one)))))
    return ToldInWords("", found.pop()) if len(found) == 1 else None
