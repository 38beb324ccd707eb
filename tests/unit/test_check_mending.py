"""A script is mended in its place: only what a finding names, and only what a new check agrees with."""

from pathlib import Path

import pytest

from trtllm_check.lint import ReleaseAsked, families, platform_of
from trtllm_check.lint.fixing import findings
from trtllm_check.lint.mending import Mended, diff, mended, write
from trtllm_check.lint.reading import read_document


def mend(text: str, release: str = "0.12.0") -> Mended:
    return mended(text, platform_of(ReleaseAsked(release)), families())


SCRIPT = """\
BS=16  # of the pod
trtllm-build --checkpoint_dir "$CKPT" \\
  --output_dir '/engine dir' --max_batch_size $BS \\
  --max_input_len 1024 \\
  --max_output_len 512 > build.log 2>&1
"""


def test_everything_else_stays_as_it_is_written() -> None:
    done = mend(SCRIPT)
    assert done.text == SCRIPT.replace("--max_output_len 512", "--max_seq_len 1536")
    assert (done.changes, done.left) == (1, ())
    assert mend(done.text).changes == 0


def test_what_a_comment_ignores_stays_as_it_is_written() -> None:
    script = "trtllm-build --checkpoint_dir c --max_batch_size 8 --nonsense 3"
    (found,) = (
        one.rule for one in findings(read_document(script, "shell"), platform_of(ReleaseAsked("0.12.0")), families())
    )
    kept = f"{script}  # playbook: ignore={found} our own build has it\n"
    assert (mend(kept).text, mend(kept).left) == (kept, ())
    assert mend(f"{script}  # another comment\n").changes == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "trtllm-build --checkpoint_dir c --max_batch_size 8 --enable_xqqa enable | tee x",
            "--enable_xqa enable | tee x",
        ),
        ("trtllm-build --checkpoint_dir c --max_batch_size 8 --context_fmha", "--context_fmha enable"),
        (
            "A=1 trtllm-build --checkpoint_dir c --max_batch_size 8 \\\n  --nonsense 3 \\\n  --workers 2\n",
            "8 \\\n  --workers 2\n",
        ),
        ("trtllm-build --checkpoint_dir c --max_batch_size 8 \\\n  --nonsense 3\necho\n", "--max_batch_size 8\necho\n"),
    ],
)
def test_words_are_replaced_added_and_removed(text: str, expected: str) -> None:
    assert mend(text).text.endswith(expected)


def test_a_value_from_a_variable_is_left_to_the_reader() -> None:
    text = "N=sixteen\ntrtllm-build --checkpoint_dir c --max_batch_size $N\n"
    done = mend(text)
    assert (done.text, done.changes) == (text, 0)
    assert [one.rule for one in done.left] == ["bad-value"]


def test_a_backup_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "build.sh"
    path.write_text("one\n")
    first = write(path, "two\n")
    second = write(path, "three\n")
    assert (first.read_text(), second.read_text(), path.read_text()) == ("one\n", "two\n", "three\n")


def test_the_difference_is_one_that_patch_reads() -> None:
    assert diff("a\nb\n", "a\nc\n", "x.sh") == "--- a/x.sh\n+++ b/x.sh\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
