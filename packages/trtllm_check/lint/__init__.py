"""The checker: what a TensorRT-LLM release would do with anyone's commands, configurations and requests.

A family of rules is a module of :mod:`trtllm_check.lint.rules` with a function ``check``.
"""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from serving_base.errors import NotUnderstood, UsageError
from trtllm_check.lint.families import BOUND_TO_THE_RELEASE, FAMILIES, OF_ANY_RELEASE

if TYPE_CHECKING:
    from trtllm_check.lint.document import Document
    from trtllm_check.lint.finding import Finding, Platform
    from trtllm_check.lint.fixing import Family


class ReleaseAsked(NamedTuple):
    """The release that a text is checked for, and how that is known: "" where it was asked for.

    ``instead``: the release of vLLM, for a text that is of vLLM alone.
    ``earlier``: the text is for one before it, ``written``, of which there are few facts.
    ``near``: it is not the text's own, which has no facts, but the nearest one.
    """

    release: str
    how: str = ""
    guessed: bool = False
    instead: str = ""
    earlier: bool = False
    near: bool = False
    written: str = ""

    def __str__(self) -> str:
        return f"{self.release}, {self.how}" if self.how else self.release


def check_commands(
    source: "str | Path | Document",
    release: "str | ReleaseAsked",
    gpu: str = "",
    gpus: int | None = None,
) -> "list[Finding]":
    """The findings in a text, a file or a folder, by file and place.

    ``release``: TensorRT-LLM's; the containers follow from it. ``gpu``: h100, h200, l4, l40s, a100 or another name
    of facts/gpus.yml; where none is given, those of the one machine that the text tells. What nobody tells is unknown,
    and the rules that need it are silent.
    """
    from trtllm_check.lint.fixing import findings
    from trtllm_check.lint.gpu_labels import gpu_told
    from trtllm_check.lint.guesses import without_guesses
    from trtllm_check.lint.reading import read_document

    platform = platform_of(release if isinstance(release, ReleaseAsked) else ReleaseAsked(release), gpu, gpus)
    document = read_document(source) if isinstance(source, str | Path) else source
    if not gpu and (machine := gpu_told(document)) is not None:
        platform = platform._replace(gpu=machine.gpu, gpus=gpus or machine.gpus)
    found = findings(document, platform, families(earlier=platform.earlier), without_guesses)
    return _softened(found) if isinstance(release, ReleaseAsked) and release.near else found


def _softened(found: "list[Finding]") -> "list[Finding]":
    """Findings by the facts of a neighbour: what differs between releases is no more than a warning."""
    from trtllm_check.rules import rule

    def soft(one: "Finding") -> "Finding":
        by = rule(one.rule).checked_by
        bound = not by or BOUND_TO_THE_RELEASE & set(by)
        return one._replace(severity="warning") if bound and one.severity == "error" else one

    return [soft(one) for one in found if one.rule != "container-of-another-release"]


def platform_of(asked: ReleaseAsked, gpu: str = "", gpus: int | None = None) -> "Platform":
    """What the rules check for. :class:`UsageError` for a release or a GPU without facts."""
    from serving_base.facts.gpus import gpus as known_gpus
    from trtllm_check.lint.finding import Platform, gpu_of
    from trtllm_check.releases import load_release

    told = bool(asked.how) and not asked.guessed
    platform = Platform(load_release(asked.release), gpu, gpus, asked.guessed, told, asked.earlier, asked.written)
    if gpu and gpu_of(platform) is None:
        raise UsageError(f"no facts on a GPU {gpu!r}", fix=f"use one of: {', '.join(known_gpus())}")
    return platform


def target(document: "Document", release: str = "") -> ReleaseAsked:
    """``release`` if one is given, or the one that it is a build of; else what ``document`` tells, else the newest."""
    from trtllm_check.lint.evidence import build_of, is_earlier, nearest, told
    from trtllm_check.lint.vllm_release import vllm_alone
    from trtllm_check.releases import known_releases

    if is_earlier(release):
        return _earlier(release, release)
    if release:
        known = build_of(release)
        return ReleaseAsked(known, f"whose facts hold for {release}") if known else ReleaseAsked(release)
    found = told(document)
    if found is None:
        how = "the newest: the text tells none, and --release does"
        return ReleaseAsked(known_releases()[-1], how, guessed=True, instead=vllm_alone(document))
    if not found.release and is_earlier(found.written):
        return _earlier(str(found), found.written)
    if not found.release:
        facts = known_releases()
        how = f"the nearest with facts: there are none on what {found} names, only on {facts[0]} to {facts[-1]}"
        return ReleaseAsked(nearest(found.written), how, guessed=True, near=True)
    mapped = (
        f", whose facts hold for {found.written}" if found.written.removeprefix("v") not in ("", found.release) else ""
    )
    return ReleaseAsked(found.release, f"told by {found}{mapped}", guessed=found.kind in ("flag", "folder"))


def _earlier(asked: str, written: str) -> ReleaseAsked:
    from trtllm_check.releases import known_releases

    how = f"the first with facts: the text is for an earlier one ({asked}), and only what holds for all is checked"
    return ReleaseAsked(known_releases()[0], how, guessed=True, earlier=True, written=written.removeprefix("v"))


def remarks_on(document: "Document", source: str) -> list[str]:
    """What to tell of the reading of ``document``, which is ``source``: how it was read, and what was not.

    :class:`NotUnderstood` if there is nothing in it to check, :class:`UsageError` if the system opens none of it.
    """
    lines = ", ".join(f"{one.file}:{one}" if one.file else str(one) for one in document.unread)
    problems = [f"the system does not open {', '.join(document.unreadable)}"] if document.unreadable else []
    if document.left_out:
        from trtllm_check.lint.reading import MOST_FILES

        problems.append(f"not read: {document.left_out} files beyond the first {MOST_FILES:,}; check its parts apart")
    problems += [f"not read: lines {lines}"] if lines else []
    if not document.is_understood:
        raise (UsageError if document.unreadable else NotUnderstood)(
            f"nothing in {source} is a command, configuration or request that the checker knows",
            why="; ".join(problems) or "there is nothing in it",
            fix="give a script, a page with commands, a Dockerfile, YAML, Python, a notebook, config.pbtxt, "
            "serving.properties, .env or a JSON request",
        )
    if not document.has_anything:
        problems.append("read as a file of a server or a model; no rule has anything to say of what stands in it")
    windows = [f"read as {document.windows}; fixes are written for a POSIX shell"] if document.windows else []
    return [*windows, *problems]


@cache
def families(*, earlier: bool = False) -> "tuple[Family, ...]":
    """The families of rules; with ``earlier`` those that need no facts on a release."""
    names = [name for name in FAMILIES if not earlier or name in OF_ANY_RELEASE]
    return tuple(import_module(f"{__name__}.rules.{name}").check for name in names)
