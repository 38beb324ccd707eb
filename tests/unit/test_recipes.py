"""Every command that the recipes give parses under its release, keeps the rules, and says what the profile says.

The rules are stated here by version, from NVIDIA's sources, and not by the recipes' own code.
"""

import argparse
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

from each import Test, each
from playbook.profile import Profile, load_profile, profile_names
from release_data import facts_of, write_release
from serving_base.errors import NotInRelease, UsageError
from trtllm_check.recipes import STAGES, Command, Paths, commands, docker_argv, on_host, shell, tool_arguments
from trtllm_check.recipes.build import Attention, attention
from trtllm_check.recipes.command import optional
from trtllm_check.recipes.triton import fill
from trtllm_check.releases import Release, build_parser, known_releases, load_release

PROFILES = [name for name in profile_names() if load_profile(name).lane == "tensorrt_llm"]
FORMATS = ("fp8", "int8_sq", "int8_wo", "int4_awq", "w4a8_awq", "int4_gptq", "full_prec")
AWQ = ("int4_awq", "w4a8_awq")
CACHES = ("fp8", "int8", "auto")
RUNNERS = ("docker", "inside", "native")
MINE = ("install", "fetch", "quantize", "convert", "build", "run", "summarize", "gate", "profile", "serve")
FORMAT_STAGES = ("quantize", "convert", "build", "serve")  # those that a format or a cache changes
MATRIX = list(product(PROFILES, known_releases()))
PER_PROFILE = pytest.mark.parametrize("profile_name", PROFILES)


def matrix(test: Test) -> Test:
    """An id per profile, the releases in a loop."""
    return PER_PROFILE(each("release_name", known_releases())(test))


ENGINE_RELEASES = [name for name in known_releases() if load_release(name).builds_engines]
LEAST_COMMANDS = 15_000


@dataclass(frozen=True)
class Case:
    """One command with the setting that it was made for; ``parsed`` is what the tool would read."""

    profile: Profile
    release: Release
    command: Command
    parsed: argparse.Namespace

    def has(self, flag: str) -> bool:
        return flag in self.command.argv


def version(release: Release | str) -> tuple[int, int]:
    name = release if isinstance(release, str) else release.name
    major, minor = re.findall(r"\d+", name)[:2]
    return int(major), int(minor)


@cache
def parser(release_name: str, tool: str) -> argparse.ArgumentParser:
    return build_parser(load_release(release_name), tool)


@cache
def parsed(release_name: str, tool: str, arguments: tuple[str, ...]) -> argparse.Namespace:
    return parser(release_name, tool).parse_args(list(arguments))


@cache
def setting(profile_name: str, release_name: str, **changes: object) -> tuple[Profile, Release]:
    settings: dict[str, Any] = {**shipped(profile_name), "release": release_name, **changes}
    return Profile(**settings), load_release(release_name)


@cache
def shipped(profile_name: str) -> dict[str, object]:
    return load_profile(profile_name).model_dump()


@cache
def stage(name: str, profile_name: str, release_name: str, **changes: object) -> tuple[Command, ...]:
    """The commands straight from the recipe: nothing has checked them yet."""
    profile, release = setting(profile_name, release_name, **changes)
    return tuple(STAGES[name](profile, release, Paths.default(profile)))


def one(name: str, profile_name: str, release_name: str, **changes: object) -> Case:
    """The first command of a stage that is one of the release's tools."""
    return next(cases(name, profile_name, release_name, **changes))


def cases(name: str, profile_name: str, release_name: str, **changes: object) -> Iterator[Case]:
    profile, release = setting(profile_name, release_name, **changes)
    for command in stage(name, profile_name, release_name, **changes):
        if command.tool in release.tools:
            arguments = tuple(tool_arguments(command))
            yield Case(profile, release, command, parsed(release.name, command.tool, arguments))


def all_settings() -> Iterator[tuple[str, dict[str, object]]]:
    """Stage and changes of the profile: the whole road as shipped, and what depends on formats in every format."""
    for name, runner in product(MINE, RUNNERS):
        yield name, {"runner": runner}
    for name, runner, qformat, cache_dtype in product(FORMAT_STAGES, RUNNERS, FORMATS, CACHES):
        yield name, {"runner": runner, "qformat": qformat, "kv_cache_dtype": cache_dtype}


def refusal_is_right(name: str, release: Release, profile: Profile) -> bool:
    """Whether a release or a format really has no such stage."""
    if name == "serve" and release.builds_engines:
        return "trtllm-serve" not in release.tools
    if name in ("serve", "gate") and not release.builds_engines:
        return profile.qformat not in ("fp8", *AWQ, "full_prec") or profile.kv_cache_dtype == "int8"
    if not release.builds_engines and name != "quantize":
        return name in ("convert", "build", "run", "summarize", "profile")
    if name != "quantize":
        return False
    if not release.builds_engines:
        return profile.qformat not in ("fp8", *AWQ) or profile.kv_cache_dtype == "int8"
    caches = {"int8_wo": ("auto", "int8"), "int4_gptq": ("auto",)}  # examples/llama/README.md
    return profile.qformat == "full_prec" or profile.kv_cache_dtype not in caches.get(profile.qformat, CACHES)


