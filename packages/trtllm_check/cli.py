"""``playbook check`` and ``playbook explain``: what a release would do with anyone's commands, and what a flag does."""

import codecs
import io
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serving_base.errors import NotUnderstood, UsageError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import BinaryIO

    from trtllm_check.lint import ReleaseAsked
    from trtllm_check.lint.document import Document
    from trtllm_check.lint.finding import Finding

STANDARD_INPUT = "-"
LOG_SUFFIXES = (".log", ".out", ".err")
LONGEST_TERMINAL = 20_000  # bytes of a log whose commands are read, too
LARGEST_TEXT = 1_000_000  # bytes of a script; of a larger log the begin and the end are read
NO_TEXT = frozenset((*range(1, 32), 127)) - set(b"\a\b\t\n\v\f\r\x1b")  # bytes that no text and no terminal's log has
PIPE_SECONDS = 2


def check_command(
    source: Annotated[str, typer.Argument(metavar="FILE|DIR|-", help="What to check; - reads standard input.")] = "",
    more: Annotated[list[str] | None, typer.Argument(metavar="FILE", help="More files and folders.")] = None,
    release: Annotated[str, typer.Option(help="TensorRT-LLM release; as the text tells by default.")] = "",
    gpu: Annotated[str, typer.Option(help="Such as h100, h200, l4, l40s, a100; unknown by default.")] = "",
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs of the machine; unknown by default.")] = None,
    log: Annotated[str, typer.Option(metavar="FILE|-", help="The output of a tool that failed.")] = "",
    output: Annotated[str, typer.Option("--format", help="text, json, sarif, github or gcc.")] = "text",
    hints: Annotated[bool, typer.Option("--hints", help="Show what is only good to know, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json: {release, findings}.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show what --fix would change in a shell script.")] = False,
    fix: Annotated[bool, typer.Option("--fix", help="Change a shell script in place, with a backup.")] = False,
    about: Annotated[str, typer.Option(metavar="RULE", help="Tell what a finding of this name means; alone.")] = "",
) -> None:
    """Check commands, config.pbtxt, serving.properties or a whole folder against one release; runs nothing.

    A comment `# playbook: ignore=RULE reason` on a line, or on its own before a command, takes its findings away.

    Exit status: 1 for an error, 0 without one, 2 for input that cannot be used, 3 for a text that was not understood.
    Lines that are not understood are named on stderr; of several files also those that hold nothing for the checker.
    """
    from trtllm_check.lint.formats import report

    if about:
        from trtllm_check.lint.page import about as entry

        if source or log:
            raise UsageError("one thing at a time", fix="give --about RULE alone")
        typer.echo(entry(about))
        return
    if bool(source) == bool(log):
        raise UsageError("one thing at a time", fix="give a file, a folder or -, or --log FILE")
    if diff or fix:
        if more:
            raise UsageError("one script at a time", fix="give one file with --fix or --diff")
        _mend(source, release, gpu, gpus, write=fix)
        return
    told = instead = ""
    if log:
        findings = _read_log(log)
    elif more:
        findings, release, told = _checked_all((source, *more), release, gpu, gpus)
    else:
        findings, asked = _checked(source, release, gpu, gpus)
        release, told, instead = asked.release, asked.how, asked.instead
    report(findings, release, "json" if as_json else output, told=told, instead=instead, hints=hints)
    if any(finding.severity == "error" for finding in findings):
        sys.exit(1)


def explain_command(
    flag: Annotated[str, typer.Argument(help="Such as --max_output_len, a template variable or an LMI option.")],
    release: Annotated[str, typer.Option(help="What this release makes of it.")] = "",
) -> None:
    """Tell the history of a flag: releases, defaults, what replaced it, what it does and when to use it."""
    from trtllm_check.explain import explain

    typer.echo(explain(flag, release))


def _read_log(source: str) -> "list[Finding]":
    """What a log shows, of which only the begin and the end are read where it is large."""
    from trtllm_check.lint.amounts import clipped, log_part

    try:
        with _stream(source) as file:
            part = log_part(file)
    except OSError as error:
        raise _cannot_read(source, error) from error
    if part.remark:
        typer.echo(f"{source}: {part.remark}", err=True)
    found = _log_findings(clipped(_decoded(part.data, source)), source)
    return [one._replace(line=part.line(one.line)) for one in found]


