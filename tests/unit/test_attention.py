"""Which attention kernel runs: every fact from its table, by release and GPU, and what was not read said so."""

import pytest
from pydantic import ValidationError

from course_exercises.attention import ANSWERS, KERNELS
from playbook.articles import table
from serving_base.errors import UsageError
from trtllm_check.attention import (
    NOT_READ,
    AttentionCase,
    KernelChoice,
    context_kernel,
    first_fused,
    first_fused_table,
    fmha_rows,
    generation_kernel,
    read_at,
    readings,
    release_tables,
    rows_per_release,
    support,
    xqa_rows,
)
from trtllm_check.attention.facts import ARCHITECTURES, FmhaRow, XqaRow, value_of
from trtllm_check.releases.load import known_releases

P5 = {"gpu": "h100", "fp8_weights": True, "kv_cache": "fp8", "queries_per_kv": 8}
FP8 = P5 | {"use_fp8_context_fmha": True}


def chosen(**given: object) -> KernelChoice:
    return context_kernel(AttentionCase.model_validate({"gpu": "h100"} | given))


def context(**given: object) -> tuple[str, str]:
    found = chosen(**given)
    return found.kernel, found.name


def test_the_talks_table_is_that_of_its_time() -> None:
    """Of the sizes that 0.5 to 0.8 have, the slide leaves out 16, which only the older GPUs have."""
    for quoted in table("talk-fmha").records():
        sizes = {int(size.replace(" ", "")) for size in quoted["Head Size"].split("/")}
        ours = [
            row
            for row in fmha_rows()
            if row.holds("0.7.1") and row.architectures[0].removeprefix("sm") in quoted["Arch"]
        ]
        assert len(ours) == 1
        assert set(ours[0].head_sizes) - {16} == sizes
        assert all(f"{kind.upper()}(" in quoted["Data Type"].replace(" ", "") for kind in ours[0].sums)


def test_every_release_says_where_it_was_read_or_is_in_a_gap_between_two_that_do() -> None:
    assert all("@" in reading.source for reading in readings())
    assert {name for name in known_releases() if read_at(name) == (name,)} >= {"0.8.0", "0.12.0", "0.16.0"}
    assert read_at("0.19.0") == ("0.16.0", "1.3.0rc3")
    assert read_at("0.4.0") == read_at("1.3.0rc22") == ()


def test_every_row_lies_in_what_was_read() -> None:
    rows: list[FmhaRow | XqaRow] = [*fmha_rows(), *xqa_rows()]
    for row in rows:
        assert read_at(row.since) == (row.since,)
        assert read_at(row.until) == (row.until,)
        assert set(row.architectures) <= set(ARCHITECTURES)
    entries = [*support()["fp8_fmha"].values(), *(support()[name] for name in ("mmha", "unfused", "xqa_heuristic"))]
    assert all(entry["source"] for entry in entries)


def test_the_tables_of_a_release_have_what_holds_for_it() -> None:
    found = release_tables("0.8.0")
    assert [row["GPU"] for row in found["FMHA"]] == ["sm80, sm86, sm89", "sm90", "sm70"]
    assert found["FMHA"][1]["head sizes"] == "32, 64, 128, 256"
    assert [(row["queries per KV head"], row["tokens per block"]) for row in found["XQA"]] == [("8", "64, 128")]
    assert {"because": "ALiBi on Volta"} in found["unfused instead of FMHA"]
    assert {"because": "cross attention over a contiguous cache"} not in found["unfused instead of FMHA"]
    assert release_tables("0.16.0")["XQA"][0]["queries per KV head"] == "2 to 32"
    with pytest.raises(UsageError, match=r"0\.19\.0 were not read"):
        release_tables("0.19.0")


def test_no_two_rows_speak_of_the_same_kernel() -> None:
    for reading in readings():
        kinds = [
            (architecture, kind)
            for row in fmha_rows()
            if row.holds(reading.since)
            for architecture in row.architectures
            for kind in row.sums
        ]
        assert len(kinds) == len(set(kinds))
        assert len([row for row in xqa_rows() if row.holds(reading.since)]) <= 1


def test_the_rows_of_each_reading_are_counted() -> None:
    counted = {
        row["releases"]: (row["FMHA rows"], row["XQA rows"], row["MMHA head sizes"]) for row in rows_per_release()
    }
    assert counted["0.5.0"] == (2, 0, 12)
    assert counted["0.9.0"] == (4, 1, 13)
    assert counted["0.16.0"] == (3, 1, 13)


def test_a_table_of_the_first_release() -> None:
    found = {row["architecture"]: row["80"] for row in first_fused_table()}
    assert found == {
        "sm70": "-",
        "sm80": "0.5.0",
        "sm86": "0.5.0",
        "sm89": "0.5.0",
        "sm90": "0.9.0",
        "sm120": "1.3.0rc3",
    }
    assert first_fused("sm70", 128, "fp16") == "0.8.0"
    assert (first_fused("sm89", 128, "fp8"), first_fused("sm80", 128, "fp8")) == ("0.12.0", "-")