@cache
def counted(profile_name: str, release_name: str) -> tuple[int, frozenset[str]]:
    """How many commands of all settings parse, and whose; asserts that only what must be refused is refused."""
    count, tools = 0, set()
    for name, changes in all_settings():
        profile, release = setting(profile_name, release_name, **changes)
        try:
            made = stage(name, profile_name, release_name, **changes)
        except NotInRelease:
            assert refusal_is_right(name, release, profile), (name, changes)
            continue
        assert not refusal_is_right(name, release, profile), (name, changes)
        count += len(made)
        tools |= {case.command.tool for case in cases(name, profile_name, release_name, **changes)}
    return count, frozenset(tools)


@matrix
def test_every_command_parses_under_its_release(profile_name: str, release_name: str) -> None:
    _, tools = counted(profile_name, release_name)
    assert tools == set(load_release(release_name).tools) - {"fill_template.py", "launch_triton_server.py"}


def test_the_matrix_is_whole() -> None:
    """19 releases, 5 profiles, 7 formats, 3 caches, 2 runners."""
    assert len(known_releases()) >= 19 and len(MATRIX) == len(PROFILES) * len(known_releases())
    assert sum(counted(*place)[0] for place in MATRIX) >= LEAST_COMMANDS


@matrix
def test_a_mutated_command_is_refused(profile_name: str, release_name: str) -> None:
    """An unknown flag in every command, and a wrong value after every flag that has choices."""
    release = load_release(release_name)
    wrong_choices = 0
    for name in MINE:
        try:
            todo = list(cases(name, profile_name, release_name))
        except NotInRelease:
            continue
        for case in todo:
            arguments = tool_arguments(case.command)
            check = parser(release.name, case.command.tool).parse_args
            with pytest.raises(UsageError):
                check([*arguments, "--not_a_flag", "1"])
            for position, word in enumerate(arguments):
                argument = release.tool(case.command.tool).argument(word)
                if argument is not None and argument.choices:
                    with pytest.raises(UsageError, match=case.command.tool):
                        check([*arguments[: position + 1], "not-a-choice", *arguments[position + 2 :]])
                    wrong_choices += 1
    assert wrong_choices >= (6 if release.builds_engines else 3)


# First and last release of each flag: TensorRT-LLM's build.py and plugin.py at the release commits.
FLAG_LIFE = {
    "--max_output_len": ((0, 8), (0, 11)),
    "--max_seq_len": ((0, 11), (1, 2)),
    "--use_custom_all_reduce": ((0, 8), (0, 11)),
    "--strongly_typed": ((0, 8), (0, 10)),
    "--use_fp8_context_fmha": ((0, 9), (1, 2)),
    "--multiple_profiles": ((0, 9), (1, 2)),
    "--reduce_fusion": ((0, 11), (1, 2)),
    "--use_paged_context_fmha": ((0, 8), (1, 2)),
}
NEVER = ("--enable_xqa", "--multi_block_mode", "--tp_size", "--user_buffer", "--gemm_swiglu_plugin", "--builder_opt")


def builds(profile_name: str, release_name: str) -> Iterator[Case]:
    for qformat, cache_dtype in product(FORMATS, CACHES):
        yield from cases("build", profile_name, release_name, qformat=qformat, kv_cache_dtype=cache_dtype)


def engine_matrix(test: Test) -> Test:
    """As :func:`matrix`, over the releases that build engines."""
    return PER_PROFILE(each("release_name", ENGINE_RELEASES)(test))


@engine_matrix
def test_build_takes_flags_of_the_release_only(profile_name: str, release_name: str) -> None:
    for case in builds(profile_name, release_name):
        now, several = version(case.release), case.profile.tp > 1
        for flag, (first, last) in FLAG_LIFE.items():
            assert not case.has(flag) or first <= now <= last, flag
        assert case.has("--max_output_len") == (now < (0, 11))
        assert case.has("--max_seq_len") == (now >= (0, 11))
        assert case.has("--use_custom_all_reduce") == (now <= (0, 11) and several)
        assert case.has("--reduce_fusion") == (now >= (0, 11) and several)
        assert case.has("--multiple_profiles") == (now >= (0, 9))
        assert case.has("--strongly_typed") == (now <= (0, 10) and case.profile.qformat == "fp8")
        assert case.has("--gpt_attention_plugin") == (now <= (0, 10))
        assert case.has("--workers") == (case.profile.world_size > 1)
        assert not any(case.has(flag) for flag in NEVER)
        assert {"--max_batch_size", "--max_num_tokens", "--max_input_len"} <= set(case.command.argv)


@pytest.mark.parametrize("release_name", ENGINE_RELEASES)
def test_stages_of_one_gpu_each_have_no_all_reduce(release_name: str) -> None:
    case = one("build", "p5", release_name, tp=1, pp=8)
    assert not case.has("--reduce_fusion") and not case.has("--use_custom_all_reduce")
    assert case.parsed.workers == 8


