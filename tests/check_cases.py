"""Runs single families of the checker over short texts."""

from collections.abc import Callable, Iterable
from pathlib import Path

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Finding, Platform
from trtllm_check.lint.fixing import findings
from trtllm_check.lint.reading import read_document
from trtllm_check.releases import load_release

Family = Callable[[Document, Platform], Iterable[Draft]]


def found(family: Family, source: str | Path, release: str) -> list[str]:
    """What ``family`` finds, as ``line rule severity``, sorted."""
    drafts = family(read_document(source), Platform(load_release(release)))
    return sorted(f"{draft.place.line} {draft.rule} {draft.severity}" for draft in drafts)


def fixed(family: Family, source: str, release: str) -> list[Finding]:
    """The findings with their fixes; asserts that no corrected command can be mended further."""
    setting = Platform(load_release(release))
    result = findings(read_document(source), setting, [family])
    for one in result:
        assert one.fix.text and one.message and one.why and one.source
        if one.fix.kind == "command":
            again = findings(read_document(one.fix.text, "shell"), setting, [family])
            left = [other for other in again if other.fix.kind == "command" and other.severity != "info"]
            assert left == [], one.fix.text
    return result


def write_models(folder: Path, configs: dict[str, str]) -> Path:
    for model, text in configs.items():
        (folder / model).mkdir()
        (folder / model / "config.pbtxt").write_text(text)
    return folder
