"""Jobs of GitHub's workflows that want a GPU on a machine of GitHub's own, which has none."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import word_at

WORKFLOW = re.compile(r"^jobs:[ \t]*$", re.MULTILINE)
JOB = re.compile(r"^(?P<indent>[ ]{2,8})[\w-]+:[ \t]*$", re.MULTILINE)
# docs.github.com/actions/reference/runners/github-hosted-runners: standard ones; larger ones have names of their own.
RUNNER = re.compile(
    r"^[ ]+runs-on:[ \t]*[\"']?"
    r"(?P<runner>(?:ubuntu|windows|macos)-(?:latest|\d[\d.]*|slim)(?:-arm|-intel)?)[\"']?[ \t]*$",
    re.MULTILINE,
)
WANTS = re.compile(
    r"^[ ]+(?:-[ ]+)?(?:run:[ ]*)?(?:nohup[ ]+)?"
    r"(?P<what>options:[^\n#]*--gpus\b|nvidia-smi\b"
    r"|docker run [^\n#]*--gpus\b|(?P<server>vllm serve|python3? -m vllm\.entrypoints)\b)",
    re.MULTILINE,
)
BLOCK = re.compile(r"[ ]*(?:-[ ]+)?(?P<key>[\w-]+):[ ]*[|>][-+\d]*[ ]*(?:#.*)?")
WITHOUT_GPU = re.compile(r"cpu|TARGET_DEVICE|inference-sim|mock|fake|macos|xpu", re.IGNORECASE)  # other builds of vLLM


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for file, text in document.texts:
        start = WORKFLOW.search(text)
        if start is None:
            continue
        for first, last in _jobs(text, start.end()):
            runner = RUNNER.search(text, first, last)
            wants = next((one for one in WANTS.finditer(text, first, last) if _is_run(text, one.start())), None)
            if runner is None or wants is None or (wants["server"] and WITHOUT_GPU.search(text)):
                continue
            place = word_at(text, wants.start("what"), wants["what"])
            known: dict[str, Any] = {
                "runner": runner["runner"],
                "what": wants["what"].split(" ")[0].replace("options:", "docker"),
            }
            yield from drafts(platform.release.name, "runner-without-gpu", place, file=file, **known)


def _is_run(text: str, start: int) -> bool:
    """False in a text that a step is given as an input: what a model is asked, what a comment says."""
    line = text[start : (text + "\n").index("\n", start)]
    margin = len(line) - len(line.lstrip())
    for before in reversed(text[:start].split("\n")[:-1]):
        inner = len(before) - len(before.lstrip())
        if before.strip() and inner < margin:
            margin = inner
            if (block := BLOCK.fullmatch(before)) is not None:
                return block["key"] == "run"
    return True


def _jobs(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Where each job begins and ends: keys as far in as the first one."""
    found = list(JOB.finditer(text, start))
    own = [match.start() for match in found if found and match["indent"] == found[0]["indent"]]
    yield from zip(own, [*own[1:], len(text)], strict=False)