@engine_matrix
def test_prompts_attend_as_release_gpu_and_formats_allow(profile_name: str, release_name: str) -> None:
    for case in builds(profile_name, release_name):
        profile, now = case.profile, version(case.release)
        paged = case.parsed.use_paged_context_fmha == "enable"
        fp8 = getattr(case.parsed, "use_fp8_context_fmha", "disable") == "enable"
        fp8_gpu = profile.gpu_arch == "sm90" or now >= (0, 12)
        if fp8:
            assert (profile.qformat, profile.kv_cache_dtype) == ("fp8", "fp8")  # TensorRT-LLM#2125, #2447
            assert paged and fp8_gpu and now >= (0, 11)  # TensorRT-LLM#1539
        if paged:
            assert profile.kv_cache_dtype != "int8"
            assert profile.kv_cache_dtype != "fp8" or fp8  # TensorRT-LLM@42a7b092 builder.py:1101-1112
        possible = profile.kv_cache_dtype == "auto" or (
            profile.kv_cache_dtype == profile.qformat == "fp8" and fp8_gpu and now >= (0, 11)
        )
        assert paged == possible  # neither dangerous nor needlessly off
        assert bool(case.command.left_out) == (not paged)
        for flag in ("--use_paged_context_fmha", "--use_fp8_context_fmha"):  # their defaults change at 0.19
            assert case.has(flag) == case.release.tool("trtllm-build").has(flag)


@engine_matrix
def test_plugins_follow_the_weights(profile_name: str, release_name: str) -> None:
    for case in builds(profile_name, release_name):
        fp8 = case.profile.qformat == "fp8"
        assert case.parsed.gemm_plugin == ("disable" if fp8 else "bfloat16")
        fused = case.parsed.use_fused_mlp
        if case.profile.qformat in ("fp8", "full_prec"):
            assert fused == (True if version(case.release) <= (0, 12) else "enable")
        else:
            assert not case.has("--use_fused_mlp")
        attention = case.parsed.gpt_attention_plugin
        assert attention == ("bfloat16" if version(case.release) <= (0, 10) else "auto")


@engine_matrix
def test_the_profile_reaches_the_command_line(profile_name: str, release_name: str) -> None:
    changes = {"max_batch_size": 33, "max_num_tokens": 7777, "calib_samples": 129, "max_input_len": 1000}
    quantized = one("quantize", profile_name, release_name, **changes)
    profile, parsed = quantized.profile, quantized.parsed
    assert (parsed.tp_size, parsed.pp_size) == (profile.tp, profile.pp)
    assert (parsed.qformat, parsed.kv_cache_dtype, parsed.calib_size) == ("fp8", "fp8", 129)
    built = one("build", profile_name, release_name, **changes).parsed
    assert (built.max_batch_size, built.max_num_tokens, built.max_input_len) == (33, 7777, 1000)
    if version(release_name) < (0, 11):
        assert built.max_output_len == profile.max_seq_len - 1000
    else:
        assert built.max_seq_len == profile.max_seq_len
    assert one("run", profile_name, release_name, **changes).parsed.max_input_length == 1000


@engine_matrix
def test_the_checkpoint_of_every_format(profile_name: str, release_name: str) -> None:
    now = version(release_name)
    for qformat in ("fp8", "int8_sq", *AWQ):
        for cache_dtype in CACHES:
            case = one("quantize", profile_name, release_name, qformat=qformat, kv_cache_dtype=cache_dtype)
            assert case.command.tool == "quantize.py"
            assert case.parsed.qformat == qformat
            assert case.parsed.kv_cache_dtype == (None if cache_dtype == "auto" else cache_dtype)
            assert case.parsed.calib_size == (32 if qformat in AWQ else case.profile.calib_samples)
            assert case.parsed.awq_block_size == 128
            assert case.has("--calib_dataset") == (now >= (0, 10))
            assert case.command.stage == "quantize"
    for cache_dtype in ("int8", "auto"):
        case = one("quantize", profile_name, release_name, qformat="int8_wo", kv_cache_dtype=cache_dtype)
        assert (case.command.tool, case.command.stage) == ("convert_checkpoint.py", "quantize")
        assert (case.parsed.use_weight_only, case.parsed.weight_only_precision) == (True, "int8")
        assert case.parsed.int8_kv_cache == (cache_dtype == "int8")
        assert case.has("--calib_size") == (cache_dtype == "int8" and now >= (0, 14))
    gptq = one("quantize", profile_name, release_name, qformat="int4_gptq", kv_cache_dtype="auto")
    weights = gptq.parsed.__dict__[
        "ammo_quant_ckpt_path" if now < (0, 10) else "modelopt_quant_ckpt_path" if now < (0, 11) else "quant_ckpt_path"
    ]
    assert weights.endswith(".safetensors") and any(weights in sentence for sentence in gptq.command.left_out)
    assert (gptq.parsed.weight_only_precision, gptq.parsed.per_group, gptq.parsed.group_size) == (
        "int4_gptq",
        True,
        128,
    )


