"""cmd.exe and PowerShell: their line ends, variables, prompts and paths, as a POSIX shell would have them."""

import re
from collections.abc import Iterator

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.script import Carried, Script
from trtllm_check.lint.shell import Word

PROMPT = re.compile(r"[ \t]*(?:PS )?[A-Za-z]:\\[^>\n]*>[ \t]*")
GOES_ON_PROMPT = re.compile(r">>[ ]+(?=\S)")  # of PowerShell, where a command goes on
ECHO_OFF = re.compile(r"\s*@echo off\b", re.IGNORECASE)
CONTINUED = re.compile(r"[ \t][\^`][ \t]*\r?$", re.MULTILINE)
BACKSLASH = re.compile(r"[ \t]\\[ \t]*\r?$")
GOES_ON = re.compile(r"[ \t]*(?:-{1,2}[A-Za-z]|[ \t]+\S)")
EXPORT = re.compile(r"[ \t]*export[ \t]+(?P<name>[A-Za-z_]\w*)=(?P<value>\S*)")
ALIAS = re.compile(r"[ \t]*curl[ \t](?:.*?[ \t])?(?P<option>-[XHdksLo]\b|--(?:request|header|data\S*))")
SINGLE = re.compile(r"[ \t]*curl(?:\.exe)?[ \t].*[ \t](?:-d|--data\S*)[ \t]+(?P<body>'\{)")
USED = re.compile(r"(?<![`\\\w])\$\{?(?P<name>[A-Z][A-Z0-9_]{2,})\}?(?![\w:])")
OF_POWERSHELL = frozenset(
    {
        "LASTEXITCODE",
        "TRUE",
        "FALSE",
        "NULL",
        "PWD",
        "HOME",
        "HOST",
        "PID",
        "PROFILE",
        "ERROR",
        "ARGS",
        "INPUT",
        "MATCHES",
        "PSHOME",
    }
)
POWERSHELL = re.compile(r"^[ \t]*(?:PS [A-Za-z]:\\|\$[A-Za-z_]\w*[ \t]*=|\$env:)|[ \t]`[ \t]*$", re.MULTILINE)
PATH = re.compile(r"(?:^|[\s=\"'])[A-Za-z]:\\[^\s\\]", re.MULTILINE)
SET = re.compile(r"[ \t]*set[ \t]+\"?(?P<name>[A-Za-z_]\w*)=(?P<value>[^\"\n]*)\"?[ \t\r]*$", re.IGNORECASE)
ENVIRONMENT = re.compile(r"[ \t]*\$(?:env:)?(?P<name>[A-Za-z_]\w*)[ \t]*=[ \t]*(?P<value>.*)$", re.IGNORECASE)
REFERENCE = re.compile(
    r"[%!](?P<cmd>[A-Za-z_]\w*)(?:%|(?<=\w)!)|\$env:(?P<powershell>[A-Za-z_]\w*)", re.IGNORECASE
)  # !NAME! with enabledelayedexpansion
COMMENT = re.compile(r"[ \t]*@?(?:rem\b|::|@echo off)", re.IGNORECASE)
NOT_THERE = re.compile(
    r"[ \t]*(?:'?[\w.-]+'?[ \t]*:[ \t]*The term[ \t]+)?'(?P<name>[\w.-]+)'[ \t]+is not recognized", re.IGNORECASE
)
SAID = re.compile(r"[ \t]*(?:\+[ \t]|At line:\d|operable program|CategoryInfo|FullyQualifiedErrorId)")  # of an error
OF_CMD = re.compile(r"^[ \t]*(?:@echo off|set \w+=|rem )|%\w+%", re.IGNORECASE | re.MULTILINE)
CERTAIN = re.compile(rf"{OF_CMD.pattern}|\^[ \t]*$|^[A-Z]:\\[^\n>]*>", re.IGNORECASE | re.MULTILINE)  # cmd.exe itself
PROGRAM = re.compile(r"(?<=\w)\.exe(?=\s|$)")


def is_windows(text: str) -> bool:
    """True for lines that cmd.exe or PowerShell joins, their prompts, or paths with a drive."""
    return bool(
        PROMPT.match(text)
        or ECHO_OFF.match(text)
        or (("^" in text or "`" in text) and CONTINUED.search(text))
        or (":\\" in text and (PATH.search(text) or re.search(r"^PS [A-Z]:\\", text, re.M)))
    )


def shell_name(text: str) -> str:
    """The shell that the text is written for."""
    return "PowerShell" if POWERSHELL.search(text) else "cmd.exe"


