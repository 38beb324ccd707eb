"""Stages fill, launch and request: the model repository, the server, and a first question to it.

A release without engines gets Triton's LLM-API model instead.
"""

import json
from collections.abc import Mapping

from serving_base.errors import NotInRelease, PlaybookError, UsageError
from serving_base.facts import TRITON_PORTS
from trtllm_check.deployment import Deployment
from trtllm_check.recipes.build import paged_context_fmha
from trtllm_check.recipes.command import (
    Command,
    FlagValue,
    Paths,
    llmapi_path,
    required,
    server_place,
    templates_path,
    tool_path,
)
from trtllm_check.recipes.run import END_ID, MAX_OUTPUT_LEN, QUESTION, chat_prompt, settings_reason
from trtllm_check.releases import Release
from trtllm_check.releases.templates import (
    IN_ORDER,
    ReleaseTemplates,
    TensorSpec,
    emptied_variables,
    llmapi_model,
    release_templates,
    streams_from_several,
)
from trtllm_check.rules import rule

LAUNCH = "launch_triton_server.py"
WHY_STREAM = "A stream of `data:` events; needs decoupled mode (server docs/protocol/extension_generate.md)."
LLMAPI_MODEL = "tensorrt_llm"
WRITE_TEXT = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"
LLMAPI_SOURCE = "TensorRT-LLM 1.3.0rc3 triton_backend/all_models/llmapi/tensorrt_llm/1/model.py"
WHY_YAML = (
    "Every key but triton_config goes to the LLM API as it stands; the model batches by itself, so Triton's "
    f"max_batch_size is 0 ({LLMAPI_SOURCE})."
)
WHY_DECOUPLED = (
    "The launch script passes --disable-auto-complete-config, so model.yaml's `decoupled` would not reach the server; "
    "the same value in both places is allowed (python_backend triton_python_backend_utils.py)."
)
WHY_LLMAPI_LAUNCH = (
    "Several GPUs are started as the project's own test does, with trtllm-llmapi-launch on each rank "
    "(TensorRT-LLM 1.3.0rc3 tests/integration/defs/triton_server/test_triton_llm.py:3660-3668). "
    "The script returns at once; the server is ready when /v2/health/ready answers 200."
)
FILL = "fill_template.py"
WHY_IN_ORDER = (
    "Several processes make text of the pieces of one answer, and the fastest would be sent first: the words of a "
    "stream would change places (tensorrtllm_backend#614)."
)
TOKENIZING_INSTANCES = 8  # a tokenizer process takes about a thousand prompts a second
SEED_NAMES = ("seed", "random_seed")
NOTHING: Mapping[str, object] = {}
WHY = {
    "preprocessing": "Every typed variable must be filled: a `${...}` left in a number, a boolean or a data type stops "
    "the server with `Expected integer or identifier, got: $` (tensorrtllm_backend#250, server#8592). Prompts carry "
    "the chat format, so the tokenizer adds no second <|begin_of_text|>.",
    "tensorrt_llm": "Streaming needs decoupled mode; prefix reuse and chunked prompts need an engine built with paged "
    "context FMHA (docs/source/advanced/kv-cache-reuse.md); max_queue_size 0 means no limit.",
    "tensorrt_llm_bls": "One BLS instance holds one request to its end, so there are as many as requests in flight; "
    "tensorrt_llm_model_name has no default (tensorrtllm_backend@9a784778 tensorrt_llm_bls/1/model.py).",
}
WHY_EMPTIED = (
    "What is left is emptied: the backend takes an empty parameter for unset, as it took the placeholder, and uses "
    "its default (packages/trtllm_check/releases/data/triton/variables.yml)."
)
WHY_LAUNCH = (
    "--world_size must be the engine's tp x pp, or the ranks stop with `mpiSize` (tensorrtllm_backend#33). "
    "The script returns at once; the server is ready when /v2/health/ready answers 200."
)