@engine_matrix
def test_the_baseline_stands_beside_a_quantized_checkpoint(profile_name: str, release_name: str) -> None:
    paths = Paths.default(load_profile(profile_name))
    baseline = one("convert", profile_name, release_name)
    assert (baseline.parsed.output_dir, baseline.parsed.dtype) == (paths.checkpoint_bf16, "bfloat16")
    own = one("convert", profile_name, release_name, qformat="full_prec", kv_cache_dtype="auto")
    assert own.parsed.output_dir == paths.checkpoint
    assert not (own.parsed.use_weight_only or own.parsed.int8_kv_cache or baseline.parsed.int8_kv_cache)
    assert own.parsed.tp_size * own.parsed.pp_size == own.profile.world_size
    assert one("build", profile_name, release_name).parsed.checkpoint_dir == paths.checkpoint


@pytest.mark.parametrize("release_name", ENGINE_RELEASES)
def test_a_small_gpu_quantizes_in_host_memory_or_says_so(release_name: str) -> None:
    """1.5 times 16.1 GB is more than the 23.6 GB of an L4; 1.5 times 141 GB is less than the 680 GB of eight H100."""
    small, large = one("quantize", "g6", release_name), one("quantize", "p5", release_name)
    named = version(release_name) >= (0, 11)  # the argument's choices name the CPU
    assert small.has("--device") == named
    assert sum("24 GB" in sentence for sentence in small.command.left_out) == 1
    assert one("convert", "g6", release_name).parsed.load_model_on_cpu
    assert not large.has("--device") and not one("convert", "p5", release_name).parsed.load_model_on_cpu
    assert not any("GB" in sentence for sentence in large.command.left_out)


def test_seventy_billions_on_two_gpus_are_too_much_to_quantize() -> None:
    (sentence,) = one("quantize", "p5", "0.12.0", tp=2, gpu_count=2).command.left_out
    assert "212 GB" in sentence and "2 x h100-sxm-80gb have 169.9 GB" in sentence


@engine_matrix
def test_run_asks_through_both_sessions(profile_name: str, release_name: str) -> None:
    cpp, python = cases("run", profile_name, release_name)
    assert (cpp.parsed.use_py_session, python.parsed.use_py_session) == (False, True)
    for case in (cpp, python):
        assert case.parsed.tokenizer_dir == Paths.default(case.profile).model  # gpt2's by default in old releases
        assert case.parsed.add_special_tokens is False
        ends = version(release_name) >= (0, 11)
        assert case.has("--end_id") == ends and bool(case.command.left_out) != ends
        ranks = case.profile.world_size
        start = ("mpirun", "--allow-run-as-root", "-n", str(ranks)) if ranks > 1 else ("python3",)
        assert case.command.argv[: len(start)] == start


@engine_matrix
def test_the_16_bit_model_is_compared_where_it_fits(profile_name: str, release_name: str) -> None:
    (case,) = (c for c in cases("summarize", profile_name, release_name) if c.command.tool == "summarize.py")
    parsed = case.parsed
    assert parsed.test_trt_llm and parsed.check_accuracy and parsed.tensorrt_llm_rouge1_threshold == 15.0
    assert parsed.hf_model_dir == parsed.tokenizer_dir == Paths.default(case.profile).model
    small = case.profile.model == "llama-3-8b-instruct"
    spread = case.release.tool("summarize.py").has("--hf_device_map_auto")
    assert parsed.test_hf == (small or spread)
    assert case.has("--hf_device_map_auto") == (spread and not small)
    assert bool(case.command.left_out) == (not parsed.test_hf)


@engine_matrix
def test_the_gate_asks_the_16_bit_model_and_the_engine_the_same_questions(profile_name: str, release_name: str) -> None:
    asked = [case for case in cases("gate", profile_name, release_name) if case.command.tool == "mmlu.py"]
    parsed = [case.parsed for case in asked]
    assert [one.test_trt_llm for one in parsed] == [one.test_hf for one in parsed][::-1]
    assert len({(one.data_dir, one.engine_dir, one.hf_model_dir) for one in parsed}) == 1
    engine = asked[-1].command
    assert ("mpirun" in engine.argv) == (asked[-1].profile.world_size > 1)
    assert parsed[-1].test_trt_llm and "--accuracy_threshold" not in engine.argv
    (told,) = engine.left_out[:1]
    words = {"0.8.0": "has no threshold", "0.9.0": "a share such as", "0.10.0": "a share such as"}
    assert words.get(release_name, "an impossible threshold first") in told


