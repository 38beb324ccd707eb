"""The output of programs on a page where somebody reports a failure, between prose and commands."""

import re

from trtllm_check.lint.finding import Finding
from trtllm_check.lint.log_lines import EXCEPTION, LONGEST_LINE, PLAIN_ERROR, TROUBLE, is_log, trouble
from trtllm_check.lint.logs import (
    UNEXPLAINED,
    known_line,
    read_known,
    read_log,
    read_question,
    read_sign,
    since_the_start,
    tells_a_failure,
)
from trtllm_check.lint.programs import TOOL_NAMES
from trtllm_check.lint.shell.pasted import FENCE

STARTED = rf"(?:\S+=\S+ )*(?:{TOOL_NAMES}|docker run|mpirun|python3?(?:\.\d+)? (?:-m |\S+\.py\b))"
OTHER_LANGUAGES = (  # it fails, there is an error: Chinese, Russian, Japanese, Korean, Spanish, German, French
    r"报错|报.{0,4}错|错误(?:信息|如下|提示)|(?:启动|运行|部署|编译|构建)(?:失败|不了)"
    r"|выдает ошибку|ошибк[аиу] при|не запускается|エラーが|エラーになり|에러가|오류가"
    r"|\bme (?:da|sale|aparece) (?:un|este|el siguiente) error|\bfolgende[rn]? Fehler"
    r"|\b(?:j'ai|on a|j'obtiens) (?:l'|une |cette )erreur"
)
REPORT = re.compile(
    r"describe the (?:bug|issue)|^#+ *(?:actual|current|expected) behaviou?r|^#+ *system info|your current environment"
    r"|steps to reproduce|^#+ *reproduc(?:tion|e)\b|^\*\*(?:to reproduce|triton information|description)\*\*"
    r"|\[(?:bug|usage|installation|performance|doc)\](?!\()"
    r"|\b(?:I|we)(?:'m|'re| am| are|'ve| have)?(?: just| also| still| now| always| keep)?"
    r" (?:get|got|caught|received?|hit|tried|try|face|facing|encounter|ran into|run(?:ning)? into|having|seeing)"
    r"|^[ \t]*Traceback \(most recent call last\):[ ]*\n(?:[ \t]+[^\n]*\n){2}"
    r"|^[ \t]*raise \w+(?:\([^\n]*)?\n[ \t]*(?:\w+\.)*\w+(?:Error|Exception): [^\n]+"
    r"|\bgetting (?:the |this |an |below |following )*error|\bit(?:'s| is) (?:show|giv|fail)ing"
    r"|\bresult(?:s|ed|ing)? in (?:the|this|an) (?:following )?error"
    r"|\b(?:given|shows?|throws?|gives?(?: me| us)?) (?:the|this|an) (?:following |below )?error"
    r"|^(?:the )?(?:(?:logs?|errors?)(?: log| message)?:$|(?:log|error)s?(?: message)? (?:says?|reads?|is)\b)"
    r"|\bfail(?:s|ed)?\b[^\n]{0,120}\bwith (?:the|this) (?:following )?error"
    r"|\bmy [\w -]{1,40} (?:fails?|failed|crash(?:es|ed)|hangs?|stops?)\b|\bwho can help\b"
    r"|\b(?:please|pls|plz) help\b|\bhelp (?:me|needed|wanted)\b"
    r"|\b(?:any|some)(?:one|body)? (?:ideas?|clues?|hints?|help|suggestions?|knows?)\b"
    r"|\bthe error (?:is|was) (?:below|as follows|the following)\b"
    r"|\ban error (?:appears|occurs|occurred|comes up|is (?:raised|thrown|shown))\b"
    r"|\"(?:POST|GET) /\S* HTTP/1\.\d\" 404\b"
    r"|^[ \t>]*\{[ ]?\"(?:error\"[ ]?:[ ]?[\"{]|object\"[ ]?:[ ]?\"error\")|\{'type': 'extra_forbidden'"
    r"|^\S+: error: (?:unrecognized arguments|argument |the following arguments|invalid choice)"
    r"|\b(?:is|are|was|were|keeps?|starts?) (?:giving|throwing|showing|returning|raising)(?: out| me| us)?"
    r" (?:an?|the|this|the following) error|^got (?:the|this|an) (?:following )?error"
    r"|\b(?:get|got|getting|receive[ds]?|throws?|raises?|hit|seeing) (?:the|this|an) (?:following )?error[^\n]{0,40}:"
    rf"|{OTHER_LANGUAGES}",
    re.IGNORECASE | re.MULTILINE,
)
"""What people write who report a failure, and manuals do not."""
STAMPED = re.compile(
    r"^[ \t]*(?:[EF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+:\d+\]"
    r"|\[[\d/]{10}-[\d:]{8}\] \[TRT-LLM\] \[E\]|\[TensorRT-LLM\]\[ERROR\])",
    re.MULTILINE,
)
"""A line of error with the stamp that a server or a builder gave it: whoever copied it, had it."""
ASKED = re.compile(r"\"(?:POST|GET) /\S* HTTP/1\.\d\" 404\b")
"""What a server of HTTP says of a path that it does not have."""
ANSWERED = re.compile(
    r"\{[ ]?[\"'](?:error[\"'][ ]?:[ ]?[\"'{]|object[\"'][ ]?:[ ]?[\"']error[\"']|detail[\"'][ ]?:)"
    r"|[\"']type[\"'][ ]?:[ ]?[\"'](?:\w+Error|extra_forbidden)[\"']"
)
"""The body of an answer that refuses a request."""
MANUAL = re.compile(
    r"\byou(?:'ll| may| might| could| can| will| should)? (?:see|get|encounter|run into|hit)\b"
    r"|^#{1,6}[ ][^\n]*\b(?:troubleshooting|common (?:issues|errors|problems))\b"
    r"|^(?:\*\*|#{1,6}[ ])(?:solutions?|fix|cause):?(?:\*\*)?:?[ ]*$"
    r"|^\W*(?:root cause|analysis|interpretation|explanation|learnings?|lessons? learned|prevention|post-?mortem"
    r"|resolution)\b[^\n:*]{0,12}[:*]"
    r"|^#{1,6}[ ][^\n]*\b(?:what (?:failed|went wrong)|failed attempts|issues (?:and|&) solutions)\b"
    r"|^#{1,6}[ ][^\n]*\bFAQ\b|\bsafely ignored?\b"
    r"|^if [^\n]{0,60}\b(?:says|prints|shows|reports|fails with)[^\n]{0,20}:[ ]*$"
    r"|\A\s*#[ ][^\n]*\b(?:lessons|retrospective|post-?mortem|runbook|journal)\b"
    r"|^#{1,6}[ ]*(?:根因|根本原因|原因分析)"
    r"|常见(?:问题|错误|报错)|故障排[查除]|问题排查|(?:解决|处理)(?:方案|办法|方法|方式|步骤)|如果.{0,20}报错"
    r"|^(?:[#>*]+[ ]*)?Q\d*[:.][^\n]*\n+(?:\*\*)?A\d*[:.]|\bthì nguyên nhân\b|\bcách (?:khắc phục|sửa)\b"
    r"|よくある|자주 묻는|частые ошибки|устранение",
    re.IGNORECASE | re.MULTILINE,
)
EXPLAINED = re.compile(
    r"^[ \t>]*(?:[-*][ ])?\*\*(?:root )?(?:cause|fix|solution|workaround|resolution)(?: \w+)?:?\*\*"
    r"|^#{2,5}[ ][^\n]*\b(?:fix(?:es)?|root causes?|workarounds?|solutions?)\b"
    r"|^\*\*(?:Ursache|Lösung|Abhilfe|Причина|Решение|Causa|Solución|Solution|原因|対処|解決|해결)\w*:?\*\*"
    r"|^```[ \t]*\n+(?:Install|Set|Add|Run|Use|Update|Upgrade|Restart|Make sure)\b",
    re.IGNORECASE | re.MULTILINE,
)
"""A page that says itself what mends the failure that it tells of."""
WITHIN_WORDS = re.compile(
    r"(?P<short>`[^`\n]{1,19}`)"
    r"|`[^`\n]{20,}`(?=[^`\n]*[^\W\d_])"
    r"|(?:(?<=[^\W\d_] )|(?<=[a-z][.)] )|(?<=\w\)\. ))(?:`[^`\n]{20,}`|\"[A-Za-z][^\"\n{}]{18,}\"(?=[.,;)]|[ ][a-z]))"
    r"|(?P<alone>`[^`\n]+`)"
)
"""A failure that a sentence of a document names; what else stands in backticks is kept."""
PARTS = re.compile(r"^#{1,3}[ ]\S", re.MULTILINE)
COLLECTED = re.compile(r"^#{1,4}[ ][^\n]*\b[Ii]ssue #", re.MULTILINE)
"""One of several reports that somebody gathered in a file."""
TYPED = re.compile(
    rf"\A\s*(?:[^\n]{{0,80}}[$#] )?(?:{STARTED})"
    rf"|^(?:\([\w.-]+\) )?(?:[\w.-]+@[\w.-]+:?[^$#\n]{{0,80}})?[$#] (?:{STARTED})"
    rf"|^[ \t]*\n(?:{STARTED})[^\n]* --\w",
    re.MULTILINE,
)
"""A command that stands before its output: after a prompt, as the first line, or below an empty one with an option."""
RUNS = re.compile(rf"^[ \t>$#]*(?:{STARTED})", re.MULTILINE)
"""What a longer page lets somebody run; without it, the page is about what may happen."""
STATEMENT = re.compile(r"[ \t]*(?:from|import|def|class|return|with|for|if)\b|[ \t]*[\w.]+ ?= ?\S|[ \t]*[\w.-]+:[ \t]")
NOTED = re.compile(r"\s*(?:[-*+]|\d+\.)\s")
NAMED_ERROR = re.compile(
    r"\s*(?:[-*+]|\d+\.)\s+\W*(?:errors?|logs?|message|output|exception|result|报错|错误)\W*:", re.IGNORECASE
)
SOLVED = re.compile(
    r"\s*(?:[-*+]|\d+\.)\s+\W*(?:solution|fix|resolution|workaround|solved|resolved|解决\w*|해결|対処)\b[^\n:：]{0,12}[:：]",
    re.IGNORECASE,
)
"""The next point of a list, that says what mended the failure of the point before it."""
TEMPLATE = re.compile(r"\{%-?\s|\{\{-?\s")  # of Jinja, which may raise what a log would tell
CALLOUT = re.compile(r"\s*>?\s*\[!\w+\]")
HEADED = re.compile(r"#{1,6}[ ]|[-*+][ ]\[[ xX]\][ ]")
"""A heading of Markdown, or a thing to tick off."""
RAISED = re.compile(r"\w(?:Error|Exception)`?: \S")
QUESTION, ANSWER = (re.compile(rf"^(?:#{{1,6}}[ ])?\W*{one}\d*[:.：]", re.MULTILINE) for one in "QA")
ADVISED = re.compile(r"\bto (?:avoid|prevent|fix|solve|resolve|get rid of) (?:the |an? |this )?`", re.IGNORECASE)
NAMED = re.compile(r"\s*`(?:[A-Za-z_]\w*\.)*[A-Z]\w*`\s+[a-z]")  # an exception's name, in a sentence that goes on
ISSUE = re.compile(
    r"describe the|your current environment|system info|to reproduce|expected behaviou?r|who can help|\[bug\]"
    r"|^Traceback",
    re.IGNORECASE | re.MULTILINE,
)
SECTION = re.compile(r"^#{1,4}[ ]+\S", re.MULTILINE)
BOOK, SECTIONS = 10_000, 12
LONGEST_ANSWER = 30  # lines of a block with a request and what came back
LONGEST_QUESTION = 1_000
OF_A_GUIDE = 3  # failures that a page tells with what mends them
LONGEST_NOTE = 2_500  # characters of what somebody jots down of a failure
SHORT_REPORT = 2_000
LONGEST_PAGE = 300_000  # characters: nobody writes a longer report
DESCRIBED = re.compile(r"^\s*\"FailureReason\": \"(?!\")", re.MULTILINE)
"""What ``aws sagemaker describe-endpoint`` prints of one that failed."""
POINTER = re.compile(
    r"^[ \t]*-[rwxsStT-]{9}[.+@]?[ ]+\d+[ ]+\S+[ ]+\S+[ ]+1[234]\d[ ]+"
    r"\S[^\n]*?\S+\.(?:safetensors|bin|pth|pt|gguf)[ \t\r]*$",
    re.MULTILINE,
)
"""What ``ls -l`` prints of weights that are a pointer of git-lfs: 127 to 136 bytes."""
TITLE = re.compile(r"\A\s*#{1,2}[ ]+(?:\[[\w ]+\]:?[ ]*)?(?P<title>[^\n]{12,400})\n")
"""The title of an issue, in its first line."""
ADVISES = re.compile(
    r"\b(?:how (?:to|do|can)|fix(?:es|ed|ing)?|solv\w+|troubleshoot\w*|guide|tips?|avoid\w*|understanding|explained"
    r"|prevent\w*|handl\w+|support|improve|better|feature|rfc|add|doc)\b|解决|避免|教程",
    re.IGNORECASE,
)
CODE_LANGUAGES = frozenset(
    {"python", "py", "yaml", "yml", "json", "dockerfile", "cpp", "c", "c++", "diff", "go", "rust"}
)


