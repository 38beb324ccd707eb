"""Whatever is given, the checker answers: with findings, or with a sentence on why not."""

import io
import os
import random
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from each import each
from serving_base.errors import NotYaml, UsageError
from serving_base.yaml_files import read_yaml
from trtllm_check.cli import _read_log, _text
from trtllm_check.lint import amounts, check_commands, target
from trtllm_check.lint.amounts import log_part, refuse_too_much
from trtllm_check.lint.document import Document
from trtllm_check.lint.facts import DocumentFacts
from trtllm_check.lint.finding import Draft, Platform
from trtllm_check.lint.fixing import FamilyFailed, findings
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.kinds import Kind
from trtllm_check.lint.page import Snippet, snippets
from trtllm_check.lint.reading import read_document
from trtllm_check.lint.rules import arguments
from trtllm_check.releases import load_release

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "40"))
MOST_MEMORY = 300_000_000  # bytes, for texts of a few kB
KINDS: tuple[Kind, ...] = ("shell", "dockerfile", "yaml", "makefile", "python", "notebook", "windows", "config.pbtxt")
PIECES = (
    *(
        "trtllm-build ",
        "python3 convert_checkpoint.py ",
        "docker run --rm img:1 ",
        "--max_batch_size ",
        "=8 ",
        "\\\n  ",
    ),
    *(
        "\n",
        "\n\n",
        "```\n",
        "```bash\n",
        "FROM img\n",
        "RUN ",
        "CMD [",
        '"trtllm-build", ',
        "]\n",
        "services:\n  a:\n",
    ),
    *(
        "    command: ",
        "    - ",
        "{{ .x }}",
        "&a [*a, *a]\n",
        "all:\n\t",
        "$(X) ",
        "$$y ",
        "import os\n",
        "os.system(f'",
    ),
    *("{n}')\n", "cmd = [", "env = {'OPTION_X': '", "'}\n", '{"nbformat": 4, "cells": [', '{"source": ["!'),
    *(
        '\\n"]}',
        "]}",
        "^\n",
        "PS C:\\x> ",
        "%X%",
        "`",
        "'",
        '"',
        "$(",
        "))",
        "<<EOF\n",
        "EOF\n",
        "…",
        "–",
        "\u00a0",
        "\t",
    ),
    *("tensorrt_llm==0.12.0 ", "tritonserver:24.08-trtllm-python-py3 ", "option.rolling_batch=", "# ", "}", "{", "; "),
)
texts = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)
MULTIPLIED = "\n".join(
    ["a: &a [x]", *(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True))]
)


# What is read in another way by one of the parsers, or leads a loop astray.
WORDS = (
    "//",
    "///",
    "..",
    "~/.",
    "\r",
    "\r\n",
    "\x0b",
    "\x0c",
    "\x85",
    "\u2028",
    "\ufeff",
    "9" * 40,
    "1e999",
    "é",
    "İ",
    "[::]",
)


def lines_in(text: str) -> int:
    """A return that stands alone ends a line, as it does in a file that is read."""
    return text.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1


def spoilt(text: str, chance: random.Random) -> str:
    """``text`` after one to four accidents: cut, a line gone, twice, moved, indented or broken, a sign lost."""
    for _ in range(chance.randint(1, 4)):
        lines = text.split("\n")
        at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
        sign = chance.randrange(len(text) + 1)
        border = text.find(" ", sign) + 1  # of two words; the beginning where none is left
        text = chance.choice(
            [
                text[:sign],
                text[sign:],
                text[:sign] + text[sign + 1 :],
                text[:sign] + chance.choice("\"'`{}[]()\\:=-$#|\n\t ") + text[sign:],
                text[:border] + chance.choice(WORDS) + " " + text[border:],
                "\n".join(lines[:at] + lines[at + 1 :]),
                "\n".join([*lines[:at], lines[at], *lines[at:]]),
                "\n".join([*lines[:at], lines[other], *lines[at + 1 :]]),
                "\n".join([*lines[:at], "    " + lines[at], *lines[at + 1 :]]),
            ]
        )
    return text


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=texts, kind=st.sampled_from((None, *KINDS)))
def test_any_text_has_an_answer(text: str, kind: Kind | None) -> None:
    document = read_document(text, kind)
    lines = text.count("\n") + 1
    for one in check_commands(document, "0.12.0"):
        assert 1 <= one.line <= lines


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_a_text_of_the_corpus_that_lost_its_form_has_an_answer(seed: int) -> None:
    chance = random.Random(seed)
    snippet = chance.choice(snippets())
    text = spoilt(snippet.text or "\n".join(text for _, text in snippet.files), chance)
    for kind in (None, chance.choice(KINDS)):
        for one in check_commands(read_document(text, kind), "0.12.0"):
            assert 1 <= one.line <= lines_in(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000,
        "a:\n" + " - " * 5_000,
        "(" * 20_000,
        "$(" * 500,
        "{{" * 1_000,
        "`" * 9_999,
        "f'{" * 500,
        "<" * 9_999,
    ],
    ids=lambda text: text[:6],
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_nested_deeply_takes_no_more_memory_than_it_may(text: str, kind: Kind) -> None:
    tracemalloc.start()
    try:
        check_commands(read_document(text, kind), "0.12.0")
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