def start(
    profile: Deployment,
    release: Release,
    paths: Paths,
    flags: Mapping[str, FlagValue],
    *,
    why: str,
    left_out: tuple[str, ...] = (),
) -> Command:
    """The launch script over the repository, one process per rank of the profile."""
    all_flags = {"--world_size": profile.world_size, "--model_repo": paths.repository, **flags}
    arguments = required(release, LAUNCH, all_flags)
    argv = (*release.tool(LAUNCH).launcher, tool_path(profile, release, LAUNCH, paths), *arguments)
    return Command(
        "launch",
        LAUNCH,
        argv,
        server_place(profile, release),
        env=release.environment_of(profile),
        why=why + settings_reason(profile, release),
        left_out=left_out,
        background=release.behaviour.launch_returns_at_once.value,
        ready_url=f"http://localhost:{flags.get('--http_port', TRITON_PORTS[0])}/v2/health/ready",
    )


def ask(
    model: str,
    inputs: tuple[TensorSpec, ...],
    body: Mapping[str, object],
    port: int,
    *,
    why: str,
    stream: Mapping[str, object] | None = None,
) -> list[Command]:
    """Ask ``model`` for a whole answer and, with the fields of ``stream`` added, for a stream.

    :class:`PlaybookError` for a field that is none of ``inputs``: the server would ignore it silently.
    """
    url = f"http://localhost:{port}/v2/models/{model}"
    post = ("--silent", "--show-error", "--fail", "--request", "POST")
    whole = ("curl", f"{url}/generate", *post, "--data", _checked(model, inputs, body))
    commands = [Command("request", "curl", whole, why=why)]
    if stream:
        data = _checked(model, inputs, {**body, **stream})
        streamed = ("curl", f"{url}/generate_stream", *post, "--no-buffer", "--data", data)
        commands.append(Command("request", "curl", streamed, why=WHY_STREAM))
    return commands


def _checked(model: str, inputs: tuple[TensorSpec, ...], body: Mapping[str, object]) -> str:
    names = {tensor.name for tensor in inputs}
    required_names = {tensor.name for tensor in inputs if not tensor.optional}
    if not required_names <= set(body) <= names:
        raise PlaybookError(
            f"a request with {', '.join(body)} does not fit {model}",
            why=f"it needs {', '.join(sorted(required_names))} and takes {', '.join(sorted(names))}",
            fix="fix the request, or the templates' files in packages/trtllm_check/releases/data/triton",
        )
    return json.dumps(dict(body))


def llmapi_fill(profile: Deployment, release: Release, paths: Paths) -> list[Command]:
    """Copy the model, write its ``model.yaml``, and tell Triton of decoupled mode."""
    where = server_place(profile, release)
    repository, model = paths.repository, f"{paths.repository}/{LLMAPI_MODEL}"
    copy = ("cp", "-r", f"{llmapi_path(profile, release, paths)}/{LLMAPI_MODEL}", repository)
    write = ("python3", "-c", WRITE_TEXT, f"{model}/1/model.yaml", model_yaml(profile, release, paths))
    commands = [
        Command("fill", "mkdir", ("mkdir", "-p", repository), where),
        Command("fill", "cp", copy, where, why="The model stays as it is; the copy gets its settings."),
        Command("fill", "python3", write, where, why=WHY_YAML),
    ]
    if profile.decoupled:
        edit = r"s/^backend: .*/& model_transaction_policy { decoupled: true }/"
        decouple = ("sed", "-i", "-e", edit, f"{model}/config.pbtxt")
        commands.append(Command("fill", "sed", decouple, where, why=WHY_DECOUPLED))
    return commands


def model_yaml(profile: Deployment, release: Release, paths: Paths) -> str:
    """Settings of the LLM API and of Triton, as ``model.yaml`` holds them.

    The LLM API loads the quantized checkpoint in Hugging Face's format, or else, where checkpoints are for engines, the
    model itself.
    """
    import yaml

    quantized = profile.qformat != "full_prec" and not release.builds_engines
    fp8_cache = profile.kv_cache_dtype == "fp8" and not quantized  # a quantized checkpoint names its own
    settings = {
        "model": paths.checkpoint if quantized else paths.model,
        "backend": "pytorch",
        "tensor_parallel_size": profile.tp,
        "pipeline_parallel_size": profile.pp,
        "max_batch_size": profile.max_batch_size,
        "max_num_tokens": profile.max_num_tokens,
        "max_seq_len": profile.max_seq_len,
        "kv_cache_config": {
            "free_gpu_memory_fraction": profile.kv_cache_free_gpu_mem_fraction,
            "dtype": "fp8" if fp8_cache else "auto",
        },
        "triton_config": {"max_batch_size": 0, "decoupled": profile.decoupled},
    }
    return yaml.safe_dump(settings, sort_keys=False)


