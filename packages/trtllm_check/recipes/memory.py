"""What fits into the GPUs of a profile's machine, in GB (1e9 bytes)."""

from serving_base.errors import UsageError
from serving_base.facts import fit
from serving_base.facts.fit import CALIBRATION_SOURCE, Fit
from serving_base.facts.gpus import Gpu
from trtllm_check.deployment import Deployment


def reference_fit(profile: Deployment) -> Fit:
    """The model's weights in 16 bits against one GPU."""
    return fit.fits(profile.shape, _gpu(profile), "full_prec")


def weights_gb(profile: Deployment) -> float:
    """The model's weights in 16 bits, as quantizing and comparing load them."""
    return profile.shape.weight_bytes("full_prec") / 1e9


def calibration_fits(profile: Deployment) -> Fit:
    """What quantizing needs at its peak against all GPUs together."""
    return fit.calibration_fits(profile.shape, _gpu(profile), profile.gpu_count)


def too_small(profile: Deployment) -> str:
    """The sentence on a machine whose GPUs are too small to quantize on."""
    room = calibration_fits(profile)
    return (
        f"Quantizing {profile.model} needs about {room.needed_gb:.0f} GB ({CALIBRATION_SOURCE}: 1.5 times the "
        f"16-bit weights) and {profile.gpu_count} x {profile.gpu} have {room.there_gb:.1f} GB."
    )


def _gpu(profile: Deployment) -> Gpu:
    """One of the GPUs of the profile; :class:`UsageError` if it names none."""
    if profile.hardware is None:
        raise UsageError(f"profile {profile.name} has no GPU", fix="name its gpu and gpu_count")
    return profile.hardware
