"""Options and arguments of no release, or of an earlier one, in texts that do not tell theirs; logs among commands."""

from each import each
from trtllm_check.lint import check_commands, target
from trtllm_check.lint.page_logs import has_typed_commands, read_page
from trtllm_check.lint.reading import read_document

TWO_GONE = (
    "trtllm-build --checkpoint_dir ckpt --output_dir engine \\\n"
    " --use_custom_all_reduce disable \\\n --enable_xqa enable\n"
)
FIRST_BUILD = (
    "docker pull nvcr.io/nvidia/tritonserver:24.01-trtllm-python-py3\n"
    "trtllm-build --checkpoint_dir ckpt --output_dir engine {option}\n"
)
STOPPED = (
    "E0407 20:46:46.986017 111 model_repository_manager.cc:1309] Poll failed for model directory 'ensemble': "
    "failed to read text proto from /repo/ensemble/config.pbtxt\n"
)
PAST = (
    "# {title}\n\n### Attempt 2\n\n```\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 968.00 MiB.\n```\n\n{more}\n"
)
SAMPLING = "from tensorrt_llm import LLM, SamplingParams\n\nsampling = SamplingParams({argument}=16)\n"


def found(text: str) -> list[tuple[str, int, str]]:
    document = read_document(text)
    return [(one.rule, one.line, one.severity) for one in check_commands(document, target(document))]


def test_each_option_that_is_gone_is_told_at_its_own_place() -> None:
    gone = [one for one in found(TWO_GONE) if one[0] == "flag-removed"]
    assert gone == [("flag-removed", 2, "warning"), ("flag-removed", 3, "warning")]


@each(("option", "expected"), [("--dtype float16", [2]), ("--use_gemm_plugin float16", [])])
def test_of_the_first_build_only_options_of_no_release_are_told(option: str, expected: list[int]) -> None:
    lines = [line for rule, line, _ in found(FIRST_BUILD.format(option=option)) if rule == "unknown-flag"]
    assert lines == expected


@each(("argument", "expected"), [("max_new_tokens", ["warning"]), ("max_tokens", [])])
def test_an_argument_that_is_gone_is_no_hint(argument: str, expected: list[str]) -> None:
    text = SAMPLING.format(argument=argument)
    assert [one for rule, _, one in found(text) if rule == "python-argument"] == expected


@each(("text", "expected"), [(STOPPED, [2]), (STOPPED.replace("E0407", "I0407"), [])])
def test_a_stamped_error_among_commands_is_a_log(text: str, expected: list[int]) -> None:
    assert [one.line for one in read_page("cp -r all_models/* repo/\n" + text)] == expected


@each(
    ("text", "expected"),
    [
        ("Built with\n\npython3.10 convert_checkpoint.py --model_dir m --output_dir o\n\nTraceback\n", True),
        ("Built with python3.10 convert_checkpoint.py --model_dir m\nTraceback\n", False),
    ],
)
def test_a_command_on_a_line_of_its_own_was_typed(text: str, expected: bool) -> None:
    assert has_typed_commands(text) is expected


@each(
    ("title", "more", "expected"),
    [
        ("Serving with vLLM", "What is wrong here?", [6]),
        ("Serving with vLLM", "**Root Cause:** The default was a smaller GPU.", []),
        ("Lessons of the first month", "We took a larger GPU.", []),
        ("Serving with vLLM", "**Q: What else may fail?**\n\nA: Nothing.", []),
    ],
)
def test_a_page_that_tells_what_happened_once_asks_nothing(title: str, more: str, expected: list[int]) -> None:
    assert [one.line for one in read_page(PAST.format(title=title, more=more))] == expected


@each(
    ("row", "expected"),
    [("CUDA out of memory. Tried to allocate 2 GiB.", [3]), ("| `CUDA out of memory` | less |", [])],
)
def test_a_row_of_a_table_is_no_log(row: str, expected: list[int]) -> None:
    assert [one.line for one in read_page(f"I get this error:\n\n{row}\n")] == expected
