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
    r"^\s*(?:backend|platform)\s*:\s*\"(?:tensorrtllm|tensorrt_llm\w*)\"|triton_backend:tensorrtllm\b"
    r"|--backend-config[=\s]+[\"']?tensorrtllm,",
    re.MULTILINE,
)
FIRST = "23.10"  # of the containers with TensorRT-LLM
BRINGS = re.compile(r"backends/tensorrtllm(?!_)|tritonserver:\S*-trtllm|trt_llm_backend|build\.py\b[^\n]*tensorrtllm")


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
    yield from _of_dockerfiles(document, platform.release.name)


def _of_dockerfiles(document: Document, release: str) -> Iterator[Draft]:
    """``CMD ["tritonserver", "--backend-config=tensorrtllm,..."]`` below FROM of a plain image."""
    for one in document.of("tritonserver"):
        match = PLAIN.fullmatch(one.command.image)
        if match is None or match["month"] < FIRST:
            continue
        above = [word for word in document.images if word.text == match[0] and word.line < one.command.line]
        known: dict[str, Any] = {"image": match[0], "right": f"{match['name']}-trtllm-python-py3"}
        place = above[-1] if above else one.path
        yield from drafts(release, "server-without-backend", place, file=one.command.file, **known)
