"""The planner as chapters use it: all of :mod:`serving_planner`, and a case from a profile."""

from typing import TYPE_CHECKING, Any

import serving_planner
from playbook.profile import Profile
from serving_base.errors import UsageError
from serving_planner.case import Case, parse_case
from trtllm_check.deployment import THIS_MACHINE

WEIGHTS = {"fp8": "fp8", "full_prec": "bf16"}  # by qformat
KV = {"fp8": "fp8", "auto": "bf16"}  # by kv_cache_dtype


def case_of(profile: Profile, *, isl: int, osl: int, **settings: Any) -> Case:
    """The case of one engine of ``profile``: its GPUs, precisions and limits, under the load given here.

    ``settings`` override what the profile says; a profile of the embedded lane needs ``gpu``, the name of a measured
    machine (:func:`serving_planner.hardware.local_machine`). :class:`UsageError` for a profile that the planner has no
    numbers for, or a load beyond its limits.
    """
    for key, value, known, override in (
        ("qformat", profile.qformat, WEIGHTS, "weights"),
        ("kv_cache_dtype", profile.kv_cache_dtype, KV, "kv"),
    ):
        if value not in known and override not in settings:
            raise UsageError(
                f"{key} {value} of profile {profile.name} cannot be planned",
                why="the planner has times for BF16 and FP8 only",
                fix=f"pass {override}='fp8' to plan it as FP8, or change {key} to one of {', '.join(known)}",
            )
    if isl + osl > profile.max_seq_len or isl > profile.max_input_len:
        raise UsageError(
            f"isl {isl} + osl {osl} is beyond profile {profile.name}",
            why=f"it is built for prompts of {profile.max_input_len} tokens and {profile.max_seq_len} with the answer",
            fix="shorten them, or raise max_input_len and max_seq_len",
        )
    from_profile: dict[str, Any] = {
        "model": profile.model,
        "gpu": profile.gpu if profile.on_gpus else None,
        "gpus": profile.world_size,
        "tp": profile.tp,
        "pp": profile.pp,
        "weights": WEIGHTS.get(profile.qformat),
        "kv": KV.get(profile.kv_cache_dtype),
        "max_num_tokens": profile.max_num_tokens,
        "max_batch_size": profile.max_batch_size,
        "kv_fraction": profile.kv_cache_free_gpu_mem_fraction,
        "usd_per_hour": profile.own_usd_per_hour or None,
        "instance": profile.instance if profile.on_gpus and profile.instance != THIS_MACHINE else None,
    }
    return parse_case({**from_profile, "isl": isl, "osl": osl, **settings})


if TYPE_CHECKING:
    from serving_planner import *  # noqa: F403
__all__ = sorted([*serving_planner.__all__, "case_of"])


def __getattr__(name: str) -> Any:
    return getattr(serving_planner, name)


def __dir__() -> list[str]:
    return __all__
