"""Writes a model repository: the release's templates, filled, checked, with the embedded lane's models beside them.

config.pbtxt of the five models of inflight_batcher_llm is rendered from a release's facts. A filled repository is
checked offline: by protobuf, for what is unfilled, for the ensemble's wiring. The files are read and the ensemble's
tensors followed by the checker's own code, :mod:`trtllm_check.lint.pbtxt`.
"""

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Literal

from serving_base.errors import CheckFailed, UsageError
from trtllm_check.lint.pbtxt import PLACEHOLDER, TRUE, ConfigError, Message, read_config, refusal
from trtllm_check.lint.triton_ensembles import loose_ends
from trtllm_check.releases.templates import IN_ORDER, emptied_variables, release_templates, streams_from_several
from trtllm_check.releases.templates import queue_rows as queue_rows

if TYPE_CHECKING:
    from trtllm_check.deployment import Deployment

TEMPLATE = Path(__file__).with_name("config.pbtxt.j2")


@cache
def render_templates(release: str) -> dict[str, str]:
    """config.pbtxt of each model, with the ``${...}`` of that release still in it."""
    import jinja2

    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    models = release_templates(release).models
    return {name: template.render(name=name, model=model) for name, model in models.items()}


NEEDED_PARAMETERS = frozenset({"tokenizer_dir", "gpt_model_path"})
"""String parameters without a default in the backend: left unfilled they are taken for a path."""


@dataclass(frozen=True)
class RepositoryFinding:
    """One thing that a check found. An ``error`` stops the server from loading the model; a ``note`` does not."""

    severity: Literal["error", "note"]
    model: str
    message: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.severity} in {self.model}: {self.message}" + (f" ({self.fix})" if self.fix else "")


def check_repository(folder: Path) -> list[RepositoryFinding]:
    """Check every model of ``folder`` and how they fit together; errors first."""
    findings: list[RepositoryFinding] = []
    configs: dict[str, Message | None] = {}
    for path in sorted(folder.glob("*/config.pbtxt")):
        name = path.parent.name
        if not (path.parent / "1").is_dir():
            findings.append(
                RepositoryFinding("error", name, "the version folder 1/ is missing", "create it, it may be empty")
            )
        configs[name], found = check_config(name, path.read_text(encoding="utf-8"))
        findings += found
    if not configs:
        findings.append(RepositoryFinding("error", str(folder), "holds no model", "write the repository first"))
    findings += check_wiring(configs)
    findings += check_decoupling(configs)
    return sorted(findings, key=lambda finding: finding.severity)


def check_config(name: str, text: str) -> tuple[Message | None, list[RepositoryFinding]]:
    """Read one config.pbtxt as Triton does. The message is None when Triton would not read it."""
    try:
        config = read_config(text)
    except ConfigError as error:
        return None, [_parse_finding(name, text, refusal(text) or error)]
    if unfilled := _unfilled(name, text, config):
        return None, unfilled
    if refused := refusal(text):
        return None, [_parse_finding(name, text, refused)]
    findings = []
    if config.text("name") != name:
        findings.append(
            RepositoryFinding("error", name, f"its name is {config.text('name')!r}", "Triton wants the folder's name")
        )
    if PLACEHOLDER.search(config.text("backend")):
        message = f"backend is still {config.text('backend')!r}"
        findings.append(RepositoryFinding("error", name, message, "fill triton_backend"))
    return config, findings + _check_parameters(name, config)


def _unfilled(name: str, text: str, config: Message) -> list[RepositoryFinding]:
    """Placeholders outside quotes: their fields are numbers, booleans or data types."""
    bare = (value for _, value in config.all_scalars() if not value.quoted and PLACEHOLDER.search(value.text))
    lines = text.splitlines()
    return [
        RepositoryFinding(
            "error",
            name,
            f"line {number} is not filled: {lines[number - 1].strip()}",
            f"give a value for {', '.join(PLACEHOLDER.findall(lines[number - 1]))}",
        )
        for number in sorted({value.line for value in bare})
    ]


def _parse_finding(name: str, text: str, error: ConfigError) -> RepositoryFinding:
    lines = text.splitlines()
    line = lines[error.line - 1].strip() if error.line <= len(lines) else "(end of file)"
    return RepositoryFinding("error", name, f"line {error.line}: {error.message}: {line}")


