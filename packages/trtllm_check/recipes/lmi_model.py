"""What an endpoint loads: engines that were built ahead of time, or the checkpoint from which its image makes them."""

from dataclasses import dataclass
from pathlib import Path

from trtllm_check.deployment import Deployment
from trtllm_check.recipes.lmi_fit import fitted
from trtllm_check.releases import Release, load_release
from trtllm_check.releases.lmi import LmiImage, lmi_facts

JIT_STARTUP_S = 3600
"""SageMaker's longest health check: the image builds at every start before it answers."""
STARTUP_S = 1800


@dataclass(frozen=True)
class EndpointModel:
    """The folder that goes to S3, and what the image does with it.

    ``profile``: what the image can serve of the one that was asked for, ``left_out`` the rest in sentences.
    ``startup_timeout_s``: how long the endpoint may take before its health check fails.
    """

    source: Path
    compiled: bool
    quantized: bool
    profile: Deployment
    left_out: tuple[str, ...]
    why: str
    startup_timeout_s: int


def endpoint_model(profile: Deployment, image: LmiImage, folder: Path) -> EndpointModel:
    """The best of what is in the profile's workspace ``folder`` for ``image``; asks nothing of anybody.

    Engines of that image (stage ``lmi`` builds them into ``lmi-engine``) start fastest. Without them the image gets
    the checkpoint and builds at every start. Without a GPU the local container loads chapter 03's own engine.
    """
    ahead = folder / ("lmi-engine" if profile.gpu_count else "engine")
    if image.engine_release and ahead.is_dir():
        why = "it was built before, so a start only downloads and loads it"
        return EndpointModel(ahead, True, False, profile, (), why, STARTUP_S)
    quantized = loads_own_checkpoint(profile, load_release(profile.release), image)
    source = folder / ("checkpoint" if quantized else "model")
    fit = fitted(profile, image, quantized=quantized)
    timeout = JIT_STARTUP_S if image.engine_release else STARTUP_S
    return EndpointModel(source, False, quantized, fit.profile, fit.left_out, _why(image, quantized), timeout)


def loads_own_checkpoint(profile: Deployment, release: Release, image: LmiImage) -> bool:
    """True if the release's own checkpoint is one that the image loads: the unified one of the PyTorch flow."""
    own = not image.engine_release and not release.builds_engines
    return own and profile.qformat in lmi_facts().family(image).checkpoints


def _why(image: LmiImage, quantized: bool) -> str:
    if image.engine_release:
        return f"there is no lmi-engine folder, so {image.tag} quantizes and builds at every start (just in time)"
    what = "loads the quantized checkpoint" if quantized else "loads the checkpoint and quantizes it"
    return f"AWS publishes no image with engines of this release, so the vLLM one {what} at every start"
