"""The family arguments: what each release's tools refuse, and what to write instead."""

import pytest

from trtllm_check.lint.finding import Finding, Platform
from trtllm_check.lint.fixing import findings
from trtllm_check.lint.programs import TOOLS
from trtllm_check.lint.reading import read_document
from trtllm_check.lint.rules import arguments, continuations
from trtllm_check.releases import known_releases, load_release
from trtllm_check.releases.guide import counterparts
from trtllm_check.releases.history import all_flags, all_releases, all_tools, flag_history

BUILD = "trtllm-build --checkpoint_dir c"
RUN = "python3 examples/run.py --engine_dir e --tokenizer_dir t --max_output_len 9"
QUANTIZE = "python3 quantize.py --model_dir m"
FILL = "python3 tools/fill_template.py"


def check(text: str, release: str) -> list[Finding]:
    return findings(
        read_document(text, "shell"), Platform(load_release(release)), [arguments.check, continuations.check]
    )


# rule, release, text, the word that it stands at, the fix (empty: no command).
CASES = [
    ("flag-removed", "0.12.0", f"{BUILD} --max_output_len 8", "--max_output_len", f"{BUILD} --max_seq_len 1032"),
    (
        "flag-removed",
        "0.12.0",
        f"{BUILD} --max_input_len 8 --max_output_len=4",
        "--max_output_len",
        f"{BUILD} --max_input_len 8 --max_seq_len 12",
    ),
    (
        "flag-removed",
        "0.12.0",
        f"{BUILD} --max_output_len $N --max_input_len 8",
        "--max_output_len",
        f'{BUILD} --max_input_len 8 --max_seq_len "$((8 + ${{N}}))"',
    ),
    (
        "flag-removed",
        "0.12.0",
        f"{BUILD} --max_output_len 8 --max_seq_len 64",
        "--max_output_len",
        f"{BUILD} --max_seq_len 64",
    ),
    (
        "flag-removed",
        "0.9.0",
        f"{BUILD} --timing_cache t",
        "--timing_cache",
        f"{BUILD} --input_timing_cache t --output_timing_cache t",
    ),
    (
        "flag-removed",
        "1.0.0",
        f"{RUN} --prompt_lookup_config [3,2,[0]]",
        "--prompt_lookup_config",
        f"{RUN} --ngram_config '[3,2,[0]]'",
    ),
    (
        "flag-removed",
        "0.10.0",
        f"{QUANTIZE} --max_seq_length 8",
        "--max_seq_length",
        f"{QUANTIZE} --calib_max_seq_length 8",
    ),
    (
        "flag-removed",
        "0.10.0",
        "python3 convert_checkpoint.py --ammo_quant_ckpt_path a",
        "--ammo_quant_ckpt_path",
        "python3 convert_checkpoint.py --modelopt_quant_ckpt_path a",
    ),
    ("flag-removed", "0.12.0", f"{BUILD} --tp_size 2", "--tp_size", BUILD),
    (
        "flag-too-new",
        "0.10.0",
        f"{BUILD} --max_seq_len 100 --max_input_len 60",
        "--max_seq_len",
        f"{BUILD} --max_input_len 60 --max_output_len 40",
    ),
    (
        "flag-too-new",
        "0.10.0",
        f"{BUILD} --max_seq_len 100",
        "--max_seq_len",
        f"{BUILD} --max_input_len 50 --max_output_len 50",
    ),
    ("flag-too-new", "0.12.0", f"{BUILD} --kv_cache_type paged", "--kv_cache_type", f"{BUILD} --paged_kv_cache enable"),
    (
        "flag-too-new",
        "0.17.0",
        f"{RUN} --ngram_config [3,2,[0]]",
        "--ngram_config",
        f"{RUN} --prompt_lookup_config '[3,2,[0]]'",
    ),
    ("flag-too-new", "0.12.0", "python3 convert_checkpoint.py --use_fp8", "--use_fp8", "python3 convert_checkpoint.py"),
    ("unknown-flag", "0.12.0", f"{BUILD} --max_batchsize 8", "--max_batchsize", f"{BUILD} --max_batch_size 8"),
    ("unknown-flag", "0.12.0", f"{BUILD} --max-batch-size 8", "--max-batch-size", f"{BUILD} --max_batch_size 8"),
    ("unknown-flag", "0.12.0", f"{BUILD} -workers 8", "-workers", f"{BUILD} --workers 8"),
    ("unknown-flag", "0.12.0", f"{BUILD} --kv_cache_dtype fp8", "--kv_cache_dtype", BUILD),
    ("unknown-flag", "0.12.0", f"{BUILD} --xyzzy 1 2", "--xyzzy", BUILD),
    (
        "unknown-flag",
        "1.2.1",
        "trtllm-serve model --max_batch 8",
        "--max_batch",
        "trtllm-serve model --max_batch_size 8",
    ),
    ("bad-value", "0.12.0", f"{BUILD} --context_fmha enabled", "enabled", f"{BUILD} --context_fmha enable"),
    ("bad-value", "0.12.0", f"{BUILD} --context_fmha False", "False", f"{BUILD} --context_fmha disable"),
    ("bad-value", "0.10.0", f"{BUILD} --gpt_attention_plugin auto", "auto", f"{BUILD} --gpt_attention_plugin bfloat16"),
    ("bad-value", "0.9.0", f"{BUILD} --gemm_plugin fp8", "fp8", ""),
    ("bad-value", "0.12.0", f"{BUILD} --max_num_tokens 8k", "8k", f"{BUILD} --max_num_tokens 8192"),
    ("bad-value", "0.12.0", f"{BUILD} --max_num_tokens lots", "lots", f"{BUILD} --max_num_tokens 8192"),
    ("bad-value", "0.12.0", f"{QUANTIZE} --qformat FP8", "FP8", f"{QUANTIZE} --qformat fp8"),
    ("needs-value", "0.13.0", f"{BUILD} --use_fused_mlp", "--use_fused_mlp", f"{BUILD} --use_fused_mlp enable"),
    ("needs-value", "0.13.0", f"{RUN} --multi_block_mode", "--multi_block_mode", f"{RUN} --multi_block_mode true"),
    ("needs-value", "0.13.0", f"{BUILD} --workers --fast_build", "--workers", f"{BUILD} --fast_build"),
    ("takes-no-value", "0.12.0", f"{BUILD} --use_fused_mlp enable", "--use_fused_mlp", f"{BUILD} --use_fused_mlp"),
    ("takes-no-value", "0.12.0", f"{BUILD} --use_fused_mlp=disable", "--use_fused_mlp", BUILD),
    (
        "takes-no-value",
        "0.12.0",
        f"{BUILD} --use_fused_mlp disable --workers 2",
        "--use_fused_mlp",
        f"{BUILD} --workers 2",
    ),
    ("stray-word", "0.12.0", f"{BUILD} 8", "8", BUILD),
    ("stray-word", "0.12.0", f"{FILL} a b c", "c", f"{FILL} a b"),
    (
        "missing-flag",
        "0.12.0",
        "python3 run.py --engine_dir e",
        "run.py",
        "python3 run.py --engine_dir e --max_output_len 128",
    ),
    ("missing-flag", "0.12.0", f"{FILL} -i config.pbtxt", "tools/fill_template.py", ""),
    ("unsure-flag", "0.17.0", f"{QUANTIZE} --qformat nvfp4", "nvfp4", ""),
    ("unsure-flag", "0.17.0", f"{QUANTIZE} --device_map auto", "--device_map", ""),
    ("abbreviated-flag", "0.12.0", f"{BUILD} --max_batch 8", "--max_batch", f"{BUILD} --max_batch_size 8"),
    ("typographic-dash", "0.12.0", f"{BUILD} –workers 8", "–workers", f"{BUILD} --workers 8"),
    ("typographic-dash", "0.12.0", f"{BUILD} —workers=8", "—workers", f"{BUILD} --workers=8"),
    (
        "moved-script",
        "0.20.0",
        "python3 TRT/examples/llama/convert_checkpoint.py",
        "TRT/examples/llama/convert_checkpoint.py",
        "python3 TRT/examples/models/core/llama/convert_checkpoint.py",
    ),
    (
        "moved-script",
        "0.12.0",
        f"python3 /app/{FILL.split()[1]} a b",
        "/app/tools/fill_template.py",
        "python3 tensorrtllm_backend-0.12.0/tools/fill_template.py a b",
    ),
    ("tool-not-in-release", "0.14.0", "trtllm-serve e", "trtllm-serve", ""),
    ("broken-continuation", "0.12.0", f"{BUILD} \\ \n  --workers 8", " ", f"{BUILD} --workers 8"),
    ("broken-continuation", "0.12.0", f"{BUILD}\n  --workers 8", "", f"{BUILD} --workers 8"),
]