def _check_parameters(name: str, config: Message) -> list[RepositoryFinding]:
    findings = []
    defaulted = []
    parameters = {entry.text("key"): entry.messages("value") for entry in config.messages("parameters")}
    for key, values in sorted(parameters.items()):
        value = values[-1].text("string_value") if values else ""
        variable = PLACEHOLDER.search(value)
        if value and variable is None:
            continue
        if key in NEEDED_PARAMETERS:
            fix = f"fill {variable[1] if variable else 'it'}"
            findings.append(RepositoryFinding("error", name, f"parameter {key} is still {value!r}", fix))
        else:
            defaulted.append(key)
    if defaulted:
        message = f"{len(defaulted)} parameters are left out: the backend takes its defaults: {', '.join(defaulted)}"
        findings.append(RepositoryFinding("note", name, message))
    return findings


def check_decoupling(configs: Mapping[str, Message | None]) -> list[RepositoryFinding]:
    """The model and its BLS must agree on decoupled mode."""
    pair = {name: configs.get(name) for name in ("tensorrt_llm", "tensorrt_llm_bls")}
    flags = {name: _is_decoupled(config) for name, config in pair.items() if config is not None}
    if len(set(flags.values())) < 2:
        return []
    message = "decoupled is " + " and ".join(f"{flag} in {name}" for name, flag in flags.items())
    return [RepositoryFinding("error", "tensorrt_llm_bls", message, "fill decoupled_mode with one value in both")]


def _is_decoupled(config: Message) -> bool:
    policies = config.messages("model_transaction_policy")
    return bool(policies) and policies[-1].text("decoupled").lower() in TRUE


def check_wiring(configs: Mapping[str, Message | None]) -> list[RepositoryFinding]:
    """Follow each ensemble's tensors: what protobuf cannot see. None: a model that does not parse."""
    read = {name: config for name, config in configs.items() if config is not None}
    return [
        RepositoryFinding("error", name, loose.problem)
        for name, config in read.items()
        if config.messages("ensemble_scheduling")
        for loose in loose_ends(config, read)
        if loose.model not in configs
    ]


CONDUCT_FILE = Path("tensorrt_llm") / "1" / "conduct.json"
"""What the backend must know of the release and no config.pbtxt says."""
MODELS = Path(__file__).with_name("models")
QUEUE = re.compile(r"^dynamic_batching *\{", re.MULTILINE)


@dataclass(frozen=True)
class ServingOptions:
    """What the course fills in; names and meanings of NVIDIA's template variables.

    ``exclude_input_in_output``: answers without the prompt (a template's own default is with it).
    ``max_queue_size`` 0: no limit. ``max_tokens_in_paged_kv_cache`` 0: enough for a full batch.
    ``add_special_tokens`` must be off when prompts come in chat format, which begins with its own.
    """

    engine_dir: Path
    tokenizer_dir: Path
    max_batch_size: int = 16
    decoupled: bool = True
    exclude_input_in_output: bool = True
    batching_strategy: str = "inflight_fused_batching"
    max_queue_size: int = 0
    max_queue_delay_microseconds: int = 0
    max_tokens_in_paged_kv_cache: int = 0
    preprocessing_instances: int = 1
    postprocessing_instances: int = 1
    bls_instances: int = 1
    accumulate_tokens: bool = False
    add_special_tokens: bool = True

    def values(self) -> dict[str, str]:
        """Template variable -> value, over all five models and all releases."""
        values: dict[str, object] = {
            "triton_backend": "tensorrtllm",
            "triton_max_batch_size": self.max_batch_size,
            "decoupled_mode": self.decoupled,
            "engine_dir": self.engine_dir.resolve(),
            "tokenizer_dir": self.tokenizer_dir.resolve(),
            "tokenizer_type": "auto",
            "batching_strategy": self.batching_strategy,
            "exclude_input_in_output": self.exclude_input_in_output,
            "max_queue_size": self.max_queue_size,
            "max_queue_delay_microseconds": self.max_queue_delay_microseconds,
            "preprocessing_instance_count": self.preprocessing_instances,
            "postprocessing_instance_count": self.postprocessing_instances,
            "bls_instance_count": self.bls_instances,
            "accumulate_tokens": self.accumulate_tokens,
            "tensorrt_llm_model_name": "tensorrt_llm",
            "add_special_tokens": self.add_special_tokens,
            "skip_special_tokens": True,
            "logits_datatype": "TYPE_FP32",
            "prompt_embedding_table_data_type": "TYPE_FP16",
            "encoder_input_features_data_type": "TYPE_FP16",
        }
        if self.max_tokens_in_paged_kv_cache:
            values["max_tokens_in_paged_kv_cache"] = self.max_tokens_in_paged_kv_cache
        return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}


