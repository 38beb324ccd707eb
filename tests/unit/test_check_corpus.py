"""Real commands, configurations and requests: exactly what is wrong with each is found, with a fix that passes."""

from collections.abc import Iterable
from pathlib import Path

from each import each
from trtllm_check.lint.finding import Finding
from trtllm_check.lint.page import Snippet, found_in, page, rule_ids, snippets

Where = tuple[str, int, str, str]
each_snippet = each("snippet", snippets())


def where(findings: Iterable[Finding]) -> list[Where]:
    return sorted((one.file, one.line, one.rule, one.severity) for one in findings)


def expected(snippet: Snippet) -> list[Where]:
    return sorted((one.get("file", ""), one["line"], one["rule"], one["severity"]) for one in snippet.findings)


def test_the_corpus_is_large_enough() -> None:
    assert len(snippets()) >= 60
    assert len({one.name.partition("-")[0] for one in snippets()}) == len(snippets())


@each_snippet
def test_exactly_what_is_wrong_is_found(snippet: Snippet) -> None:
    found = found_in(snippet.name)
    assert where(found) == expected(snippet)
    for one in snippet.findings:
        same = [other for other in found if (other.line, other.rule) == (one["line"], one["rule"])]
        assert any(one.get("flag", "") in other.message for other in same)


@each_snippet
def test_a_pasted_text_is_taken_for_what_it_is(snippet: Snippet) -> None:
    if snippet.text:
        assert where(snippet.check(snippet.text)) == expected(snippet)


@each_snippet
def test_a_finding_says_what_why_and_what_to_do(snippet: Snippet) -> None:
    lines = dict(snippet.files) or {"": snippet.text}
    for one in found_in(snippet.name):
        assert one.message and one.why and one.fix.text and one.source
        assert one.rule in rule_ids()
        assert 1 <= one.line <= lines[one.file].count("\n") + 1
        assert 1 <= one.column <= len(lines[one.file].split("\n")[one.line - 1]) + 1


@each_snippet
def test_a_corrected_command_has_nothing_more_to_correct(snippet: Snippet) -> None:
    """An error stays only where no change of the command mends it, such as a transformers that is too old."""
    found = found_in(snippet.name)
    not_by_commands = {one.rule for one in found if one.fix.kind == "action"}
    for command in {one.fix.text for one in found if one.fix.kind == "command"}:
        again = snippet.check(command)
        assert {one.rule for one in again if one.severity == "error"} <= not_by_commands
        assert [one for one in again if one.fix.kind == "command" and one.severity != "info"] == []


def test_every_rule_is_found_somewhere_and_not_everywhere() -> None:
    """Every rule fires in the corpus, and is silent on another snippet of a kind that it fires on."""
    fired = {
        rule: {one.name for one in snippets() if rule in {f.rule for f in found_in(one.name)}} for rule in rule_ids()
    }
    assert [rule for rule, names in fired.items() if not names] == []
    for names in fired.values():
        kinds = {one.kind for one in snippets() if one.name in names}
        assert any(one.kind in kinds and one.name not in names for one in snippets())


def test_the_page_of_the_rules_is_up_to_date() -> None:
    """As `make docs` writes it."""
    assert (Path(__file__).parents[2] / "docs" / "checks.md").read_text(encoding="utf-8") == page()


def test_a_folder_is_checked_as_a_whole(tmp_path: Path) -> None:
    (snippet,) = [one for one in snippets() if one.name.startswith("149-")]
    snippet.write(tmp_path)
    (finding,) = snippet.check(tmp_path)
    assert (finding.file, finding.rule) == ("ensemble/config.pbtxt", "ensemble-wiring")
