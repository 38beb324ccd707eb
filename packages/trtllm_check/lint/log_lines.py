"""The lines of a log: what programs put in front of them, how bad each says it is, and which tell of an error."""

import re
from collections import Counter, deque
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from trtllm_check.lint.log_places import DEEPEST, frame_of

LONGEST_LINE = 4_000
MOST_LINES = 4_000  # of trouble; the first half and the last half of more
REPEATED = 8  # a line that comes again and again, but for its numbers, is read as often as this
NUMBER = re.compile(r"[0-9a-f]*\d[0-9a-f]*")
FOLLOWING = 4  # lines that a message may go on for

PREFIXES = re.compile(
    r"[ \t]*(?:[\w./-]{1,60}[ ]+\|[ ]"  # docker compose
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [\w.-]+(?:\[\d+\])?: "  # syslog
    r"|\[?\d{4}[-/]\d\d[-/]\d\d[T ,|]*\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?\]?[ ]*(?:[|-][ ])*"
    r"|\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\][ ]*"
    r"|\([\w:-]+ (?:\w+=[\w.:-]+,? ?)+\)[ ]"  # (EngineCore pid=1), (ServeReplica:app:Model pid=1, ip=10.0.0.1)
    r"|\d{13},\"?"  # CloudWatch's table
    r"|#\d{1,3} \d+\.\d+ |(?:stdout|stderr) F |\[pod/[\w./-]+\] |(?:> ?)+"  # buildkit, containerd, kubectl, quotes
    r"|\d{1,4}: "  # srun
    r"|\u2502 (?=Error: |Warning: )"  # Terraform
    r"|\[?rank\d+\]?:[ ]|\[\d+,\d+\]<std(?:err|out)>:"
    r"|[\w.-]+:\d+:\d+ \[\d+\][ ](?=NCCL)"
    r"|\[\d+\.\d+\][ ]\[[\w.-]+:\d+:\d+\][ ]+[\w.-]+:\d+[ ]+UCX[ ]+"  # its level follows
    r"|(?P<own>\[?(?:INFO|WARN|ERROR|DEBUG)\s*\]?[ ]+PyProcess(?: -)? ?W-\d+-\S+-std(?:err|out):[ ])"
    r"|(?P<glog>[IWEF])(?:\d{4}[ ][\d:.]+[ ]+\d+[ ][\w.]+:\d+\]|[ ]\d+[ ]\d+\])[ ]?\"?"
    r"|\[?(?:executor|serve|runtime|RANK \d+)[ ]*\][ ]|Failed to initialize executor on rank \d+:[ ]"
    r"|(?P<level>\[?(?:INFO|WARN(?:ING)?|ERROR|DEBUG|DIAG|FATAL|CRITICAL|TRACE)\s*\]?)(?=[ :|])[ :|-]*"
    r"(?:\d\d-\d\d \d\d:\d\d:\d\d )?(?:\[?[\w./-]+:\d+\][ ]?)?)"
)
MARK = re.compile(r"\[(I|W|E|V|INFO|WARNING|WARN|ERROR|DEBUG|VERBOSE)\]")
QUIET = frozenset({"I", "W", "V", "INFO", "WARN", "WARNING", "DEBUG", "DIAG", "TRACE", "VERBOSE"})
LOUD = frozenset({"E", "F", "ERROR", "FATAL", "CRITICAL"})
# What programs say of a failure as information: pydantic, Triton's pb_stub.cc and pinned_memory_manager.cc.
GRAVE = re.compile(
    r"^\s*Value error, |\bFailed to initialize Python stub\b"
    r"|CUDA driver version is insufficient for CUDA runtime version"
    r"|\bFailed to import from vllm\._\w+ with ImportError\([\"']lib\w+\.so"
)
SOFTENED = re.compile(  # what Python warns of, and what the program goes on after
    r"^\s*(?:\S+ )?[Ww]arning:|\b\w*Warning: |^WARN\b|\b[Ii]gnor(?:ed|ing)\b|\b(?:[Ff]alling|[Ff]alls?) back\b|"
    r"\b[Rr]etrying\b|\b[Ss]kipp(?:ed|ing)\b|\bwill be (?:ignored|removed|deprecated)\b|\bdeprecated\b|"
    r"\b(?:may|might|could) (?:be|cause|indicate|lead|run)\b|\bcan (?:cause|indicate|lead|run)\b"
)
TRACE = re.compile(r"Traceback \(most recent call last\)|^\s*File \".+\", line \d+")
EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Failure|Fault|Exit|Timeout|Died|NotFound|LimitExceeded)"
    r"(?:_\w+)?\b|(?:[a-z_]\w*\.)+(?:errors|exceptions)\.[A-Z]\w+(?=: )"
)
STARTED = re.compile(r"(?:\s--[a-z][\w-]+(?:[ =][^\s-]\S*)?){4}")  # a command line that is told before it runs
# What may go well yet (the last of them says no such thing), and what TensorFlow says wherever PyTorch is, too.
HARMLESS = re.compile(
    r"\bretrying \d+ of \d+\s*$|Unable to register cu(?:FFT|DNN|BLAS) factory"
    r"|^KeyboardInterrupt: terminated$|Shard complete standard error output:$"
    r"|^\W*(?:[Ee]rror|ERROR)(?: (?:log|message|output|logs))?:?\W*$"
)
TELLS = re.compile(r"unrecognized|invalid|expected|[Ee]rror|required")
CODE = re.compile(r"^\s*(?:raise|return|assert|await|if|for|with|def|except|try|import|from) ")
TROUBLE = re.compile(
    r"error|exception|fatal|critical|fail|abort|unable|cannot|can't|could ?n[o']t|not|no |denied|refused|reset|"
    r"unrecogni|unknown|bigger|invalid|unsupported|missing|kill|segmentation|core dumped|signal|oom|memory|panic|"
    r"terminate|assert|mismatch|incompatible|differ|unavailable|nccl warn|caused by|exit|crash|backoff|insufficient|"
    r"unauthorized|forbidden|timed? ?out|expected|exceed|larger|longer|greater|must|require|too |xid|illegal|corrupt|"
    r"truncated|conflict|undefined|untagged|already|full|busy|dead|died|poll|magic|divisible|multiple",
    re.IGNORECASE,
)
PLAIN_ERROR = re.compile(
    r"(?:^|[\s:|(])(?:ERROR|FATAL|CRITICAL)(?=[\s:\])|]|$)|\[(?:E|ERROR|FATAL)\]|^(?:\S+: )?(?:fatal )?[Ee]rror:"
    r"|: fatal error:|: error:"
    r"|^fatal:|^\S*Killed\s*$|core dumped|terminate called|^CMake Error|^make(?:\[\d+\])?: \*\*\*|^Caused by:|^panic:|"
    r"\bUNAVAILABLE\b|^E: |^Exception\b|uncaught exception|NCCL WARN|ERR!|^Error response from|^docker: "
    r"|^Usage: .*\n.*\n+Error|\b(?:CREATE|UPDATE|DELETE)_FAILED\b|, version solving failed|^\s*\"FailureReason\": \""
    r"|\bTypeError: [\w.]+\(\) got an unexpected keyword argument '"  # the title of a report has it behind other words
)
COUNTED = re.compile(r"\b0 (?:errors?|failures?|failed)\b|\bno errors?\b|errors?[=: ]+0\b|error[ _]rate", re.IGNORECASE)
LOG_LINE = re.compile(
    r"\[(?:TRT-LLM|TensorRT-LLM|TRT)\]|^[IWEF]\d{4} [\d:.]+|"
    r"(?:^|[\s\[(|])(?:INFO|WARN(?:ING)?|ERROR|DEBUG|FATAL)(?=[\s:\])|])|^\+[-+]+\+$|"
    r"Traceback \(most recent|^\s*File \".+\", line \d+|^\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|NCCL INFO|\d+%\||"
    r"^\s+at [\w.$]+\(|\[1,\d+\]<std|pid=\d+\)",
    re.MULTILINE,
)