def fill(template: str, values: Mapping[str, str]) -> str:
    """Put ``values`` into the ``${...}`` of one template, as fill_template.py does; others stay as they are."""
    return Template(template).safe_substitute(values)


def fill_templates(release: str, values: Mapping[str, str]) -> dict[str, str]:
    """Filled config.pbtxt of each model; a variable without a value is emptied where that means its default.

    Raises :class:`UsageError` for a variable that no release's template has.
    """
    refuse_unknown_variables(release, values)
    all_values = {**dict.fromkeys(emptied_variables(), ""), **values}
    filled = {name: fill(text, all_values) for name, text in render_templates(release).items()}
    if streams_from_several(all_values):
        filled["postprocessing"] = keep_order(filled["postprocessing"])
    return filled


def keep_order(config: str) -> str:
    """With several instances the pieces of one answer would come as each is done; the scheduler can hold them back."""
    if QUEUE.search(config):
        return QUEUE.sub(f"dynamic_batching {{ {IN_ORDER}", config)
    return f"{config}\ndynamic_batching {{ {IN_ORDER} }}\n"


def refuse_unknown_variables(release: str, values: Mapping[str, str]) -> None:
    """NVIDIA's fill_template.py drops an unknown key silently before 0.19; a typing error would pass unseen."""
    models = release_templates(release).models.values()
    known = {name for model in models for name in model.variables} | set(_course_variables())
    for key in values:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            raise UsageError(
                f"no template of TensorRT-LLM {release} has a variable {key!r}",
                fix=f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}",
            )


def _course_variables() -> tuple[str, ...]:
    """Variables that the course always gives, though not every release has them all."""
    return tuple(ServingOptions(Path(), Path()).values())


def write_repository(folder: Path, release: str, values: Mapping[str, str]) -> list[RepositoryFinding]:
    """Write the five models of ``release`` into ``folder`` and check them; returns the notes.

    Raises :class:`CheckFailed` with every error found. Nothing is written when a variable is unknown.
    """
    configs = fill_templates(release, values)
    for name, text in configs.items():
        model = folder / name
        (model / "1").mkdir(parents=True, exist_ok=True)
        (model / "config.pbtxt").write_text(text, encoding="utf-8")
        if (MODELS / name).is_dir():
            shutil.copyfile(MODELS / name / "1" / "model.py", model / "1" / "model.py")
    conduct = {"unasked_outputs": release_templates(release).unasked_outputs}
    (folder / CONDUCT_FILE).write_text(json.dumps(conduct), encoding="utf-8")
    findings = check_repository(folder) + check_paths(release, values)
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise CheckFailed(
            f"the model repository in {folder} would not load",
            why="\n       ".join(str(error) for error in errors),
            fix="give the missing values and write it again",
        )
    return findings


def write_for_engine(deployment: "Deployment", engine: Path, folder: Path, variables: Mapping[str, Any]) -> None:
    """The repository for an engine folder with its tokenizer; ``variables``: fields of :class:`ServingOptions`."""
    serving = ServingOptions(
        engine_dir=engine,
        tokenizer_dir=engine / "tokenizer",
        max_batch_size=deployment.max_batch_size,
        decoupled=deployment.decoupled,
        **variables,
    )
    write_repository(folder, deployment.release, serving.values())


def check_paths(release: str, values: Mapping[str, str]) -> list[RepositoryFinding]:
    """The engine and the tokenizer must be where the configuration says."""
    wanted = {"engine_dir": ("tensorrt_llm", "config.json"), "tokenizer_dir": ("preprocessing", "tokenizer.json")}
    return [
        RepositoryFinding(
            "error", model, f"{variable} {values[variable]} holds no {file}", f"give the folder with {file}"
        )
        for variable, (model, file) in wanted.items()
        if model in release_templates(release).models and variable in values
        if not (Path(values[variable]) / file).is_file()
    ]


__all__ = [
    "RepositoryFinding",
    "ServingOptions",
    "check_config",
    "check_repository",
    "render_templates",
    "write_repository",
]