def read_page(text: str) -> list[Finding]:
    """What the logs of a report show, at their places on the page, and what a short question in words tells.

    On another page a failure that we know, where it is quoted; nothing on a manual's.
    """
    text = since_the_start(text)
    if text.startswith("#!") or len(text) > LONGEST_PAGE or MANUAL.search(text):
        return []  # what a script says in its comments did not happen
    if (QUESTION.search(text) and ANSWER.search(text)) or len(COLLECTED.findall(text)) > 1:
        return []  # what people ask
    if len(text) > LONGEST_NOTE and len(EXPLAINED.findall(text)) >= OF_A_GUIDE:
        return []
    found = []
    is_a_book = _is_a_book(text)
    if (REPORT.search(text) and not is_a_book) or STAMPED.search(text):
        found = [one for one in read_log(_only_logs(text)) if one.rule != UNEXPLAINED or not _is_a_document(text)]
    elif (
        not is_a_book
        and TROUBLE.search(text)
        and (len(text) <= LONGEST_NOTE or not (_is_of_words(text) or EXPLAINED.search(text)))
    ):
        found = read_known(_only_logs(text if len(text) <= LONGEST_NOTE else WITHIN_WORDS.sub(_kept, text)))
    found += read_sign("lfs-pointer-text", text, POINTER) if " 1" in text and "-r" in text else []
    is_question = len(text) <= LONGEST_QUESTION and not re.search(r"^\s*(?:```|~~~)", text, re.MULTILINE)
    found = found or (read_question(text) if is_question else [])
    told = {one.rule for one in found}
    return [*(one for one in _read_title(text) if one.rule not in told), *found]


