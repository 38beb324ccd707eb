"""Values of vLLM's production stack: its chart writes the command of each model, ``extraArgs`` at its end."""

from collections.abc import Callable, Mapping
from typing import Any

from trtllm_check.lint.carriers.script import Script
from trtllm_check.lint.shell import Place, Word

# vllm-project/production-stack helm/templates/deployment-vllm-multi.yaml
CHART_FLAGS = {
    "maxModelLen": "--max-model-len",
    "dtype": "--dtype",
    "tensorParallelSize": "--tensor-parallel-size",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
}
LISTED = "extraArgs"


def stack_command(
    entries: Mapping[str, Any], argument: Callable[[Any], Word], place_of: Callable[[Any], Place]
) -> Word | None:
    """The command of one entry of ``modelSpec``; None for any other mapping."""
    model, config = entries.get("modelURL"), entries.get("vllmConfig")
    is_alone = config is None and {"requestGPU", "repository"} <= set(entries)
    if model is None or model.id != "scalar" or not (is_alone or (config is not None and config.id == "mapping")):
        return None
    inside = {str(key.value): value for key, value in config.value if key.id == "scalar"} if config else {}
    listed = inside.get(LISTED)
    if listed is not None and listed.id != "sequence":
        return None
    extra = [one for one in listed.value if one.id == "scalar"] if listed is not None else []
    place = place_of(extra[0] if extra else model)
    words = [Word(text, *place, (place,) * len(text)) for text in ("vllm", "serve")]
    words.append(argument(model))
    for name, flag in CHART_FLAGS.items():
        if name in inside and inside[name].id == "scalar":
            at = place_of(inside[name])
            words += [Word(flag, *at, (at,) * len(flag)), argument(inside[name])]
    script = Script()
    script.words([*words, *map(argument, extra)])
    return script.word()
