"""What does not run on Windows itself: several GPUs of TensorRT-LLM, and vLLM."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.held_arguments import is_held
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.shell.pasted import fences

RANKS = ("--tp_size", "--pp_size", "--world_size", "--inference_tensor_parallel", "--inference_pipeline_parallel")
MAKERS = ("convert_checkpoint.py", "quantize.py", "trtllm-build", "build.py")
LINUX = ("docker", "wsl", "ssh", "podman", "kubectl")
SERVERS = ("vllm",)
OF_WINDOWS = ("", "powershell", "pwsh", "ps", "ps1", "cmd", "bat", "batch", "batchfile", "dos")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    if not document.windows:
        return
    release = platform.release.name
    for one in document.invocations:
        if _in_linux(one) or _in_a_shell(document, one) or is_held(one.arguments):
            continue
        if one.tool in MAKERS:
            yield from _ranks(one, release)
        elif one.tool in SERVERS and one.arguments:
            yield from drafts(release, "not-on-windows", one.path, form="vLLM", invocation=one)


def _in_linux(one: Invocation) -> bool:
    return bool(one.image) or any(PurePosixPath(word.text).name in LINUX for word in one.launcher)


def _in_a_shell(document: Document, one: Invocation) -> bool:
    """True in a fence of another language than Windows': a POSIX shell's, a container's, what a program printed."""
    text = dict(document.texts).get(one.command.file, "")
    for block in fences(text):
        first = text.count("\n", 0, block.start) + 1
        if first <= one.path.line < first + text.count("\n", block.start, block.end) + 1:
            return block.language.lower() not in OF_WINDOWS
    return False


def _ranks(one: Invocation, release: str) -> Iterator[Draft]:
    for flag in RANKS:
        given = one.find(flag)
        value = one.value(flag) or ""
        if given is not None and value.isascii() and value.isdecimal() and int(value) > 1:
            yield from drafts(release, "not-on-windows", given.word, invocation=one, flag=flag, value=value)
            return
