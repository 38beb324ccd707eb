"""A fix is the whole command, mended: it passes the checker, and mending it again changes nothing."""

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from each import each
from trtllm_check.lint import check_commands, target
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
    assert len(fixes) <= 2  # without what hints say, and with it
    for fix in fixes:
        again = [one for one in check(fix, release, gpu, 2) if one.fix.kind == "command" and one.severity != "info"]
        assert not again, (fix, again[0])


LISTS_MODELS = "tritonserver --model-repository /m\ncurl localhost:8000/v2/models\n"


def commands_of(text: str, release: str) -> dict[str, str]:
    """By rule the correction, with all families."""
    document = read_document(text)
    found = check_commands(document, target(document, release))
    return {one.rule: one.fix.text for one in found if one.fix.kind == "command"}


def test_a_correction_does_not_do_what_only_a_hint_says() -> None:
    """Its edits are seen with --hints, and stand in the hint's own correction."""
    fixes = commands_of("docker run nvcr.io/nvidia/tritonserver:24.08-trtllm-python-py3 bash", "0.12.0")
    assert "--gpus all" in fixes["no-gpus"] and "--shm-size" not in fixes["no-gpus"]
    assert "--gpus all" in fixes["small-shared-memory"] and "--shm-size" in fixes["small-shared-memory"]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("CKPT=/srv/c\ntrtllm-build --checkpoint_dir $CKPT", '--checkpoint_dir "${CKPT}"'),
        ("CKPT=/srv/c\ntrtllm-build --checkpoint_dir=$CKPT/fp8", '"--checkpoint_dir=${CKPT}/fp8"'),
        ("export CKPT=${CKPT:-/srv/c}\ntrtllm-build --checkpoint_dir ${CKPT}", '--checkpoint_dir "${CKPT}"'),
        ("trtllm-build --checkpoint_dir ${CKPT:-/srv/c}", '--checkpoint_dir "${CKPT:-/srv/c}"'),
        ('CKPT="/srv/my c"\ntrtllm-build --checkpoint_dir "$CKPT"', '--checkpoint_dir "${CKPT}"'),
        (
            "CKPT=2048\ntrtllm-build --checkpoint_dir $CKPT",
            "--checkpoint_dir 2048",
        ),  # a length is that, too
        ("trtllm-build --checkpoint_dir '$CKPT'", "--checkpoint_dir"),  # a word, and no variable
        ('MORE="--checkpoint_dir /srv/c"\ntrtllm-build $MORE', "--checkpoint_dir /srv/c"),  # two words of one variable
    ],
)
def test_a_variable_stays_one(text: str, written: str) -> None:
    """What a run sets from outside still counts, and a key of the text is not printed."""
    fix = commands_of(f"{text} --output_dir e --use_fused_mlp --max_seq_len 2048\n", "0.20.0")["needs-value"]
    assert written in fix and "--use_fused_mlp enable" in fix


def test_the_value_that_is_wrong_is_written_out() -> None:
    text = "PLUGIN=enabled\nCKPT=/srv/c\ntrtllm-build --checkpoint_dir $CKPT --context_fmha $PLUGIN --output_dir e\n"
    fix = commands_of(text, "0.20.0")["bad-value"]
    assert '--checkpoint_dir "${CKPT}"' in fix and "--context_fmha enable " in fix


def test_the_end_of_a_command_in_a_string() -> None:
    """The value of a last variable is gone with its name."""
    text = 'PORT=8000\nbash -c "trtllm-build --checkpoint_dir c --use_fused_mlp --output_dir e --max_seq_len $PORT"\n'
    fix = commands_of(text, "0.20.0")["needs-value"]
    assert "--use_fused_mlp enable" in fix and fix.endswith("--max_seq_len 8000'")


def test_options_without_their_command_are_corrected_in_words() -> None:
    text = "# vLLM\n\n`vllm serve a/b` takes:\n\n```\n--enforce-eager false\n--max-model-len 4096\n```\n"
    document = read_document(text)
    (one,) = check_commands(document, target(document))
    assert (one.rule, one.fix.kind, one.fix.text) == ("vllm-form", "action", "leave --enforce-eager out")


@pytest.mark.parametrize(
    ("text", "rule", "fix"),
    [
        (
            LISTS_MODELS,
            "wrong-model-path",
            "/v2/repository/index",
        ),
        (LISTS_MODELS, "wrong-model-path", "-X POST"),
        ("docker run --gpus all nvidia/cuda:12.0-base nvidia-smi\n", "image-tag-unknown", "12.0.0-base-ubuntu22.04"),
        ("vllm serve Qwen/Qwen3-7B-Instruct\n", "hub-id", "Qwen/Qwen3-8B,"),  # the family first, then the size
        ("vllm serve Qwen/Qwen3-72B-Instruct\n", "hub-id", "Qwen/Qwen3-32B,"),
        (
            "docker run --gpus device=0,1 nvidia/cuda:12.8.1-base-ubuntu22.04 ls\n",
            "gpu-list-unquoted",
            "'\"device=0,1\"'",
        ),
        (
            "import os\nos.system('docker run --gpus \"device=0,1\" vllm/vllm-openai:v0.11.0 --model a/b')\n",
            "gpu-list-unquoted",
            r'--gpus \\"device=0,1\\"',  # within the quotes of a program
        ),
        (
            "pip install vllm==0.24.0\nexport VLLM_USE_FLASHINFER_MOE_FP4=1\nvllm serve a/b --moe-backend marlin\n",
            "variable-unknown",
            "leave it out: --moe-backend is given",
        ),
        (
            "pip install vllm==0.24.0\nexport VLLM_USE_FLASHINFER_MOE_FP4=1\nvllm serve a/b\n",
            "variable-unknown",
            "write --moe-backend flashinfer_cutlass",
        ),
    ],
)
def test_what_a_correction_says(text: str, rule: str, fix: str) -> None:
    document = read_document(text)
    fixes = [one.fix.text for one in check_commands(document, target(document)) if one.rule == rule]
    assert any(fix in one for one in fixes), fixes


@each("snippet", [one for one in snippets() if one.kind == "shell"])
def test_every_fix_of_the_corpus_passes_the_checker(snippet: Snippet) -> None:
    """With all families; what is left needs another command, and was said before."""
    found = snippet.check(snippet.text)
    for fix in {finding.fix.text for finding in found if finding.fix.kind == "command"}:
        again = snippet.check(fix)
        assert not [finding for finding in again if finding.fix.kind == "command" and finding.severity != "info"]
        errors = {finding.rule for finding in again if finding.severity == "error"}
        assert errors <= {finding.rule for finding in found if finding.fix.kind == "action"}