@pytest.mark.parametrize("release_name", ["0.21.0", "1.0.0", "1.2.1", "1.3.0rc22"])
def test_lm_eval_asks_baseline_and_served_model_the_same_from_1_0_on(release_name: str) -> None:
    asked = [case for case in cases("gate", "p5-8b", release_name) if case.command.tool == "trtllm-eval"]
    if release_name == "0.21.0":
        assert asked == []
        return
    first, last = (case.parsed for case in asked)
    assert (first.task, last.task) == ("gsm8k", "gsm8k")
    assert first.model != last.model
    assert (first.apply_chat_template, first.max_input_length) == (last.apply_chat_template, last.max_input_length)
    engines = release_name != "1.3.0rc22"
    assert last.backend == ("tensorrt" if engines else "pytorch")
    assert (last.tokenizer == first.model) == engines  # an engine has no tokenizer of its own
    (installs,) = (one for one in stage("gate", "p5-8b", release_name) if any("lm_eval" in word for word in one.argv))
    version = {"1.0.0": "0.4.8", "1.2.1": "0.4.9.1", "1.3.0rc22": "0.4.10"}[release_name]
    assert f"lm_eval[api]=={version}" in installs.argv
    assert "requirements-dev.txt" in installs.why
    assert asked[0].command.env["PYTHONPATH"] == installs.argv[installs.argv.index("--target") + 1]


@pytest.mark.parametrize(("name", "release_name"), [("summarize", "0.12.0"), ("quantize", "1.3.0rc22")])
def test_added_packages_leave_those_of_the_container_alone(name: str, release_name: str) -> None:
    pip, tool = stage(name, "p5", release_name)
    target = pip.argv[pip.argv.index("--target") + 1]
    assert "--no-deps" in pip.argv and pip.env == {"PIP_CONSTRAINT": ""}
    assert tool.env["PYTHONPATH"] == target and pip.where == tool.where
    assert len(stage(name, "p5", release_name, runner="native")) == 1


@pytest.mark.parametrize("release_name", [n for n in known_releases() if "trtllm-serve" in load_release(n).tools])
def test_serve_gives_what_the_release_serves(release_name: str) -> None:
    server, *questions = stage("serve", "p5", release_name)
    case = one("serve", "p5", release_name)
    profile, release, paths = case.profile, case.release, Paths.default(case.profile)
    assert server.ready_url == "http://localhost:8000/health"
    assert "--trust_remote_code" not in server.argv
    assert case.has("--no-telemetry") == release.tool("trtllm-serve").has("--no-telemetry")
    sizes = [
        value for flag, value in pairwise(server.argv) if flag in ("--tp_size", "--pp_size", "--tensor_parallel_size")
    ]
    assert sizes == [str(profile.tp), str(profile.pp)]
    if release.builds_engines:
        assert server.argv[1] == paths.engine and case.parsed.tokenizer == paths.model
        assert case.parsed.backend in ("tensorrt", "trt", None)
        assert not case.has("--max_batch_size")
    else:
        assert server.argv[1] == paths.checkpoint and case.parsed.backend == "pytorch"
        assert (case.parsed.max_batch_size, case.parsed.max_seq_len) == (profile.max_batch_size, profile.max_seq_len)
    assert [question.argv[1].split("8000")[1] for question in questions] == ["/v1/chat/completions", "/v1/completions"]
    assert all(question.where == "host" and question.stage == "serve" for question in questions)


@pytest.mark.parametrize("name", [name for name in known_releases() if not load_release(name).builds_engines])
def test_the_pytorch_line_quantizes_with_modelopts_own_script(name: str) -> None:
    parsed = one("quantize", "p5", name).parsed
    paths = Paths.default(load_profile("p5"))
    assert (parsed.pyt_ckpt_path, parsed.export_path) == (paths.model, paths.checkpoint)
    assert (parsed.qformat, parsed.kv_cache_qformat, parsed.calib_size) == ("fp8", "fp8", "512")
    assert parsed.dataset == "cnn_dailymail"  # without a gated dataset
    assert one("quantize", "p5", name, kv_cache_dtype="auto").parsed.kv_cache_qformat == "none"
    assert one("quantize", "p5", name, qformat="w4a8_awq").parsed.qformat in ("w4a8_awq_beta", "w4a8_awq")
    server = one("serve", "p5", name, qformat="full_prec")
    assert server.command.argv[1] == paths.model and server.parsed.kv_cache_dtype == "fp8"
    tools = {command.tool for command in stage("install", "p5", name)}
    assert "git" in tools  # hf_ptq.py is in no container


def test_uncertain_flags_and_choices_are_avoided() -> None:
    """Facts that may be wrong stay out of what we print: nothing on the whole road rests on them."""
    used = set()
    for profile_name, release_name in MATRIX:
        release = load_release(release_name)
        for name in MINE:
            try:
                made = stage(name, profile_name, release_name)
            except NotInRelease:
                continue
            for command in made:
                if command.tool not in release.tools:
                    continue
                tool = release.tool(command.tool)
                for word, value in pairwise([*command.argv, ""]):
                    argument = tool.argument(word)
                    if argument is not None and (argument.confidence or value in argument.unconfirmed):
                        used.add((release_name, command.tool, word))
    assert not used


def test_a_flag_or_choice_that_may_be_missing_is_not_taken() -> None:
    unsure, sure = (load_release(name).tool("quantize.py") for name in ("0.17.0", "1.2.1"))
    for flags in ({"--device_map": "cpu"}, {"--qformat": "fp8_pc_pt"}):
        assert optional(unsure, flags) == []
        assert optional(sure, flags) == [word for pair in flags.items() for word in pair]