def test_thousands_of_commands_are_read_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """What each says is asked a number of times that grows as their number does."""
    from trtllm_check.lint import facts

    calls = 0
    original = facts.stated

    def counted(invocation: Invocation) -> DocumentFacts:
        nonlocal calls
        calls += 1
        return original(invocation)

    monkeypatch.setattr(facts, "stated", counted)

    def asked(number: int) -> int:
        nonlocal calls
        calls = 0
        lines = [f"trtllm-build --checkpoint_dir c{n} --output_dir e{n} --max_batch_size 8" for n in range(number)]
        check_commands("\n".join(lines), "0.12.0")
        return calls

    assert asked(200) <= 2 * asked(100)


def test_a_value_that_multiplies_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.yml"
    path.write_text(MULTIPLIED)
    with pytest.raises(NotYaml, match="stands for more than"):
        read_yaml(path)
    path.write_text("a: &a [1, 2]\nb: *a\nc: *a\n")
    assert read_yaml(path) == {"a": [1, 2], "b": [1, 2], "c": [1, 2]}


def test_a_pipe_that_says_nothing_and_a_device_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trtllm_check.cli.PIPE_SECONDS", 0.01)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="nothing came"):
        _text(str(tmp_path / "pipe"), 100)
    with pytest.raises(UsageError, match="device"):
        _text("/dev/zero", 100)


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    keeper = os.open(path, os.O_RDWR)
    os.write(keeper, b"trtllm-build\n")
    writer = os.open(path, os.O_WRONLY)
    os.close(writer)
    os.close(keeper)
    with pytest.raises(UsageError):  # what nobody holds open is gone
        _text(str(path), 100)
    code = f"import sys; open({str(path)!r}, 'w').write('trtllm-build')"
    process = os.spawnlp(os.P_NOWAIT, "python3", "python3", "-c", code)
    try:
        assert _text(str(path), 100) == "trtllm-build"
    finally:
        os.waitpid(process, 0)


def test_random_bytes_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_bytes(random.Random(3).randbytes(2_000))
    with pytest.raises(UsageError, match="no plain text"):
        _text(str(tmp_path / "x.sh"), 10_000)


def test_the_holes_of_a_log_that_was_cut_while_it_was_written_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "serve.log").write_bytes(b"\0" * 4_000 + b"\x1b[32mINFO\x1b[0m started\n" + b"\0" * 9 + b"end\n")
    assert _text(str(tmp_path / "serve.log"), 10_000) == "\x1b[32mINFO\x1b[0m started\nend\n"
    (tmp_path / "zeros").write_bytes(b"\0" * 4_000)
    with pytest.raises(UsageError, match="no plain text"):
        _text(str(tmp_path / "zeros"), 10_000)


def test_arguments_behind_doubled_backslashes_are_kept() -> None:
    text = "trtllm-build --checkpoint_dir c \\\\\n  --max_batch_size 8 \\\\\n  --max_output_len 5\n"
    (build,) = read_document(text, "shell").of("trtllm-build")
    assert build.value("--max_output_len") == "5"