def _log_findings(text: str, source: str) -> "list[Finding]":
    """What a log shows; :class:`NotUnderstood` for a text without an error that is no log either."""
    from trtllm_check.lint.log_lines import is_log
    from trtllm_check.lint.logs import read_log

    found = read_log(text)
    if not found and not is_log(text):
        raise NotUnderstood(
            f"{source} is no log",
            why="no line has a level, a time or a traceback, and none tells of an error",
            fix="give the output of the tool that failed; a script or a configuration goes without --log",
        )
    return [finding._replace(file=_name(source)) for finding in found]


def _checked(source: str, release: str, gpu: str, gpus: int | None) -> "tuple[list[Finding], ReleaseAsked]":
    from trtllm_check.lint import ReleaseAsked, check_commands, target
    from trtllm_check.lint.amounts import refuse_too_much
    from trtllm_check.lint.ignoring import read_texts, without_ignored
    from trtllm_check.lint.kinds import kind_of_file, kind_of_text
    from trtllm_check.lint.page_logs import has_typed_commands, is_output, read_page, with_told
    from trtllm_check.lint.reading import read_document
    from trtllm_check.lint.recipes import check_page

    folder = source != STANDARD_INPUT and Path(source).is_dir()
    if not folder and source.endswith(LOG_SUFFIXES):
        typed = _terminal(Path(source))
        document = read_document(typed, "shell") if has_typed_commands(typed) else None
        if document is None or not document.is_understood:
            return _read_log(source), ReleaseAsked(release)
        shown = _read_log(source) if is_output(typed, is_understood=False) else []
        asked = target(document, release)
        found = check_commands(document, asked, gpu, gpus)
        return [*(one._replace(file=_name(source)) for one in found), *shown], asked
    text = "" if folder else _text(source, LARGEST_TEXT)
    named = kind_of_file(source, text)
    if not folder:
        refuse_too_much(text, source, named or kind_of_text(text))
    document = read_document(Path(source)) if folder else read_document(text, named, is_named=named is not None)
    may_be_output = not folder and (document.is_understood or named in (None, "shell", "request"))
    if may_be_output and is_output(text, is_understood=document.is_understood):
        typer.echo(f"{source}: read as a log", err=True)
        return _log_findings(text, source), ReleaseAsked(release)
    told = [] if folder or named not in (None, "shell") else read_page(text)
    if told and not document.is_understood:
        return [finding._replace(file=_name(source)) for finding in told], ReleaseAsked(release)
    page = "" if folder or named not in (None, "shell") else text
    found, asked = check_page(_understood(document, source), page, release, gpu, gpus)
    found = with_told(found, told)
    found = without_ignored(found, read_texts(Path(source), found) if folder else {"": text})
    return (found if folder else [finding._replace(file=_name(source)) for finding in found]), asked


def _terminal(path: Path) -> str:
    """A log that may have been copied from a terminal: as long as one is; else nothing."""
    if not path.is_file() or path.stat().st_size > LONGEST_TERMINAL:
        return ""
    return path.read_text(encoding="utf-8", errors="replace")


def _mend(source: str, release: str, gpu: str, gpus: int | None, *, write: bool) -> None:
    """Print what changes in a script; with ``write`` change it. Exit status 1 if an error is left."""
    from trtllm_check.lint import families, mending, platform_of, target
    from trtllm_check.lint.amounts import refuse_too_much
    from trtllm_check.lint.kinds import kind_of_name, kind_of_text
    from trtllm_check.lint.reading import read_document

    text = "" if Path(source).is_dir() else _text(source, LARGEST_TEXT)
    if not text or (kind_of_name(source) or kind_of_text(text)) != "shell" or (write and source == STANDARD_INPUT):
        raise UsageError(
            f"{source} is no shell script",
            why="only those are changed in their place",
            fix="leave --fix and --diff out",
        )
    refuse_too_much(text, source, "shell")
    asked = target(_understood(read_document(text, "shell"), source), release)
    done = mending.mended(text, platform_of(asked, gpu, gpus), families(earlier=asked.earlier))
    typer.echo(mending.diff(text, done.text, Path(source).name), nl=False)
    if write and done.text != text:
        typer.echo(f"{source}: the script as it was is in {mending.write(Path(source), done.text)}", err=True)
    errors = sum(one.severity == "error" for one in done.left)
    typer.echo(f"{done.changes} changes, {errors} errors left for TensorRT-LLM {asked}", err=True)
    if errors:
        sys.exit(1)


