"""``playbook check`` and ``playbook explain``: what a release would do with anyone's commands, and what a flag does."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serving_base.errors import NotUnderstood, UsageError

if TYPE_CHECKING:
    from trtllm_check.lint.document import Document
    from trtllm_check.lint.finding import Finding

STANDARD_INPUT = "-"
LARGEST_TEXT = 1_000_000  # bytes of a script; a log may be of any size


def check_command(
    source: Annotated[str, typer.Argument(metavar="FILE|DIR|-", help="What to check; - reads standard input.")] = "",
    more: Annotated[list[str] | None, typer.Argument(metavar="FILE", help="More files and folders.")] = None,
    release: Annotated[str, typer.Option(help="TensorRT-LLM release that it is meant for.")] = "",
    gpu: Annotated[str, typer.Option(help="Such as h100, h200, l4, l40s, a100; unknown by default.")] = "",
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs of the machine; unknown by default.")] = None,
    log: Annotated[str, typer.Option(metavar="FILE|-", help="The output of a tool that failed.")] = "",
    output: Annotated[str, typer.Option("--format", help="text, json, sarif, github or gcc.")] = "text",
    hints: Annotated[bool, typer.Option("--hints", help="Show what is only good to know, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json: {release, findings}.")] = False,
) -> None:
    """Check commands, config.pbtxt, serving.properties or a whole folder against one release; runs nothing.

    A comment `# playbook: ignore=RULE reason` on a line, or on its own before a command, takes its findings away.

    Exit status: 1 for an error, 0 without one, 2 for input that cannot be used or understood. Lines that are not
    understood are named on stderr; of several files also those that hold nothing for the checker.
    """
    from trtllm_check.lint.formats import report

    if bool(source) == bool(log):
        raise UsageError("one thing at a time", fix="give a file, a folder or -, or --log FILE")
    if log:
        findings = _read_log(log)
    elif more:
        findings = [found for one in (source, *more) for found in _checked_if_known(one, release, gpu, gpus)]
    else:
        findings = _checked(source, release, gpu, gpus)
    report(findings, release, "json" if as_json else output, hints=hints)
    if any(finding.severity == "error" for finding in findings):
        sys.exit(1)


def explain_command(
    flag: Annotated[str, typer.Argument(help="Such as --max_output_len, a template variable or an LMI option.")],
    release: Annotated[str, typer.Option(help="What this release makes of it.")] = "",
) -> None:
    """Tell the history of a flag: releases, defaults, what replaced it, what it does and when to use it."""
    from trtllm_check.explain import explain

    typer.echo(explain(flag, release))


def _read_log(log: str) -> "list[Finding]":
    from trtllm_check.lint.logs import read_log

    found = read_log(_text(log))
    return [finding._replace(file=_name(log)) for finding in found]


def _checked(source: str, release: str, gpu: str, gpus: int | None) -> "list[Finding]":
    from trtllm_check.lint import check_commands
    from trtllm_check.lint.document import read_document
    from trtllm_check.lint.ignoring import read_texts, without_ignored
    from trtllm_check.lint.passages import kind_of_name
    from trtllm_check.releases import known_releases

    if not release:
        known = ", ".join(known_releases())
        raise UsageError("no release to check for", fix=f"give --release, one of: {known}")
    folder = source != STANDARD_INPUT and Path(source).is_dir()
    text = "" if folder else _text(source, LARGEST_TEXT)
    document = read_document(Path(source)) if folder else read_document(text, kind_of_name(source))
    found = check_commands(_understood(document, source), release, gpu, gpus)
    found = without_ignored(found, read_texts(Path(source), found) if folder else {"": text})
    return found if folder else [finding._replace(file=_name(source)) for finding in found]


def _checked_if_known(source: str, release: str, gpu: str, gpus: int | None) -> "list[Finding]":
    """The findings of one of several sources; one that holds nothing for the checker is named on stderr."""
    try:
        found = _checked(source, release, gpu, gpus)
    except NotUnderstood as error:
        typer.echo(str(error), err=True)
        return []
    folder = Path(source).is_dir()
    return [one._replace(file=str(Path(source) / one.file)) for one in found] if folder else found


def _understood(document: "Document", source: str) -> "Document":
    """``document``, if there is anything in it to check; what was not read goes to stderr."""
    lines = ", ".join(f"{one.file}:{one}" if one.file else str(one) for one in document.unread)
    problems = [f"the system does not open {', '.join(document.unreadable)}"] if document.unreadable else []
    if not document.is_understood:
        raise NotUnderstood(
            f"nothing in {source} is a command, configuration or request that the checker knows",
            why="; ".join([*problems, f"not read: lines {lines}"] if lines else problems) or "there is nothing in it",
            fix="give a shell script, a page with commands, config.pbtxt, serving.properties, .env or a JSON request",
        )
    problems += [f"not read: lines {lines}"] if lines else []
    for problem in problems:
        typer.echo(f"{source}: {problem}", err=True)
    return document


def _name(source: str) -> str:
    return "" if source == STANDARD_INPUT else source


def _text(source: str, most: int = 0) -> str:
    """The text of a file or of standard input; :class:`UsageError` for what is none."""
    try:
        data = sys.stdin.buffer.read() if source == STANDARD_INPUT else Path(source).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {source}: {error.strerror}", fix="give a file, a folder or -") from error
    if b"\0" in data or Path(source).suffix == ".ipynb":
        raise UsageError(f"{source} is no plain text", fix="give a script, a page, a configuration or a log")
    if most and len(data) > most:
        raise UsageError(f"{source} has {len(data)} bytes", why="that is no script", fix="give the part that matters")
    return data.decode("utf-8", errors="replace")
