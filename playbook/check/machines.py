"""The machine that a text is checked for."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playbook.check.document import Setting
    from playbook.facts.gpus import Gpu


def gpu_of(setting: "Setting") -> "Gpu | None":
    """The GPU of ``setting``, by any of its names (``h100``); None where none is named or known."""
    if not setting.gpu:
        return None
    from playbook.facts.gpus import find_gpu

    return find_gpu(setting.gpu)
