"""What the page shows of a text: the checker's findings and its remarks as plain values, or why there are none."""

from typing import Any

from serving_base.errors import PlaybookError, UsageError


def releases() -> list[str]:
    """The releases that there are facts on, the newest first."""
    from trtllm_check.releases import known_releases

    return [*reversed(known_releases())]


def gpus() -> list[str]:
    """The names of the GPUs that there are facts on."""
    from serving_base.facts.gpus import gpus as known

    return [*known()]


def answer(
    text: str, release: str = "", gpu: str = "", number: int | None = None, *, log: bool = False
) -> dict[str, Any]:
    """The findings in one text as ``playbook check --hints --format json`` has them, with ``remarks``.

    ``release``: as the text tells where it is empty. ``number``: of GPUs. ``log``: the text is what a tool wrote.
    A text that cannot be checked has ``refused`` instead: what, why, fix.
    """
    import json

    from trtllm_check.lint.finding import as_json, summary

    try:
        findings, asked, how, remarks, named = _logged(text) if log else _checked(text, release, gpu, number)
    except PlaybookError as error:
        return {"refused": {"what": error.what, "why": error.why, "fix": error.fix}}
    found: dict[str, Any] = json.loads(as_json(findings, asked, how))
    return {**found, "summary": summary(findings, named), "remarks": remarks}


def _checked(text: str, release: str, gpu: str, number: int | None) -> tuple[list[Any], str, str, list[str], str]:
    from trtllm_check.lint import check_commands, remarks_on, target
    from trtllm_check.lint.amounts import refuse_too_much
    from trtllm_check.lint.document import LARGEST_FILE, read_document
    from trtllm_check.lint.ignoring import without_ignored
    from trtllm_check.lint.passages import kind_of_text

    if len(text.encode()) > LARGEST_FILE:
        raise UsageError(
            f"the text has more than {LARGEST_FILE} bytes", why="that is no script", fix="give the part that matters"
        )
    refuse_too_much(text, "the text", kind_of_text(text))
    document = read_document(text)
    remarks = remarks_on(document, "the text")
    asked = target(document, release)
    found = without_ignored(check_commands(document, asked, gpu, number), {"": text})
    return found, asked.release, asked.how, remarks, asked.instead or asked.release


def _logged(text: str) -> tuple[list[Any], str, str, list[str], str]:
    from trtllm_check.lint.logs import read_log

    return read_log(text), "", "", [], ""