COLOUR = re.compile(r"(?:\x1b|\\u001[bB]|\\x1b|\\033|#033|\^\[)\[[\d;]*[A-Za-z]|(?:#015|\r)$", re.MULTILINE)
JAVA_OPTION = re.compile(r"-XX:[+-]?[\w=./-]+")
JSON_LEVEL = re.compile(r"^\{.{0,400}?\"(?:level|severity|levelname|log\.level)\": ?\"([A-Za-z]+)\"")

BORDER, BOXED = re.compile(r"^\+[-+]+\+$", re.MULTILINE), re.compile(r"^\| .* \|$")
"""Triton's tables have a border of plus signs; rows without one are Markdown's."""


class LogLine(NamedTuple):
    """One line without its prefixes; ``start``: of ``text`` in the log; ``block``: with what follows it.

    ``is_quiet``: it calls itself information or a warning, ``is_loud``: an error; ``is_exception``: the last line of a
    traceback, whose ``frames`` are "path function", the innermost last.
    """

    text: str
    start: int
    number: int
    block: str
    is_quiet: bool
    is_loud: bool
    is_exception: bool
    frames: tuple[str, ...] = ()

    @property
    def is_error(self) -> bool:
        """True where the line itself says that something failed."""
        if self.is_quiet or COUNTED.search(self.text):
            return False
        return self.is_loud or self.is_exception or PLAIN_ERROR.search(self.text) is not None