def _checked_all(sources: Sequence[str], release: str, gpu: str, gpus: int | None) -> "tuple[list[Finding], str, str]":
    """The findings of several sources, their releases and how those are known."""
    checked = [one for source in sources if (one := _checked_if_known(source, release, gpu, gpus))]
    found = [finding for findings, _ in checked for finding in findings]
    releases = list(dict.fromkeys(asked.release for _, asked in checked))
    hows = {asked.how for _, asked in checked}
    return found, ", ".join(releases) or release, hows.pop() if len(hows) == 1 else ""


def _checked_if_known(
    source: str, release: str, gpu: str, gpus: int | None
) -> "tuple[list[Finding], ReleaseAsked] | None":
    """The findings of one of several sources; one that holds nothing for the checker is named on stderr."""
    try:
        found, asked = _checked(source, release, gpu, gpus)
    except NotUnderstood as error:
        typer.echo(str(error), err=True)
        return None
    folder = Path(source).is_dir()
    return [one._replace(file=str(Path(source) / one.file)) for one in found] if folder else found, asked


def _understood(document: "Document", source: str) -> "Document":
    """``document``, if there is anything in it to check; what was not read goes to stderr."""
    from trtllm_check.lint import remarks_on

    for remark in remarks_on(document, source):
        typer.echo(f"{source}: {remark}", err=True)
    return document


def _name(source: str) -> str:
    return "" if source == STANDARD_INPUT else source


def _text(source: str, most: int = 0) -> str:
    """The text of a file or of standard input; :class:`UsageError` for what is none."""
    try:
        data = _data(source, most)
    except OSError as error:
        raise _cannot_read(source, error) from error
    if most and len(data) > most:
        fix = "give the part that matters"
        raise UsageError(
            f"{source} has more than {most} bytes",
            why="that is no script",
            fix=f"clear the outputs of the notebook, or {fix}" if source.endswith(".ipynb") else fix,
        )
    return _decoded(data, source)


def _cannot_read(source: str, error: OSError) -> UsageError:
    return UsageError(f"cannot read {source}: {error.strerror}", fix="give a file, a folder or -")


def _stream(source: str) -> "AbstractContextManager[BinaryIO]":
    """What is in a file or standard input, to be read in parts; of another pipe all at once."""
    if source in (STANDARD_INPUT, "/dev/stdin"):
        return nullcontext(sys.stdin.buffer)
    return Path(source).open("rb") if Path(source).is_file() else io.BytesIO(_data(source, 0))


def _decoded(data: bytes, source: str) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # what > of PowerShell writes
        return data.decode("utf-16", errors="replace")
    if b"\0" in data:
        data = data.translate(None, b"\0")  # a log that was cut while a program wrote it has holes of them
        if not NO_TEXT.isdisjoint(data) or not data.strip():
            raise UsageError(f"{source} is no plain text", fix="give a script, a page, a configuration or a log")
    return data.decode("utf-8", errors="replace")


def _data(source: str, most: int) -> bytes:
    """What is in a file, a pipe or standard input: no more than a byte above ``most``, and of a pipe only soon."""
    import select
    import stat

    wanted = most + 1 if most else -1
    if source in (STANDARD_INPUT, "/dev/stdin"):
        return sys.stdin.buffer.read(wanted)
    mode = Path(source).stat().st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        if source == "/dev/null":
            return b""
        raise UsageError(f"{source} is a device", fix="give a file, a folder or -")
    if not stat.S_ISFIFO(mode):
        with Path(source).open("rb") as file:
            return file.read(wanted)
    descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb", buffering=0) as pipe:
        parts: list[bytes] = []
        while not most or sum(map(len, parts)) <= most:
            ready, _, _ = select.select([pipe], [], [], PIPE_SECONDS)
            part = pipe.read(65_536) if ready else None
            if not ready or part is None:
                raise UsageError(f"nothing came from {source} for {PIPE_SECONDS} s", fix="give a file, a folder or -")
            if not part:
                break
            parts.append(part)
        return b"".join(parts)
