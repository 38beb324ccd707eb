"""The machine that a text is checked for."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playbook.check.document import Setting
    from playbook.profile import Gpu


def gpu_of(setting: "Setting") -> "Gpu | None":
    """The GPU of ``setting``, named in full or by its first part (``h100``); None where none is named or known."""
    if not setting.gpu:
        return None
    from playbook.profile import gpus

    wanted = setting.gpu.lower()
    return next((gpu for name, gpu in gpus().items() if wanted in (name, name.partition("-")[0])), None)


def machine_gb(setting: "Setting") -> float | None:
    """GB (1e9 bytes) of all GPUs together, None where that is not known."""
    gpu = gpu_of(setting)
    return None if gpu is None or setting.gpus is None else gpu.memory_gib * 2**30 / 1e9 * setting.gpus
