import csv
import json
from pathlib import Path
from typing import Any

import pytest

from playbook.choices.costs import published_throughputs
from serving_base.errors import UsageError
from serving_base.facts.models import variant
from serving_planner.claims.text import Claim, parse_claim
from serving_planner.claims.verify import Verdict, published, verify
from serving_planner.hardware import gpu
from serving_planner.roofline import (
    Machine,
    decode_throughput,
    first_token_time,
    request_flops,
    throughput,
    token_time,
)


def machine(name: str = "h100-sxm", count: int = 8, precision: Any = "fp8", model: str = "llama3-70b") -> Machine:
    return Machine(variant(model).shape, gpu(name), count, precision, precision)


# The bound: the worked floors of the field's arithmetic (70B FP8, FP8 KV).


@pytest.mark.parametrize(
    ("isl", "osl", "requests", "bound", "limit"),
    [
        (1024, 256, 1, 379, "bandwidth"),
        (1024, 256, 16, 5_828, "bandwidth"),
        (1024, 256, 64, 20_757, "bandwidth"),
        (1024, 256, 256, 22_779, "compute"),
        (2000, 200, 256, 10_282, "compute"),
    ],
)
def test_worked_bounds_of_eight_h100(isl: int, osl: int, requests: int, bound: float, limit: str) -> None:
    found = throughput(machine(), isl, osl, requests)
    assert found.value == pytest.approx(bound, rel=0.01)
    assert found.limit == limit


def test_worked_times() -> None:
    assert token_time(machine(), 1152, 1).value * 1000 == pytest.approx(2.64, abs=0.01)
    assert token_time(machine("h200"), 1152, 64).value * 1000 == pytest.approx(2.15, abs=0.01)
    assert first_token_time(machine(), 1024).value * 1000 == pytest.approx(8.94, rel=0.01)
    assert first_token_time(machine(precision="bf16"), 2000).value * 1000 == pytest.approx(35.25, rel=0.01)


def test_flops_of_a_request_are_those_of_its_tokens() -> None:
    shape = variant("llama3-8b").shape
    one = request_flops(shape, 1, 1)
    assert one == 2 * shape.linear_parameters + 2 * 4096 * 128256 + 4 * 32 * 32 * 128
    # a prompt of 10 and 5 more tokens costs what a prompt of 14 does, but for lm_head's four more rows
    assert request_flops(shape, 10, 5) - request_flops(shape, 14, 1) == 4 * 2 * 4096 * 128256
    assert request_flops(shape, 1000, 1) == pytest.approx(2 * shape.linear_parameters * 1000, rel=0.05)


def test_the_bound_grows_with_what_helps_and_falls_with_work() -> None:
    base = throughput(machine(), 1024, 256, 32).value
    assert throughput(machine(count=16), 1024, 256, 32).value == pytest.approx(2 * base)
    assert throughput(machine("h200"), 1024, 256, 32).value > base
    assert throughput(machine(), 1024, 256, 64).value > base
    assert throughput(machine(precision="bf16"), 1024, 256, 32).value < base
    assert throughput(machine(), 4096, 256, 32).value < base
    assert decode_throughput(machine(), 1152, 256).value > 2 * throughput(machine(), 1024, 256, 256).value  # no prompt


# Claims from the web.


@pytest.mark.parametrize(
    ("text", "factor"),
    [
        ("Llama-3 70B BF16, TP4 on H100, batch 32: 2,840 tok/s/GPU", 2840 / 760),
        ("Llama-3 70B FP8, TP4 on H100, batch 32: 5,210 tok/s/GPU", 5210 / 1520),
        ("70B H100 FP8 155 tok/s batch 1 on 1 GPU", 155 / 48),
        ("70B H100 FP16 110 tok/s batch 1", 4.5),
    ],
)
def test_web_numbers_above_the_bound_are_impossible(text: str, factor: float) -> None:
    verdict = verify(text)
    assert verdict.word == "impossible"
    assert verdict.share == pytest.approx(factor, rel=0.03)
    assert "passes the physical bound" in str(verdict)


def test_it_says_how_many_gpus_it_would_take() -> None:
    assert verify("70B H100 FP16 110 tok/s batch 1").gpus_needed == 5
    assert verify("70B H100 FP8 155 tok/s batch 1").gpus_needed == 4
    assert verify("70b fp8 8xh100 1024/256 c=64 4000 tok/s").gpus_needed == 8


def test_a_number_near_the_bound_is_suspect() -> None:
    # 50 users on one H100: 95 % of the bound and more, where NVIDIA's own table tops out at three quarters
    for text in (
        "70B fp8 h100x1 isl=1024 osl=256 tok/s=2100 concurrency=50",
        "1xH100 70B FP8 50 users 2,100 tok/s",
    ):
        verdict = verify(text)
        assert verdict.word == "suspect"
        assert published().highest_published_share < verdict.share <= 1
        assert "published tables reach at most 74%" in str(verdict)


