"""What failed tools printed, in real threads and in the sources, is recognised."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from each import each
from gpu_serving.execute import diagnose
from trtllm_check.lint.log_lines import is_log
from trtllm_check.lint.logs import families, known, read_log, signs
from trtllm_check.lint.page import CORPUS

LOGS = sorted((CORPUS / "logs").glob("*.yml"))
LINES: dict[str, str] = yaml.safe_load(
    (Path(__file__).parents[1] / "fixtures" / "log_lines.yml").read_text(encoding="utf-8")
)


def entry(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@each("path", LOGS)
def test_a_log_is_taken_for_what_it_is(path: Path) -> None:
    log, rule = entry(path)["log"], entry(path)["rule"]
    found = read_log(log, "build.log")
    assert [one.rule for one in found] == ([rule] if rule else [])
    for one in found:
        assert (one.severity, one.file, one.fix.kind) == ("error", "build.log", "action")
        line = log.split("\n")[one.line - 1]
        assert line.strip()[:60] in one.why
        assert 1 <= one.column <= len(line)
    sign = diagnose(log, 1)
    assert (sign.rule if sign else "") == rule


def test_there_are_enough_signs_and_each_has_a_name_and_a_source_of_its_own() -> None:
    assert len(signs()) >= 200
    assert len(LOGS) >= 25
    assert len({sign.rule for sign in signs()}) == len(signs())
    assert all(sign.cause and sign.fix and sign.source for sign in signs())


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("OSError: [Errno 28] No space left on device: '/workspace/engine'", "disk-full"),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "docker"),
        ("Error response from daemon: manifest unknown: manifest unknown", "image"),
        ("mpirun noticed that process rank 3 exited on signal 9 (Killed).", "killed"),
    ],
)
def test_what_the_corpus_has_no_log_of(line: str, rule: str) -> None:
    assert [one.rule for one in read_log(f"first\n{line}\n")] == [rule]


@each(("rule", "line"), LINES.items())
def test_a_line_is_taken_for_what_it_is(rule: str, line: str) -> None:
    assert [one.rule for one in read_log(f"[TensorRT-LLM][INFO] Loaded engine size: 8 MiB\n{line}\n")] == [rule]


def test_a_command_beside_its_output_that_a_line_cuts_is_named_too() -> None:
    begin = "vllm serve Qwen/Qwen2.5-7B-Instruct \\\n  --port 8000 \\\n"
    output = "vllm: error: unrecognized arguments: --max-logprob 5\n"
    whole = f"{begin}  --max-logprob 5 \\\n  --dtype auto \\\n  --seed 1\n\n{output}"
    cut = f"{begin}  --max-logprob 5\n  --dtype auto \\\n  --seed 1\n\n{output}"
    assert [one.rule for one in read_log(whole)] == ["flag-of-another-release"]
    assert [(one.rule, one.line) for one in read_log(cut)] == [
        ("flag-of-another-release", 7),
        ("broken-command-line", 3),
    ]


def test_every_sign_is_recognised_in_some_log() -> None:
    """A sign that an earlier one always hides would never be named."""
    seen = {entry(path)["rule"] for path in LOGS} | {"disk-full", "docker", "image", "killed", *LINES}
    assert {sign.rule for sign in signs()} - seen == set()


@each("sign", signs())
def test_no_sign_is_found_in_plain_progress(sign: Any) -> None:
    quiet = "Loading weights: 100%|####| 30/30\n[TRT-LLM] [I] Build phase peak memory: 1200.00 MB\nall went well\n"
    assert re.search(sign.pattern, quiet) is None
    assert known(quiet) is None


def test_a_long_line_is_shortened() -> None:
    (found,) = read_log("x" * 5_000 + " CUDA out of memory")
    assert len(found.why) < 400
    assert found.column == 5_002


FAMILY_LINES: dict[str, str] = yaml.safe_load(
    (Path(__file__).parents[1] / "fixtures" / "log_family_lines.yml").read_text(encoding="utf-8")
)


@each(("rule", "line"), FAMILY_LINES.items())
def test_a_line_tells_its_kind_of_failure(rule: str, line: str) -> None:
    found = read_log(f"[TensorRT-LLM][INFO] Loaded engine size: 8 MiB\n{line}\n")
    assert rule in [one.rule for one in found]
    assert all("{" not in one.message + one.fix.text.replace("{backend", "") for one in found)


def test_every_kind_of_failure_has_a_line() -> None:
    assert {family.rule for family in families()} == set(FAMILY_LINES)
    assert not {family.rule for family in families()} & {sign.rule for sign in signs()}


def test_no_pattern_looks_over_the_line_from_every_letter() -> None:
    """What a line must not say is asked where the rest was found: asked first, a line costs the cube of its length."""
    first = re.compile(r"(?:\(\?\w+\))?(?:\(\?!|\[\^\\n\]\*|\.\*)")
    assert [sign.rule for sign in (*signs(), *families()) if first.match(sign.pattern)] == []


@pytest.mark.parametrize(
    "line",
    [
        "INFO 10-06 15:56:26 [model.py:1510] Using max model len 65536, not found in any cache",
        "[TRT-LLM] [W] tokenizer is not a fast one, memory may run out",
        "I0112 10:28:21.241721 44 server.cc:302] failed requests: 0",
        "DEBUG 10-22 05:47:43 [x.py:1] the file does not exist",
    ],
)
def test_a_line_that_calls_itself_information_is_no_error(line: str) -> None:
    assert read_log(f"{line}\n") == []


def test_an_error_that_nothing_explains_is_named_with_its_line() -> None:
    (found,) = read_log("[TRT-LLM] [I] loading\n[TRT-LLM] [E] the flux capacitor is empty\n")
    assert (found.rule, found.severity, found.line) == ("unexplained-error", "error", 2)
    assert "flux capacitor" in found.why


def test_behind_a_consequence_stands_the_error_before_it() -> None:
    log = (
        "(EngineCore pid=7) ERROR 04-30 19:50:08 [core.py:9] Traceback (most recent call last):\n"
        '(EngineCore pid=7) ERROR 04-30 19:50:08 [core.py:9]   File "/x/y.py", line 2, in z\n'
        "(EngineCore pid=7) ERROR 04-30 19:50:08 [core.py:9]     raise FluxError(1)\n"
        "(EngineCore pid=7) ERROR 04-30 19:50:08 [core.py:9] FluxError: the capacitor is empty\n"
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    found = read_log(log)
    assert [(one.rule, one.line) for one in found] == [("unexplained-error", 4), ("vllm-engine-core", 5)]


def test_prefixes_hide_no_line() -> None:
    """Compose, syslog, ranks, LMI's Python processes and times in front of a line."""
    error = "ModuleNotFoundError: No module named 'bricks'"
    for prefix in (
        "server-1  | ",
        "Aug 19 18:34:27 host vllm[8727]: (EngineCore pid=8727) ERROR 08-19 18:34:27 [core.py:1349] ",
        "[rank0]: ",
        "WARN  PyProcess W-88-model-stderr: [1,0]<stderr>:",
        "2025-08-04T18:22:11.123Z ",
    ):
        assert [one.rule for one in read_log(f"{prefix}{error}\n")] == ["module-missing"]