def test_what_the_readers_own_clone_holds_is_not_known() -> None:
    assert check(f"python3 /tensorrtllm_backend/{FILL.split()[1]} a b", "0.20.0") == []


@pytest.mark.parametrize(("rule", "release", "text", "word", "fix"), CASES)
def test_finding_place_and_fix(rule: str, release: str, text: str, word: str, fix: str) -> None:
    (found,) = check(text, release)
    assert found.rule == rule
    assert text.split("\n")[found.line - 1][found.column - 1 :].startswith(word)
    assert (found.fix.kind, found.fix.text) == ("command", fix) if fix else found.fix.kind == "action"
    if fix:
        assert check(fix, release) == []


def test_where_no_value_can_be_told_the_values_are_named_and_no_command_is_made_up() -> None:
    (found,) = check(f"{BUILD} --gemm_plugin fp8", "0.9.0")
    assert found.rule == "bad-value"
    assert found.fix.text == "write a value of yours: --gemm_plugin takes float16 | float32 | bfloat16 | disable"


CLEAN = [
    ("0.11.0", f"{BUILD} --max_input_len 8 --max_output_len 8 --use_custom_all_reduce enable --use_fused_mlp"),
    ("0.13.0", f"{BUILD} --use_fused_mlp=enable --max_seq_len 8 --kv_cache_type paged"),
    ("0.12.0", f"{BUILD} $FLAGS ${{MORE[@]}} --max_batch_size $N --context_fmha <enable>"),
    ("0.12.0", "python3 run.py $ARGS"),
    ("0.12.0", "python3 run.py --help"),
    ("0.12.0", "python3 examples/gptj/convert_checkpoint.py --n_positions 8 --whatever"),
    ("0.12.0", "python3 examples/multimodal/run.py --visual_engine_dir v"),
    ("0.12.0", f"{RUN} --input_text 'a b' c -1 --stop_words x y"),
    ("0.12.0", "python3 convert_checkpoint.py --use_weight_only --weight_only_precision --smoothquant 0.5 -sq 0.5"),
    ("1.2.1", f"{RUN} --no-kv_cache_enable_block_reuse"),
    ("1.2.1", "trtllm-serve serve model --tp_size 8 --host 0.0.0.0"),
    ("1.2.1", "trtllm-serve disaggregated -c file"),
    ("1.2.1", "python3 /app/examples/models/core/llama/convert_checkpoint.py --model_dir m"),
    ("0.15.0", "trtllm-serve e --whatever"),
    ("1.3.0rc22", f"{BUILD} --whatever"),
    ("0.12.0", "python3 convert_checkpoint.py --model_dir m; python3 ../llama/convert_checkpoint.py --model_dir m"),
    ("0.16.0", f"python3 tensorrtllm_backend/{FILL.split()[1]} -i a b"),
]


