"""The families pairs, heads, defaults and memory: each rule fires where it should, and is silent beside that."""

from dataclasses import dataclass

import pytest

from each import each
from trtllm_check.lint.finding import Finding, Platform, gpu_of
from trtllm_check.lint.fixing import findings
from trtllm_check.lint.reading import read_document
from trtllm_check.lint.rules import defaults, heads, memory, pairs
from trtllm_check.releases import known_releases, load_release
from trtllm_check.rules import all_rules

QUANTIZE = "python3 quantize.py --model_dir /m/Meta-Llama-3-70B --qformat {} --output_dir c"
FP8_KV = QUANTIZE.format("fp8 --kv_cache_dtype fp8") + "\n"
FP8 = QUANTIZE.format("fp8") + "\n"
BF16 = "python3 convert_checkpoint.py --model_dir /m/Meta-Llama-3-8B --dtype bfloat16 --output_dir c\n"
W4 = "python3 convert_checkpoint.py --model_dir m --use_weight_only --weight_only_precision int4 --output_dir c\n"
AWQ_FP8_KV = QUANTIZE.format("int4_awq --kv_cache_dtype fp8") + "\n"
INT8_KV = "python3 convert_checkpoint.py --model_dir m --int8_kv_cache --output_dir c\n"
BUILD = "trtllm-build --checkpoint_dir c --output_dir e --max_batch_size 4"
RUN = "python3 run.py --engine_dir e --tokenizer_dir t --max_output_len 9 --max_input_length 99"
BOTH_ON = " --use_paged_context_fmha enable --use_fp8_context_fmha enable"
FP8_OFF = " --use_paged_context_fmha enable --use_fp8_context_fmha disable"
LAUNCH = "python3 scripts/launch_triton_server.py --model_repo r"
FILL = "python3 tools/fill_template.py -i {}/tensorrt_llm/config.pbtxt engine_dir:e{}\n"
SERVE = "python3 scripts/launch_triton_server.py --world_size 1 --model_repo {}"
DRAFTS, EAGLE = (f" --speculative_decoding_mode {mode}" for mode in ("draft_tokens_external", "eagle"))
SPLIT = "python3 convert_checkpoint.py --model_dir m --dtype bfloat16 --tp_size 2 --output_dir c\n"
TWO = SERVE.format("a") + "\n" + SERVE.format("b --force")


@dataclass(frozen=True)
class Case:
    """``text`` under ``release`` has the rule's finding with ``severity``; an empty one: it has none."""

    rule: str
    severity: str
    release: str
    text: str
    gpu: str = ""
    gpus: int | None = None


