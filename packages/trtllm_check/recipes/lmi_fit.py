"""What an LMI image can do of what a profile asks for."""

from dataclasses import dataclass

from serving_base.errors import NotInRelease, ProfileError
from trtllm_check.deployment import Deployment, changed
from trtllm_check.recipes.properties import takes
from trtllm_check.releases.lmi import KvCache, LmiImage, lmi_facts

PLAIN = {"qformat": "full_prec", "kv_cache_dtype": "auto"}


@dataclass(frozen=True)
class Fit:
    """The profile as the image can serve it, and in sentences what is left out of the one that was asked for."""

    profile: Deployment
    left_out: tuple[str, ...]


def fitted(profile: Deployment, image: LmiImage, *, quantized: bool = False) -> Fit:
    """What ``image`` makes of ``profile``; ``quantized``: it is given a checkpoint that is quantized already.

    Raises :class:`NotInRelease` if the GPUs cannot hold what remains.
    """
    missing = missing_formats(profile, image, quantized=quantized)
    staged = one_stage(profile, image)
    stages = (
        f"{image.tag} takes one pipeline stage: tensor parallelism over {staged.tp} GPUs "
        f"instead of {profile.tp} x {profile.pp}."
    )
    try:
        left = changed(staged, **{field: PLAIN[field] for field in missing})
    except ProfileError as error:
        raise NotInRelease(
            f"{image.tag} cannot serve profile {profile.name}", why=error.what, fix="use a profile with more GPUs"
        ) from error
    return Fit(left, (*([] if staged == profile else [stages]), *missing.values()))


def one_stage(profile: Deployment, image: LmiImage) -> Deployment:
    """The same GPUs in one pipeline stage, if that is all that ``image`` takes."""
    if takes(image, "option.pipeline_parallel_degree", str(profile.pp)):
        return profile
    return changed(profile, tp=profile.world_size, pp=1)


def missing_formats(profile: Deployment, image: LmiImage, *, quantized: bool = False) -> dict[str, str]:
    """Fields of ``profile`` that ask for a format without an option in ``image``, each with a sentence on it."""
    family = lmi_facts().family(image)
    known = family.checkpoints if quantized else family.quantization
    missing = {}
    qformat = profile.qformat
    if qformat not in (PLAIN["qformat"], *known):
        missing["qformat"] = f"{image.tag} has no option for {qformat}: the model stays in {profile.dtype}."
        qformat = "full_prec"
    asked = profile.kv_cache_dtype
    cache = family.kv_cache.get(asked)
    if cache and not _goes_with(cache, qformat, profile.gpu_arch):
        missing["kv_cache_dtype"] = f"{', '.join(cache.settings)} is left out: {cache.why} ({cache.source})."
    if not cache and asked != PLAIN["kv_cache_dtype"]:
        missing["kv_cache_dtype"] = f"{image.tag} has no option for a KV cache in {asked}: the image chooses."
    return missing


def _goes_with(cache: KvCache, qformat: str, architecture: str) -> bool:
    return qformat in (cache.qformats or (qformat,)) and architecture in (cache.architectures or (architecture,))
