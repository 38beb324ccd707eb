"""TensorRT-LLM releases as facts, the commands that follow from them, the rules, and a checker of anyone's commands.

Usable without the course: ``trtllm_check.check_commands(text, release)``, ``trtllm_check.recipes.commands(...)``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trtllm_check.lint import check_commands as check_commands

__all__ = ["check_commands"]


def __getattr__(name: str) -> Any:
    if name == "check_commands":
        from trtllm_check import lint

        return lint.check_commands
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
