"""A fix is the whole command, mended: it passes the checker, and mending it again changes nothing."""

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from each import each
from trtllm_check.lint.finding import Drop, Edit, Finding, Insert, Platform, Put, Swap
from trtllm_check.lint.fixing import findings
from trtllm_check.lint.page import Snippet, snippets
from trtllm_check.lint.reading import read_document
from trtllm_check.lint.rewriting import quoted, rewritten
from trtllm_check.lint.rules import arguments, defaults, memory, pairs
from trtllm_check.lint.shell import read_commands
from trtllm_check.releases import Argument, known_releases, load_release

FAMILIES = (arguments.check, pairs.check, defaults.check, memory.check)
TOOLS = (
    *("quantize.py", "convert_checkpoint.py", "trtllm-build", "run.py", "summarize.py", "launch_triton_server.py"),
    *("hf_ptq.py", "trtllm-serve", "fill_template.py"),
)
VALUES = (
    *("enable", "disable", "auto", "float16", "bfloat16", "fp8", "int8", "int4_awq", "full_prec", "true", "4k"),
    *("1", "2", "8", "4096", "20000", "0.5", "./x", "${X}", "$(cat f)", "a b", "it's", "cnn_dailymail"),
)


def check(text: str, release: str, gpu: str = "", gpus: int | None = None) -> list[Finding]:
    return findings(read_document(text, "shell"), Platform(load_release(release), gpu, gpus), FAMILIES)


def mended(text: str, edits: list[Edit], release: str = "0.12.0") -> str:
    document = read_document(text, "shell")
    invocation = document.invocations[-1]
    return rewritten(invocation.command, invocation.path, [(invocation, edit) for edit in edits], load_release(release))


BUILD = "trtllm-build --checkpoint_dir c --max_batch_size=8 --use_fused_mlp"


@pytest.mark.parametrize(
    ("text", "edits", "expected"),
    [
        (BUILD, [Drop("--max_batch_size")], "trtllm-build --checkpoint_dir c --use_fused_mlp"),
        (BUILD, [Put("--max_batch_size", "4")], "trtllm-build --checkpoint_dir c --max_batch_size 4 --use_fused_mlp"),
        (BUILD, [Put("--max_seq_len", "4")], f"{BUILD} --max_seq_len 4"),
        (BUILD, [Put("--fast_build")], f"{BUILD} --fast_build"),
        (BUILD, [Drop("--use_fused_mlp"), Put("--use_fused_mlp", "enable")], BUILD.removesuffix(" --use_fused_mlp")),
        (BUILD, [Put("--max_batch_size", "1"), Put("--max_batch_size", "2")], BUILD.replace("=8", " 1")),
        ("trtllm-build –workers 8", [Put("--workers", "2")], "trtllm-build --workers 2"),
        ("docker run --rm img:1 ls", [Put("--gpus", "all")], "docker run --rm --gpus all img:1 ls"),
        ("mpirun -n 2 x", [Put("-n", "8")], "mpirun -n 8 x"),
        ("mpirun x", [Put("-n", "8")], "mpirun -n 8 x"),
        ("A=1 trtllm-build --x $B '$C' ~/m/*.json", [], "A=1 trtllm-build --x \"${B}\" '$C' ~/m/*.json"),
        ('trtllm-build --x "$(date) \\"q\\""', [], 'trtllm-build --x "$(date) \\"q\\""'),
        ("curl -d @- u <<EOF\n{}\nEOF", [], "curl -d @- u <<'EOF'\n{}\nEOF"),
    ],
)
def test_edits(text: str, edits: list[Edit], expected: str) -> None:
    assert mended(text, edits) == expected


def test_swap_and_insert() -> None:
    (invocation,) = read_document("python3 x/run.py --engine_dir=a").invocations
    first, path, flag = invocation.command.words

    def after(*edits: Edit) -> str:
        return rewritten(invocation.command, path, [(invocation, edit) for edit in edits], load_release("0.12.0"))

    swaps = (Swap(path.part(0, 1), "y"), Swap(flag.part(13), "b"))
    assert after(*swaps, Insert(first, ("mpirun", "-n", "2"))) == "mpirun -n 2 python3 y/run.py --engine_dir=b"
    assert after(Swap(flag, "")) == "python3 x/run.py"


def test_a_long_command_has_one_flag_per_line() -> None:
    text = "docker run --rm img trtllm-build " + " ".join(f"--flag_number_{i} value" for i in range(8))
    lines = mended(text, []).split(" \\\n  ")
    assert lines[0] == "docker run --rm img trtllm-build"
    assert len(lines) == 9 and all(line.count("--") == 1 for line in lines[1:])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "docker run img bash -c 'cd x && trtllm-build --max_output_len 8 --max_input_len 2'",
            "docker run img bash -c 'cd x && trtllm-build --max_input_len 2 --max_seq_len 10'",
        ),
        (
            "bash -c \"trtllm-build --timing_cache 'a b' --fast_build; trtllm-build --enable_xqa on --workers 2\"",
            "bash -c \"trtllm-build --fast_build --input_timing_cache 'a b' --output_timing_cache 'a b';"
            ' trtllm-build --enable_xqa enable --workers 2"',
        ),
    ],
)
def test_a_command_inside_another(text: str, expected: str) -> None:
    fixes = {finding.fix.text for finding in check(text, "0.12.0") if finding.fix.kind == "command"}
    (fix,) = fixes
    assert [word.text for word in read_commands(fix)[0].words] == [
        word.text for word in read_commands(expected)[0].words
    ]


