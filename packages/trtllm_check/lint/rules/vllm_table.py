"""What vLLM's releases have of a name that a text writes: whether the text's release has it, and what to write."""

from collections.abc import Iterator
from typing import NamedTuple

from trtllm_check.lint.carriers.yaml_arguments import LISTED
from trtllm_check.lint.document import Document
from trtllm_check.lint.held_arguments import is_held
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.shell.pasted import is_of_another_section
from trtllm_check.lint.vllm_release import (
    SAID,
    VllmTold,
    image_release,
    is_from_source,
    supposed_release,
    vllm_told,
)
from trtllm_check.releases.vllm import Changes, VllmRelease, in_words, options_of, vllm_facts

COMMANDS = {"serve": "serve", "run-batch": "run-batch", "openai": "", "chat": "", "complete": ""}
REMEMBERED = "0.6.0"  # a text that tells no release is for none before this one
ENOUGH = 2  # options of later releases
BENCHES = ("serve", "throughput", "latency", "startup")


class Absence(NamedTuple):
    """Why a release lacks a name. ``has``: the releases that have it; ``edge``: the first without it, or with it."""

    gone: bool
    has: str
    edge: str


def release_for(document: Document, one: Invocation | None) -> VllmRelease | None:
    """The release of the image that a command runs in, the one that the text tells, or the one that is supposed."""
    found = _release_of(document, one)
    return found if found is not None or (other := supposed_release()) is None else other.release


def _release_of(document: Document, one: Invocation | None) -> VllmRelease | None:
    """An image in which another command runs says nothing of one that runs in none."""
    own = _image_of(one) if one is not None and not is_from_source(document) else None
    told = vllm_told(document) if own is None else None
    if told is not None and told.is_image and one is not None and _is_elsewhere(document, told, one):
        return own
    if told is None or (one is not None and told.is_image and any(map(_image_of, document.of("vllm")))):
        return own
    if one is not None and told.is_image and any(word.text == LISTED for word in one.arguments):
        return own
    is_weak = told.weight <= SAID or (told.is_image and own is None)  # words, or an image that something else runs in
    return own if is_weak and _is_of_later(document, told.release) else told.release


def _is_elsewhere(document: Document, told: VllmTold, one: Invocation) -> bool:
    """True where the image stands in another section of a page than a command that runs in none.

    Arguments in a variable are no such command: it is the image that gets them.
    """
    same_file = told.file == one.command.file and not is_held(one.arguments)
    return same_file and is_of_another_section(dict(document.texts).get(told.file, ""), told.line, one.path.line)


def _is_of_later(document: Document, release: VllmRelease) -> bool:
    """True where the text's own options tell a later release than the one that its prose names."""
    known = options_of("serve")
    options = [known[name] for name in document.lookups.vllm_options if name in known]
    later = [one for one in options if one.since > release.place]
    return len(later) >= ENOUGH or any(release.place < one for one in later_benches(document))


def later_benches(document: Document) -> Iterator[int]:
    """Since when there are the commands of ``vllm bench`` that the text uses."""
    for one in document.of("vllm"):
        command = command_of(one)
        if command.startswith("bench ") and (table := options_of(command)):
            yield min(changes.since for changes in table.values() if changes.steps)


def _image_of(one: Invocation) -> VllmRelease | None:
    return image_release(one.image) or image_release(one.path.text)


def command_of(one: Invocation) -> str:
    """``serve`` (the module and the image that start the server too), ``bench serve``, ``run-batch``; "" for others."""
    words = [word.text for word in one.positional[:2]]
    if not words or (words[0] not in ("serve", "bench", *COMMANDS) and one.path.text != "vllm"):
        return "serve"
    if words[0] == "bench":
        return f"bench {words[1]}" if words[1:] and words[1] in BENCHES else ""
    return COMMANDS.get(words[0], "")


def absence(changes: Changes, release: VllmRelease | None) -> Absence | None:
    """Why ``release``, the newest where none is told, lacks the name; None where it has it."""
    facts = vllm_facts()
    place = (release or facts.newest).place
    if changes.at(place):
        return None
    later = [start for start, kind in changes.steps if start > place and kind != "gone"]
    earlier = [start for start, _ in changes.steps if start <= place]
    return Absence(bool(earlier), in_words(changes), facts.name(earlier[-1] if earlier else later[0]))


def kinds_of(changes: Changes, release: VllmRelease | None) -> frozenset[str]:
    """What an option may be, without the values of a choice: in the release, or in any of late where none is told."""
    if release is not None and changes.at(release.place):
        found = {changes.at(release.place)}
    else:
        first = vllm_facts().releases.index(REMEMBERED)
        found = {changes.at(first), *(kind for start, kind in changes.steps if start > first)} - {"", "gone"}
        found = found or set(changes.kinds)
    return frozenset(kind.partition(" ")[0] for kind in found)


def instead_of(section: str, name: str) -> str:
    """What to do in place of a name that is gone."""
    known = vllm_facts().instead[section].get(name, "")
    if not known:
        return "leave it out"
    plain = known.startswith(("leave ", "call ", "give ", "write "))
    return known if plain else f"write {known}"