CASES = [
    Case("draft-length-left-out", "error", "0.12.0", BUILD + DRAFTS),
    Case("draft-length-left-out", "", "0.12.0", BUILD + DRAFTS + " --max_draft_len 4"),
    Case("draft-length-left-out", "warning", "0.10.0", BUILD + " --max_draft_len 4"),
    Case("draft-length-left-out", "", "0.9.0", BUILD + " --max_draft_len 4"),
    Case("plugins-of-two-types", "warning", "0.12.0", BUILD + " --gemm_plugin bfloat16 --gpt_attention_plugin float16"),
    Case("plugins-of-two-types", "", "0.12.0", BUILD + " --gemm_plugin auto --gpt_attention_plugin float16"),
    Case(
        "context-logits-with-drafts", "error", "0.19.0", BUILD + DRAFTS + " --max_draft_len 4 --gather_context_logits"
    ),
    Case("context-logits-with-drafts", "", "0.19.0", BUILD + " --gather_context_logits"),
    Case("managed-weights-quantized", "error", "0.14.0", W4 + BUILD + " --fast_build"),
    Case("managed-weights-quantized", "", "0.14.0", BF16 + BUILD + " --fast_build"),
    Case("auto-parallel-over-ranks", "error", "0.12.0", SPLIT + BUILD + " --auto_parallel 2"),
    Case("auto-parallel-over-ranks", "", "0.12.0", BF16 + BUILD + " --auto_parallel 2"),
    Case("half-of-a-quantization", "warning", "0.12.0", BF16.strip() + " --weight_only_precision int4"),
    Case("half-of-a-quantization", "warning", "0.12.0", BF16.strip() + " --per_token"),
    Case("half-of-a-quantization", "warning", "0.12.0", BF16.strip() + " --use_weight_only --smoothquant 0.5"),
    Case("half-of-a-quantization", "warning", "0.12.0", BF16.strip() + " --use_weight_only --per_group"),
    Case("half-of-a-quantization", "", "0.12.0", BF16.strip() + " --use_weight_only --weight_only_precision int4"),
    Case("half-of-a-quantization", "", "0.12.0", BF16.strip() + " --smoothquant 0.5 --per_token --per_channel"),
    Case("build-without-its-plugin", "warning", "0.12.0", BUILD + " --lora_dir adapter"),
    Case("build-without-its-plugin", "", "0.12.0", BUILD + " --lora_dir adapter --lora_plugin auto"),
    Case(
        "build-without-its-plugin",
        "warning",
        "0.12.0",
        BUILD + " --use_paged_context_fmha enable --paged_kv_cache disable",
    ),
    Case("build-without-its-plugin", "", "0.12.0", BUILD + " --use_paged_context_fmha enable --paged_kv_cache enable"),
    Case(
        "build-without-its-plugin",
        "warning",
        "0.12.0",
        BUILD + " --gpt_attention_plugin disable --paged_kv_cache enable",
    ),
    Case("build-without-its-plugin", "", "0.12.0", BUILD + " --gpt_attention_plugin auto --paged_kv_cache enable"),
    Case("eagle-batch", "warning", "0.19.0", BUILD.replace("batch_size 4", "batch_size 1024") + EAGLE),
    Case("eagle-batch", "warning", "0.19.0", BUILD.removesuffix(" --max_batch_size 4") + EAGLE),
    Case("eagle-batch", "", "0.19.0", BUILD + EAGLE),
    Case("fp8-fmha-wrong-answers", "error", "0.9.0", FP8_KV + BUILD + " --use_fp8_context_fmha enable"),
    Case("fp8-fmha-wrong-answers", "error", "0.10.0", FP8_KV + BUILD + BOTH_ON),
    Case("fp8-fmha-wrong-answers", "", "0.11.0", FP8_KV + BUILD + BOTH_ON),
    Case("fp8-fmha-wrong-answers", "", "0.10.0", BUILD + BOTH_ON),
    Case("paged-fmha-turns-fp8-fmha-on", "warning", "0.10.0", FP8_KV + BUILD + FP8_OFF),
    Case("paged-fmha-turns-fp8-fmha-on", "warning", "0.11.0", FP8_KV + BUILD + FP8_OFF),
    Case("paged-fmha-turns-fp8-fmha-on", "warning", "0.11.0", FP8_KV + BUILD + FP8_OFF, "l4", 8),
    Case("paged-fmha-turns-fp8-fmha-on", "warning", "1.2.1", FP8_KV + BUILD + " --use_fp8_context_fmha disable"),
    Case("paged-fmha-turns-fp8-fmha-on", "", "0.9.0", FP8_KV + BUILD + FP8_OFF),
    Case("paged-fmha-turns-fp8-fmha-on", "", "1.2.1", FP8 + BUILD + FP8_OFF),
    Case("paged-fmha-with-quantized-kv", "warning", "1.2.1", AWQ_FP8_KV + BUILD + BOTH_ON),
    Case("fp8-fmha-without-fp8-checkpoint", "error", "0.18.2", FP8 + BUILD + " --use_fp8_context_fmha enable"),
    Case("fp8-fmha-without-fp8-checkpoint", "warning", "0.19.0", FP8 + BUILD + " --use_fp8_context_fmha enable"),
    Case("fp8-fmha-without-fp8-checkpoint", "", "0.18.2", FP8_KV + BUILD + " --use_fp8_context_fmha enable"),
    Case("fp8-fmha-without-fp8-checkpoint", "", "0.18.2", BUILD + " --use_fp8_context_fmha enable"),
    Case("fp8-fmha-without-fp8-checkpoint", "", "1.2.1", FP8 + BUILD),
    Case("fp8-fmha-without-fp8-checkpoint", "error", "0.16.0", BF16 + BUILD + " --use_fp8_context_fmha enable"),
    Case("fp8-fmha-without-fp8-checkpoint", "warning", "1.0.0", BF16 + BUILD + " --use_fp8_context_fmha enable"),
    Case("fp8-fmha-without-fp8-checkpoint", "", "0.16.0", FP8_KV + BUILD + " --use_fp8_context_fmha enable"),
    Case("paged-fmha-with-quantized-kv", "error", "0.9.0", FP8_KV + BUILD + " --use_paged_context_fmha enable"),
    Case("paged-fmha-with-quantized-kv", "", "0.10.0", FP8_KV + BUILD + " --use_paged_context_fmha enable"),
    Case("paged-fmha-with-quantized-kv", "error", "0.18.2", INT8_KV + BUILD + " --use_paged_context_fmha enable"),
    Case("paged-fmha-with-quantized-kv", "", "0.18.2", INT8_KV + BUILD),
    Case("paged-fmha-with-quantized-kv", "warning", "0.19.0", INT8_KV + BUILD),
    Case("paged-fmha-with-quantized-kv", "", "0.19.0", INT8_KV + BUILD + " --use_paged_context_fmha disable"),
    Case("paged-fmha-with-quantized-kv", "error", "0.10.0", AWQ_FP8_KV + BUILD + " --use_paged_context_fmha enable"),
    Case("paged-fmha-with-quantized-kv", "warning", "0.19.0", AWQ_FP8_KV + BUILD + " --use_paged_context_fmha enable"),
    Case("paged-fmha-with-quantized-kv", "", "0.10.0", FP8_KV + BUILD + " --use_paged_context_fmha enable"),
    Case("fp8-fmha-needs-hopper-or-ada", "error", "0.18.2", BUILD + " --use_fp8_context_fmha enable", "a100"),
    Case("fp8-fmha-needs-hopper-or-ada", "warning", "1.2.1", BUILD + " --use_fp8_context_fmha enable", "a100"),
    Case("fp8-fmha-needs-hopper-or-ada", "error", "0.11.0", BUILD + " --use_fp8_context_fmha enable", "l4"),
    Case("fp8-fmha-needs-hopper-or-ada", "", "0.12.0", BUILD + " --use_fp8_context_fmha enable", "l40s"),
    Case("fp8-fmha-needs-hopper-or-ada", "", "0.11.0", BUILD + " --use_fp8_context_fmha enable", "h100"),
    Case("fmha-off", "error", "0.12.0", BUILD + " --context_fmha disable --use_paged_context_fmha enable"),
    Case("fmha-off", "warning", "0.19.0", BUILD + " --context_fmha disable --use_fp8_context_fmha enable"),
    Case("fmha-off", "", "0.19.0", BUILD + " --context_fmha disable"),
    Case("gemm-swiglu-needs", "error", "0.12.0", BUILD + " --gemm_swiglu_plugin fp8"),
    Case("gemm-swiglu-needs", "", "0.12.0", BUILD + " --gemm_swiglu_plugin fp8 --use_fused_mlp"),
    Case("gemm-swiglu-needs", "", "0.13.0", BUILD + " --gemm_swiglu_plugin fp8"),
    Case("gemm-swiglu-needs", "error", "0.13.0", BUILD + " --gemm_swiglu_plugin fp8 --use_fused_mlp disable"),
    Case("gemm-swiglu-needs", "error", "0.16.0", BF16 + BUILD + " --low_latency_gemm_swiglu_plugin fp8"),
    Case("gemm-swiglu-needs", "", "0.16.0", FP8_KV + BUILD + " --low_latency_gemm_swiglu_plugin fp8"),
    Case("gemm-swiglu-needs", "error", "0.16.0", BUILD + " --gemm_swiglu_plugin fp8", "l4"),
    Case("gemm-swiglu-needs", "", "0.16.0", BUILD + " --gemm_swiglu_plugin fp8", "h200"),
    Case("fp8-gemm-plugin", "info", "0.16.0", FP8_KV + BUILD + " --gemm_plugin auto"),
    Case("fp8-gemm-plugin", "", "0.16.0", BF16 + BUILD + " --gemm_plugin auto"),
    Case("fp8-gemm-plugin", "", "0.16.0", FP8_KV + BUILD + " --gemm_plugin fp8"),
    Case("fp8-gemm-plugin", "info", "0.16.0", FP8_KV + BUILD.replace("4", "5") + " --gemm_plugin fp8"),
    Case("fused-all-reduce-ignored", "warning", "0.12.0", FP8_KV + BUILD + " --reduce_fusion enable"),
    Case("fused-all-reduce-ignored", "", "0.12.0", BUILD + " --reduce_fusion enable"),
    Case("fused-all-reduce-ignored", "warning", "0.16.0", BUILD + " --user_buffer enable"),
    Case("fused-all-reduce-ignored", "", "0.16.0", BUILD + " --user_buffer enable --reduce_fusion enable"),
    Case(
        "multiple-profiles-with-opt-num-tokens",
        "error",
        "0.12.0",
        BUILD + " --multiple_profiles enable --opt_num_tokens 8",
    ),
    Case(
        "multiple-profiles-with-opt-num-tokens", "", "0.12.0", BUILD + " --multiple_profiles disable --opt_num_tokens 8"
    ),
    Case(
        "custom-all-reduce-without-nvlink",
        "warning",
        "0.9.0",
        FP8_KV.replace("--o", "--tp_size 2 --o") + BUILD + " --use_custom_all_reduce enable",
        "l40s",
    ),
    Case("custom-all-reduce-without-nvlink", "", "0.9.0", FP8_KV + BUILD + " --use_custom_all_reduce enable", "h100"),
    Case("fp8-needs-hopper-or-ada", "error", "0.16.0", FP8_KV + BUILD, "a100"),
    Case("fp8-needs-hopper-or-ada", "", "0.16.0", BF16 + BUILD, "a100"),
    Case("int8-kv-with-fp8", "warning", "0.16.0", QUANTIZE.format("fp8 --kv_cache_dtype int8")),
    Case("int8-kv-with-fp8", "", "0.16.0", QUANTIZE.format("int8_sq --kv_cache_dtype int8")),
    Case("ranks-fixed-by-checkpoint", "error", "0.11.0", FP8_KV + BUILD + " --tp_size 4"),
    Case("ranks-fixed-by-checkpoint", "", "0.11.0", FP8_KV + BUILD + " --tp_size 1"),
    Case("ranks-fixed-by-checkpoint", "", "0.11.0", BUILD + " --tp_size 4"),
    Case("heads-not-divided", "error", "0.12.0", FP8_KV.replace("--o", "--tp_size 3 --o")),
    Case("heads-not-divided", "", "0.12.0", FP8_KV.replace("--o", "--tp_size 4 --o")),
    Case("layers-not-divided", "error", "0.12.0", FP8_KV.replace("--o", "--pp_size 3 --o")),
    Case("layers-not-divided", "", "0.12.0", FP8_KV.replace("--o", "--pp_size 4 --o")),
    Case("ranks-not-tp-pp", "error", "0.12.0", FP8_KV + BUILD + "\nmpirun -n 2 " + RUN),
    Case("ranks-not-tp-pp", "error", "0.12.0", FP8_KV + BUILD + "\ndocker run --gpus all i mpirun --np=2 " + RUN),
    Case("ranks-not-tp-pp", "", "0.12.0", FP8_KV + BUILD + "\nmpirun -n 1 " + RUN),
    Case("ranks-not-tp-pp", "", "0.12.0", FP8_KV + BUILD + "\nmpirun -n $N " + RUN),
    Case("ranks-not-tp-pp", "error", "0.12.0", FP8_KV + BUILD + "\n" + LAUNCH + " --world_size 8"),
    Case("ranks-not-tp-pp", "", "0.12.0", FP8_KV + BUILD + "\n" + LAUNCH + " --world_size 8 --multi-model"),
    Case("ranks-not-tp-pp", "", "0.12.0", LAUNCH + " --world_size 8"),
    Case("quantizes-nothing", "warning", "0.12.0", "python3 quantize.py --model_dir m"),
    Case("quantizes-nothing", "", "0.12.0", QUANTIZE.format("full_prec")),
    Case("quantizes-nothing", "", "0.12.0", "python3 quantize.py --model_dir m $ARGS"),
    Case("kv-cache-stays-16-bit", "info", "0.12.0", FP8),
    Case("kv-cache-stays-16-bit", "", "0.12.0", QUANTIZE.format("int8_sq")),
    Case("awq-calib-capped", "warning", "0.12.0", QUANTIZE.format("int4_awq --calib_size 33")),
    Case("awq-calib-capped", "", "0.12.0", QUANTIZE.format("fp8 --calib_size 33")),
    Case("calibration-dataset", "error", "0.12.0", QUANTIZE.format("fp8 --calib_dataset wikitext")),
    Case("calibration-dataset", "warning", "0.12.0", QUANTIZE.format("fp8 --calib_dataset cnn_dailymail")),
    Case("calibration-dataset", "warning", "0.12.0", QUANTIZE.format("fp8 --calib_dataset ./texts")),
    Case("calibration-dataset", "", "0.12.0", QUANTIZE.format("fp8 --calib_dataset /d/cnn_dailymail")),
    Case("calibration-dataset", "", "0.12.0", QUANTIZE.format("fp8 --calib_dataset $D")),
    Case("fp8-kv-scale-is-one", "info", "0.12.0", QUANTIZE.format("fp8 --kv_cache_dtype fp8 --calib_size 513")),
    Case("fp8-kv-scale-is-one", "", "0.13.0", QUANTIZE.format("fp8 --kv_cache_dtype fp8 --calib_size 513")),
    Case("fp8-kv-scale-is-one", "", "0.12.0", FP8_KV),
    Case("batch-of-one", "warning", "0.10.0", "trtllm-build --checkpoint_dir c"),
    Case("batch-of-one", "", "0.11.0", "trtllm-build --checkpoint_dir c"),
    Case("max-input-len-ignored", "info", "0.11.0", BUILD + " --max_input_len 8"),
    Case("max-input-len-ignored", "", "0.11.0", BUILD + " --max_input_len 8 --max_output_len 8"),
    Case("max-input-len-ignored", "", "0.12.0", BUILD + " --max_input_len 8 --max_seq_len 9"),
    Case("max-input-len-ignored", "", "0.12.0", BUILD + " --max_input_len 8 --context_fmha disable"),
    Case("max-input-len-ignored", "", "0.10.0", BUILD + " --max_input_len 8"),
    Case("max-num-tokens-large", "info", "0.11.0", BUILD + " --max_num_tokens 16385"),
    Case("max-num-tokens-large", "", "0.11.0", BUILD + " --max_num_tokens 16384"),
    Case("max-num-tokens-large", "", "0.10.0", BUILD + " --max_num_tokens 16385"),
    Case("prompt-cut-at-923", "warning", "0.12.0", RUN.partition(" --max_input")[0] + " --input_file f"),
    Case("prompt-cut-at-923", "warning", "0.12.0", RUN.partition(" --max_input")[0] + " --input_text " + "x" * 2772),
    Case("prompt-cut-at-923", "", "0.12.0", RUN.partition(" --max_input")[0] + " --input_text x"),
    Case("prompt-cut-at-923", "", "0.12.0", RUN + " --input_file f"),
    Case("gpt2-tokenizer", "error", "0.10.0", "python3 run.py --max_output_len 9"),
    Case("gpt2-tokenizer", "", "0.10.0", "python3 run.py --max_output_len 9 --vocab_file v"),
    Case("gpt2-tokenizer", "", "0.11.0", "python3 run.py --max_output_len 9"),
    Case("kv-reuse-wrong-answers", "error", "0.16.0", FP8_KV + BUILD + "\n" + RUN + " --kv_cache_enable_block_reuse"),
    Case("kv-reuse-wrong-answers", "", "0.17.0", FP8_KV + BUILD + "\n" + RUN + " --kv_cache_enable_block_reuse"),
    Case("kv-reuse-wrong-answers", "", "0.16.0", BF16 + BUILD + "\n" + RUN + " --kv_cache_enable_block_reuse"),
    Case("ranks-not-tp-pp", "error", "0.12.0", FP8_KV.replace("--o", "--tp_size 8 --o") + BUILD + "\n" + RUN),
    Case("ranks-not-tp-pp", "error", "0.12.0", FP8_KV.replace("--o", "--pp_size 2 --o") + BUILD + "\n" + LAUNCH),
    Case("ranks-not-tp-pp", "", "0.12.0", FP8_KV + BUILD + "\n" + RUN),
    Case("ranks-not-tp-pp", "", "0.12.0", FP8_KV.replace("--o", "--tp_size 8 --o") + BUILD + "\nmpirun -n $N " + RUN),
    Case("quantize-70b-memory", "error", "0.12.0", FP8_KV, "h100", 2),
    Case("quantize-70b-memory", "", "0.12.0", FP8_KV, "h100", 4),
    Case("quantize-70b-memory", "", "0.12.0", FP8_KV, "h100"),
    Case("quantize-70b-memory", "", "0.12.0", FP8_KV.replace("70B", "8B"), "h100", 1),
    Case("quantize-70b-memory", "", "0.12.0", FP8_KV.strip() + " --device cpu", "h100", 2),
    Case("weights-do-not-fit", "error", "0.12.0", FP8_KV + BUILD, "l4", 8),
    Case("weights-do-not-fit", "", "0.12.0", FP8_KV + BUILD, "h100", 8),
    Case("weights-do-not-fit", "", "0.12.0", FP8_KV.replace("--o", "--tp_size 4 --o") + BUILD, "l4", 8),
    Case("kv-cache-takes-90-percent", "warning", "0.16.0", FILL.format("a", "") + FILL.format("b", "") + TWO),
    Case(
        "kv-cache-takes-90-percent",
        "",
        "0.16.0",
        FILL.format("a", ",kv_cache_free_gpu_mem_fraction:0.4") + FILL.format("b", "") + TWO,
    ),
    Case("kv-cache-takes-90-percent", "", "0.16.0", FILL.format("a", "") + TWO),
    Case(
        "kv-cache-takes-90-percent",
        "",
        "0.16.0",
        FILL.format("a", "")
        + FILL.format("b", "")
        + "export CUDA_VISIBLE_DEVICES=0\n"
        + TWO.replace("\n", "\nexport CUDA_VISIBLE_DEVICES=1\n"),
    ),
]


