"""A container of Triton without TensorRT-LLM, for a repository whose engine wants it."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Edit, Platform, Swap, drafts
from trtllm_check.lint.rules.box import boxes

PLAIN = re.compile(
    r"(?P<name>(?:nvcr\.io/)?nvidia/tritonserver:(?P<month>\d\d\.\d\d))"
    r"-(?:(?:pyt|tf2|vllm)-python-)?py3(?:-min|-sdk|-igpu)?"
)
OF_ENGINES = re.compile(
    r"^\s*(?:backend|platform)\s*:\s*\"(?:tensorrtllm|tensorrt_llm\w*)\"|triton_backend:tensorrtllm\b", re.MULTILINE
)
FIRST = "23.10"  # of the containers with TensorRT-LLM
BRINGS = re.compile(r"backends/tensorrtllm|tritonserver:\S*-trtllm|trt_llm_backend|build\.py\b[^\n]*tensorrtllm")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """Each such container that starts the server."""
    texts = [text for _, text in document.texts]
    if not any(OF_ENGINES.search(text) for text in texts) or any(BRINGS.search(text) for text in texts):
        return
    for box in boxes(document):
        match = PLAIN.fullmatch(box.image)
        if match is not None and match["month"] >= FIRST and "tritonserver" in box.text:
            right = f"{match['name']}-trtllm-python-py3"
            known: dict[str, Any] = {"image": box.image, "right": right}
            edits: tuple[Edit, ...] = (Swap(box.place, right),) if box.docker else ()
            yield from drafts(
                platform.release.name,
                "server-without-backend",
                box.place,
                edits=edits,
                invocation=box.docker,
                file=box.file,
                **known,
            )
