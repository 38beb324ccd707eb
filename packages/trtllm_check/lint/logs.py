"""What the output of a failed tool means, and what to do.

The signs of logs.yml and of the files before it are single failures, those of log_families.yml say of any wording what
kind of failure it is. An error that neither explains is named as such: a log with an error never counts as one without.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from serving_base.yaml_files import read_yaml
from trtllm_check.lint.finding import Finding, Fix
from trtllm_check.lint.log_lines import FOLLOWING, LogLine, said_aloud, trouble, without_colours
from trtllm_check.lint.log_models import heads_said, heads_told
from trtllm_check.lint.log_options import instead_of, releases_of
from trtllm_check.lint.log_places import place_of

SIGNS = Path(__file__).with_name("logs.yml")
BEFORE = tuple(
    Path(__file__).with_name(f"log_{name}.yml") for name in ("clouds", "tools", "serving", "surroundings", "checks")
)
FAMILIES = Path(__file__).with_name("log_families.yml")
SHOWN_CHARACTERS = 300
NAME = re.compile(r"\{(\w+)\}")
OF_A_PATH = "request-path-of-another-server"
NOT_FOUND = re.compile(r"\"(?:GET|POST|HEAD) (/\S*) HTTP/1\.\d\" 404\b")
SCANNED = 8  # paths
READY = re.compile(r"Starting vLLM API server|Application startup complete")
ENDED = re.compile(
    r"Traceback \(most recent|exited with|[Tt]erminated|core dumped|Killed|died|failed to start", re.ASCII
)
LOUD_LINE = re.compile(r"^[^\n]{0,80}\bERROR\b[^\n]*$", re.MULTILINE)
UNEXPLAINED = "unexplained-error"
BROKEN_COMMAND = "broken-command-line"
CUT = re.compile(  # a command beside its output: a line without a backslash, and options on the next one
    r"^[ \t$#>]*(?:sudo )?(?:docker run|vllm serve|trtllm-\w+|mpirun|python3? )[^\n]*\\\n(?:[^\n]*\\\n)*"
    r"(?P<line>[ \t]+--?[A-Za-z][^\n]*[^\\\s])[ \t]*\n(?=[ \t]+--[a-z][^\n]*\\\n)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Sign:
    """A failure that we know. ``pattern`` is searched in the output of a tool, line by line.

    ``follows``: it tells that something failed whose reason stands elsewhere; ``quiet``: also a line that calls itself
    information may tell it; ``root``: only the first error of a log is asked, when nothing else is known of it;
    ``where``: only in a traceback with such a frame; ``alone``: only in a log without an error.
    """

    rule: str
    pattern: str
    cause: str
    fix: str
    source: str
    follows: bool = False
    quiet: bool = False
    root: bool = False
    where: str = ""
    alone: bool = False


@dataclass(frozen=True)
class Seen:
    """``sign`` at ``start`` of a log, with the names of its pattern filled in.

    ``shown``: where the part of the message stands that names the thing, if that is another line (its group ``at``).
    """

    sign: Sign
    start: int
    shown: int | None = None


NOT_EXPLAINED = Sign(
    UNEXPLAINED,
    "",
    "an error that this checker has no explanation for",
    "read this line and the lines around it; the first error of a log is the cause, what follows it is not",
    "trtllm_check/lint/log_lines.py",
)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """There are more patterns than the cache of :mod:`re` keeps."""
    return re.compile(pattern)


@cache
def signs() -> tuple[Sign, ...]:
    """The signs of single failures, the more specific ones first."""
    return tuple(Sign(**entry) for file in (*BEFORE, SIGNS) for entry in read_yaml(file))


@cache
def families() -> tuple[Sign, ...]:
    """The kinds of failures, the more specific ones first."""
    return tuple(Sign(**entry) for entry in read_yaml(FAMILIES))


def known(output: str) -> Sign | None:
    """The failure that this output shows, or None where it shows none that we know."""
    output = since_the_start(without_colours(output))
    seen = _first_seen(output, trouble(output)) or next(_heads(output), None)
    return seen.sign if seen else None


def tells_a_failure(line: str) -> bool:
    """True for a line with the words of a single failure that we know, which is no mere consequence."""
    return any(not one.follows and not one.quiet and _compiled(one.pattern).search(line) for one in signs())


def known_line(line: LogLine) -> bool:
    """True for a line, with what follows it, that shows a failure that we know."""
    return any(_compiled(sign.pattern).search(line.block) for sign in (*signs(), *families()) if not sign.root)


def read_log(output: str, file: str = "") -> list[Finding]:
    """The failure that a log shows, at its place; behind a mere consequence also the first error that is not explained.

    Nothing for a log without an error, and for a text that is no log: :func:`trtllm_check.lint.log_lines.is_log`.
    """
    output = since_the_start(without_colours(output))
    lines = trouble(output)
    seen = _first_seen(output, lines)
    found = [seen] if seen else []
    if seen is None or seen.sign.follows:
        error = _first_error(lines)
        if error is not None and (seen is None or output.find("\n", error.start) < seen.start):
            found.insert(0, Seen(NOT_EXPLAINED, error.start))
    found = found or [*_heads(output)]
    cut = CUT.search(output)
    if found and cut is not None and not any(one.sign.rule == BROKEN_COMMAND for one in found):
        (sign,) = (one for one in signs() if one.rule == BROKEN_COMMAND)
        found.append(Seen(sign, cut.start("line")))
    return [_finding(one, output, file) for one in found]


def _first_seen(output: str, lines: list[LogLine]) -> Seen | None:
    """The first of what is recognised; no path that is asked for by somebody who tries all that servers may have."""
    seen = next(_seen(output, lines), None)
    is_scanned = len(set(NOT_FOUND.findall(output))) > SCANNED
    return None if seen and seen.sign.rule == OF_A_PATH and is_scanned else seen


def since_the_start(output: str) -> str:
    """Without the lines of error in front of the message that vLLM's server is ready, unless one of them ended it."""
    ready = max((match.start() for match in READY.finditer(output)), default=0)
    if not ready or ENDED.search(output):
        return output
    return LOUD_LINE.sub("", output[:ready]) + output[ready:]