@pytest.mark.parametrize(
    "text",
    [
        # MLPerf inference, offline: v4.1 and v5.1
        "llama2-70b fp8 H100 x 8 24,100 tok/s",
        "llama2-70b fp8 8xH200 isl=294 osl=294 31.9k tok/s",
        "llama2-70b fp8 8xH200 35.0k tokens/s",
        "Llama-2-70b FP8 16x H100 62.4k tok/s",
        # TensorRT-LLM's performance overview and its tables at batch 1
        "Llama-3.3-70B FP8 H100 TP2 1000/1000 4205 tok/s",
        "Llama-3.3-70B FP8 1xH200 1000/1000 2909 tok/s",
        "70B bf16 TP4 H100 bs=1 ITL 14.65 ms",
        "70B fp8 TP4 H100 batch size 1 itl=10.8ms",
    ],
)
def test_published_rows_are_possible(text: str) -> None:
    verdict = verify(text)
    assert verdict.word == "possible"
    assert 0.1 < verdict.share < published().highest_published_share


def test_the_measured_table_that_ships_is_possible() -> None:
    rows = published_throughputs()
    assert len(rows) >= 2
    for row in rows:
        text = f"{row.model} {row.instance} {row.input_tokens}/{row.output_tokens}"
        assert verify(f"{text} tok/s={row.tokens_per_s:.0f}").word == "possible"


def test_every_published_row_is_possible() -> None:
    shares = []
    for file in sorted((Path(__file__).parents[1] / "published").glob("*.csv")):
        for row in csv.DictReader(file.read_text().splitlines()):
            figure = {"output_tokens_per_s": "tokens_per_s", "ttft_ms": "ttft_ms", "tpot_ms_p50": "tpot_ms"}
            if row["metric"] in figure:
                words = {key: row[key] for key in ("model", "gpu", "weights", "kv", "isl", "osl", "gpus")}
                load = {"concurrency": row["concurrency"]} if row["concurrency"] not in ("", "max") else {}
                verdict = verify(Claim.model_validate({**words, **load, figure[row["metric"]]: row["value"]}))
                assert verdict.word == "possible", row["id"]
                shares.append(verdict.share)
    assert len(shares) > 1000
    assert 0.6 < max(shares) < published().highest_published_share


def test_just_above_and_just_below() -> None:
    bound = verify("70b fp8 kv=fp8 8xh100 isl=2000 osl=200 c=256 tok/s=1").findings[0].bound
    assert verify(f"70b fp8 kv=fp8 8xh100 isl=2000 osl=200 c=256 tok/s={bound * 1.01:.0f}").word == "impossible"
    assert verify(f"70b fp8 kv=fp8 8xh100 isl=2000 osl=200 c=256 tok/s={bound * 0.99:.0f}").word == "suspect"
    assert verify(f"70b fp8 kv=fp8 8xh100 isl=2000 osl=200 c=256 tok/s={bound * 0.5:.0f}").word == "possible"


def test_latencies_are_judged_too() -> None:
    assert verify("70b fp8 8xh100 c=1 tpot=2ms").word == "impossible"
    assert verify("70b fp8 8xh100 c=1 tpot=5ms").word == "possible"
    assert verify("70b fp8 8xh100 isl=1024 ttft=5ms").word == "impossible"
    assert verify("70b fp8 8xh100 isl=1024 ttft=80ms").word == "possible"
    assert verify("70b fp8 1xh100 100 tok/s per user").word == "impossible"


def test_figures_that_contradict_each_other() -> None:
    verdict = verify("8b fp8 h100x8 c=64 isl=128 osl=128 tok/s=50000 tpot=20ms")
    assert verdict.word == "impossible"
    assert verdict.findings[-1].limit == "arithmetic"
    assert "contradict" in str(verdict)
    assert verify("8b fp8 h100x8 c=64 isl=128 osl=128 tok/s=3000 tpot=20ms").word == "possible"


def test_latency_that_implies_an_impossible_rate() -> None:
    # 256 requests that each take 0.5 s are 512 requests/s of 1024 tokens in: no eight H100 prefill that
    verdict = verify("70b fp8 8xh100 1024/32 c=256 ttft=190ms tpot=10ms")
    assert [finding.figure for finding in verdict.findings if finding.share > 1] == ["rate that follows from latency"]
    assert verify("70b fp8 8xh100 1024/32 c=256 ttft=19000ms tpot=10ms").word == "possible"


def test_weights_that_do_not_fit() -> None:
    verdict = verify("70b bf16 h100x1 5 tok/s batch 1")
    assert verdict.word == "impossible"
    assert verdict.findings[0].limit == "memory"
    assert verdict.gpus_needed == 2
    assert verify("70b bf16 h100x2 5 tok/s batch 1").word == "possible"


def test_what_was_assumed_is_told_and_favours_the_claim() -> None:
    bare = verify("70b 8xh100 10000 tok/s")
    assert [word.split(" ")[0] for word in bare.assumed] == ["70B", "weights", "kv", "no", "as"]
    full = verify("llama3-70b fp8 kv=fp8 8xh100 isl=2000 osl=200 c=256 10000 tok/s")
    assert full.assumed == ()
    assert bare.findings[0].bound > full.findings[0].bound