def check(case: Case, text: str = "") -> list[Finding]:
    setting = Platform(load_release(case.release), case.gpu, case.gpus)
    return findings(
        read_document(text or case.text, "shell"), setting, [pairs.check, heads.check, defaults.check, memory.check]
    )


@each("case", CASES)
def test_case(case: Case) -> None:
    found = [finding for finding in check(case) if finding.rule == case.rule]
    assert [finding.severity for finding in found] == ([case.severity] if case.severity else [])
    for finding in found:
        assert finding.message and finding.why and finding.source and "{" not in finding.message + finding.why
        if finding.fix.kind == "command":
            again = check(case, finding.fix.text)
            left = [one for one in again if one.severity != "info"]
            assert not [one for one in left if one.fix.kind == "command" or one.severity == "error"]


@pytest.mark.parametrize("family", ["pairs", "heads", "defaults", "memory"])
def test_every_rule_fires_here_and_is_silent_here(family: str) -> None:
    decided = [rule.id for rule in all_rules() if family in rule.checked_by or (family == "pairs" and rule.conditions)]
    assert decided
    for rule in decided:
        said = {bool(case.severity) for case in CASES if case.rule == rule}
        assert said == {True, False}, rule


CONDITIONS = [condition for rule in all_rules() for condition in rule.conditions]


