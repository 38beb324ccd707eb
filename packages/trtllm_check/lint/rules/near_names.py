"""Names with a slip in them: of a setting, a folder, a variable of the script, a key of a chart.

A name counts as a slip of another where one letter is missing, too many, or changed places with its neighbour.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.served import served
from trtllm_check.lint.rules.settings import settings
from trtllm_check.lint.rules.vllm import engine_arguments
from trtllm_check.lint.shell.pasted import DOCKERFILE_LINE
from trtllm_check.lint.shell.words import Word, word_at

FAMILY, RULE = "near_names", "name-with-a-slip"
LONG = 12  # letters of a setting's name, of which one more or less is no other name
SHORTEST = 5
FOLDER = re.compile(
    r"(?<![\w/.-])(?P<parent>/opt|/etc|/usr|/var/lib|(?:~|/root|\$\{?HOME\}?)/\.cache)/(?P<name>[A-Za-z][\w-]+)"
)
SCRIPT = re.compile(r"\A#!.*sh\b")
SETS = re.compile(r"^[ \t]*(?:local[ \t]+|readonly[ \t]+)?(?P<name>[A-Z][A-Z0-9_]*)=", re.MULTILINE)
USES = re.compile(r"(?<!\\)\$\{?(?P<name>[A-Z][A-Z0-9_]*)\b(?![:=?+-]|[ \t]*:)")
OTHERWISE = re.compile(r"^[ \t]*(?:source|\.|eval|set -a)[ \t]+\S|\b(?:read|getopts|mapfile|envsubst)\b", re.MULTILINE)
COPIES = re.compile(r"^(?:COPY|ADD)[ \t]+(?:--\S+[ \t]+)*(?P<path>\.(?P<name>[A-Za-z]\w+)/\S*)", re.MULTILINE)
WHEEL = re.compile(r"(?<![\w.-])trt-?llm[\w.-]*\*[\w.*-]*\.whl")
DOWNLOADED = re.compile(r"--local[-_]dir[= ][\"']?(?:\./)?(?P<folder>[A-Za-z][\w-]*)/")
CHART_KEY = re.compile(r"--set(?:-string)?[ =][\"']?(?P<parent>\w+)\.(?P<name>\w+)=")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    yield from _settings(document, release)
    yield from _model_folders(document, release)
    for file, text in document.texts:
        yield from _folders(text, file, release)
        for match in CHART_KEY.finditer(text) if "--set" in text else ():
            names = rule_data(FAMILY)["chart"].get(match["parent"], "").split()
            yield from _near(text, file, match, names, release)
        for match in [*WHEEL.finditer(text)][:1] if ".whl" in text else ():
            place = word_at(text, match.start(), match[0])
            yield from drafts(release, RULE, place, form="wheel", file=file, name=match[0])
        if SCRIPT.match(text):
            yield from _variables(text, file, release)
        if DOCKERFILE_LINE.search(text):
            yield from _copies(text, file, release)


def _model_folders(document: Document, release: str) -> Iterator[Draft]:
    """``--model modles/x`` where the text downloads to ``models/x``."""
    folders = {match["folder"] for _, text in document.texts for match in DOWNLOADED.finditer(text)}
    for one in served(document) if folders else ():
        parent, sign, _ = one.model.removeprefix("./").partition("/")
        right = next((folder for folder in sorted(folders) if sign and is_slip(parent, folder)), "")
        if right and parent not in folders and len(parent) >= SHORTEST:
            known: dict[str, Any] = {"name": one.model, "parent": parent, "right": right}
            yield from drafts(release, RULE, one.place("model"), form="model", file=one.file, **known)


def is_slip(name: str, right: str) -> bool:
    """True where one letter in front of the last is missing, too many, or changed places with the next."""
    if abs(len(name) - len(right)) > 1:
        return False
    if len(name) == len(right):
        places = range(len(name) - 1)
        return name != right and any(
            name[:at] + name[at + 1] + name[at] + name[at + 2 :] == right for at in places if name[at].isalpha()
        )
    longer, shorter = sorted((name, right), key=len, reverse=True)
    return any(longer[:at] + longer[at + 1 :] == shorter for at in range(len(longer) - 1))


def _meant(name: str, known: Iterable[str]) -> str:
    """The one of ``known`` that ``name`` is a slip of; "" for none, and for one of them."""
    names = set(known)
    return "" if name in names else next((one for one in sorted(names) if is_slip(name, one)), "")


@cache
def _setting_names() -> frozenset[str]:
    """Arguments of the engine in capitals, as compose files and scripts name them; slips of others: box_names."""
    return frozenset(name.upper() for name in engine_arguments() if len(name) >= LONG)


def _settings(document: Document, release: str) -> Iterator[Draft]:
    """``VTENSOR_PARALLEL_SIZE=2`` that nothing in the text reads."""
    seen: set[str] = set()
    for name, _, place, file in settings(document):
        if name in seen or len(name) < LONG or not name.isupper():
            continue
        seen.add(name)
        right = _meant(name, _setting_names())
        if right and sum(len(re.findall(rf"\b{name}\b", text)) for _, text in document.texts) == 1:
            known: dict[str, Any] = {"name": name, "right": right}
            word = place if place.text.startswith(name) else Word(name, place.line, place.column)
            yield from drafts(release, RULE, word, form="setting", file=file, **known)


def _folders(text: str, file: str, release: str) -> Iterator[Draft]:
    """``/opt/tritionserver/backends``."""
    seen: set[str] = set()
    for match in FOLDER.finditer(text):
        folders = rule_data(FAMILY)["folders"]
        known = folders.get(match["parent"], folders[".cache"]).split()
        right = _meant(match["name"], known)
        if right and match[0] not in seen:
            seen.add(match[0])
            about: dict[str, Any] = {"name": match[0], "right": f"{match['parent']}/{right}"}
            yield from drafts(release, RULE, word_at(text, match.start(), match[0]), file=file, **about)


def _near(text: str, file: str, match: re.Match[str], names: Sequence[str], release: str) -> Iterator[Draft]:
    """The group ``name`` of a match that is a slip of one of ``names``, or differs from it in one letter."""
    name = match["name"]
    right = _meant(name, names) or ("" if name in names else next((one for one in names if _is_near(name, one)), ""))
    if right:
        about: dict[str, Any] = {"name": name, "right": right}
        yield from drafts(release, RULE, word_at(text, match.start("name"), name), form="chart", file=file, **about)


def _is_near(name: str, right: str) -> bool:
    """True for another letter at one place, of names as long as these are."""
    return len(name) == len(right) and sum(map(str.__ne__, name, right)) == 1


def _variables(text: str, file: str, release: str) -> Iterator[Draft]:
    """``IPNUT=file.txt`` that nothing uses, and ``$INPUT`` that nothing sets."""
    set_ = {match["name"]: match for match in SETS.finditer(text)}
    used = {match["name"] for match in USES.finditer(text)}
    assigned = set(re.findall(r"\b([A-Z][A-Z0-9_]*)\+?=|\bfor[ \t]+([A-Z]\w*)\b", text))
    names = {name for pair in assigned for name in pair}
    missing = sorted(one for one in used - names if len(one) >= SHORTEST)
    if not missing or OTHERWISE.search(text):
        return
    for name, match in set_.items():
        right = next((one for one in missing if is_slip(name, one)), "") if len(name) >= SHORTEST else ""
        if right and len(re.findall(rf"\b{name}\b", text)) == 1:
            about: dict[str, Any] = {"name": name, "right": right}
            yield from drafts(
                release, RULE, word_at(text, match.start("name"), name), form="variable", file=file, **about
            )


def _copies(text: str, file: str, release: str) -> Iterator[Draft]:
    """``COPY .scripts/run.sh`` beside ``COPY ./scripts/serve.sh``."""
    for match in COPIES.finditer(text):
        name = match["name"]
        if re.search(rf"^(?:COPY|ADD)[ \t]+(?:--\S+[ \t]+)*(?:\./)?{name}/", text, re.MULTILINE):
            about: dict[str, Any] = {"name": match["path"], "right": f"./{match['path'].removeprefix('.')}"}
            place = word_at(text, match.start("path"), match["path"])
            yield from drafts(release, RULE, place, form="copy", file=file, **about)
