"""What the page shows of a text: the checker's findings and its remarks as plain values, or why there are none."""

from typing import Any, NamedTuple

from serving_base.errors import PlaybookError, UsageError


class PageAnswer(NamedTuple):
    """What was found in a text. ``release``: that it was checked for, ``how`` it is known, and what it is called."""

    findings: list[Any]
    release: str = ""
    how: str = ""
    remarks: tuple[str, ...] = ()
    named: str = ""


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
        checked = _logged(text) if log else _checked(text, release, gpu, number)
    except PlaybookError as error:
        return {"refused": {"what": error.what, "why": error.why, "fix": error.fix}}
    found: dict[str, Any] = json.loads(as_json(checked.findings, checked.release, checked.how))
    return {**found, "summary": summary(checked.findings, checked.named), "remarks": [*checked.remarks]}


def _checked(text: str, release: str, gpu: str, number: int | None) -> PageAnswer:
    from trtllm_check.lint import remarks_on
    from trtllm_check.lint.amounts import refuse_too_much
    from trtllm_check.lint.ignoring import without_ignored
    from trtllm_check.lint.kinds import kind_of_text
    from trtllm_check.lint.page_logs import is_output, read_page, with_told
    from trtllm_check.lint.reading import LARGEST_FILE, read_document
    from trtllm_check.lint.recipes import check_page

    if len(text.encode()) > LARGEST_FILE:
        raise UsageError(
            f"the text has more than {LARGEST_FILE} bytes", why="that is no script", fix="give the part that matters"
        )
    refuse_too_much(text, "the text", kind_of_text(text))
    document = read_document(text)
    if is_output(text, is_understood=document.is_understood):
        return _logged(text)._replace(remarks=("read as a log",))
    told = read_page(text)
    if told and not document.is_understood:
        return PageAnswer(told)
    remarks = remarks_on(document, "the text")
    found, asked = check_page(document, text, release, gpu, number)
    found = with_told(found, told)
    found = without_ignored(found, {"": text})
    return PageAnswer(found, asked.release, asked.how, tuple(remarks), asked.instead or asked.release)


def _logged(text: str) -> PageAnswer:
    from trtllm_check.lint.logs import read_log

    return PageAnswer(read_log(text))