def test_the_recipe_asks_the_table_that_the_checker_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty rulebook has nothing against FP8 attention in the release whose answers were broken."""
    profile, release = load_profile("p5"), load_release("0.10.0")
    assert not attention(profile, release).paged
    monkeypatch.setattr("trtllm_check.rules.table._speaking", lambda topics, tool, release: ())
    assert attention(profile, release) == Attention(paged=True, fp8=True)


def test_what_a_release_cannot_do_is_said() -> None:
    def left_out(name: str, profile_name: str, release_name: str) -> str:
        return " ".join(one(name, profile_name, release_name).command.left_out)

    assert "reads a 16-bit KV cache only" in left_out("build", "p5", "0.8.0")
    assert "reuse of prefixes" in left_out("build", "p5", "0.9.0")
    assert "for Hopper, from 0.12 also for Ada" in left_out("build", "g6", "0.11.0")
    assert "TensorRT-LLM#1539" in left_out("build", "p5", "0.10.0")
    assert not left_out("build", "g6", "0.12.0") and not left_out("build", "p5", "0.11.0")
    assert "not among the models that 0.9.0 lists" in left_out("quantize", "p5", "0.9.0")
    assert "cnn_dailymail" in left_out("quantize", "p5", "0.9.0")
    assert not left_out("quantize", "p5", "0.12.0")
    assert "1.0" in one("quantize", "p5", "0.12.0").command.why  # FP8 KV scales
    assert "1.0" not in one("quantize", "p5", "0.13.0").command.why


@matrix
def test_every_command_says_why(profile_name: str, release_name: str) -> None:
    for name in MINE:
        try:
            made = stage(name, profile_name, release_name)
        except NotInRelease:
            continue
        assert all(command.why and command.stage == name for command in made)


def test_only_what_the_container_lacks_is_cloned() -> None:
    def cloned(release_name: str, **changes: object) -> list[tuple[str, ...]]:
        return [command.argv for command in stage("install", "p5", release_name, **changes) if command.tool == "git"]

    old = cloned("0.12.0")
    assert [argv[-2].rsplit("/", 1)[-1] for argv in old] == ["TensorRT-LLM.git", "tensorrtllm_backend.git"]
    assert all(argv[:6] == ("git", "clone", "--depth", "1", "--branch", "v0.12.0") for argv in old)
    assert all(argv[-1].startswith("workspace/sources/") for argv in old)
    assert cloned("1.2.1") == []
    assert len(cloned("1.2.1", runner="native")) == 1
    assert [argv[-2].rsplit("/", 1)[-1] for argv in cloned("1.3.0rc22")] == ["Model-Optimizer.git"]
    for release_name in ENGINE_RELEASES:
        made = stage("install", "p5", release_name)
        assert all(command.env == {"GIT_LFS_SKIP_SMUDGE": "1"} for command in made if command.tool == "git")


@pytest.mark.parametrize("release_name", known_releases())
def test_install_pulls_the_container_or_the_packages(release_name: str) -> None:
    release = load_release(release_name)
    with_docker = stage("install", "p5", release_name)
    pulled = release.server_image if release.containers.built else release.image
    assert with_docker[0].argv == ("docker", "pull", pulled)
    assert release.name in with_docker[-1].argv[-1] and with_docker[-1].where == release.image
    natively = stage("install", "p5", release_name, runner="native")
    assert {command.where for command in natively} == {"host"}
    pip = [word for command in natively if "pip" in command.argv for word in command.argv]
    assert any(re.fullmatch(rf"tensorrt[-_]llm=={re.escape(release.name)}", word) for word in pip)
    assert "git" in {command.tool for command in natively}


@pytest.mark.parametrize("release_name", ENGINE_RELEASES)
def test_inside_the_container_its_own_tools_run_where_we_are(release_name: str) -> None:
    """As in docker: paths, clones, version and parser of the container; nothing is pulled, installed or started."""

    def words(name: str, runner: str) -> list[tuple[str, ...]]:
        return [command.argv for command in stage(name, "p5", release_name, runner=runner)]

    installed = stage("install", "p5", release_name, runner="inside")
    assert {command.where for command in installed} == {"host"}
    assert not {"docker", "apt-get", "pip"} & {word for command in installed for word in command.argv}
    assert installed[-1].argv == stage("install", "p5", release_name)[-1].argv
    cloned = [command.argv for command in stage("install", "p5", release_name) if command.tool == "git"]
    assert [command.argv for command in installed if command.tool == "git"] == cloned
    for name in ("quantize", "build", "launch"):
        there = [tuple(word.replace("/workspace/", "workspace/") for word in argv) for argv in words(name, "docker")]
        assert words(name, "inside") == there


def test_settings_that_a_release_needs_are_in_the_environment() -> None:
    """NCCL on AMD hosts in 0.16; Llama with PP and FP8 weights in 1.0 (their release notes' known issues)."""
    for name in ("run", "summarize", "profile"):
        for case in cases(name, "p5", "0.16.0"):
            assert case.command.env["NCCL_P2P_LEVEL"] == "SYS"
        for case in cases(name, "p5-tp4pp2", "1.0.0"):
            assert case.command.env["TRTLLM_LLAMA_EAGER_FUSION_DISABLED"] == "1"
    for profile_name, release_name in (("g6", "0.16.0"), ("p5-8b", "0.16.0"), ("p5", "1.0.0"), ("p5", "0.15.0")):
        assert stage("run", profile_name, release_name)[0].env == {}
    assert "NCCL_P2P_LEVEL=SYS" in stage("run", "p5", "0.16.0")[0].why


def test_a_release_whose_containers_lack_tensorrt_llm_gets_an_image_with_the_wheel() -> None:
    built = load_release("0.8.0").containers.built
    assert built is not None
    build = next(command for command in stage("install", "p5", "0.8.0") if "docker build" in " ".join(command.argv))
    lines = build.argv[3:]
    assert lines[0] == built.tag and f"FROM {built.base}" in lines
    assert any("tensorrt_llm==0.8.0" in line for line in lines)
    assert sum(line.startswith("COPY TensorRT-LLM-0.8.0/examples/") for line in lines) == 2
    for name in ("quantize", "build", "run"):
        assert {command.where for command in stage(name, "p5", "0.8.0")} == {built.tag}
    assert "tritonserver:24.02" in stage("launch", "p5", "0.8.0")[0].where
    assert not any("docker build" in " ".join(command.argv) for command in stage("install", "p5", "0.9.0"))


def test_a_container_with_a_development_build_has_the_parser_of_that_build() -> None:
    """24.08 holds 0.12.0.dev2024080600: no --fast_build, and still --tp_size."""
    release = load_release("0.12.0")
    held = release.in_container.tool("trtllm-build")
    assert release.tool("trtllm-build").has("--fast_build") and not held.has("--fast_build")
    assert held.has("--tp_size") and not release.tool("trtllm-build").has("--tp_size")
    assert load_release("0.16.0").in_container is load_release("0.16.0")
    assert "0.12.0.dev2024080600" in stage("install", "p5", "0.12.0")[-1].argv[-1]


def test_what_is_asked_fails_on_an_error_of_the_server() -> None:
    for release_name in known_releases():
        assert all("--fail" in command.argv for command in stage("request", "p5", release_name))


def test_links_into_a_cache_that_ends_with_the_container_are_not_made() -> None:
    for release_name in known_releases():
        (command,) = stage("fetch", "p5", release_name)
        old = release_name in ("0.8.0", "0.9.0")
        assert ("--local-dir-use-symlinks" in command.argv) is old


def test_triton_is_not_launched_where_none_is() -> None:
    for name in ("launch", "request"):
        with pytest.raises(NotInRelease, match="natively"):
            stage(name, "p5", "0.12.0", runner="native")


@pytest.mark.parametrize(
    ("written", "name"),
    [("v0.12.0", "0.12.0"), ("0.12", "0.12.0"), ("0.17.0.post1", "0.17.0"), ("0.18.1", "0.18.2"), ("1.0.3", "1.0.0")],
)
def test_other_spellings_of_a_release(written: str, name: str) -> None:
    assert load_release(written).name == name


@pytest.mark.parametrize("written", ["0.7.1", "1", "v", "0.12.0rc1", "2.0"])
def test_a_release_without_facts_is_refused(written: str) -> None:
    with pytest.raises(UsageError):
        load_release(written)


def test_an_older_vocabulary_gets_the_older_flags(tmp_path: Path) -> None:
    """A release that still has the classic flags gets them from the same recipe."""
    facts = facts_of("0.12.0")
    arguments = facts["tools"]["trtllm-build"]["arguments"]
    del arguments["--max_seq_len"]
    arguments["--max_output_len"] = {"type": "int", "default": 1024}
    arguments["--use_custom_all_reduce"] = {"default": "enable", "choices": ["enable", "disable"]}
    arguments["--gpt_attention_plugin"] = {"default": "float16", "choices": ["float16", "bfloat16"]}
    write_release(tmp_path, "0.10.0", facts)
    release = load_release("0.10.0", tmp_path)
    (command,) = commands(load_profile("p5"), release, "build")
    built = build_parser(release, "trtllm-build").parse_args(tool_arguments(command))
    assert (built.max_input_len, built.max_output_len) == (2048, 2048)
    assert (built.use_custom_all_reduce, built.gpt_attention_plugin) == ("enable", "bfloat16")


def test_a_flag_that_the_road_needs_and_a_release_lacks_is_named(tmp_path: Path) -> None:
    facts = facts_of("0.12.0")
    del facts["tools"]["quantize.py"]["arguments"]["--kv_cache_dtype"]
    write_release(tmp_path, "0.1.0", facts)
    with pytest.raises(NotInRelease, match="--kv_cache_dtype"):
        commands(load_profile("p5"), load_release("0.1.0", tmp_path), "quantize")


def test_nothing_is_given_that_the_release_would_refuse(tmp_path: Path) -> None:
    """The recipe follows facts that contradict themselves: the parser made from them notices."""
    facts = facts_of("0.12.0")
    facts["tools"]["quantize.py"]["arguments"]["--dtype"]["choices"] = ["float16"]
    write_release(tmp_path, "0.1.1", facts)
    with pytest.raises(UsageError, match=r"quantize\.py") as caught:
        commands(load_profile("p5"), load_release("0.1.1", tmp_path), "quantize")
    assert "invalid choice: 'bfloat16'" in caught.value.why


@pytest.mark.parametrize("release_name", known_releases())
def test_shell_text_is_what_is_executed(release_name: str) -> None:
    """Bash reads the printed text, line ends included, as exactly the command's words."""
    profile = load_profile("p5-tp4pp2", release_name)
    shown = []
    for name in MINE:
        try:
            made = stage(name, profile.name, release_name)
        except NotInRelease:
            continue
        shown += [replace(face, env={}) for c in made for face in (c, on_host(c, Paths.default(profile)))]
    texts = [shell(command) for command in shown]
    program = "".join(f"printf '%s\\0' {text}; printf '\\1\\0'\n" for text in texts)
    printed = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True).stdout
    words = [tuple(part.split("\0")[:-1]) for part in printed.split("\1\0")[:-1]]
    assert words == [command.argv for command in shown]
    assert [tuple(shlex.split(text.replace("\\\n", ""))) for text in texts] == words


