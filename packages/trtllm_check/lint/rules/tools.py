"""Is the tool in this release, and where the command looks for it?"""

import posixpath
from collections.abc import Iterator

from trtllm_check.lint.commands.invocations import Invocation
from trtllm_check.lint.report.drafts import Draft, Swap
from trtllm_check.lint.rules.spelling import absent_tools, is_open
from trtllm_check.releases import Release, Tool, known_releases
from trtllm_check.releases.history import ranges, tool_history

CONTAINER = "/app/"
CLONE_IN_IMAGE = "/app/tensorrt_llm/"  # of nvcr.io/nvidia/tensorrt-llm/release: TensorRT-LLM docker/Dockerfile.multi


def tool_drafts(invocation: Invocation, release: Release) -> Iterator[Draft]:
    """tool-not-in-release, moved-script."""
    tool = release.tools.get(invocation.tool)
    if tool is None:
        yield from _absent(invocation, release)
    elif tool.repo_path:
        yield from _moved(invocation, release, tool)


def _absent(invocation: Invocation, release: Release) -> Iterator[Draft]:
    for absent in absent_tools():
        if absent.tool == invocation.tool and _is_before(release.name, absent.until):
            yield Draft(
                "tool-not-in-release",
                "error",
                invocation.path,
                f"The shell stops: {absent.tool}: command not found",
                f"TensorRT-LLM {release.name} has no {absent.tool}; the last release without it is {absent.until}.",
                absent.source,
                action=absent.instead,
                invocation=invocation,
            )


def _is_before(release: str, until: str) -> bool:
    order = known_releases()
    return order.index(release) <= order.index(until)


def _moved(invocation: Invocation, release: Release, tool: Tool) -> Iterator[Draft]:
    written = invocation.path.text
    path = posixpath.normpath(written)
    while path.startswith("../"):
        path = path[3:]
    if path == tool.container_path or is_open(path):
        return
    path = path.removeprefix(CLONE_IN_IMAGE)
    if not path.startswith(CONTAINER) and (_ends(path, tool.repo_path) or _ends(tool.repo_path, path)):
        return
    others = [(name, other) for name, other in tool_history(invocation.tool) if other]
    for _, other in reversed(others):
        old = other.container_path
        if not (old and path == old) and not _ends(path, old := other.repo_path):
            continue
        where = [name for name, one in others if old in (one.container_path, one.repo_path)]
        yield Draft(
            "moved-script",
            "error",
            invocation.path,
            f"Python stops: can't open file '{written}': No such file or directory",
            f"{old} is its path in {ranges(where)}; in {release.name} it is {tool.container_path or tool.repo_path}.",
            tool.source,
            edits=(Swap(invocation.path, _new_path(written, old, release, tool)),),
            invocation=invocation,
        )
        return


def _new_path(written: str, old: str, release: Release, tool: Tool) -> str:
    if written.startswith(CONTAINER) and not written.startswith(CLONE_IN_IMAGE):
        return tool.container_path or f"{release.checkouts[tool.repo].folder}/{tool.repo_path}"
    before = written.removesuffix(old)
    return f"{before}{tool.repo_path}" if before != written else tool.repo_path


def _ends(path: str, end: str) -> bool:
    """True if ``end``, with a folder in it, is the end of ``path``."""
    return "/" in end and (path == end or path.endswith(f"/{end}"))