def llmapi_launch(profile: Deployment, release: Release, paths: Paths, flags: Mapping[str, FlagValue]) -> list[Command]:
    """Start the server; ``flags`` of the launch script are added."""
    several = profile.world_size > 1
    own: dict[str, FlagValue] = {"--trtllm_llmapi_launch": several, "--oversubscribe": several}
    facts = llmapi_model(release.name)
    return [
        start(
            profile,
            release,
            paths,
            {**own, **flags},
            why=WHY_LLMAPI_LAUNCH,
            left_out=(facts.note,) if facts.note else (),
        )
    ]


def llmapi_request(profile: Deployment, release: Release, prompt: str, max_tokens: int, port: int) -> list[Command]:
    """Ask the model for a whole answer and, in decoupled mode, for a stream."""
    body = {"text_input": prompt, "sampling_param_max_tokens": max_tokens}
    why = "The checkpoint's generation_config.json names the end ids, so a request needs none."
    stream = {"streaming": True} if profile.decoupled else None
    return ask(LLMAPI_MODEL, llmapi_model(release.name).inputs, body, port, why=why, stream=stream)


def template_values(
    profile: Deployment, release: Release, paths: Paths, variables: Mapping[str, object] = NOTHING
) -> dict[str, dict[str, str]]:
    """Every variable of each model's template -> value: what the course sets, yours, and "" where that means unset.

    ``variables`` override; :class:`UsageError` for one that no template of the release has, unless its value is what
    the course sets in other releases anyway.
    """
    models = release_templates(release.name).models
    all_variables = {name for model in models.values() for name in model.variables}
    course = _course_values(profile, release, paths)
    unknown = {name for name in set(variables) - all_variables if course.get(name) != _text(variables[name])}
    if unknown:
        raise UsageError(
            f"no template of TensorRT-LLM {release.name} has a variable {', '.join(sorted(unknown))}",
            fix=f"use one of: {', '.join(sorted(all_variables))}",
        )
    known = _values(profile, release, paths, variables)
    missing = sorted(all_variables - set(known))
    if missing:
        raise PlaybookError(
            f"no value for {', '.join(missing)} in the templates of TensorRT-LLM {release.name}",
            why='a typed variable that is left stops the server\'s parser, and "" is not known to mean unset',
            fix="set it in recipes/triton.py, or add it to releases/data/triton/variables.yml (of trtllm_check)",
        )
    return {model: {name: known[name] for name in spec.variables} for model, spec in models.items()}


def fill(
    profile: Deployment, release: Release, paths: Paths, *, variables: Mapping[str, object] = NOTHING
) -> list[Command]:
    """Copy the five models, then fill each one's ``config.pbtxt``; ``variables`` override what the course sets."""
    if not release.builds_engines:
        return llmapi_fill(profile, release, paths)
    where = server_place(profile, release)
    templates = release_templates(release.name)
    folder = templates_path(profile, release, paths)
    models = [f"{folder}/{model}" for model in templates.models]
    commands = [
        Command("fill", "mkdir", ("mkdir", "-p", paths.repository), where),
        Command(
            "fill",
            "cp",
            ("cp", "-r", *models, paths.repository),
            where,
            why="The templates stay as they are; the copies are filled.",
            left_out=_unconfirmed(templates),
        ),
    ]
    tool = (*release.tool(FILL).launcher, tool_path(profile, release, FILL, paths))
    for model, values in template_values(profile, release, paths, variables).items():
        certain = [name for name in values if values[name] and name not in templates.models[model].uncertain]
        substitutions = ",".join(f"{name}:{_escaped(values[name], release)}" for name in certain)
        argv = (*tool, "--in_place", _config(paths, model), substitutions)
        commands.append(Command("fill", FILL, argv, where, why=WHY.get(model, "")))
    values = _values(profile, release, paths, variables)
    if streams_from_several(values):
        commands.append(_keep_order(templates, paths, where))
    return [*commands, _finish(templates, values, paths, where)]


