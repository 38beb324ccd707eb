"""What fits into the GPUs of a profile's machine, in GB (1e9 bytes)."""

from playbook.profile import Profile, gpus

# "more than 210GB" for the 140 GB of a 70B model: TensorRT-LLM@42a7b092 examples/llama/README.md:670-672
CALIBRATION_FACTOR = 1.5
CALIBRATION_SOURCE = "TensorRT-LLM@42a7b092 examples/llama/README.md:670-672"


def gpu_gb(profile: Profile) -> float:
    """Memory of one GPU."""
    return gpus()[profile.gpu].memory_gib * 2**30 / 1e9


def machine_gb(profile: Profile) -> float:
    """Memory of all GPUs together."""
    return gpu_gb(profile) * profile.gpu_count


def weights_gb(profile: Profile) -> float:
    """The model's weights in 16 bits, as quantizing and comparing load them."""
    return profile.shape.weight_bytes("full_prec") / 1e9


def calibration_gb(profile: Profile) -> float:
    """What quantizing needs at its peak."""
    return weights_gb(profile) * CALIBRATION_FACTOR


def calibration_fits(profile: Profile) -> bool:
    return calibration_gb(profile) <= machine_gb(profile)


def too_small(profile: Profile) -> str:
    """The sentence on a machine whose GPUs are too small to quantize on."""
    return (
        f"Quantizing {profile.model} needs about {calibration_gb(profile):.0f} GB ({CALIBRATION_SOURCE}: 1.5 times the "
        f"16-bit weights) and {profile.gpu_count} x {profile.gpu} have {machine_gb(profile):.1f} GB."
    )