@pytest.mark.parametrize(
    ("given", "kernel"),
    [
        ({}, "FMHA"),
        ({"head_size": 80, "release": "0.8.0"}, "unfused MHA"),
        ({"head_size": 80, "release": "0.9.0"}, "FMHA"),
        ({"head_size": 80, "release": "0.8.0", "gpu": "a100"}, "FMHA"),
        ({"head_size": 96, "release": "0.8.0", "gpu": "a100"}, "unfused MHA"),
        ({"head_size": 16, "release": "0.10.0", "gpu": "a100"}, "unfused MHA"),
        ({"head_size": 192, "release": "0.9.0"}, "unfused MHA"),
        ({"head_size": 48, "release": "0.13.0"}, NOT_READ),
        ({"head_size": 48, "release": "0.12.0"}, "unfused MHA"),
        ({"head_size": 48, "release": "0.14.0"}, "FMHA"),
        ({"head_size": 72, "release": "0.17.0"}, NOT_READ),
        ({"head_size": 128, "release": "0.17.0"}, "FMHA"),
        ({"dtype": "fp32"}, "unfused MHA"),
        ({"context_fmha": False}, "unfused MHA"),
        ({"gpu": "sm100"}, NOT_READ),
        ({"gpu": "sm70"}, "refused"),
        ({"gpu": "sm70", "dtype": "fp16"}, "FMHA"),
        ({"gpu": "sm70", "dtype": "fp16", "release": "0.7.1"}, NOT_READ),
        ({"gpu": "sm70", "dtype": "fp16", "release": "0.8.0", "use_paged_context_fmha": True}, "refused"),
        (FP8, "FMHA"),
        (FP8 | {"kv_cache": "auto"}, "refused"),
        (FP8 | {"fp8_weights": False}, "refused"),
        (FP8 | {"gpu": "a100"}, "refused"),
        (FP8 | {"gpu": "l4"}, "FMHA"),
        (FP8 | {"gpu": "l4", "release": "0.11.0"}, "refused"),
        (FP8 | {"head_size": 192, "release": "0.9.0"}, "unfused MHA"),
        (P5 | {"use_paged_context_fmha": True, "release": "0.9.0"}, "refused"),
        (P5 | {"use_paged_context_fmha": True, "fp8_weights": False}, "refused"),
        ({"use_paged_context_fmha": True, "kv_cache": "int8"}, "refused"),
    ],
)
def test_the_context_kernel(given: dict[str, object], kernel: str) -> None:
    assert context(**given)[0] == kernel


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"release": "0.5.0"}, "bf16_64_128_S_128_causal_tma_ws_sm90_kernel"),
        ({"release": "0.8.0", "use_paged_context_fmha": True}, "bf16_64_128_S_128_pagedKV_causal_tma_ws_sm90_kernel"),
        ({"release": "0.10.0", "use_paged_context_fmha": True}, "bf16_64_128_S_pagedKV_128_causal_tma_ws_sm90_kernel"),
        (
            {"release": "0.12.0", "use_paged_context_fmha": True},
            "bf16_64_128_S_q_paged_kv_128_causal_tma_ws_sm90_kernel",
        ),
        (FP8 | {"release": "0.9.0"}, "e4m3_64_128_S_128_causal_tma_ws_sm90_kernel"),
        (FP8 | {"release": "0.10.0"}, "e4m3_64_256_S_128_causal_tma_ws_sm90_kernel"),
        (FP8 | {"release": "0.13.0"}, "e4m3_64_256_S_qkv_128_causal_tma_ws_sm90_kernel"),
        (
            FP8 | {"gpu": "l4"},
            "e4m3_fp32_<q>_<kv>_S_qkv_128_causal_sm89_kernel_nl, or _nl_tiled, which the library picks",
        ),
        ({"dtype": "fp16", "context_fmha_fp32_acc": True}, "fp16_fp32_64_128_S_qkv_128_causal_tma_ws_sm90_kernel"),
        ({"head_size": 64}, "bf16_<q>_<kv>_S_qkv_64_causal_tma_ws_sm90_kernel"),
    ],
)
def test_the_name_is_that_of_the_releases_table(given: dict[str, object], name: str) -> None:
    assert context(**given)[1] == f"fmha_v2_flash_attention_{name}"


def test_the_names_are_those_of_the_article_in_release_0_9_alone() -> None:
    rows = {row["OP/Kernel"].replace("\xa0", " "): row for row in table("aws-kernels").records()}
    plain = next(row for name, row in rows.items() if name.startswith("fmha (Fused"))["TensorRT FP8"]
    fp8 = next(row for name, row in rows.items() if "use_fp8_context_fmha" in name)["TensorRT FP8"]
    having = [name for name in ("0.9.0", "0.10.0", "0.11.0", "0.12.0") if context(**FP8, release=name)[1] == fp8]
    assert having == ["0.9.0"]
    assert context(**P5, release="0.9.0")[1] == plain
    assert context(fp8_weights=False)[1] == context(**P5)[1]