def launch(
    profile: Deployment, release: Release, paths: Paths, *, ports: tuple[int, int, int] = TRITON_PORTS
) -> list[Command]:
    """Start one server process per rank. ``ports``: HTTP, gRPC, metrics."""
    _needs_container(profile, release)
    names = ("--http_port", "--grpc_port", "--metrics_port")
    flags: dict[str, FlagValue] = {} if ports == TRITON_PORTS else dict(zip(names, ports, strict=True))
    if not release.builds_engines:
        return llmapi_launch(profile, release, paths, flags)
    return [start(profile, release, paths, flags, why=WHY_LAUNCH)]


def request(profile: Deployment, release: Release, _paths: Paths) -> list[Command]:
    """Ask the model once for a whole answer and, in decoupled mode, once for a stream."""
    _needs_container(profile, release)
    prompt = chat_prompt(QUESTION)
    if not release.builds_engines:
        return llmapi_request(profile, release, prompt, MAX_OUTPUT_LEN, TRITON_PORTS[0])
    ensemble = release_templates(release.name).models["ensemble"]
    seed = next(name for name in SEED_NAMES if ensemble.has_input(name))
    body = {"text_input": prompt, "max_tokens": MAX_OUTPUT_LEN, "end_id": END_ID, "pad_id": END_ID, seed: 1}
    why = (
        f"text_input and max_tokens are required; {END_ID} is <|eot_id|>: without it Llama-3 talks on. The seed's "
        f"field is {seed} in this release: one that is no input is taken for a parameter and has no effect."
    )
    stream = {"stream": True} if profile.decoupled else None
    return ask("ensemble", ensemble.inputs, body, TRITON_PORTS[0], why=why, stream=stream)


def _needs_container(profile: Deployment, release: Release) -> None:
    if profile.runner == "native":
        raise NotInRelease(
            "Triton does not run natively",
            why="wheels bring TensorRT-LLM without a server; Triton and its backend come in a container only",
            fix=f"launch with runner: docker ({release.server_image}), which loads the engine that was built here; "
            "where the course itself runs in that container: runner: inside",
        )


def _keep_order(templates: ReleaseTemplates, paths: Paths, where: str) -> Command:
    """Make the scheduler of postprocessing answer in the order of its requests: no template has that."""
    model = "postprocessing"
    queue = templates.models[model].queue
    edit = (
        f"s/^dynamic_batching *{{/dynamic_batching {{ {IN_ORDER} /"
        if queue
        else f"$a dynamic_batching {{ {IN_ORDER} }}"
    )
    return Command("fill", "sed", ("sed", "-i", "-e", edit, _config(paths, model)), where, why=WHY_IN_ORDER)


def _finish(templates: ReleaseTemplates, values: Mapping[str, str], paths: Paths, where: str) -> Command:
    """Fill what may be missing, which fill_template.py refuses from 0.19.0 on, and empty what is left."""
    uncertain = dict.fromkeys(name for model in templates.models.values() for name in model.uncertain)
    edits = [f"s/[$]{{{name}}}/{values[name]}/g" for name in uncertain] + ["s/[$]{[a-z0-9_]*}//g"]
    expressions = [word for edit in edits for word in ("-e", edit)]
    files = [_config(paths, model) for model in templates.models]
    why = WHY_EMPTIED
    if uncertain:
        why += f" {', '.join(uncertain)}: filled here, because the templates of {templates.release} may lack it."
    return Command("fill", "sed", ("sed", "-i", *expressions, *files), where, why=why)


def _unconfirmed(templates: ReleaseTemplates) -> tuple[str, ...]:
    if templates.confidence == "high":
        return ()
    return (f"the templates of {templates.release} are known with {templates.confidence} confidence: {templates.note}",)


def _config(paths: Paths, model: str) -> str:
    return f"{paths.repository}/{model}/config.pbtxt"


def _values(profile: Deployment, release: Release, paths: Paths, variables: Mapping[str, object]) -> dict[str, str]:
    """Over the templates of all releases: "" for unset, what the course sets, and ``variables`` last."""
    given = {name: _text(value) for name, value in variables.items()}
    return dict.fromkeys(emptied_variables(), "") | _course_values(profile, release, paths) | given


def _course_values(profile: Deployment, release: Release, paths: Paths) -> dict[str, str]:
    reuse = paged_context_fmha(profile, release)
    fp8_kv = profile.kv_cache_dtype == "fp8"
    reuse_is_right = not (fp8_kv and rule("kv-reuse-wrong-answers").entry(release.name, "template"))
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
        "tokenizer_type": "auto",
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
