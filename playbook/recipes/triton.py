"""Stages fill, launch and request: the model repository, the server, and a first question to it."""

import json
from collections.abc import Mapping

from playbook.errors import PlaybookError, UsageError
from playbook.profile import Profile
from playbook.recipes.build import paged_context_fmha
from playbook.recipes.command import Command, Paths, place, templates_path, tool_path
from playbook.recipes.flags import FlagValue, required
from playbook.recipes.run import END_ID, MAX_OUTPUT_LEN, QUESTION, chat_prompt
from playbook.releases import Release

FILL = "fill_template.py"
LAUNCH = "launch_triton_server.py"
PORTS = (8000, 8001, 8002)  # HTTP, gRPC, metrics: the launch script's own defaults
TOKENIZING_INSTANCES = 8  # a tokenizer process takes about a thousand prompts a second

NOTHING: Mapping[str, object] = {}
# Beyond the typed variables, which every release must have filled.
WANTED = {
    "preprocessing": ("tokenizer_dir", "add_special_tokens"),
    "postprocessing": ("tokenizer_dir", "skip_special_tokens"),
    "tensorrt_llm": (
        "triton_backend",
        "engine_dir",
        "batching_strategy",
        "batch_scheduler_policy",
        "kv_cache_free_gpu_mem_fraction",
        "enable_kv_cache_reuse",
        "enable_chunked_context",
        "exclude_input_in_output",
        "max_beam_width",
    ),
    "tensorrt_llm_bls": ("accumulate_tokens", "tensorrt_llm_model_name"),
}
WHY = {
    "preprocessing": "Every typed variable must be filled: a `${...}` left in a number, a boolean or a data type stops "
    "the server with `Expected integer or identifier, got: $` (tensorrtllm_backend#250, server#8592). Prompts carry "
    "the chat format, so the tokenizer adds no second <|begin_of_text|>.",
    "tensorrt_llm": "Streaming needs decoupled mode; prefix reuse and chunked prompts need an engine built with paged "
    "context FMHA (docs/source/advanced/kv-cache-reuse.md); max_queue_size 0 means no limit.",
    "tensorrt_llm_bls": "One BLS instance holds one request to its end, so there are as many as requests in flight; "
    "tensorrt_llm_model_name has no default (tensorrtllm_backend@9a784778 tensorrt_llm_bls/1/model.py).",
}


def template_values(
    profile: Profile, release: Release, paths: Paths, variables: Mapping[str, object] = NOTHING
) -> dict[str, dict[str, str]]:
    """Variable -> value for each model of the release's templates: all typed ones, what the course sets, and yours.

    ``variables`` override; :class:`UsageError` for one that no template of the release has.
    """
    all_variables = {name for template in release.templates.models.values() for name in template.variables}
    unknown = set(variables) - all_variables
    if unknown:
        raise UsageError(
            f"no template of TensorRT-LLM {release.name} has a variable {', '.join(sorted(unknown))}",
            fix=f"use one of: {', '.join(sorted(all_variables))}",
        )
    known = _values(profile, release, paths) | {name: _text(value) for name, value in variables.items()}
    filled: dict[str, dict[str, str]] = {}
    for model, template in release.templates.models.items():
        missing = [name for name in template.typed if name not in known]
        if missing:
            raise PlaybookError(
                f"no value for {', '.join(missing)} in {model}/config.pbtxt of TensorRT-LLM {release.name}",
                why="a typed variable that is left unfilled stops the server's parser",
                fix="add the variable to playbook/recipes/triton.py",
            )
        wanted = {*WANTED.get(model, ()), *variables}
        names = [*template.typed, *(name for name in template.free if name in wanted)]
        filled[model] = {name: known[name] for name in names}
    return filled


def fill(
    profile: Profile, release: Release, paths: Paths, *, variables: Mapping[str, object] = NOTHING
) -> list[Command]:
    """Copy the templates, then fill each model's ``config.pbtxt``; ``variables`` override what the course sets."""
    where = place(profile, release)
    tool = release.tool(FILL)
    copy = ("cp", "-r", f"{templates_path(release, paths)}/.", paths.repository)
    commands = [Command("fill", "cp", copy, where, why="The templates stay as they are; the copy is filled.")]
    for model, values in template_values(profile, release, paths, variables).items():
        config = f"{paths.repository}/{model}/config.pbtxt"
        substitutions = ",".join(f"{name}:{_escaped(value, release)}" for name, value in values.items())
        argv = (*tool.launcher, tool_path(release, FILL, paths), "--in_place", config, substitutions)
        commands.append(Command("fill", FILL, argv, where, why=WHY.get(model, "")))
    return commands