def read_known(output: str, file: str = "") -> list[Finding]:
    """A single failure that we know, quoted on a page that does not say of itself that it reports one."""
    aloud = said_aloud(without_colours(output))
    found = [
        Seen(_filled(sign, match), match.start(), _shown(match))
        for sign in signs()
        if not sign.follows and not sign.quiet and (match := _compiled(sign.pattern).search(aloud))
    ]
    return [_finding(min(found, key=lambda one: one.start), aloud, file)] if found else []


def read_question(text: str) -> list[Finding]:
    """What a few sentences tell that name a model and the number of its ranks."""
    found = [_finding(one, text, "") for one in _not_shared(heads_said(text))]
    return [one._replace(severity="warning", why=one.why.replace("the log says", "the text says")) for one in found]


def read_sign(rule: str, text: str, pattern: re.Pattern[str]) -> list[Finding]:
    """The sign of this name at the first place of ``pattern``, which is sought in any text and not in a log alone."""
    match = pattern.search(text)
    (sign,) = (one for one in signs() if one.rule == rule)
    return [_finding(Seen(_filled(sign, match), match.start()), text, "")] if match else []


def _seen(output: str, lines: list[LogLine]) -> Iterator[Seen]:
    """What is recognised: reasons before consequences, single failures before kinds, and last what is spoken of."""
    error = _first_error(lines)
    aloud = said_aloud(output)
    for follows in (False, True):
        found = [
            Seen(_filled(sign, match), match.start(), _shown(match))
            for sign in signs()
            if sign.follows == follows and (match := _compiled(sign.pattern).search(output if sign.quiet else aloud))
        ]
        found = _earliest_first(found, lines)
        if not follows and error is not None:
            found += _heads(output)
        for family in families():
            if family.follows == follows and not family.root and (error is None or not family.alone):
                found += _of_family(family, [line for line in lines if family.quiet or not line.is_quiet])
        yield from _root_first(found, error, lines)
        if error is not None and not follows and not _is_consequence(error):
            yield from _of_the_first(error)


def _heads(output: str) -> Iterator[Seen]:
    """Ranks that do not share the heads of the model, which a log with an error names."""
    yield from _not_shared(heads_told(output))


def _not_shared(told: tuple[int, dict[str, str]] | None) -> Iterator[Seen]:
    if told is not None:
        start, known = told
        cause = "{ranks} ranks do not divide the {heads} attention heads of {model} ({kv_heads} KV heads)".format(
            **known
        )
        fix = "take a tp_size that does: {fitting}".format(**known)
        yield Seen(Sign("heads-not-divided", "", cause, fix, known["source"]), start)