def test_a_list_of_lists_on_the_first_line_is_no_yaml_of_anybody(tmp_path: Path) -> None:
    """libyaml takes a stack frame for each, and 50,000 of them ended the process."""
    assert not read_document("- " * 50_000 + "a", "yaml").is_understood


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8"])
def test_a_file_that_powershell_wrote_is_read(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "a.sh"
    path.write_text("trtllm-build --checkpoint_dir größe\n", encoding=encoding)
    assert _text(str(path)) == "trtllm-build --checkpoint_dir größe\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${" * 100_000, "without an end"),
        ("echo " + "a | " * 1_000, "pipes"),
        ("trtllm-build " + "--a b " * 5_000, "30,013 characters, and 20,000 are read"),
        ("# a\n" * 40_000, "40,000 lines, and 30,000 are read"),
    ],
    ids=["nested", "piped", "long", "many"],
)
def test_more_than_anybody_writes_is_refused_with_what_is_read(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        refuse_too_much(text, "a.sh", "shell")
    assert refused.value.why and refused.value.fix


def test_json_of_one_line_and_what_people_write_is_read() -> None:
    refuse_too_much('{"a": "' + "x" * 100_000 + '"}', "a.json", "request")
    refuse_too_much("trtllm-build --checkpoint_dir c | tee ${LOG:-log}\n" * 1_000, "a.sh", "shell")


@pytest.mark.parametrize("lines", [3, 40, 4_000])
def test_of_a_large_log_begin_and_end_are_read_and_lines_keep_their_numbers(
    lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(amounts, "LOG_BEGIN", 100)
    monkeypatch.setattr(amounts, "LOG_END", 300)
    monkeypatch.setattr(amounts, "PIECE", 1_000)
    path = tmp_path / "a.log"
    path.write_text("[INFO] nothing of note\n" * lines + "[ERROR] CUDA out of memory. Tried to allocate 2.00 GiB\n")
    (found,) = _read_log(str(path))
    assert found.line == lines + 1
    assert ("were read" in capsys.readouterr().err) == (path.stat().st_size > 400)


def test_of_a_large_log_no_more_is_kept_than_is_read() -> None:
    part = log_part(io.BytesIO(b"x" * 5_000_000))
    assert len(part.data) == amounts.LOG_BEGIN + amounts.LOG_END
    assert part.size == part.left_out + len(part.data) == 5_000_000


def test_a_line_of_a_log_that_never_ends_is_cut_at_its_place() -> None:
    assert amounts.clipped("a" * 9_000 + "\nb\n") == "a" * amounts.LOG_LINE + "\nb\n"


def test_a_drawing_that_names_no_file() -> None:
    text = "/opt/triton\n└── ...\n\ntrtllm-build --checkpoint_dir c --max_batch_sizes 8\n# beside config.pbtxt\n"
    assert [one.rule for one in check_commands(text, "0.12.0") if one.severity == "error"] == ["unknown-flag"]


@pytest.mark.parametrize("end", ["\r", "\r\n"])
@each("snippet", [one for one in snippets() if one.kind in ("python", "yaml", "notebook") and not one.files][::9])
def test_returns_in_a_text_that_was_pasted(snippet: Snippet, end: str) -> None:
    """As a terminal's lines have them; each finding stands at its line."""
    found = [
        check_commands(read_document(text, snippet.kind), "0.12.0")
        for text in (snippet.text, snippet.text.replace("\n", end))
    ]
    assert [(one.rule, one.line) for one in found[0]] == [(one.rule, one.line) for one in found[1]]


def test_a_number_that_no_field_holds() -> None:
    text = 'name: "a"\nbackend: "python"\noutput [ { name: "y" data_type: ' + "9" * 40 + " dims: [ 1 ] } ]\n"
    (one,) = [
        one for one in check_commands(read_document(text, "config.pbtxt"), "0.12.0") if one.rule == "config-syntax"
    ]
    assert one.line == 3 and "out of range" in one.message


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        # A program whose name is longer than that of a file with facts may be.
        (f"cmds:\n  - trtllm-serve m --no_such_1 3\n  - trtllm-{'a' * 3_000} serve\n", "yaml"),
        (
            'name: "tensorrt_llm"\nbackend: "tensorrtllm"\nmax_batch_size: 8\ninput [\n'
            '  { name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] },\n'
            '  { name: ""input_lengths" data_type: TYPE_INT32 dims: [ 1 ] },\n'
            '  { name: "request_output_len" 1e999 data_type: TYPE_INT32 dims: [ 1 ] }\n]\n'
            'output [ { name: "output_ids" data_type: TYPE_INT32 dims: [ -1, -1 ] } ]\n'
            'parameters { key: "engine_dir" value: { string_value: ./ "/engines/llama-8b" } }\n'
            'parameters { key: "max_beam_width" value: { string_value: … "1" } }\n',
            "config.pbtxt",
        ),  # a problem of a parameter that is not named
    ],
    ids=["program", "parameter"],
)
def test_no_family_fails(text: str, kind: Kind) -> None:
    """A family that fails warns."""
    document = read_document(text, kind)
    assert isinstance(check_commands(document, target(document)), list)


def test_a_family_that_fails_hides_no_other() -> None:
    def failing(document: Document, platform: Platform) -> list[Draft]:
        raise IndexError("tuple index out of range")

    document = read_document("trtllm-build --checkpoint_dir c --max_batch_sizes 8\n")
    with pytest.warns(FamilyFailed, match=r"test_check_bad_input failed on this text with IndexError"):
        found = findings(document, Platform(load_release("0.12.0"), "", None), (failing, arguments.check))
    assert [one.rule for one in found] == ["unknown-flag"]


def test_a_configuration_that_ends_within_a_field_is_named_at_its_last_word() -> None:
    text = "cat > repo/llama/config.pbtxt <<'EOF'\nname: \"llama\"\nmax_batch_size\nEOF\n"
    (found,) = (one for one in check_commands(text, "0.12.0") if one.rule == "config-syntax")
    assert (found.line, found.column) == (3, 14)
    assert "ends within a field" in found.message and "max_batch_size" in found.fix.text


def test_python_nested_deeper_than_a_walk_goes_is_no_python() -> None:
    assert read_document(f"a{'()' * 1500}\n", "python").calls == ()


def test_what_a_family_tells_the_user_reaches_him() -> None:
    def refusing(document: Document, platform: Platform) -> list[Draft]:
        raise UsageError("no such release")

    with pytest.raises(UsageError, match="no such release"):
        findings(read_document("trtllm-build\n"), Platform(load_release("0.12.0"), "", None), (refusing,))
