"""Texts that a command gets in a here-document: files that ``cat`` writes, manifests and Dockerfiles for a program."""

from collections.abc import Iterator
from typing import NamedTuple

from trtllm_check.lint.kinds import Kind, kind_of_name, kind_of_text
from trtllm_check.lint.shell.words import ShellCommand, Word

READERS = ("kubectl", "oc", "docker", "docker-compose", "podman")  # of manifests and Dockerfiles on standard input
WRITERS = ("cat", "tee", "sudo")


class HandedText(NamedTuple):
    """``name``: of the file that is written, empty for what a program reads."""

    text: Word
    kind: Kind
    name: str = ""


def handed_texts(command: ShellCommand) -> Iterator[HandedText]:
    """``cat > serving.properties <<EOF``, ``kubectl apply -f - <<EOF`` and ``cat <<EOF | kubectl apply -f -``."""
    bodies = [redirect.target for redirect in command.redirects if redirect.operator == "<<"]
    if not bodies or not command.words:
        return
    first = next((word.text for word in command.words if word.text != "sudo"), "")
    is_piped = first == "cat" and len(command.words) == 1 and all(one.operator == "<<" for one in command.redirects)
    if first in READERS or is_piped:
        kind = kind_of_text(bodies[0].text)
        if kind in ("yaml", "dockerfile"):
            yield HandedText(bodies[0], kind)
    if command.words[0].text not in WRITERS:
        return
    names = [redirect.target.text for redirect in command.redirects if redirect.operator in (">", ">>", ">|")]
    for name in [*names, *(word.text for word in command.words[1:])]:
        named = kind_of_name(name)
        if named is not None and named not in ("shell", "config.json"):
            yield HandedText(bodies[0], named, name)