def launch(profile: Profile, release: Release, paths: Paths, *, ports: tuple[int, int, int] = PORTS) -> list[Command]:
    """Start one server process per rank. ``ports``: HTTP, gRPC, metrics."""
    tool = release.tool(LAUNCH)
    flags: dict[str, FlagValue] = {"--world_size": profile.world_size, "--model_repo": paths.repository}
    if ports != PORTS:
        flags |= dict(zip(("--http_port", "--grpc_port", "--metrics_port"), ports, strict=True))
    arguments = required(release, LAUNCH, flags)
    argv = (*tool.launcher, tool_path(release, LAUNCH, paths), *arguments)
    why = (
        "--world_size must be the engine's tp x pp, or the ranks stop with `mpiSize` (tensorrtllm_backend#33). "
        "The script returns at once; the server is ready when /v2/health/ready answers 200."
    )
    background = release.behaviour.launch_returns_at_once.value
    return [Command("launch", LAUNCH, argv, place(profile, release), why=why, background=background)]


def request(profile: Profile) -> list[Command]:
    """Ask the ensemble once for a whole answer and, in decoupled mode, once for a stream."""
    prompt = chat_prompt(QUESTION)
    body: dict[str, object] = {"text_input": prompt, "max_tokens": MAX_OUTPUT_LEN, "end_id": END_ID, "pad_id": END_ID}
    url = f"http://localhost:{PORTS[0]}/v2/models/ensemble"
    why = f"text_input and max_tokens are required; {END_ID} is <|eot_id|>: without it Llama-3 talks on."
    post = ("--silent", "--show-error", "--request", "POST")
    whole = ("curl", f"{url}/generate", *post, "--data", json.dumps(body))
    commands = [Command("request", "curl", whole, why=why)]
    if profile.decoupled:
        streamed = (
            "curl",
            f"{url}/generate_stream",
            *post,
            "--no-buffer",
            "--data",
            json.dumps({**body, "stream": True}),
        )
        why = "A stream of `data:` events; needs decoupled mode (server docs/protocol/extension_generate.md)."
        commands.append(Command("request", "curl", streamed, why=why))
    return commands


def _values(profile: Profile, release: Release, paths: Paths) -> dict[str, str]:
    reuse = paged_context_fmha(profile, release)
    fp8_kv = profile.kv_cache_dtype == "fp8"
    reuse_is_right = release.behaviour.fp8_kv_block_reuse.value or not fp8_kv
    tokenizers = min(TOKENIZING_INSTANCES, profile.max_batch_size)
    return {
        "triton_max_batch_size": str(profile.max_batch_size),
        "decoupled_mode": _text(profile.decoupled),
        "preprocessing_instance_count": str(tokenizers),
        "postprocessing_instance_count": str(tokenizers),
        "bls_instance_count": str(profile.max_batch_size),
        "max_queue_delay_microseconds": "0",
        "max_queue_size": "0",
        "encoder_input_features_data_type": "TYPE_FP16",
        "logits_datatype": "TYPE_FP32",
        "prompt_embedding_table_data_type": "TYPE_FP16",
        "triton_backend": "tensorrtllm",
        "engine_dir": paths.engine,
        "tokenizer_dir": paths.model,
        "batching_strategy": "inflight_fused_batching",
        "batch_scheduler_policy": "guaranteed_no_evict",
        "kv_cache_free_gpu_mem_fraction": str(profile.kv_cache_free_gpu_mem_fraction),
        "enable_kv_cache_reuse": _text(reuse and reuse_is_right),
        "enable_chunked_context": _text(reuse),
        "exclude_input_in_output": "true",
        "max_beam_width": "1",
        "add_special_tokens": "false",
        "skip_special_tokens": "true",
        "accumulate_tokens": "false",
        "tensorrt_llm_model_name": "tensorrt_llm",
    }


def _text(value: object) -> str:
    """As protobuf's text format writes it: booleans in small letters."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escaped(value: str, release: Release) -> str:
    """The value as fill_template.py reads it; :class:`UsageError` if this release's cannot be given it."""
    if not set(value) & set(",:\\"):
        return value
    if not release.behaviour.fill_template_escapes.value:
        raise UsageError(
            f"fill_template.py of TensorRT-LLM {release.name} cannot write {value!r}",
            why=f"it splits at every comma and colon ({release.behaviour.fill_template_escapes.source})",
            fix="use a workspace whose path has no comma, colon or backslash",
        )
    return _backslash(_backslash(value, ":\\"), ",\\")


def _backslash(text: str, special: str) -> str:
    return "".join(f"\\{character}" if character in special else character for character in text)