@pytest.mark.parametrize(("release", "text"), CLEAN)
def test_nothing_to_say(release: str, text: str) -> None:
    assert check(text, release) == []


def test_each_rule_occurs() -> None:
    wanted = "unknown-flag flag-removed flag-too-new bad-value needs-value takes-no-value missing-flag unsure-flag"
    others = "abbreviated-flag typographic-dash moved-script tool-not-in-release broken-continuation stray-word"
    assert {case[0] for case in CASES} == {*wanted.split(), *others.split()}


def test_a_tool_knows_every_way_to_write_its_arguments() -> None:
    for release in all_releases():
        for tool in release.tools.values():
            assert {*tool.arguments} <= tool.names
            assert all(tool.has(name) for name in tool.names)
    served = load_release("1.3.0rc22").tool("trtllm-serve").names
    assert {"--telemetry", "--no-telemetry", "--tp_size", "--tensor_parallel_size"} <= served


def own_value(tool: str, flag: str, order: tuple[str, ...]) -> str:
    """A value that the flag takes where it lives: a renamed one hands it on, and a bad one stays bad."""
    homes = [release for release in map(load_release, order) if tool in release.tools and release.tools[tool].has(flag)]
    argument = homes[0].tools[tool].argument(flag)
    return str(argument.choices[0]) if argument and argument.choices else "1"


@pytest.mark.parametrize("tool", [tool for tool in all_tools() if tool in TOOLS])
def test_a_flag_outside_its_life(tool: str) -> None:
    """Every flag in the last release before and the first one after its life: named as such, and mended."""
    order = known_releases()
    for flag in (flag for flag, tools in all_flags().items() if tool in tools and flag.startswith("-")):
        found = flag_history(tool, flag)
        assert found is not None
        lived = {span.first for span in found.spans}
        earlier = [name for name in found.releases if order.index(name) < min(map(order.index, lived))]
        for release, rule in [*((name, "flag-too-new") for name in earlier[-1:]), (found.gone_since, "flag-removed")]:
            if not release or load_release(release).tools[tool].has(flag):
                continue
            value = own_value(tool, flag, order)
            text = f"{tool} {flag} {value}" if tool.startswith("trtllm") else f"python3 {tool} {flag} {value}"
            findings_ = [one for one in check(text, release) if flag in one.message and one.rule != "missing-flag"]
            assert [one.rule for one in findings_] == [rule], (flag, release)
            again = check(findings_[0].fix.text, release)
            assert not [one for one in again if one.rule not in ("missing-flag", "unsure-flag")], (flag, release)


@pytest.mark.parametrize(
    ("tool", "flag", "expected"),
    [
        ("trtllm-build", "--timing_cache", ["--input_timing_cache", "--output_timing_cache"]),
        ("trtllm-build", "--output_timing_cache", ["--timing_cache"]),
        ("convert_checkpoint.py", "--ammo_quant_ckpt_path", ["--quant_ckpt_path", "--modelopt_quant_ckpt_path"]),
        ("summarize.py", "--ngram_config", ["--prompt_lookup_config"]),  # by the entries of run.py
        ("trtllm-build", "--multi_block_mode", []),  # another tool has it now
        ("trtllm-build", "--nowhere", []),
    ],
)
def test_a_flag_is_known_by_its_names_in_other_releases(tool: str, flag: str, expected: list[str]) -> None:
    assert counterparts(tool, flag) == expected