def test_one_fix_for_all_findings_of_a_command() -> None:
    text = "trtllm-build --checkpoint_dir c --max_input_len 100 --max_output_len 28 --use_custom_all_reduce enable"
    found = check(text, "0.16.0")
    assert [finding.rule for finding in found] == ["max-input-len-ignored", "flag-removed", "flag-removed"]
    assert {finding.fix.text for finding in found} == {
        "trtllm-build --checkpoint_dir c --max_input_len 100 --max_seq_len 128"
    }


def test_a_fix_that_shows_something_new_is_mended_too() -> None:
    """The tool ends at what is missing, so the tokenizer shows only in the corrected command."""
    (finding,) = check("python3 run.py --engine_dir e --input_file f --tokenizer_dir m", "0.8.0")
    assert finding.rule == "missing-flag"
    assert "--max_output_len 128" in finding.fix.text and "--max_input_length" in finding.fix.text


@given(st.text(alphabet=st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20))
def test_quoted_words_are_read_back(text: str) -> None:
    if text.count("`") > 1:  # what the shell runs stays as it is
        return
    if any(mark in text for mark in ("${", "$(", "\r", "\v", "\f", "\u00a0", "\u202f", "…", "<")):
        return
    commands = read_commands(f"x {quoted(f'a{text}')}")
    if "\n" not in text and not any(sign in text for sign in "“”„‘’‚\\*†‡¹²³"):
        assert [word.text for word in commands[0].words] == ["x", f"a{text}"]


@cache
def flags_of(tool: str) -> tuple[str, ...]:
    """The flags of ``tool`` in all releases, and some of no release."""
    found: dict[str, None] = {}
    for name in known_releases():
        facts = load_release(name).tools.get(tool)
        found |= dict.fromkeys(facts.arguments if facts else ())
    return (*found, "--no_such_flag", "--max", "-tp_size", "–tp_size", "word", "--model")


@st.composite
def command_lines(draw: st.DrawFn) -> tuple[str, str]:
    """A release, and a tool with any flags of any release, with any values."""
    release = draw(st.sampled_from(known_releases()))
    tool = draw(st.sampled_from(TOOLS))
    facts = load_release(release).tools.get(tool)
    words = [tool if tool.startswith("trtllm") else f"python3 {tool}"]
    for flag in draw(st.lists(st.sampled_from(flags_of(tool)), max_size=12)):
        argument = facts.argument(flag) if facts else None
        words.append(flag)
        words += [quoted(value) for value in draw(st.lists(st.sampled_from(_likely(argument)), max_size=2))]
    front = draw(st.sampled_from(["", "mpirun -n 3 ", "docker run --rm img:1 ", "X=1 "]))
    return release, front + " ".join(words)


def _likely(argument: Argument | None) -> tuple[str, ...]:
    return (*map(str, argument.choices), *VALUES) if argument and argument.choices else VALUES


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(command_lines(), st.sampled_from(["", "h100", "l4", "a100"]))
def test_any_flags_and_values(line: tuple[str, str], gpu: str) -> None:
    """No crash, the same findings again, and a fix in which there is nothing left to mend and no error with edits."""
    release, text = line
    found = check(text, release, gpu, 2)
    assert found == check(text, release, gpu, 2)
    columns = len(text) + 1
    assert all(finding.line == 1 and 1 <= finding.column <= columns for finding in found)
    assert all(finding.fix.text and finding.message and finding.source for finding in found)
    fixes = {finding.fix.text for finding in found if finding.fix.kind == "command"}
    assert len(fixes) <= 1
    for fix in fixes:
        again = [finding for finding in check(fix, release, gpu, 2) if finding.fix.kind == "command"]
        assert not again, (fix, again[0])


@each("snippet", [one for one in snippets() if one.kind == "shell"])
def test_every_fix_of_the_corpus_passes_the_checker(snippet: Snippet) -> None:
    """With all families; what is left needs another command, and was said before."""
    found = snippet.check(snippet.text)
    for fix in {finding.fix.text for finding in found if finding.fix.kind == "command"}:
        again = snippet.check(fix)
        assert not [finding for finding in again if finding.fix.kind == "command"]
        errors = {finding.rule for finding in again if finding.severity == "error"}
        assert errors <= {finding.rule for finding in found if finding.fix.kind == "action"}