def _of_family(family: Sign, lines: list[LogLine]) -> Iterator[Seen]:
    """The first line of ``lines`` that the family knows."""
    for line in lines:
        if family.where and not any(_compiled(family.where).search(frame) for frame in line.frames):
            continue
        match = _compiled(family.pattern).search(line.block)
        if match and match.start() < max(len(line.text), 1):
            yield Seen(_filled(family, match), line.start + match.start())
            return


def _earliest_first(found: list[Seen], lines: list[LogLine]) -> list[Seen]:
    """Of single failures the one on the earliest line of error: a log goes from the cause to what follows from it.

    The order of the table holds within a message, and where its first tells of a line that calls itself no error.
    """
    errors = sorted((one.start, one.start + len(one.block)) for one in lines if one.is_error)

    def message(seen: Seen) -> int | None:
        """The number of the error that tells it."""
        at = bisect_right(errors, seen.start, key=lambda one: one[0]) - 1
        return at if at >= 0 and seen.start < errors[at][1] else None

    told = [message(one) for one in found]
    if not found or told[0] is None:
        return found
    first = min((one for one in told if one is not None), key=lambda at: errors[at][0])
    said = [one for one, at in zip(found, told, strict=True) if at == first]
    return said + [one for one in found if one not in said]


def _root_first(found: list[Seen], error: LogLine | None, lines: list[LogLine]) -> list[Seen]:
    """What the first error says before what follows from it; else as they stand: single failures before kinds."""
    if error is None or not error.is_exception:
        return found
    near = [line for line in lines if error.number <= line.number <= error.number + FOLLOWING]
    end = near[-1].start + len(near[-1].text)  # a compiler's reason stands on the lines behind it
    said = [one for one in found if error.start <= one.start < end]
    earlier = any(one.start < error.start for one in found)
    return said + [one for one in found if one not in said] if said and not earlier else found


def _of_the_first(error: LogLine) -> Iterator[Seen]:
    """What the first error's words speak of and where it was raised, or one of the two."""
    place = place_of(error.frames, error.block)
    for family in families():
        if family.root:
            for seen in _of_family(family, [error]):
                sign = seen.sign
                yield (
                    replace(seen, sign=replace(sign, cause=f"{sign.cause}; it comes from {place.part}"))
                    if place
                    else seen
                )
    if place:
        yield Seen(Sign(place.rule, "", place.cause, place.fix, place.source), error.start)


def _is_consequence(line: LogLine) -> bool:
    """True for a line that only says that something else failed."""
    return any(sign.follows and _compiled(sign.pattern).search(line.text) for sign in (*signs(), *families()))


def _shown(match: re.Match[str]) -> int | None:
    return match.start("at") if match.groupdict().get("at") else None


def _filled(sign: Sign, match: re.Match[str]) -> Sign:
    """The sign with what its pattern's groups found; a name without a find is left out."""
    words = {name: (value or "").strip(" .,;:'\"") for name, value in match.groupdict().items()}
    words["instead"] = instead_of(words["option"]) if words.get("option") else ""
    words["releases"] = releases_of(words["option"], match.string) if words.get("option") else ""

    def fill(text: str) -> str:
        filled = NAME.sub(lambda name: words.get(name[1], name[0]), text)
        return re.sub(r" {2,}", " ", filled).replace(" :", ":").strip(" :")

    return replace(sign, cause=fill(sign.cause), fix=fill(sign.fix))


def _first_error(lines: list[LogLine]) -> LogLine | None:
    """The first end of a traceback, else the first line that says error."""
    errors = [line for line in lines if line.is_error]
    return next((line for line in errors if line.is_exception), errors[0] if errors else None)


def _finding(seen: Seen, output: str, file: str) -> Finding:
    begin = seen.start if seen.shown is None else seen.shown
    start = output.rfind("\n", 0, begin) + 1
    line = output[start:].partition("\n")[0].strip()
    said = line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]} ..."
    place = (output.count("\n", 0, start) + 1, begin - start + 1)
    sign = seen.sign
    why = f"the log says: {said}"
    return Finding(sign.rule, "error", *place, sign.cause, why, Fix("action", sign.fix), sign.source, file)