@pytest.mark.parametrize("release", known_releases())
def test_no_pair_names_what_no_release_knows(release: str) -> None:
    """A flag of the table that this release lacks is one that another has."""
    flags = {
        flag for condition in CONDITIONS for key in condition.when for flag in key.split() if flag.startswith("--")
    }
    known = {flag for name in known_releases() for tool in load_release(name).tools.values() for flag in tool.arguments}
    assert flags <= known
    assert load_release(release).name == release


def test_the_ranks_are_mended_where_they_are_written() -> None:
    case = Case(
        "", "", "0.12.0", FP8_KV.replace("--o", "--tp_size 2 --o") + BUILD + "\nmpirun -n 4 --oversubscribe " + RUN
    )
    (found,) = [finding for finding in check(case) if finding.rule == "ranks-not-tp-pp"]
    assert (found.line, found.column) == (3, 8)
    assert found.fix.text.split()[:4] == ["mpirun", "-n", "2", "--oversubscribe"]


@pytest.mark.parametrize("folder", ["Meta-Llama-3-70B", "my-llama-3-70b-tuned"])
def test_heads_that_do_not_divide_get_the_next_smaller_number_of_ranks(folder: str) -> None:
    """Of a published model, and of one that its folder's name alone tells."""
    case = Case("", "", "0.12.0", FP8_KV.replace("--o", "--tp_size 7 --o").replace("Meta-Llama-3-70B", folder))
    (found,) = [finding for finding in check(case) if finding.rule == "heads-not-divided"]
    assert "--tp_size 4" in found.fix.text


