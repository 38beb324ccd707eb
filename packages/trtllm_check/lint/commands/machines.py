"""The machine that a text is checked for."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serving_base.facts.gpus import Gpu
    from trtllm_check.lint.documents.document import Setting


def gpu_of(setting: "Setting") -> "Gpu | None":
    """The GPU of ``setting``, by any of its names (``h100``); None where none is named or known."""
    if not setting.gpu:
        return None
    from serving_base.facts.gpus import find_gpu

    return find_gpu(setting.gpu)
