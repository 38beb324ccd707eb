"""The articles as they are: every finding is known and right, and nothing else is found."""

from pathlib import Path

import pytest

from playbook.articles import entries, quote
from trtllm_check.lint import check_commands

ARTICLES = Path(__file__).parents[3] / "shared" / "articles"
AWS, NVIDIA = "000_aed1bc8a0401c1f6.txt", "001_054ceb936d0c082d.txt"
whole = pytest.mark.skipif(not ARTICLES.is_dir(), reason="the articles are not beside this checkout")

Found = set[tuple[int, str]]
# What is wrong whatever the release. 50, 62: N is no number; 51, 62, 63, 66: footnote marks; 61: a GEMM plugin of 16
# bits for FP8; 87: cp of a folder; 96: a name that nothing sets; 105: a mark in a value; 132: LMI's port; 140-145: the
# fields of another server; 175: a comment in a value.
ALWAYS: Found = {
    *((50, "bad-value"), (51, "broken-continuation"), (61, "fp8-gemm-plugin"), (62, "bad-value")),
    *((62, "broken-continuation"), (63, "broken-continuation"), (66, "broken-continuation"), (87, "cp-without-r")),
    *((96, "two-names-for-a-variable"), (98, "unknown-variable"), (105, "footnote-in-value"), (132, "wrong-port")),
    *((140, "missing-input"), (141, "unknown-input"), (143, "unknown-input"), (144, "unknown-input")),
    *((145, "unknown-input"), (175, "lmi-properties-syntax")),
}
ONE_AT_A_TIME, OTHER_CONTAINER = (58, "batch-of-one"), (120, "engine-of-another-release")
NO_VALUE, REMOVED = (63, "needs-value"), (63, "flag-removed")
WRONG_ANSWERS = (66, "fp8-fmha-wrong-answers")  # --use_fp8_context_fmha was repaired in 0.11
NO_LMI_IMAGE: Found = {  # AWS has none for 0.10: its vLLM image reads the file
    *((174, "lmi-value-refused"), (177, "lmi-value-refused"), (179, "lmi-key-ignored"), (181, "lmi-key-ignored")),
}
BY_RELEASE: dict[str, Found] = {
    "0.9.0": {ONE_AT_A_TIME, NO_VALUE, WRONG_ANSWERS},
    "0.10.0": {ONE_AT_A_TIME, NO_VALUE, WRONG_ANSWERS, OTHER_CONTAINER, *NO_LMI_IMAGE},
    "0.11.0": {NO_VALUE, OTHER_CONTAINER},
    "0.12.0": {REMOVED, OTHER_CONTAINER},
}
# 66: one request at a time; 123-127: one instance each (advice); 131: 64 requests for the engine of 66; 136: cd..;
# 159: no end id for an Instruct model.
IN_NVIDIAS: Found = {
    *((66, "batch-of-one"), (123, "queue-instances"), (125, "queue-instances"), (127, "queue-instances")),
    *((131, "engine-limit"), (136, "no-such-command"), (159, "no-end-id")),
}


@whole
@pytest.mark.parametrize("release", BY_RELEASE)
def test_the_whole_aws_article(release: str) -> None:
    found = check_commands(ARTICLES / AWS, release)
    assert {(one.line, one.rule) for one in found} == ALWAYS | BY_RELEASE[release]


@whole
def test_no_argument_of_the_article_is_lost_in_a_fix() -> None:
    fixes = [one.fix.text for one in check_commands(ARTICLES / AWS, "0.9.0") if one.fix.kind == "command"]
    assert any("--calib_size 512" in fix for fix in fixes)
    assert any("--max_num_tokens 8192" in fix and "--use_custom_all_reduce enable" in fix for fix in fixes)
    assert any(fix.startswith("cp -r ") and '/."' in fix for fix in fixes)


@whole
def test_the_whole_article_of_nvidia() -> None:
    found = check_commands(ARTICLES / NVIDIA, "0.8.0")
    assert {(one.line, one.rule) for one in found} == IN_NVIDIAS


def test_the_quoted_lines() -> None:
    """Each quotation by itself finds no rule that the whole article has not."""
    known = {rule for _, rule in ALWAYS.union(*BY_RELEASE.values())} | {rule for _, rule in IN_NVIDIAS}
    for name in entries("quotes"):
        quoted = quote(name)
        release = "0.8.0" if quoted.article.file == NVIDIA else "0.9.0"
        found = {one.rule for one in check_commands(quoted.text, release)}
        assert found <= known, name