def test_a_table_of_markdown_is_no_log_and_tritons_is() -> None:
    rows = "| Model | Version | Status |\n| llama | 1 | READY |\n"
    assert not is_log("# A page\n\n" + rows.replace("\n", "\n|---|---|---|\n", 1))
    border = "+-------+---------+--------+\n"
    assert is_log(border + rows + border)


@pytest.mark.parametrize(
    ("line", "cause", "fix"),
    [
        ("trtllm-build: error: unrecognized arguments: --use_gemm", "--use_gemm", "leave --use_gemm out"),
        (
            "api_server.py: error: unrecognized arguments: --enable-reasoning",
            "--enable-reasoning",
            "write --reason",
        ),
        ("x: error: argument --dtype/-d: invalid choice: 'fp4'", "--dtype/-d", "playbook check"),
    ],
)
def test_an_unknown_option_is_named_and_so_is_what_took_its_place(line: str, cause: str, fix: str) -> None:
    (found,) = read_log(line)
    assert found.rule == "flag-of-another-release"
    assert cause in found.message
    assert fix in found.fix.text
    assert "{" not in found.message + found.fix.text


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("ValueError: invalid literal for int() with base 10: 'eight'", "service-named-as-a-variable"),
        ("ImportError: DLL load failed while importing torch: not found", "mpi-of-windows"),
        ("ValueError: max_lora_rank must be positive", "vllm-lora-rank-not-taken"),
        ("the image contains the required Docker label", "image-without-label"),
        ("ARG takes a name and a value", "docker-before-buildkit"),
        ("services.web missing heartbeat", "compose-refused"),
    ],
)
def test_a_line_that_is_only_like_one_is_not_taken_for_it(line: str, rule: str) -> None:
    assert rule not in [one.rule for one in read_log(line)]