def test_a_launcher_is_put_in_front() -> None:
    case = Case("", "", "0.12.0", FP8_KV.replace("--o", "--tp_size 2 --o") + BUILD + "\nsudo " + RUN)
    (found,) = [finding for finding in check(case) if finding.rule == "ranks-not-tp-pp"]
    assert found.fix.text.split()[:6] == ["sudo", "mpirun", "-n", "2", "--allow-run-as-root", "python3"]


def test_the_cache_is_mended_where_it_is_quantized() -> None:
    case = Case("", "", "0.12.0", FP8 + BUILD + " --use_fp8_context_fmha enable")
    (found,) = [finding for finding in check(case) if finding.rule == "fp8-fmha-without-fp8-checkpoint"]
    assert found.line == 2
    assert found.fix.text.startswith("python3 quantize.py") and found.fix.text.endswith("--kv_cache_dtype fp8")


@pytest.mark.parametrize(
    ("name", "arch"), [("h100", "sm90"), ("H200", "sm90"), ("l4-24gb", "sm89"), ("l40s", "sm89"), ("a100", "sm80")]
)
def test_a_gpu_goes_by_any_of_its_names(name: str, arch: str) -> None:
    setting = Platform(load_release("0.12.0"), name, 2)
    gpu = gpu_of(setting)
    assert gpu and gpu.architecture == arch


def test_an_unknown_machine_says_nothing() -> None:
    assert gpu_of(Platform(load_release("0.12.0"))) is None
    assert gpu_of(Platform(load_release("0.12.0"), "h1000")) is None
