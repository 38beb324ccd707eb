"""Which attention kernel runs: every fact from the table, and what was not read said so."""

import pytest
from pydantic import ValidationError

from course_exercises.attention import ANSWERS, KERNELS
from playbook.articles import table
from serving_base.errors import UsageError
from trtllm_check.attention import (
    NOT_READ,
    AttentionCase,
    context_kernel,
    generation_kernel,
    head_size_table,
    support,
)

P5 = {"gpu": "h100", "fp8_weights": True, "kv_cache": "fp8", "queries_per_kv": 8}


def context(**given: object) -> tuple[str, str]:
    found = context_kernel(AttentionCase.model_validate({"gpu": "h100"} | given))
    return found.kernel, found.name


def test_the_table_is_the_talks() -> None:
    for row, quoted in zip(support()["fmha"], table("talk-fmha").records(), strict=True):
        sizes = [int(size.replace(" ", "")) for size in quoted["Head Size"].split("/")]
        assert row["head_sizes"] == sizes
        for name in row["architectures"]:
            assert name.removeprefix("sm") in quoted["Arch"]
        assert all(f"{t.upper()}(" in quoted["Data Type"].replace(" ", "") for t in row["accumulators"])
    assert {row["architecture"]: row["40"] for row in head_size_table()} == {
        **dict.fromkeys(("sm80", "sm86", "sm89"), "yes"),
        "sm90": "-",
    }


def test_every_entry_says_where_it_was_read() -> None:
    entries = [*support()["fmha"], *support()["fp8_fmha"].values()]
    entries += [support()[name] for name in ("mmha", "xqa", "unfused", "layouts")]
    assert all(entry["source"] for entry in entries)


@pytest.mark.parametrize(
    ("given", "kernel"),
    [
        ({}, "FMHA"),
        ({"head_size": 80}, "unfused MHA"),
        ({"head_size": 80, "gpu": "a100"}, "FMHA"),
        ({"head_size": 96, "gpu": "a100"}, "unfused MHA"),
        ({"dtype": "fp32"}, "unfused MHA"),
        ({"context_fmha": False}, "unfused MHA"),
        ({"gpu": "sm100"}, NOT_READ),
        ({"gpu": "sm70"}, NOT_READ),
        (P5 | {"use_fp8_context_fmha": True}, "FMHA"),
        (P5 | {"use_fp8_context_fmha": True, "kv_cache": "auto"}, "refused"),
        (P5 | {"use_fp8_context_fmha": True, "fp8_weights": False}, "refused"),
        (P5 | {"use_fp8_context_fmha": True, "gpu": "a100"}, "refused"),
        (P5 | {"use_fp8_context_fmha": True, "gpu": "l4"}, "FMHA"),
        (P5 | {"use_fp8_context_fmha": True, "gpu": "l4", "release": "0.11.0"}, "refused"),
        (P5 | {"use_paged_context_fmha": True, "release": "0.9.0"}, "refused"),
        (P5 | {"use_paged_context_fmha": True, "fp8_weights": False}, "refused"),
        ({"use_paged_context_fmha": True, "kv_cache": "int8"}, "refused"),
    ],
)
def test_the_context_kernel(given: dict[str, object], kernel: str) -> None:
    assert context(**given)[0] == kernel


def test_the_names_are_those_of_the_article_but_for_tiles_and_layout() -> None:
    rows = {row["OP/Kernel"].replace("\xa0", " "): row for row in table("aws-kernels").records()}
    plain = next(row for name, row in rows.items() if name.startswith("fmha (Fused"))
    fp8 = next(row for name, row in rows.items() if "use_fp8_context_fmha" in name)
    for given, quoted in ((P5, plain), (P5 | {"use_fp8_context_fmha": True}, fp8)):
        name = context(**given)[1]
        assert name.replace("<q>_<kv>", "64_128").replace("_qkv", "") == quoted["TensorRT FP8"]
    assert context(fp8_weights=False)[1] == context(**P5)[1]


def test_a_release_whose_fp8_attention_is_broken_says_so() -> None:
    for release, wrong in (("0.10.0", True), ("0.11.0", False)):
        case = AttentionCase.model_validate(P5 | {"use_fp8_context_fmha": True, "release": release})
        assert ("answers are wrong" in context_kernel(case).reason) == wrong


def test_flags_change_the_name() -> None:
    assert "_fp16_fp32_" in context(dtype="fp16", context_fmha_fp32_acc=True)[1]
    assert "_fp16_<q>" in context(dtype="fp16")[1]
    assert context(context_fmha_fp32_acc=True) == context()
    assert "_S_q_paged_kv_128_" in context(use_paged_context_fmha=True)[1]
    assert "e4m3" in context(**P5, use_paged_context_fmha=True)[1]
    assert context(gpu="a100")[1].endswith("_causal_sm80_kernel")


@pytest.mark.parametrize(
    ("given", "kernel", "why"),
    [
        ({"queries_per_kv": 8}, "XQA", "share"),
        ({"queries_per_kv": 8, "enable_xqa": False}, "MMHA", "enable_xqa"),
        ({}, "MMHA", "shared heads"),
        ({"queries_per_kv": 8, "dtype": "fp32"}, "MMHA", "FP32"),
        ({"queries_per_kv": 8, "tokens_per_block": 32}, "MMHA", "blocks"),
        ({"gpu": "sm61"}, "refused", "Volta"),
        ({"head_size": 120}, "refused", "no head size 120"),
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
    for release in ("newest", "0.19.0"):
        with pytest.raises(ValidationError):
            AttentionCase(gpu="h100", release=release)


def test_every_part_of_the_matrix_was_read_and_says_where() -> None:
    """XQA's two ways are facts of their own commits; the choice above stays with what the releases' guide says."""
    assert NOT_READ not in str(support())
    for way in ("compiled_when_used", "shipped_compiled"):
        assert "TensorRT-LLM@" in support()["xqa"][way]["source"]


def test_the_exercise_on_kernels_knows_every_kernel() -> None:
    assert set(KERNELS.values()) == set(ANSWERS)