def test_long_commands_have_one_flag_per_line() -> None:
    text = shell(stage("build", "p5", "0.12.0")[0])
    assert "\n  --max_seq_len 4096 \\\n" in text
    assert all(line.count("--") <= 1 for line in text.splitlines())


def test_settings_are_shown_in_front() -> None:
    text = shell(stage("quantize", "p5", "0.12.0")[0])
    assert text.startswith("HF_HOME=/workspace/.cache/huggingface python3 ")


def test_what_is_printed_mounts_the_workspace_of_the_host() -> None:
    assert Paths.default(load_profile("p5")).mounts == {"workspace": "/workspace"}


def test_docker_gets_gpus_limits_memory_and_mounts() -> None:
    _, release = setting("p5", "0.12.0")
    (command,) = stage("build", "p5", "0.12.0")
    argv = docker_argv(command, {"/data/workspace": "/workspace", "models": "/models"})
    pairs = list(pairwise(argv))
    for pair in [
        ("--gpus", "all"),
        ("--shm-size", "20g"),
        ("--ulimit", "memlock=-1"),
        ("--ulimit", "stack=67108864"),
        ("--volume", "/data/workspace:/workspace"),
        ("--volume", "./models:/models"),
    ]:
        assert pair in pairs
    assert argv[:3] == ("docker", "run", "--rm")
    assert argv[argv.index(release.image) + 1 :] == command.argv


