"""The model repository on its way: templates are copied, then filled, and the engine gets into the folder of a version.

Only commands of one file are held against each other, in their order.
"""

import posixpath
import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import SERVERS, ServerAddress
from trtllm_check.lint.filling import Filling, fillings
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.lookups import once
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.unfilled_models import is_whole
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases.templates import release_templates, template_releases

RULE = "repository-flow"
TEMPLATES = re.compile(r"(?:^|/)all_models/(?P<name>inflight_batcher_llm|gpt|multimodal|whisper)(?P<rest>/[\w*.]+)?/?$")
VERSION = re.compile(
    r"(?P<repository>.+)/(?:tensorrt_llm|tensorrt_llm_bls|preprocessing|postprocessing|ensemble)(?:/1)?"
)
SCRIPT = re.compile(r"[\w./-]+\.(?:ba)?sh")
RECURSIVE = re.compile(r"^-[a-zA-Z]*[rRa][a-zA-Z]*$|^--(?:recursive|archive)$")
READ = ("--model_repo", "--model-repository", "--model-store", "--model-repo")
ENGINE = ("engine_dir", "gpt_model_path")
BUILD = "trtllm-build"
ALL = ("*", ".")
NAMES = re.compile(r"--load-model|/repository/models/|model-repository=s3|MODEL_NAME")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    copies = [one for one in document.of("cp") if len(one.positional) > 1]
    filled = fillings(document, platform.release)
    for copy in copies:
        yield from _flat(copy, release)
        yield from _over(document, copy, filled, copies, release)
        yield from _overlaid(copy, copies, release)
        yield from _early(document, copy, copies, release)
    yield from _filled_source(document, filled, copies, release)
    for one in filled:
        yield from _engine(document, one, copies, release)
    yield from _asked(document, filled, platform)


def _target(copy: Invocation) -> str:
    return posixpath.normpath(copy.positional[-1].text)


def _before(one: Invocation, other: Invocation) -> bool:
    first, second = one.command, other.command
    return first.file == second.file and (one.path.line, one.path.column) < (other.path.line, other.path.column)


def _is_recursive(copy: Invocation) -> bool:
    return any(RECURSIVE.match(word.text) for word in copy.arguments)


def _flat(copy: Invocation, release: str) -> Iterator[Draft]:
    """``cp all_models/inflight_batcher_llm/* repo/``: cp leaves folders out."""
    word = next((one for one in copy.positional[:-1] if TEMPLATES.search(one.text)), None)
    if word is not None and not _is_recursive(copy):
        yield from drafts(release, RULE, copy.path, form="flat", invocation=copy, source_of=word.text)


def _over(
    document: Document, copy: Invocation, filled: list[Filling], copies: list[Invocation], release: str
) -> Iterator[Draft]:
    """Templates that are copied where everything is filled already."""
    sources = [match for word in copy.positional[:-1] if (match := TEMPLATES.search(word.text))]
    target = _target(copy)
    if not sources or is_open(target):
        return
    models = {(match["rest"] or "").strip("/") for match in sources}
    into = target if models & {"", *ALL} else posixpath.join(target, "")
    here = [one for one in filled if one.path and posixpath.normpath(one.path).startswith(f"{into.rstrip('/')}/")]
    whole = bool(models & {"", *ALL})
    here = [one for one in here if whole or one.model in models]
    earlier = [one for one in here if _before(one.invocation, copy)]
    others = [one for one in copies if one is not copy and _target(one) == target and not _before(copy, one)]
    if earlier and len(earlier) == len(here) and not _starts_a_script(document, copy):
        form = "over" if others else "late"
        known: dict[str, Any] = {"target": target, "line": earlier[-1].word.line, "model": earlier[-1].model}
        yield from drafts(release, RULE, copy.path, form=form, invocation=copy, **known)


def _starts_a_script(document: Document, copy: Invocation) -> bool:
    """True where a script runs behind a copy on a page: its lines may be what the page shows before."""
    return any(
        one.file == copy.command.file and one.line > copy.command.line and SCRIPT.fullmatch(word.text)
        for one in document.commands
        for word in one.words[:3]
    )


def _overlaid(copy: Invocation, copies: list[Invocation], release: str) -> Iterator[Draft]:
    """All templates over those of the multimodal models, whose ensemble has the same name."""
    if _whole_of(copy, "inflight_batcher_llm") is None:
        return
    for one in copies:
        word = _whole_of(one, "multimodal")
        if word is not None and _target(one) == _target(copy) and _before(one, copy):
            known: dict[str, Any] = {"target": _target(copy), "line": one.path.line}
            yield from drafts(release, RULE, copy.path, form="overlaid", invocation=copy, **known)
            return


def _whole_of(copy: Invocation, name: str) -> Word | None:
    """The word that stands for everything in a folder of templates, or for its ensemble."""
    for word in copy.positional[:-1]:
        match = TEMPLATES.search(word.text)
        if match is not None and match["name"] == name:
            rest = (match["rest"] or "").strip("/")
            if rest in ALL or (name == "multimodal" and rest == "ensemble") or (not rest and word.text.endswith("/.")):
                return word
    return None


