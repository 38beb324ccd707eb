"""A finding that rests on a guess is a hint: one rule for everything that differs by release.

Where a text does not tell the release of what it uses (of TensorRT-LLM, of vLLM, of a package of Python), the families
judge by one that they take for it, mostly the newest. Here each finding above a hint is asked again with every release
that fits the text: what does not stand in all of them is a hint. A text that asks for the newest (an image
``:latest``, a ``pip install vllm`` without a version) tells one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from trtllm_check.lint.document import Document
from trtllm_check.lint.evidence import fitting, told
from trtllm_check.lint.finding import Draft, Platform
from trtllm_check.lint.fixing import Family, Said
from trtllm_check.lint.installs import requirements
from trtllm_check.lint.rules.cloned_files import is_of_main
from trtllm_check.lint.rules.python_names import is_long_gone
from trtllm_check.lint.rules.served import served
from trtllm_check.lint.rules.settings import settings
from trtllm_check.lint.rules.vllm import argument_changes
from trtllm_check.lint.rules.vllm_table import REMEMBERED, later_benches
from trtllm_check.lint.supposing import suppose
from trtllm_check.lint.vllm_release import is_named_by_images, vllm_named
from trtllm_check.releases import load_release
from trtllm_check.releases.models import named_model, vllm_since
from trtllm_check.releases.python_names import python_package
from trtllm_check.releases.vllm import Changes, options_of, vllm_facts

OURS, VLLM = "tensorrt_llm", "vllm"
OF_OURS = re.compile(
    r"trt-?llm|tensorrt[-_ ]?llm|convert_checkpoint|fill_template|config\.pbtxt|\"text_input\"", re.IGNORECASE
)
NEWEST_VLLM = re.compile(r"vllm/vllm-openai(?::latest|:nightly)?(?=[\s\"'`,})\]]|$)", re.MULTILINE)
BOUND = re.compile(r"==|<|~=")
OF_PYTHON = ("python-name", "python-keyword", "python-argument")
MOST = 7  # releases that are asked, first and last among them


def without_guesses(
    said: Sequence[Said], askers: Mapping[str, Set[Family]], document: Document, platform: Platform
) -> list[Draft]:
    """The drafts, those as hints that do not stand in every release that the text leaves open.

    ``askers``: package -> the families that found its release nowhere.
    """
    open_ = {number for number, one in enumerate(said) if one.draft.severity != "info" and not _is_certain(one.draft)}
    fallen: set[int] = set()
    for package in sorted(askers.keys() - {OURS}):
        about = {number for number in open_ if said[number].family in askers[package]}
        if about:
            releases = _releases(document, package)
            fallen |= _fallen(said, about, document, platform, package, releases, askers[package])
            names = {number for number in about - fallen if said[number].draft.rule in OF_PYTHON}
            if names and len(releases) > 1:  # names come and go within few releases: each of them is asked
                families = {said[number].family for number in names}
                rest = [one for one in _all(package) if one not in releases]
                fallen |= _fallen(said, names, document, platform, package, rest, families)
    ours = open_ - fallen
    if ours and platform.guessed and not platform.earlier and _leaves_ours_open(document):
        families = {said[number].family for number in ours}
        fallen |= _fallen(said, ours, document, platform, OURS, _spread(fitting(document)), families)
    return [one.draft._replace(severity="info") if number in fallen else one.draft for number, one in enumerate(said)]


def _is_certain(draft: Draft) -> bool:
    return is_long_gone(draft) or is_of_main(draft)


def _fallen(
    said: Sequence[Said],
    about: set[int],
    document: Document,
    platform: Platform,
    package: str,
    releases: Iterable[str],
    families: Set[Family],
) -> set[int]:
    """The drafts of these numbers that one of the releases knows nothing of.

    A release in which something else is wrong with the same command or file is none that the text is for.
    """
    fallen: set[int] = set()
    known = {_place(one.draft) for one in said}
    for release in releases:
        if about <= fallen:
            break
        there = _drafts(document, platform, package, release, families)
        places = {_place(draft) for draft in there}
        unlike = {_block(draft) for draft in there if _place(draft) not in known}
        fallen |= {
            number
            for number in about - fallen
            if _place(said[number].draft) not in places and _block(said[number].draft) not in unlike
        }
    return fallen


def _drafts(
    document: Document, platform: Platform, package: str, release: str, families: Iterable[Family]
) -> list[Draft]:
    """What the families say above a hint if ``package`` is of ``release``."""
    if package == OURS:
        platform = platform._replace(release=load_release(release), guessed=False)
    with suppose(package, release):
        drafts = [draft for family in families for draft in family(document, platform)]
    return [draft for draft in drafts if draft.severity != "info"]


def _place(draft: Draft) -> tuple[str, int, int]:
    file = draft.file or (draft.invocation.command.file if draft.invocation is not None else "")
    return file, draft.place.line, draft.place.column


def _block(draft: Draft) -> tuple[str, int, str]:
    """The command that a draft is about; without one its file, for drafts of one rule."""
    if draft.invocation is not None:
        return draft.invocation.command.file, id(draft.invocation.command), ""
    return draft.file, 0, draft.rule


def _leaves_ours_open(document: Document) -> bool:
    """True for a text about TensorRT-LLM whose release is at most told by its flags."""
    if not any(OF_OURS.search(text) for _, text in document.texts):
        return False
    found = told(document)
    return found is None or found.kind == "flag"


def _releases(document: Document, package: str) -> tuple[str, ...]:
    """The releases of a package that fit what the text says of it."""
    if package == VLLM:
        named = list(vllm_named(document))
        newest = [vllm_facts().newest.written] if _asks_for_the_newest(document, VLLM) else []
        if (named or newest) and not (named and is_named_by_images(document)):
            return _spread([*named, *newest])
        return (*named, *newest, *_spread(_fitting_vllm(document)))
    table = python_package(package)
    return () if table is None or _asks_for_the_newest(document, package) else _spread(table.releases)


def _all(package: str) -> Sequence[str]:
    if package == VLLM:
        return vllm_facts().releases[vllm_facts().releases.index(REMEMBERED) :]
    table = python_package(package)
    return () if table is None else table.releases


def _asks_for_the_newest(document: Document, package: str) -> bool:
    """True for an image without a version, and for a requirement that takes the newest."""
    if package == VLLM and any(NEWEST_VLLM.search(text) for _, text in document.texts):
        return True
    names = (package.replace("_", "-"), f"nvidia-{package}")
    return any(one.name in names and not BOUND.search(one.specifier) for one in requirements(document))


def _fitting_vllm(document: Document) -> list[str]:
    """The releases of vLLM that lack the fewest of the options, keywords, variables and commands of the text.

    None before the first that has the models which it serves.
    """
    facts = vllm_facts()
    known = options_of("serve")
    used: list[Changes] = [known[name] for name in sorted(document.lookups.vllm_options) if name in known]
    for call in document.calls:
        if call.api == VLLM:
            used += [changes for word in call.arguments if (changes := argument_changes(word.text)) is not None]
    variables = facts.table("names", "variables")
    used += [variables[name] for name in sorted({one.name for one in settings(document)}) if name in variables]
    first = max([facts.releases.index(REMEMBERED), *later_benches(document), *_of_models(document)])
    lacking = {place: sum(not one.at(place) for one in used) for place in range(first, len(facts.releases))}
    fewest = min(lacking.values())
    return [facts.name(place) for place, number in lacking.items() if number == fewest]


def _of_models(document: Document) -> Iterator[int]:
    """Since when vLLM has each model that the text serves with it."""
    for start in served(document):
        model = named_model(start.model) if start.engine == VLLM and start.model else None
        since = vllm_facts().release(vllm_since(model)) if model is not None else None
        if since is not None:
            yield since.place


def _spread(releases: Sequence[str]) -> tuple[str, ...]:
    """The first, the last, and some between them, the ends first."""
    if len(releases) <= MOST:
        return tuple(releases)
    step = (len(releases) - 1) / (MOST - 1)
    inner = [releases[round(number * step)] for number in range(1, MOST - 1)]
    return (releases[0], releases[-1], *inner)