def test_a_launch_in_the_foreground_outlives_its_script() -> None:
    profile, release = setting("p5", "0.12.0")
    (command,) = stage("launch", "p5", "0.12.0")
    inside = on_host(command, Paths.default(profile)).argv
    assert inside[inside.index(release.image) + 1] == "bash"
    assert inside[-len(command.argv) :] == command.argv
    natively = on_host(replace(command, where="host"), Paths.default(profile))
    assert natively.argv[:2] == ("bash", "-c")


def test_the_token_is_named_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    for profile_name in PROFILES:
        paths = Paths.default(load_profile(profile_name))
        for name in MINE[:-1]:
            for command in stage(name, profile_name, "0.12.0"):
                assert "hf_verysecret" not in repr(command) + shell(command) + shell(on_host(command, paths))
    (fetch,) = stage("fetch", "p5", "0.12.0")
    assert ("--env", "HF_TOKEN") in list(pairwise(docker_argv(fetch, {})))


def test_wrong_stage_and_wrong_lane_are_refused() -> None:
    profile, release = setting("p5", "0.12.0")
    with pytest.raises(UsageError, match="there is no stage 'deploy'") as caught:
        commands(profile, release, "deploy")
    assert "quantize" in caught.value.fix
    with pytest.raises(UsageError, match="local"):
        commands(load_profile("local"), release, "build")


@each("release_name", ENGINE_RELEASES)
def test_pieces_of_a_stream_are_kept_in_order_where_several_processes_read_them(release_name: str) -> None:
    release, profile = load_release(release_name), load_profile("p5", release_name)
    asked: list[tuple[dict[str, object], bool]] = [
        ({}, True),
        ({"postprocessing_instance_count": 1}, False),
        ({"decoupled_mode": False}, False),
    ]
    for variables, ordered in asked:
        written = fill(profile, release, Paths.under("w", "p5"), variables=variables)
        edits = [one for one in written if any("preserve_ordering: true" in word for word in one.argv)]
        assert len(edits) == ordered
        assert all(one.argv[-1].endswith("/postprocessing/config.pbtxt") for one in edits)