def _early(document: Document, copy: Invocation, copies: list[Invocation], release: str) -> Iterator[Draft]:
    """An engine that goes into ``repo/tensorrt_llm/1``, where the templates come only after it."""
    target = _target(copy)
    match = VERSION.fullmatch(target)
    if match is None or is_open(target) or any(TEMPLATES.search(word.text) for word in copy.positional[:-1]):
        return
    repository, made = match["repository"], {posixpath.normpath(folder) for folder in _folders_made(document, copy)}
    if repository not in made or any(folder == target or _below(folder, repository) for folder in made):
        return
    into = [
        one for one in copies if one is not copy and (_target(one) == repository or _below(_target(one), repository))
    ]
    later = [one for one in into if any(TEMPLATES.search(word.text) for word in one.positional[:-1])]
    if later and all(_before(copy, one) for one in into):
        known: dict[str, Any] = {"target": copy.positional[-1].text, "line": later[0].path.line}
        yield from drafts(release, RULE, copy.path, form="early", invocation=copy, **known)


def _folders_made(document: Document, before: Invocation) -> Iterator[str]:
    """What mkdir makes above a command of its file."""
    for command in document.commands:
        is_above = command.file == before.command.file and command.line < before.command.line
        if is_above and command.words[:1] and command.words[0].text == "mkdir":
            yield from (word.text for word in command.words[1:] if not word.text.startswith("-"))


def _filled_source(
    document: Document, filled: list[Filling], copies: list[Invocation], release: str
) -> Iterator[Draft]:
    """The server reads a copy that was made before its source was filled."""
    read = {posixpath.normpath(word.text) for one in document.of(*SERVERS) for word in one.values(*READ)}
    for copy in copies:
        target = _target(copy)
        source = next((word.text for word in copy.positional[:-1] if TEMPLATES.search(word.text)), "")
        folder = posixpath.normpath(source.rstrip("*")) if source else ""
        if not source or target not in read or is_open(target):
            continue
        places = [posixpath.dirname(posixpath.dirname(posixpath.normpath(one.path))) for one in filled]
        later = [one for one, place in zip(filled, places, strict=True) if place == folder]
        if later and len(later) == len(filled) and all(_before(copy, one.invocation) for one in later):
            known: dict[str, Any] = {"target": target, "folder": folder, "line": copy.path.line}
            yield from drafts(release, RULE, later[0].word, form="source", invocation=later[0].invocation, **known)
            return


@once
def _built(document: Document) -> Iterator[str]:
    """The folders of engines that the text builds."""
    for build in document.of(BUILD):
        if value := build.value("--output_dir"):
            yield posixpath.normpath(value)


def _engine(document: Document, one: Filling, copies: list[Invocation], release: str) -> Iterator[Draft]:
    """``engine_dir`` one folder above or below the place where the text copies the engine."""
    given = next((one.values[name] for name in ENGINE if name in one.values), "")
    folder = posixpath.normpath(given) if given else ""
    if not folder or is_open(folder) or one.model != "tensorrt_llm":
        return
    built = set(_built(document))
    if folder in built or any(is_open(path) for path in built):
        return
    places = {place for copy in copies for place in _brought(copy, built)}
    if len(places) != 1 or is_open(place := places.pop()) or place == folder:
        return
    inside = _below(folder, place) or _below(place, folder)
    if inside:
        known: dict[str, Any] = {"folder": folder, "there": place}
        yield from drafts(release, RULE, one.word, form="engine", invocation=one.invocation, **known)


def _below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")


def _brought(copy: Invocation, built: set[str]) -> Iterator[str]:
    """Where a copy of the engine comes to lie."""
    target = copy.positional[-1].text
    is_folder = target.endswith("/") or posixpath.basename(target).isdecimal()
    for word in copy.positional[:-1]:
        source, name = posixpath.split(word.text)
        if name in ALL and posixpath.normpath(source) in built:
            yield posixpath.normpath(target)
        elif posixpath.normpath(word.text) in built and is_folder:
            yield posixpath.normpath(posixpath.join(target, posixpath.basename(word.text.rstrip("/"))))


def _asked(document: Document, filled: list[Filling], platform: Platform) -> Iterator[Draft]:
    """A request to a model that the repository of all templates does not have."""
    release = platform.release.name
    if not filled or release not in template_releases() or any(NAMES.search(text) for _, text in document.texts):
        return
    repositories = {posixpath.dirname(posixpath.dirname(one.path)) for one in filled}
    if len(repositories) != 1 or not document.of(*SERVERS) or not is_whole(document, repositories.pop()):
        return
    models = {*release_templates(release).models, *(one.model for one in filled)}
    for request in document.requests:
        asked = ServerAddress.of(request.url).model
        if not asked or is_open(asked) or asked in models or _is_named(document, asked):
            continue
        place: Word = request.address or request.place
        known: dict[str, Any] = {"model": asked, "models": ", ".join(sorted(models))}
        yield from drafts(release, RULE, place, form="asked", file=request.file, **known)


def _is_named(document: Document, model: str) -> bool:
    """True where a command or a configuration of the text names a model so."""
    if any(config.model == model for config in document.configs):
        return True
    words = (word.text for command in document.commands if command.words[:1] for word in command.words[1:])
    return any(model in re.split(r"[/:=,]", word) for word in words if "://" not in word and "/v2/" not in word)
