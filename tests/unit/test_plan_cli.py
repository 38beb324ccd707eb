"""`playbook plan`: text, JSON, many cases at once, claims, choices, and input that cannot be used."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from serving_base.command_line import reporting
from serving_planner.case import Case, parse_case
from serving_planner.cli import plan_command
from serving_planner.predict import plan

app = typer.Typer()
app.command()(reporting(plan_command))
SMALL = ["--model", "llama3-8b", "--gpu", "h100-sxm", "--isl", "128", "--osl", "16"]
ISSUE = (
    "--model llama3-70b --gpu h100-sxm --gpus 8 --tp 4 --pp 2 --weights fp8 --kv fp8 "
    "--isl 1024 --osl 256 --concurrency 64"
)
GOOD = {"model": "llama3-8b", "gpu": "h100-sxm", "isl": 128, "osl": 16}


def run(*words: str, text: str | None = None, status: int = 0) -> tuple[str, str]:
    done = CliRunner().invoke(app, list(words), input=text)
    assert done.exit_code == status, (done.stdout, done.stderr, done.exception)
    return done.stdout, done.stderr


def test_the_issues_command_prints_planned_beside_floor() -> None:
    out, _ = run(*ISSUE.split())
    assert out.startswith(
        "planned, not measured: llama3-70b, weights fp8, KV cache fp8, tensorrt-llm, on 8 x h100-sxm\n"
    )
    for part in ("TP 4 x PP 2", "TTFT ms", "TPOT ms", "floor p50", "GiB per GPU: weights", "of the floor; what binds:"):
        assert part in out
    assert "joules per output token: at most" in out
    assert "USD" not in out  # no price was given
    assert "4 x PP 2; prompts 819 to 1024" in out


def test_json_is_the_plan() -> None:
    out, _ = run(*SMALL, "--concurrency", "max", "--json")
    case = parse_case({**GOOD, "concurrency": "max"})
    assert json.loads(out) == plan(case).model_dump(mode="json")


def test_every_key_of_a_case_is_a_flag() -> None:
    flags = {
        "model": "llama3-8b", "gpu": "h100-sxm", "gpus": "2", "tp": "1", "pp": "1", "weights": "bf16", "kv": "bf16",
        "isl": "128", "osl": "16", "concurrency": "4", "engine": "vllm", "length_ratio": "0.5", "max_num_tokens": "512",
        "max_batch_size": "8", "kv_fraction": "0.8", "chunked": None, "requests": "60", "seed": "3",
        "usd_per_hour": "9", "instance": "p5.48xlarge",
    }  # fmt: skip
    assert set(flags) == set(Case.model_fields) - {"rate"}
    words = [word for key, value in flags.items() for word in (f"--{key.replace('_', '-')}", value) if word is not None]
    words[words.index("--chunked")] = "--no-chunked"
    case = json.loads(run(*words, "--json")[0])["case"]
    for key, value in flags.items():
        assert str(case[key]) == str(value if value is not None else False).removesuffix(".0") or float(
            case[key]
        ) == float(value or 0), key
    assert json.loads(run(*SMALL, "--rate", "2", "--json")[0])["case"]["rate"] == 2


def test_costs_are_shown_with_the_date_of_the_price() -> None:
    out, _ = run("--model", "llama3-8b", "--instance", "p5.48xlarge", "--isl", "128", "--osl", "16")
    assert "USD per million tokens: output" in out and "55.04 USD/h (2026-11-09;" in out
    assert "8 replicas" in out
    given, _ = run(*SMALL, "--usd-per-hour", "3")
    assert "3 USD/h (given)" in given


def test_many_cases_one_line_each_in_their_order_and_a_bad_one_stops_nothing(tmp_path: Path) -> None:
    lines: list[Any] = [
        json.dumps(GOOD),
        '{"model": "llama3-8b",',
        json.dumps({**GOOD, "osls": 3}),
        "",
        json.dumps([1, 2]),
        json.dumps({**GOOD, "gpu": "h300"}),
        json.dumps({**GOOD, "tp": 3}),
        json.dumps({**GOOD, "model": "llama3-70b", "weights": "bf16"}),
        json.dumps({**GOOD, "concurrency": "max"}),
        json.dumps({**GOOD, "concurrency": 4, "rate": 2}),
        json.dumps({**GOOD, "isl": "many"}),
        json.dumps({**GOOD, "osl": 1e400}),
        json.dumps({**GOOD, "concurrency": 10**12}),
        json.dumps({**GOOD, "rate": 2, "engine": "sglang"}),
    ]
    file = tmp_path / "cases.jsonl"
    file.write_bytes("\n".join(lines).encode() + b"\n\xff\xfe\n")
    found = [json.loads(line) for line in run("--batch", str(file))[0].splitlines()]
    assert len(found) == len(lines) - 1 + 1
    assert all(set(answer) == {"error", "why", "fix"} for answer in found if "error" in answer)
    errors = [answer.get("error", "") for answer in found]
    parts = [
        "", "a line that is no JSON", "unknown key 'osls'", "no object but list", "unknown gpu 'h300'", "tp 3 does not",
        "does not fit", "", "both given", "isl='many'", "osl=inf", "more than a plan simulates", "", "no JSON",
    ]  # fmt: skip
    for error, part in zip(errors, parts, strict=True):
        assert part in error and bool(part) == bool(error)
    assert found[0] == plan(parse_case(GOOD)).model_dump(mode="json")
    assert found[5]["fix"] and "nearest" in found[6]["fix"]
    assert run("--batch", "-", text=file.read_bytes().decode("latin-1"))[0].count("\n") == len(found)


def test_a_fault_of_the_planner_costs_one_line_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(case: Case) -> Any:
        if case.osl == 7:
            raise ZeroDivisionError("in the dark")
        return plan(case)

    monkeypatch.setattr("serving_planner.report.plan", broken)
    text = "\n".join(json.dumps({**GOOD, "osl": osl}) for osl in (7, 8))
    first, second = (json.loads(line) for line in run("--batch", "-", text=text)[0].splitlines())
    assert "ZeroDivisionError: in the dark" in first["why"] and second["case"]["osl"] == 8


def test_each_answer_comes_before_the_next_question() -> None:
    code = "import typer; from serving_planner.cli import plan_command; typer.run(plan_command)"
    argv = [sys.executable, "-c", code, "--batch", "-"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin is not None and process.stdout is not None
        for osl in (8, 9):
            process.stdin.write(json.dumps({**GOOD, "osl": osl}) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["case"]["osl"] == osl
        process.stdin.close()
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("claim", "status"),
    [
        ("70B fp8 h100x1 isl=1024 osl=256 tok/s=20000", 1),
        ("70B fp8 h100x8 isl=1024 osl=256 tok/s=3000", 0),
        ("70B fp8 h300x8 tok/s=3000", 2),
        ("nothing", 2),
    ],
)
def test_a_claim_above_the_bound_ends_with_1_and_one_that_says_nothing_with_2(claim: str, status: int) -> None:
    out, err = run("--verify", claim, status=status)
    assert ("impossible" in out) == (status == 1)
    assert ("fix: " in err) == (status == 2)
    if status < 2:
        assert json.loads(run("--verify", claim, "--json", status=status)[0])["word"] in ("possible", "impossible")


def test_choosing_prints_a_ranked_table_or_json() -> None:
    words = (
        "--choose --model llama3-8b --instance p5.48xlarge --isl 1024 --osl 128 --ttft-ms 300 --tpot-ms 20 --rate 20"
    )
    out, _ = run(*words.split(), "--percentile", "99")
    assert "20 requests/s, TTFT within 300 ms and TPOT within 20 ms for 99 % of them" in out
    assert "TP x PP x replicas" in out and "settings for the first" in out
    words = words.replace("--tpot-ms", "--itl-ms")
    data = json.loads(run(*words.split(), "--price", "p5.48xlarge=10", "--json")[0])
    assert data["target"]["percentile"] == 90 and data["ranked"][0]["price"]["usd_per_hour"] == 10
    two = json.loads(run(*words.split(), "--instance", "g6e.48xlarge,p5en.48xlarge", "--json")[0])
    assert {way["instance"] for way in two["ranked"]} == {"p5.48xlarge", "p5en.48xlarge", "g6e.48xlarge"}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "model and gpu and isl and osl are missing"),
        (["--model", "llama3-8b", "--gpu", "h100-sxm", "--isl", "128"], "osl is missing"),
        ([*SMALL, "--concurrency", "many"], "--concurrency many is no number"),
        ([*SMALL, "--concurrency", "0"], "concurrency=0 is refused"),
        ([*SMALL, "--gpu", "h1000"], "unknown gpu 'h1000'"),
        ([*SMALL, "--concurrency", "4", "--rate", "3"], "are both given"),
        ([*SMALL, "--ttft-ms", "3"], "--ttft-ms without --choose"),
        ([*SMALL, "--batch", "x.jsonl"], "--model, --gpu, --isl, --osl beside --batch"),
        ([*SMALL, "--verify", "70B"], "beside --verify"),
        (["--batch", "-", "--choose"], "--batch and --choose exclude each other"),
        (["--batch", "nowhere.jsonl"], "cannot read nowhere.jsonl"),
        ([*SMALL[:2], "--choose", "--isl", "8", "--osl", "8"], "no instance to choose on"),
        ([*SMALL, "--choose", "--instance", "p5.48xlarge"], "--gpu beside --choose"),
        (["--choose", "--instance", "p5.48xlarge", "--model", "llama3-8b", "--isl", "8"], "--osl"),
        (["--choose", "--instance", "p5.48xlarge", *SMALL[:2], *SMALL[4:], "--percentile", "95"], "--percentile"),
        (["--choose", "--instance", "p5.48xlarge", *SMALL[:2], *SMALL[4:], "--price", "x"], "is no price"),
        ([*SMALL, "--instance", "p5.48xlarge", "--instance", "g6.xlarge"], "a plan is for one instance"),
        (["--model", "llama3-70b", "--gpu", "l4", "--isl", "8", "--osl", "8"], "does not fit l4"),
    ],
)
def test_what_cannot_be_used_is_told_with_what_to_do(words: list[str], complaint: str) -> None:
    out, err = run(*words, status=2)
    assert complaint in err and "fix: " in err and "Traceback" not in err
    assert out == ""
