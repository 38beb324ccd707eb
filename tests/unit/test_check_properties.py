"""Whatever it is given, the checker answers, says the same again, and points into the text."""

import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trtllm_check.lint import check_commands
from trtllm_check.lint.finding import Finding
from trtllm_check.lint.kinds import Kind
from trtllm_check.lint.logs import read_log
from trtllm_check.lint.page import snippets
from trtllm_check.lint.reading import read_document
from trtllm_check.releases import known_releases

KINDS: list[Kind] = ["shell", "config.pbtxt", "serving.properties", "environment", "request"]
TEXTS = [text for snippet in snippets() for text in (snippet.text, *dict(snippet.files).values()) if text]
LINES = sorted({line for text in TEXTS for line in text.split("\n")})
RELEASES = ["0.8.0", "0.12.0", "0.18.2", "1.2.1", known_releases()[-1]]

releases = st.sampled_from(RELEASES)
machines = st.sampled_from([("", None), ("h100", 8), ("a100", 1), ("l40s", 2), ("l4", 1)])
kinds = st.sampled_from([None, *KINDS])
anything = settings(
    max_examples=120, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def checked(text: str, kind: Kind | None, release: str, machine: tuple[str, int | None]) -> list[Finding]:
    """The findings, after all that holds for any text."""
    found = check_commands(read_document(text, kind), release, *machine)
    assert check_commands(read_document(text, kind), release, *machine) == found
    assert found == sorted(found, key=lambda one: (one.file, one.line, one.column, one.rule, one.message))
    lines = text.split("\n")
    for one in found:
        assert one.message and one.why and one.fix.text and one.source
        assert 1 <= one.line <= len(lines)
        assert 1 <= one.column <= len(lines[one.line - 1]) + 1
        json.dumps(one)
    return found


@anything
@given(st.binary(max_size=400), kinds, releases, machines)
def test_random_bytes(data: bytes, kind: Kind | None, release: str, machine: tuple[str, int | None]) -> None:
    checked(data.decode("utf-8", errors="replace"), kind, release, machine)


@anything
@given(st.text(max_size=300), kinds, releases, machines)
def test_random_text(text: str, kind: Kind | None, release: str, machine: tuple[str, int | None]) -> None:
    checked(text, kind, release, machine)


@anything
@given(st.sampled_from(TEXTS), st.floats(0, 1), st.floats(0, 1), kinds, releases, machines)
def test_a_piece_of_a_real_text(
    text: str, start: float, end: float, kind: Kind | None, release: str, machine: tuple[str, int | None]
) -> None:
    first, last = sorted([int(start * len(text)), int(end * len(text))])
    checked(text[first:last], kind, release, machine)


@anything
@given(st.lists(st.sampled_from(LINES), max_size=12), kinds, releases, machines)
def test_any_lines_of_real_texts(
    lines: list[str], kind: Kind | None, release: str, machine: tuple[str, int | None]
) -> None:
    for one in checked("\n".join(lines), kind, release, machine):
        if one.fix.kind == "command":
            again = check_commands(one.fix.text, release, *machine)
            assert [other for other in again if other.fix.kind == "command"] == []


@anything
@given(st.sampled_from(TEXTS), st.randoms(use_true_random=False), kinds, releases)
def test_a_real_text_with_some_letters_changed(
    text: str, chance: random.Random, kind: Kind | None, release: str
) -> None:
    letters = list(text)
    for _ in range(max(1, len(letters) // 60)):
        letters[chance.randrange(len(letters))] = chance.choice(" \n\t\\'\"$`{}[]<>|&;#=-:,.0aZé–\x00\u2028")
    checked("".join(letters), kind, release, ("h100", 8))


@anything
@given(st.sampled_from(TEXTS), releases)
def test_findings_do_not_depend_on_the_ends_of_the_lines(text: str, release: str) -> None:
    """A file that was saved on Windows, and one without a last newline."""
    found = [(one.rule, one.line) for one in check_commands(text, release)]
    assert [(one.rule, one.line) for one in check_commands(text.rstrip("\n"), release)] == found
    assert [(one.rule, one.line) for one in check_commands(text.replace("\n", "\r\n"), release)] == found


@anything
@given(st.text(max_size=300) | st.sampled_from(TEXTS))
def test_any_log(text: str) -> None:
    for one in read_log(text):
        assert 1 <= one.line <= text.count("\n") + 1
    assert read_log(text) == read_log(text)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_text(kind: Kind) -> None:
    for text in ("", "\n", "\\", "#", "{", "{}", "[]", "null", "\ufeff"):
        checked(text, kind, "0.12.0", ("", None))


def test_a_folder_of_odd_files(tmp_path: Path) -> None:
    """A loop of links, an unreadable file, a folder with a file's name, names that are no UTF-8."""
    (tmp_path / "config.pbtxt").mkdir()
    (tmp_path / "serving.properties").symlink_to(tmp_path / "serving.properties")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "build.sh").write_bytes(b"\xff\xfe\x00trtllm-build")
    Path(os.fsdecode(bytes(tmp_path) + b"/\xff.sh")).write_text("trtllm-build --max_output_len 1\n")
    found = check_commands(tmp_path, "0.12.0")
    assert {one.rule for one in found} >= {"flag-removed"}