def _kept(match: re.Match[str]) -> str:
    return match["short"] or match["alone"] or ""


def _is_of_words(text: str) -> bool:
    """True for a page with headings that lets nobody run a thing."""
    return SECTION.search(text) is not None and RUNS.search(text) is None


def _is_a_book(text: str) -> bool:
    """True for a long page of many sections, in which somebody also tells what went wrong once."""
    if len(text) < BOOK or ISSUE.search(text):
        return False
    return len(SECTION.findall(text)) >= SECTIONS


def _is_a_document(text: str) -> bool:
    """True for a page of several parts that is no form of an issue's."""
    return len(PARTS.findall(text)) >= OF_A_GUIDE and ISSUE.search(text) is None


def _read_title(text: str) -> list[Finding]:
    """The failure that the title of a report quotes."""
    match = TITLE.match(text)
    if match is None or ADVISES.search(match["title"]) or not tells_a_failure(match["title"].replace("`", " ")):
        return []
    is_report = REPORT.search(text) is not None or EXCEPTION.match(match["title"]) is not None
    before = "\n" * text.count("\n", 0, match.start("title"))
    return read_known(before + match["title"].replace("`", " ")) if is_report or len(text) <= SHORT_REPORT else []


def with_told(found: list[Finding], told: list[Finding]) -> list[Finding]:
    """``found`` in what a page says to run, and what its logs ``told`` beyond that."""
    said = {(one.rule, one.line) for one in found}
    return [*found, *(one for one in told if (one.rule, one.line) not in said)]


