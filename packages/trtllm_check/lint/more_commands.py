"""Commands that a text comes to besides those that it writes: in variables, behind branches, within other programs."""

from collections.abc import Sequence

from trtllm_check.lint.chosen_arguments import chosen_commands
from trtllm_check.lint.engine_workers import bench_commands, engine_commands
from trtllm_check.lint.held_arguments import held_arguments
from trtllm_check.lint.held_commands import held_commands
from trtllm_check.lint.helm_arguments import helm_commands
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.shell import ShellCommand


def more_commands(
    commands: Sequence[ShellCommand],
    found: Sequence[Invocation],
    sources: Sequence[tuple[str, str]],
) -> list[ShellCommand]:
    """All of them; ``found``: what is read of ``commands``."""
    return [
        *held_commands(commands, found),
        *held_arguments(sources),
        *engine_commands(commands),
        *helm_commands(commands),
        *bench_commands(commands),
        *chosen_commands(commands, found, sources),
    ]