def test_a_release_whose_fp8_attention_is_broken_says_so() -> None:
    for release, wrong in (("0.10.0", True), ("0.11.0", False)):
        assert ("answers are wrong" in chosen(**FP8, release=release).reason) == wrong


def test_a_release_in_a_gap_says_what_it_rests_on() -> None:
    assert "read at 0.16.0 and 1.3.0rc3, which agree, and not at 0.18.2 itself" in chosen(release="0.18.2").reason
    assert "0.16.0 and 1.3.0rc3 differ" in chosen(release="0.18.2", head_size=72).reason


def test_flags_change_the_name() -> None:
    assert "_fp16_64_128_" in context(dtype="fp16")[1]
    assert context(context_fmha_fp32_acc=True) == context()
    assert "e4m3" in context(**P5, use_paged_context_fmha=True)[1]


@pytest.mark.parametrize(
    ("given", "kernel", "why"),
    [
        ({"queries_per_kv": 8}, "XQA", "share"),
        ({"queries_per_kv": 8, "release": "0.7.1", "dtype": "fp16"}, "MMHA", "a contiguous cache, and a rotary base"),
        ({"queries_per_kv": 8, "release": "0.6.0"}, "MMHA", "came with 0.7.0"),
        ({"queries_per_kv": 4, "release": "0.10.0"}, "MMHA", "groups of 8 queries, not of 4"),
        ({"queries_per_kv": 4, "release": "0.11.0"}, "XQA", "share"),
        ({"queries_per_kv": 16, "release": "0.18.2"}, "XQA", "0.16.0 and 1.3.0rc3"),
        ({"queries_per_kv": 64}, "MMHA", "groups of 2 to 32"),
        ({"queries_per_kv": 1, "release": "0.8.0"}, "MMHA", "shared heads"),
        ({"queries_per_kv": 8, "enable_xqa": False}, "MMHA", "enable_xqa"),
        ({}, "MMHA", "shared heads"),
        ({"queries_per_kv": 8, "dtype": "fp32"}, "MMHA", "FP32"),
        ({"queries_per_kv": 8, "tokens_per_block": 32, "release": "0.10.0"}, "MMHA", "blocks of 64, 128"),
        ({"queries_per_kv": 8, "tokens_per_block": 32}, "XQA", "share"),
        ({"queries_per_kv": 8, "gpu": "a100", "kv_cache": "fp8", "release": "0.10.0"}, "MMHA", "reads no fp8"),
        ({"queries_per_kv": 8, "gpu": "a100", "kv_cache": "fp8", "release": "0.9.0"}, "XQA", "share"),
        ({"queries_per_kv": 8, "gpu": "sm75", "dtype": "fp16"}, "MMHA", "no sm75"),
        ({"queries_per_kv": 8, "gpu": "sm75"}, "refused", "no BF16"),
        ({"queries_per_kv": 8, "head_size": 64, "release": "0.10.0"}, "MMHA", "no head size 64"),
        ({"gpu": "sm61"}, "refused", "Volta"),
        ({"head_size": 120}, "refused", "no head size 120"),
        ({"head_size": 120, "release": "0.8.0"}, "refused", "no head size 120"),
        ({"head_size": 104, "release": "0.8.0"}, "refused", "no head size 104"),
        ({"head_size": 176, "queries_per_kv": 8}, "refused", "no head size 176"),
        ({"head_size": 112}, "MMHA", "shared heads"),
    ],
)
def test_the_generation_kernel(given: dict[str, object], kernel: str, why: str) -> None:
    found = generation_kernel(AttentionCase.model_validate({"gpu": "h100"} | given))
    assert found.kernel == kernel
    assert why in found.reason
    assert found.row()["kernel"] == kernel


def test_mmhas_name_has_the_caches_type_as_in_the_article() -> None:
    quoted = next(row for row in table("aws-kernels").records() if row["OP/Kernel"].startswith("mmha"))
    for kv_cache, column in (("fp8", "TensorRT FP8"), ("auto", "TensorRT BF16")):
        case = AttentionCase.model_validate({"gpu": "h100", "kv_cache": kv_cache})
        assert generation_kernel(case).name.removesuffix(", ...>") in quoted[column]


def test_what_is_unknown_is_refused() -> None:
    with pytest.raises(UsageError, match="no GPU is known"):
        context(gpu="toaster")
    for release in ("newest", "0.19.0", "0.4.0"):
        with pytest.raises(ValidationError):
            AttentionCase(gpu="h100", release=release)


def test_a_span_that_does_not_hold_says_nothing() -> None:
    assert value_of([{"since": "0.9.0", "is": 1}], "0.8.0") is None


def test_the_exercise_on_kernels_knows_every_kernel() -> None:
    assert set(KERNELS.values()) == set(ANSWERS)