def has_typed_commands(text: str) -> bool:
    """True for what somebody copied from a terminal: commands, and what they printed."""
    return TYPED.search(text) is not None


def is_output(text: str, *, is_understood: bool) -> bool:
    """True for what a program printed: a log, or a known failure in a line of error without a time or a level.

    ``is_understood``: the text is also something that the checker reads, which goes first.
    """
    if is_understood:
        return DESCRIBED.search(text) is not None
    if text.startswith("#!"):
        return False  # a script, whose own messages have the words of a log
    if is_log(text):
        return True
    told = [line for line in trouble(text) if line.is_error and not HEADED.match(line.text)]
    return MANUAL.search(text) is None and any(map(known_line, told))


def _only_logs(text: str) -> str:
    """The page with everything blanked that is no output of a program; each line keeps its number."""
    kept: list[str] = []
    block: list[str] = []
    opened = ""
    code = False
    lines = text.split("\n")
    for number, line in enumerate(lines):
        fence = FENCE.match(line)
        if fence and not opened:
            opened, code = fence[1], fence[2].lower() in CODE_LANGUAGES
            kept.append("")
        elif fence and fence[1].startswith(opened) and not fence[2]:
            kept += [*_if_log(block, code), ""]
            block, opened = [], ""
        elif opened:
            block.append(line)
        else:
            said = line.replace("`", " ").lstrip("> ")
            if line.lstrip().startswith("|") and not RAISED.search(line):
                kept.append("")  # a row of a table, which lists what may happen
                continue
            if CALLOUT.match(line) or TEMPLATE.search(line) or _is_solved(lines, number):
                kept.append("")
                continue
            is_title = (HEADED.match(line) is not None and not ASKED.search(line)) or NAMED.match(line) is not None
            is_title = is_title or ADVISED.search(line) is not None
            kept.append(said if _is_output(said) and not is_title else "")
    return "\n".join([*kept, *_if_log(block, code)])