def test_more_requests_than_memory_holds_do_not_raise_the_bound() -> None:
    some, many = (verify(f"70b fp8 1xh100 isl=4000 osl=1000 c={n} tok/s=100") for n in (5000, 50000))
    assert some.findings[0].bound == many.findings[0].bound
    assert any("at a time" in word for word in some.assumed)


# Reading claims.


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "tok/s=2100 concurrency=50 70B FP8 isl=1024 osl=256 H100x1",
            {"tokens_per_s": 2100, "concurrency": 50, "gpus": 1},
        ),
        ("8xH100 70b 2k/200 5,000 tokens/s", {"gpus": 8, "isl": 2000, "osl": 200, "tokens_per_s": 5000}),
        ("h100 X 8 70b 31.9k TPS", {"gpus": 8, "tokens_per_s": 31_900}),
        ("8 × H200 70b 100 tok/s/gpu", {"gpu": "h200", "gpus": 8, "tokens_per_s": 800}),
        ("70b h100 tp4 pp2 100 tok/s", {"gpus": 8}),
        ("70b h100 TP4xPP2 100 tok/s", {"gpus": 8}),
        ("70b h100 gpus=4 tpot=7.5ms", {"gpus": 4, "tpot_ms": 7.5}),
        ("70b on 2 GPUs h200-sxm-141gb itl: 0.02 s", {"gpu": "h200", "gpus": 2, "tpot_ms": 20}),
        ("70b single L40S time to first token 1.5s", {"gpu": "l40s", "gpus": 1, "ttft_ms": 1500}),
        (
            "llama 3.1 8b l4 bf16 kv fp8 25 tok/s/user",
            {"model": "llama3.1-8b", "weights": "bf16", "kv": "fp8", "tpot_ms": 40},
        ),
        (
            "Llama-2-70B-chat a100 40gb x8 fp16 kv=bf16 10 tps",
            {"model": "llama2-70b", "gpu": "a100-sxm-40gb", "gpus": 8},
        ),
        (
            "nvidia/Llama-3.3-70B-Instruct-FP8 p5en.48xlarge 9 rps osl=100",
            {"gpu": "h200", "gpus": 8, "tokens_per_s": 900},
        ),
        ("8b h100 128 in 256 out batch size 32 10 tok/s", {"isl": 128, "osl": 256, "concurrency": 32}),
        ("8b h100 input tokens: 128, output tokens: 256, 32 concurrent users, 10 tok/s", {"isl": 128, "osl": 256}),
        ("8b h100 b32 10 tok/s", {"concurrency": 32}),
        ("8b h100 bf16 weights fp8 kv 10 tok/s", {"weights": "bf16", "kv": "fp8"}),
        ("8b h100 fp8 kv, bf16 weights 10 tok/s", {"weights": "bf16", "kv": "fp8"}),
        ("model=8b gpu=h100 throughput=10", {"tokens_per_s": 10}),
    ],
)
def test_reading_is_tolerant(text: str, said: dict[str, Any]) -> None:
    claim = parse_claim(text)
    assert {key: getattr(claim, key) for key in said} == said


def test_order_and_case_do_not_matter() -> None:
    words = ["llama3-70b", "FP8", "h100x4", "isl=1024", "osl=256", "tok/s=2100", "concurrency=50", "kv=bf16"]
    assert parse_claim(" ".join(words)) == parse_claim(", ".join(reversed(words)).upper())


def test_what_is_not_understood_is_told() -> None:
    assert parse_claim("70b h100 100 tok/s speculative decoding").ignored == ("speculative", "decoding")
    assert "not understood: speculative decoding" in str(verify("70b h100 100 tok/s speculative decoding"))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("h100 100 tok/s", "no model in"),
        ("70b 100 tok/s", "no gpu in"),
        ("70b h100 fp8", "no figure to judge"),
        ("405b 8xh100 100 tok/s", "unknown model 'llama3-405b'"),
        ("70b b200 100 tok/s", "unknown gpu 'b200'"),
        ("70b h100 nvl 100 tok/s", "unknown gpu 'h100 nvl'"),
        ("70b h100 int4 100 tok/s", "int4 cannot be judged"),
        ("70b h100 tok/s=0", "tokens_per_s=0.0"),
        ("70b h100 isl=0 100 tok/s", "isl=0"),
        ("70b h100x0 100 tok/s", "gpus=0"),
        ("70b h100 0 tok/s/user", "no figure to judge"),
        ("", "no model in"),
    ],
)
def test_what_is_no_claim_is_refused(text: str, what: str) -> None:
    with pytest.raises(UsageError) as error:
        verify(text)
    assert what in error.value.what
    assert error.value.why and error.value.fix


def test_a_verdict_is_data() -> None:
    verdict = verify("70b fp8 8xh100 1024/256 c=64 tok/s=4000 ttft=200ms tpot=12ms")
    assert Verdict.model_validate(json.loads(verdict.model_dump_json())) == verdict
    assert verdict.findings[0].flops > 0 and verdict.findings[0].bytes_read > 0
    assert (
        verify(Claim.model_validate({"model": "llama3-70b", "gpu": "h100-sxm", "gpus": 8, "tpot_ms": 12})).word
        == "possible"
    )
