"""What a Dockerfile builds upon: the release in its base, the backends in it, and what it takes from other stages."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.installs import clones
from trtllm_check.lint.rules.release_sources import release_of_tag
from trtllm_check.lint.rules.versions import release_of_the_image
from trtllm_check.lint.shell.words import lines_of, word_at

RULE = "container-of-another-release"
FAMILY = "base_images"
LACKS = "image-without-backend"
TRITON = re.compile(r"(?:^|/)tritonserver:(?P<month>\d\d\.\d\d)-(?P<variant>[\w-]+)$")
STAGE = re.compile(
    r"^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)*(?P<image>\S+)(?:[ \t]+as[ \t]+(?P<name>\S+))?"
    r"|^[ \t]*COPY[ \t]+(?:--\S+[ \t]+)*?--from=(?P<stage>\S+)[ \t]+(?:--\S+[ \t]+)*"
    r"(?P<path>/opt/tritonserver/backends/(?P<backend>[\w-]+))(?=[/\s])",
    re.MULTILINE | re.IGNORECASE,
)
FOLDER = re.compile(r"/opt/tritonserver/backends/(?P<backend>[\w-]+)(?:/|$)")
READS = ("cp", "ls", "cd", "mv")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    if not platform.guessed:
        yield from _of_another_release(document, platform)
    yield from _backends(document, platform.release.name)


def _of_another_release(document: Document, platform: Platform) -> Iterator[Draft]:
    """``FROM tritonserver:24.05-trtllm...`` where the file clones the tag of the next release."""
    release = platform.release
    tags = [one for one in clones(document) if release_of_tag(one.reference, release) == release.name]
    for word in document.images if tags else ():
        file = next((file for file, text in document.texts if word.text in text), "")
        lines = lines_of(dict(document.texts).get(file, ""))
        line = lines[word.line - 1] if 0 < word.line <= len(lines) else ""
        holds = release_of_the_image(word.text)
        if line.lstrip().startswith("FROM") and holds and holds != release.name:
            known: dict[str, Any] = {"image": word.text, "holds": holds, "tag": tags[0].reference, "name": tags[0].name}
            right = release.server_image if "tritonserver" in word.text else release.image
            yield from drafts(release.name, RULE, word, form="FROM", file=file, right=right, **known)


def _lack(image: str, backend: str) -> dict[str, Any] | None:
    """What an image of Triton's has not; None where it has it, or nobody knows."""
    match = TRITON.search(image)
    data = rule_data(FAMILY)
    if match is None or match["variant"] not in data["lacks"]:
        return None
    is_another_name = backend in data["repositories"].split()
    if not is_another_name and backend not in data["lacks"][match["variant"]].split():
        return None
    meant = "tensorrtllm" if re.fullmatch(r"(?:tensorrt|trt).?llm\w*", backend) else backend.removesuffix("_backend")
    holder = data["holds"].get(meant, "py3")
    instead = f"{image.rpartition(':')[0]}:{match['month']}-{holder}"
    return {"image": image, "backend": backend, "meant": meant, "instead": instead}


def _backends(document: Document, release: str) -> Iterator[Draft]:
    """Backends that an image of Triton's has not: taken out of it, looked for in it, and given a configuration."""
    texts = dict(document.texts)
    for file, text in document.texts:
        if "/opt/tritonserver/backends/" in text and "FROM" in text:
            yield from _taken(text, file, release)
    for command in document.commands:
        reads = command.words[1:3] if command.words and command.words[0].text in READS and command.image else ()
        for word in reads:
            match = FOLDER.match(word.text)
            lack = _lack(command.image, match["backend"]) if match else None
            before = "\n".join(lines_of(texts.get(command.file, ""))[: command.line - 1]) if lack else ""
            if match and lack and not _makes(before, match["backend"]):
                yield from drafts(release, LACKS, word, form="folder", file=command.file, path=word.text, **lack)
    for server in document.of("tritonserver"):
        text = texts.get(server.command.file, "")
        for word in server.values("--backend-config"):
            backend = word.text.partition(",")[0]
            lack = _lack(server.image, backend)
            is_said = backend == "tensorrtllm"  # where its models are: server-without-backend
            if lack and not is_said and backend in rule_data(FAMILY)["holds"] and f"backends/{backend}" not in text:
                yield from drafts(release, LACKS, word, form="config", invocation=server, **lack)


def _taken(text: str, file: str, release: str) -> Iterator[Draft]:
    """``COPY --from=builder /opt/tritonserver/backends/NAME`` of a stage whose base has no such backend."""
    bases: dict[str, str] = {}
    number = 0
    for match in STAGE.finditer(text):
        if match["image"]:
            bases[match["name"] or str(number)] = bases[str(number)] = bases.get(match["image"], match["image"])
            number += 1
            continue
        lack = _lack(bases.get(match["stage"], match["stage"]), match["backend"])
        if lack is not None and not _makes(text[: match.start()], match["backend"]):
            place = word_at(text, match.start("path"), match["path"])
            yield from drafts(release, LACKS, place, form="folder", file=file, path=match["path"], **lack)


def _makes(text: str, backend: str) -> bool:
    """True where something puts the backend there, or builds one."""
    target = rf"\s\S*backends/?(?:{backend}/?)?[ \t]*(?:\\?$|&&|;)|\bcmake\b|\bbuild\.py\b"
    return re.search(target, text, re.MULTILINE) is not None