def carried(word: Word) -> Carried:
    """The commands, as a POSIX shell would have to be given them."""
    script = Script()
    faults: list[FormFault] = []
    position = 0
    shell = shell_name(word.text)
    lines = word.text.split("\n")
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if not COMMENT.match(line) and not line.lstrip().startswith("#"):
            faults += _of_another(word, shell, line, following, position)
        piece = word.part(position, position + len(line))
        position += len(line) + 1
        if missing := NOT_THERE.match(line):
            start = missing.start("name")
            known = (("name", missing["name"]),)
            place = piece.part(start, start + len(missing["name"]))
            faults.append(FormFault("no-such-command", place, "not on the path", known))
        if COMMENT.match(line) or missing or SAID.match(line):
            continue
        if match := EXPORT.match(line):
            script.variable(match["name"], piece.part(match.start("value"), match.end("value")), exported=True)
            continue
        if match := SET.match(line) or ENVIRONMENT.match(line):
            value = piece.part(match.start("value"), match.end("value"))
            if match.re is SET or value.text[:1] in "\"'":
                script.variable(match["name"], _plain(value), exported=True)
            continue
        prompt = PROMPT.match(line) or GOES_ON_PROMPT.match(line)
        _take(script, piece.part(prompt.end() if prompt else 0))
        script.end()
    faults = list({(one.rule, one.form, one.known): one for one in reversed(faults)}.values())[::-1]  # each once
    found = script.word()
    scripts = ((found, ""),) if found.text.strip() else ()
    return Carried(scripts=scripts, faults=tuple(faults))


def _of_another(word: Word, shell: str, line: str, following: str, position: int) -> Iterator[FormFault]:
    """What a line has of a POSIX shell that this one does not know."""

    def fault(form: str, start: int, end: int, **known: str) -> FormFault:
        place = word.part(position + start, position + end)
        return FormFault("syntax-of-another-shell", place, form, (("shell", shell), *known.items()))

    is_powershell = shell == "PowerShell"
    if not is_powershell and not OF_CMD.search(word.text) and not is_windows(word.text):
        return  # a block of a page that calls any command line cmd
    if (match := BACKSLASH.search(line)) and GOES_ON.match(following) and len(line.split()) > 1:
        if is_powershell or CERTAIN.search(word.text):
            mark = "a backtick" if is_powershell else "a caret (^)"
            yield fault("continuation", match.start() + 1, match.end(), mark=mark)
        else:  # a block that shows neither of the two
            place = word.part(position + match.start() + 1, position + match.end())
            told = (("shell", "a shell of Windows"), ("mark", "a backtick (PowerShell) or a caret (cmd.exe)"))
            yield FormFault("syntax-of-another-shell", place, "continuation", told)
    if match := EXPORT.match(line):
        name, value = match["name"], match["value"].strip("\"'")
        right = f'$env:{name} = "{value}"' if is_powershell else f"set {name}={value}"
        yield fault("export", match.start("name"), match.end("name"), right=right)
    if is_powershell and (match := ALIAS.match(line)):
        yield fault("curl", match.start("option"), match.end("option"), option=match["option"])
    if not is_powershell and (match := SINGLE.match(line)):
        yield fault("quotes", match.start("body"), match.end("body"))
    for match in USED.finditer(line):
        name = match["name"]
        is_set = re.search(rf"(?i)\$(?:global:|script:)?{name}\s*=|\b{name}\b\s*[,)]", word.text)
        if is_powershell and (name in OF_POWERSHELL or is_set):
            continue
        right = f"$env:{name}" if is_powershell else f"%{name}%"
        yield fault("variable", match.start(), match.end(), written=match[0], right=right)


def _take(script: Script, piece: Word) -> None:
    text = piece.text
    ends = CONTINUED.search(text) or BACKSLASH.search(text)
    end = ends.start() if ends else len(text)
    position = 0
    while position < end:
        place = piece.places[position] if position < len(piece.places) else (piece.line, piece.column)
        if match := REFERENCE.match(text, position):
            script.add(f"${{{match['cmd'] or match['powershell']}}}", place)
            position = match.end()
        elif match := PROGRAM.match(text, position):
            position = match.end()
        elif text[position] == "\\":
            script.add("\\\\", place)
            position += 1
        else:
            script.add(text[position], place)
            position += 1
    if ends:
        script.add(" \\", piece.places[-1] if piece.places else (piece.line, piece.column))


def _plain(value: Word) -> Word:
    text = value.text.rstrip()
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return value.part(1, len(text) - 1) if quoted else value.part(0, len(text))