def is_log(text: str) -> bool:
    """True for the output of a program: lines with a level, a time, a traceback or a bar of progress."""
    head = without_colours(text[:200_000])
    lines = [line for line in head.split("\n") if line.strip()]
    signs = (LOG_LINE.search, EXCEPTION.match, *((BOXED.match,) if BORDER.search(head) else ()))
    marked = sum(any(sign(line) for sign in signs) for line in lines)
    return marked > 0 and 4 * marked >= len(lines)


def without_colours(text: str) -> str:
    """The text without a terminal's colours, in whatever form a service wrote them down, and without Java's options.

    What -XX:+ExitOnOutOfMemoryError says is asked of the machine, and has not happened.
    """
    text = COLOUR.sub("", text) if "[" in text or "\r" in text else text
    return JAVA_OPTION.sub(lambda match: "-" * len(match[0]), text) if "-XX:" in text else text


def said_aloud(text: str) -> str:
    """The log with the lines that call themselves information or a warning blanked, each as long as it was."""
    return "\n".join(" " * len(line) if _stripped(line)[1] else line for line in text.split("\n"))


def trouble(text: str) -> list[LogLine]:
    """The lines that may tell of trouble, in order; code of tracebacks and dumps of arguments left out."""
    found = list(_lines(text))
    if len(found) > MOST_LINES:
        found = [*found[: MOST_LINES // 2], *found[-MOST_LINES // 2 :]]
    return found


def _lines(text: str) -> Iterator[LogLine]:
    raw = text.split("\n")
    margin = min((len(line) - len(line.lstrip(" ")) for line in raw if line and not line.isspace()), default=0)
    position = 0
    in_trace = False
    seen: Counter[str] = Counter()
    frames: deque[str] = deque(maxlen=DEEPEST)
    for index, line in enumerate(raw):
        start, position = position, position + len(line) + 1
        if not line or line.isspace():
            continue
        body, quiet, loud = _stripped(line[margin:])
        if TRACE.search(body):
            in_trace = True
            if frame := frame_of(body):
                frames.append(frame)
            else:
                frames.clear()
            if not body.lstrip().startswith("File ") and EXCEPTION.search(body) is None:
                continue
        if in_trace and body[:1].isspace():
            continue
        exception = EXCEPTION.match(body) is not None and (in_trace or not quiet)
        in_trace = in_trace and not exception and TRACE.search(body) is not None
        if (
            len(line) > LONGEST_LINE
            or "Namespace(" in line
            or (STARTED.search(body) and not TELLS.search(body))
            or HARMLESS.search(body)
            or CODE.match(body)
            or not (exception or loud or TROUBLE.search(body))
        ):
            continue
        shape = NUMBER.sub("", body)
        seen[shape] += 1
        if seen[shape] > REPEATED:
            continue
        after = (_stripped(other[margin:])[0].rstrip() for other in islice(raw, index + 1, index + 1 + FOLLOWING))
        block = "\n".join([body, *(other[:LONGEST_LINE] for other in after)])
        place = tuple(frames) if exception else ()
        yield LogLine(
            body, start + len(line) - len(body), index + 1, block, quiet and not exception, loud, exception, place
        )


@lru_cache(maxsize=64)
def _stripped(line: str) -> tuple[str, bool, bool]:
    """A line without its prefixes, and whether they, or a mark in it, call it quiet or loud."""
    level = ""
    while match := PREFIXES.match(line):
        if match.end() == 0:
            break
        line = line[match.end() :]
        found = match["glog"] or (match["level"] or "").strip("[] ") or level
        level = "" if match["own"] else found  # what a process said, whatever the server calls it
    mark = MARK.search(line[:80]) or (JSON_LEVEL.match(line) if line[:1] == "{" else None)
    level = mark[1].upper() if mark else level
    soft = level not in LOUD and EXCEPTION.match(line) is None and SOFTENED.search(line) is not None
    is_grave = GRAVE.search(line) is not None
    return line, (level in QUIET or soft) and not is_grave, level in LOUD or is_grave