def _is_solved(lines: list[str], number: int) -> bool:
    """True for an error in a list whose next point tells the solution."""
    return NAMED_ERROR.match(lines[number]) is not None and any(map(SOLVED.match, lines[number + 1 : number + 3]))


def _is_output(line: str) -> bool:
    """True for a line between the prose that a program wrote, or that quotes a failure that we know."""
    if EXCEPTION.match(line) or ASKED.search(line):
        return True
    if NOTED.match(line) and not (ANSWERED.search(line) or NAMED_ERROR.match(line)):
        return False  # of a list of changes, of things to do or of parameters
    if PLAIN_ERROR.search(line) or (ANSWERED.search(line) and len(line) <= LONGEST_LINE):
        return True
    return len(line) <= LONGEST_LINE and TROUBLE.search(line) is not None and tells_a_failure(line)


def _if_log(block: list[str], code: bool) -> list[str]:
    """A fenced block, or as many empty lines."""
    if any(map(TEMPLATE.search, block)):
        return [""] * len(block)
    if len(block) <= LONGEST_ANSWER and any(map(ANSWERED.search, block)):
        return block
    tells = any(EXCEPTION.match(line.strip()) or PLAIN_ERROR.search(line) or "enied" in line for line in block)
    if code:  # some colour what a program printed as Python
        tells = any(map(tells_a_failure, block)) and not any(
            STATEMENT.match(line) and not EXCEPTION.match(line) for line in block
        )
        return block if tells or any("Traceback (most" in line for line in block[:1]) else [""] * len(block)
    return block if tells or is_log("\n".join(block)) else [""] * len(block)
