"""Arguments of vLLM's server in a variable that a file hands to a program: ``VLLM_ARGS=--max-model-len 8192``.

A ``.env``, a file of compose, a manifest and a Dockerfile are read alike. What the text itself expands is a command.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import dropwhile

from trtllm_check.lint.carriers.overrides import ALONE
from trtllm_check.lint.carriers.python_words import spaced
from trtllm_check.lint.carriers.script import Script
from trtllm_check.lint.carriers.yaml_arguments import READ_BELOW
from trtllm_check.lint.shell import ShellCommand, Word, read_inside
from trtllm_check.lint.shell.words import word_at
from trtllm_check.releases.vllm import options_of, vllm_facts

NAME = (
    r"(?:[A-Z][A-Z0-9_]*_(?:ARGS|ARGUMENTS|OPTIONS|OPTS|FLAGS|PARAMS)"
    r"|(?:extra|additional|vllm|engine|server|serve|serving|cli|command|inference)_?(?:[A-Za-z]+_)?"
    r"(?:[Aa]rgs|[Aa]rguments|[Oo]ptions|[Oo]pts|[Ff]lags|[Pp]arams))"
)
HELD = re.compile(
    rf"^[ \t]*(?:-[ \t]+|export[ \t]+|ENV[ \t]+)?[\"']?(?P<name>{NAME})[\"']?[ \t]*[:=][ \t]*"
    rf"(?P<quote>[\"']?)(?P<value>--[a-z][^\"'\n]*?)(?P=quote)[ \t]*$"
    rf"|\bname:[ \t]*[\"']?(?P<listed>{NAME})[\"']?[ \t]*\n[ \t]*value:[ \t]*"
    rf"(?P<mark>[\"']?)(?P<given>--[a-z][^\"'\n]*?)(?P=mark)[ \t]*$",
    re.MULTILINE,
)
OF_VLLM = re.compile(r"VLLM", re.IGNORECASE)
OF_ANY = re.compile(r"(?:ADDITIONAL|EXTRA|SERVER?|SERVING|ENGINE|CMD|CLI|COMMAND|INFERENCE)_?", re.IGNORECASE)
ABOUT = re.compile(r"vllm", re.IGNORECASE)
OTHERS = re.compile(
    r"sglang|llama[-_.]?(?:server|cpp)|text-generation-launcher|trtllm-serve|tritonserver|lmdeploy|BENCH"
)
FLAG = re.compile(r"(?<!\S)--(?P<name>[a-z][a-z0-9_-]*)")
SWITCHED = re.compile(r"(?<!`)`(?P<given>--(?P<name>[a-z][a-z_-]+)[ =](?:[Ff]alse|[Tt]rue))`(?!`)")
LISTED = re.compile(
    r"^[ \t]*(?:(?:export|const|let|var|local)[ \t]+)?"
    r"[\"']?[A-Za-z_]*-?(?:ARGS|[Aa]rgs|ARGUMENTS|[Aa]rguments|OPTIONS|FLAGS|[Ff]lags)[\"']?[ \t]*(?:\+?=|:)[ \t]*"
    r"(?:[\[(](?P<items>[ \t\n]*(?:\#[^\n]*\n[ \t]*)*(?=[\"']?--[a-z])"
    r"(?:\#[^\n]*|\"[^\"\n]*\"|'[^'\n]*'|[^\]\)\"'#]){0,4000})[\])]"
    r"|\n(?P<bullets>(?:[ \t]*(?:\#[^\n]*|-[ \t]+[^\n]+)(?:\n|$)){1,200}))"
    r"|\A\s*^(?P<cut>(?:[ \t]*(?:\#[^\n]*|-[ \t]+[^\n]+)(?:\n|$)){4,200})",
    re.MULTILINE,
)
"""``ENGINE_ARGS=(``, ``args = [``, ``extraArgs:`` with an item on each line; a text may begin within such a list."""
ITEM = re.compile(r"\#[^\n]*|\"(?P<double>[^\"\n]*)\"|'(?P<single>[^'\n]*)'|(?P<bare>[^\s,\"']+)")
CALLED = re.compile(r"[A-Za-z_][\w.]*\(")
BULLET = re.compile(
    r"^[ \t]*(?:\#[^\n]*|-[ \t]+(?:\"(?P<double>[^\"\n]*)\"|'(?P<single>[^'\n]*)'|(?P<bare>[^\s\"'][^\n#]*?))"
    r"[ \t]*(?:\#[^\n]*)?)$",
    re.MULTILINE,
)
OF_VLLM_ALONE = re.compile(
    r"--(?:gpu[-_]memory[-_]utilization|max[-_]model[-_]len|max[-_]num[-_]seqs|swap[-_]space|enforce[-_]eager)(?![\w-])"
)
NEAR = 300  # characters in front of a key
OTHER_PART = re.compile(
    r"router|gateway|proxy|prometheus|grafana|nginx|redis|lite-?llm|web-?ui|frontend|ingress|lmcache|sglang|ollama|exporter",
    re.IGNORECASE,
)
DISTINCT = frozenset(
    {"gpu-memory-utilization", "tensor-parallel-size", "max-model-len", "max-num-seqs", "enforce-eager", "swap-space"}
)
ENOUGH = 2
MOST = 20
HELD_MODEL = "${YOUR_MODEL}"  # stands for the model of a command that only the image of the text starts
SAME_MODEL = "${THE_SAME_MODEL}"  # and for that of options alone, which are for a server that the text starts elsewhere


def held_arguments(sources: Sequence[tuple[str, str]]) -> Iterator[ShellCommand]:
    """A command ``vllm serve`` for each variable, whose model and other arguments are not known."""
    for file, text in sources:
        if "--" not in text or not (ABOUT.search(text) or OF_VLLM_ALONE.search(text)):
            continue
        for match in [*HELD.finditer(text)][:MOST]:
            group = "value" if match["value"] else "given"
            name = match["name"] or match["listed"]
            if _is_used(text, name) or not _is_of_vllm(text, name, match[group], match.start()):
                continue
            yield from served_with(word_at(text, match.start(group), match[group]), file)
        for place in _of_prose(text):
            yield from served_with(place, file)


def held_lists(sources: Sequence[tuple[str, str]]) -> Iterator[ShellCommand]:
    """The same of lists of arguments, for a text that starts no tool itself: of a shell, TOML, YAML or a program."""
    for file, text in sources:
        if "--" not in text or OTHERS.search(text) or "{{" in text:
            continue
        is_read = any(name in text for name in READ_BELOW)
        for match in [*LISTED.finditer(text)][:MOST]:
            group = next(one for one in ("items", "bullets", "cut") if match[one] is not None)
            form = ITEM if group == "items" else BULLET
            spans = [one.span(one.lastgroup) for one in form.finditer(text, *match.span(group)) if one.lastgroup]
            words = [word_at(text, start, text[start:end]) for start, end in spans]
            if group == "cut":  # the value of an option that stood above
                words = [*dropwhile(lambda word: not word.text.startswith("--"), words)]
            words = _before_calls(words)
            flags = [one for word in words for one in FLAG.findall(word.text)]
            known = [one for one in flags if one.replace("_", "-") in options_of("serve")]
            is_set = "=" in match[0].partition("--")[0]  # of a shell, TOML or a program; of YAML others know more
            is_about = ABOUT.search(text) is not None or (is_set and len(DISTINCT.intersection(known)) >= ENOUGH)
            is_about = is_about or (group != "items" and not is_read and len(ALONE.intersection(known)) >= ENOUGH)
            if is_about and len(known) >= ENOUGH and len(known) * 2 > len(flags) and words[0].text.startswith("--"):
                script = Script()
                script.words([*started_at(words[0], "vllm", "serve", "${MODEL}"), *words])
                yield from read_inside(script.word(), file)


def _before_calls(words: list[Word]) -> list[Word]:
    """The words in front of a call such as ``str(PORT)``, whose bracket ends the list as it was found."""
    called = next((number for number, word in enumerate(words) if CALLED.match(word.text)), len(words))
    return words[: called - 1] if called < len(words) and words[called - 1].text.startswith("--") else words[:called]


def served_with(place: Word, file: str, tool: str = "vllm", model: str = HELD_MODEL) -> Iterator[ShellCommand]:
    """The command that starts ``tool`` with the arguments at ``place``."""
    places = tuple((place.line, place.column + number) for number in range(len(place.text)))
    program = ("vllm", "serve") if tool == "vllm" else (tool,)
    yield from read_inside(led(Word(place.text, place.line, place.column, places), *program, model), file)


def is_held(words: Sequence[Word]) -> bool:
    """True for the arguments of such a command."""
    return any(word.text in (HELD_MODEL, SAME_MODEL) for word in words)


def started_at(place: Word, *words: str) -> list[Word]:
    """Words in front of ``place`` that the text does not have."""
    at = (place.line, place.column)
    return [Word(one, *at, (at,) * len(one)) for one in words]


def led(line: Word, *words: str) -> Word:
    """``line`` behind words that the text does not have."""
    whole = spaced([*started_at(line, *words), line], " ")
    return line if whole is None else whole


def _of_prose(text: str) -> Iterator[Word]:
    """``--enforce-eager false`` between backquotes, on a page that starts vLLM's server: a switch with a value."""
    if "`" not in text or "vllm serve" not in text:
        return
    newest = vllm_facts().newest.place
    for match in [*SWITCHED.finditer(text)][:MOST]:
        known = options_of("serve").get(match["name"].replace("_", "-"))
        if known is not None and known.at(newest) in ("switch", "toggle"):
            yield word_at(text, match.start("given"), match["given"])


def _is_used(text: str, name: str) -> bool:
    return re.search(rf"\$\{{?{name}\b", text) is not None


def _is_of_vllm(text: str, name: str, value: str, start: int) -> bool:
    """True where the name says so, or the text is about vLLM alone; most of the flags are known."""
    if "BENCH" in name or not (OF_VLLM.search(name) or (OF_ANY.match(name) and not OTHERS.search(text))):
        return False
    flags = FLAG.findall(value)
    known = [one.replace("_", "-") for one in flags if one.replace("_", "-") in options_of("serve")]
    is_alone = OF_VLLM_ALONE.search(value) is not None
    if OF_VLLM.search(name) or is_alone:
        return bool(known) and len(known) * 2 >= len(flags)
    if name.isupper():
        return ABOUT.search(text) is not None and len(known) * 2 > len(flags)
    before = text[max(start - NEAR, 0) : start]
    last = max((match.end() for match in ABOUT.finditer(before)), default=-1)
    return last >= 0 and OTHER_PART.search(before, last) is None and bool(known) and len(known) * 2 >= len(flags)
