"""Writes a model repository: the release's templates, filled, checked, with the embedded lane's models beside them."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from string import Template

from cpu_serving.triton.check import Finding, check_config, check_repository
from cpu_serving.triton.templates import render_templates
from serving_base.errors import CheckFailed, UsageError
from trtllm_check.releases.templates import emptied_variables, release_templates

__all__ = ["Finding", "ServingOptions", "check_config", "check_repository", "render_templates", "write_repository"]

CONDUCT_FILE = Path("tensorrt_llm") / "1" / "embedded.json"
"""What the embedded backend must know of the release and no config.pbtxt says."""
MODELS = Path(__file__).with_name("models")


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
            "preprocessing_instance_count": 1,
            "postprocessing_instance_count": 1,
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
    return {name: fill(text, all_values) for name, text in render_templates(release).items()}


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


def write_repository(folder: Path, release: str, values: Mapping[str, str]) -> list[Finding]:
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


def check_paths(release: str, values: Mapping[str, str]) -> list[Finding]:
    """The engine and the tokenizer must be where the configuration says."""
    wanted = {"engine_dir": ("tensorrt_llm", "config.json"), "tokenizer_dir": ("preprocessing", "tokenizer.json")}
    return [
        Finding("error", model, f"{variable} {values[variable]} holds no {file}", f"give the folder with {file}")
        for variable, (model, file) in wanted.items()
        if model in release_templates(release).models and variable in values
        if not (Path(values[variable]) / file).is_file()
    ]
