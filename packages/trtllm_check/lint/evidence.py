"""Which TensorRT-LLM release a text is for, by what it names: wheels, clones, containers, images, logs, flags.

Each kind of evidence has a weight: what is installed or built with counts more than what is linked to.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import PurePosixPath
from typing import NamedTuple

from trtllm_check.lint.carriers.notebooks import is_notebook
from trtllm_check.lint.carriers.python_calls import Call
from trtllm_check.lint.document import Document
from trtllm_check.lint.invocations import regrouped
from trtllm_check.lint.models_told import model_told
from trtllm_check.lint.shell.words import lines_of
from trtllm_check.releases import known_releases, load_release
from trtllm_check.releases.backend import backend_reads
from trtllm_check.releases.history import with_flag
from trtllm_check.releases.lmi import lmi_images
from trtllm_check.releases.load import container_release, in_range, release_name
from trtllm_check.releases.python_names import python_package
from trtllm_check.releases.templates import OF_LLMAPI, llmapi_releases, release_templates, template_releases

VERSION = r"v?(?P<version>\d+\.\d+(?:\.\d+)?(?:(?:\.post|\.dev|rc)\d+)?)"
REPOSITORY = r"(?:NVIDIA/TensorRT-LLM|triton-inference-server/tensorrtllm_backend)"
OF_A_LOG = "log"
PRECOMPILED = re.compile(r"TRTLLM_PRECOMPILED_LOCATION|TRTLLM_USE_PRECOMPILED")
TEXTS: tuple[tuple[int, str, re.Pattern[str]], ...] = (  # weight, what it is, how it is written
    (5, "wheel", re.compile(rf"tensorrt[-_]llm(?:\[\w+\])?\s*={{2,3}}\s*{VERSION}", re.I)),
    (5, "wheel", re.compile(rf"(?<!build/)\btensorrt_llm-{VERSION}-(?:cp3|\*)", re.I)),
    (2, OF_A_LOG, re.compile(rf"(?<=build/)tensorrt_llm-{VERSION}-cp3", re.I)),  # what a build from sources leaves
    (5, "wheel", re.compile(r"tensorrt[-_]llm(?:\[\w+\])?\s*~=\s*(?P<version>\d+\.\d+\.\d+)", re.I)),
    (4, "clone", re.compile(rf"{REPOSITORY}/archive/(?:refs/tags/)?{VERSION}(?=\.(?:tar|zip))", re.I)),
    (5, "wheel", re.compile(rf"^name = \"tensorrt[-_]llm\"\nversion = \"{VERSION}\"", re.M)),
    (4, "clone", re.compile(rf"(?:-b|--branch|--tag)[ =]+{VERSION}(?=\s)[^\n]*{REPOSITORY}", re.I)),
    (4, "clone", re.compile(rf"{REPOSITORY}(?:\.git)?[^\n]*(?:-b|--branch)[ =]+{VERSION}(?=\s|$)", re.I | re.M)),
    (4, "clone", re.compile(rf"(?:-b|--branch)[ =]+r(?P<month>\d\d\.\d\d)(?=\s)[^\n]*{REPOSITORY}", re.I)),
    (
        4,
        "clone",
        re.compile(rf"{REPOSITORY}(?:\.git)?[^\n]*(?:-b|--branch)[ =]+r(?P<month>\d\d\.\d\d)(?=\s|$)", re.I | re.M),
    ),
    (4, "container", re.compile(r"tritonserver:(?P<month>\d\d\.\d\d)-trtllm")),
    (4, "container", re.compile(rf"tensorrt-llm/(?:release|devel):{VERSION}")),
    (4, "image", re.compile(r"(?:djl-inference|/lmi|djl_inference)\S*:[\w.-]*tensorrtllm(?P<version>\d+(?:\.\d+)+)")),
    (3, "image", re.compile(r"djl-inference\S*:(?P<lmi>\d+\.\d+\.\d+[\w.-]*)")),
    (3, "image", re.compile(r"djl-tensorrtllm[\"'][^)]{0,200}version\s*=\s*[\"'](?P<lmi>\d+\.\d+\.\d+)", re.S)),
    (5, OF_A_LOG, re.compile(rf"TensorRT-LLM(?:\]\[I\])? version:?\s*{VERSION}")),
    (3, "checkout", re.compile(rf"git (?:checkout|switch)\s+(?:tags/)?{VERSION}(?=\s|$)", re.M)),
    (2, "folder", re.compile(rf"(?:TensorRT-LLM|tensorrtllm_backend)-v?{VERSION}(?=[/\s\"'])")),
    (2, "folder", re.compile(rf"(?<=/){VERSION}/(?:TensorRT-LLM|tensorrtllm_backend)(?=[/\s\"'])")),
    (1, "link", re.compile(rf"github\.com/{REPOSITORY}/(?:tree|blob|raw|releases/tag)/{VERSION}(?=[/\s)])", re.I)),
    (2, "link", re.compile(rf"raw\.githubusercontent\.com/{REPOSITORY}/(?:refs/tags/)?{VERSION}/", re.I)),
)
SAID = re.compile(
    r"\b(?:TensorRT[-_ ]?LLM(?:[,:]? |(?:[ _](?:version|release|tag|branch))?[*`]*:[*`]* ?|[*` ]*\|[*` ]*)"
    r"|TRT[-_ ]?LLM[,:]? "
    r"|tensorrtllm[_-]backend(?:\.git)?`?,? (?:# ?)?"
    rf"|trtllm(?:-(?:serve|build|bench))?[,:]? (?=v?\d+\.\d+\.\d))\(?(?:version |release |branch )?{VERSION}\b",
    re.IGNORECASE | re.ASCII,  # Chinese follows a version without a blank
)
IN_A_SENTENCE = re.compile(rf"\bbased on TensorRT-LLM[- ]{VERSION}")
RANGE_BEFORE = re.compile(r"(?:\b(?:since|from|until|before|after|than|least|to|up|or|and|in)|[<>=~])\s*\W?$", re.I)
RANGE_AFTER = re.compile(r"\)?[ \t]*(?:\+|or\b|and\b|to\b|-|–|/|~|>|onwards|later|or newer|\.x|\.\*)", re.I)
COMMENTED_OUT = re.compile(r"[ \t]*#[# \t]*(?:export )?(\w+)=")
OTHER_BUILD = re.compile(r"(?:\.post|\.dev|rc)\d+$")
DIGITS = re.compile(r"\d+")
REFUSED = re.compile(r"unrecognized arguments|invalid (?:choice|value)|No such option|error: argument")
OF_THE_ENGINE_FLOW = ("trtllm-build", "convert_checkpoint.py")
MOST_MATCHES = 200
CLONED = 400  # characters between a clone and its checkout
OURS = re.compile(r"tensorrt[-_]?llm|trt[-_]?llm|\$", re.IGNORECASE)
ENGINE_MODEL = re.compile(
    r"^\s*(?:backend|platform)\s*:\s*\"(?:pytorch_)?(?:tensorrt[-_]?llm|trt[-_]?llm)(?:[-_]\w+)?\"",
    re.MULTILINE | re.IGNORECASE,
)
OF_ENGINES = re.compile(r"\"(?:gpt_model_type|gpt_model_path|batch_scheduler_policy|decoding_mode)\"")
SINCE_A_MODEL = "tensorrt_llm.SamplingParams"
OF_THE_BACKEND = "tensorrt_llm"
OTHER_BACKEND = re.compile(r"^\s*(?:backend|platform)\s*:", re.MULTILINE)
PARAMETER_KEY = re.compile(r"\bkey\s*:\s*\"(\w+)\"")
MONTH = re.compile(r"\d\d\.\d\d")
FIRST_MONTH = "24.02"  # of Triton's container with the first release
NUMBERS = re.compile(r"v?(\d+\.\d+(?:\.\d+)?)")


class Evidence(NamedTuple):
    """``text`` on ``line`` says ``release``; ``written`` is the version in it, "" where another name stands for it."""

    release: str
    kind: str
    text: str
    line: int
    weight: int
    written: str = ""
    file: str = ""

    def __str__(self) -> str:
        return f"{self.text} ({f'{self.file}, ' if self.file else ''}line {self.line})"


TOP_LEVEL = re.compile(r"^(?P<name>[a-z]\w*):", re.MULTILINE)


def facts_release(version: str) -> str:
    """The release whose facts hold for ``version``: itself, or the one it is a build or a patch of; "" for none."""
    known = known_releases()
    version = version.removeprefix("v")
    for name in (version, OTHER_BUILD.sub("", version)):
        found = release_name(name)
        if found in known:
            return found
    minor = ".".join(version.split(".")[:2])
    same = [name for name in known if name.startswith(f"{minor}.")]
    return same[-1] if same else ""


def nearest(version: str) -> str:
    """The known release nearest to ``version``: the last one before it, or the first; the first where it is unknown."""
    known = known_releases()
    numbers = DIGITS.findall(version)
    wanted = tuple(int(one) for one in numbers[:3])
    earlier = [name for name in known if numbers and tuple(int(one) for one in DIGITS.findall(name)[:3]) <= wanted]
    return earlier[-1] if earlier else known[0]


def build_of(version: str) -> str:
    """The release that ``version`` is a pre-release or a later build of; "" for a release and for anything else."""
    without = OTHER_BUILD.sub("", version)
    known = known_releases()
    is_build = without != version and release_name(version) not in known
    return found if is_build and (found := release_name(without)) in known else ""


def is_earlier(version: str) -> bool:
    """True for a release, or a month of Triton's container, before the first with facts."""
    if MONTH.fullmatch(version):
        return version < FIRST_MONTH
    match = NUMBERS.match(version)
    first = tuple(map(int, known_releases()[0].split(".")))
    return match is not None and tuple(int(number) for number in match[1].split(".")) < first[: match[1].count(".") + 1]


def evidence(text: str) -> list[Evidence]:
    """All that ``text`` says of a release, the weightiest first. ``release`` is empty for one without facts."""
    found: list[Evidence] = []
    for weight, kind, pattern in TEXTS:
        for number, match in enumerate(pattern.finditer(text)):
            if number > MOST_MATCHES:
                break
            if kind == "wheel" and PRECOMPILED.search(text, text.rfind("\n", 0, match.start()) + 1, match.start()):
                continue  # libraries for sources of another state
            if kind == "checkout" and _is_of_another_clone(text, match.start()):
                continue
            release, written = _release(match)
            if release is not None and not _is_replaced(text, match.start()):
                line = text.count("\n", 0, match.start()) + 1
                shown = " ".join(match[0].split())[:90]
                found.append(Evidence(release, kind, shown, line, weight, written))
    lines = lines_of(text)
    found = [one for one in found if not _is_contradicted(one, lines[one.line - 1])]
    return sorted(found, key=lambda one: (-one.weight, one.line))


def _is_contradicted(one: Evidence, line: str) -> bool:
    """True for a container in a sentence that names another release beside it: which of them is meant is not told."""
    if one.kind != "container":
        return False
    named = {facts_release(match["version"]) for match in IN_A_SENTENCE.finditer(line)} - {""}
    return bool(named) and one.release not in named


def _is_of_another_clone(text: str, place: int) -> bool:
    """True for a checkout behind a clone of another project."""
    clone = text.rfind("git clone", max(place - CLONED, 0), place)
    return clone >= 0 and not OURS.search(text, clone, place)


def _is_replaced(text: str, place: int) -> bool:
    """True for a variable's setting in a comment, where another line that is none sets the same variable."""
    commented = COMMENTED_OUT.match(text[text.rfind("\n", 0, place) + 1 : place])
    return commented is not None and re.search(rf"^[ \t]*(?:export )?{commented[1]}=", text, re.MULTILINE) is not None


def _release(match: re.Match[str]) -> tuple[str | None, str]:
    groups = match.groupdict()
    if month := groups.get("month"):
        image = f"nvcr.io/nvidia/tritonserver:{month}-trtllm-python-py3"
        found = container_release(image)
        return found, "" if found else month
    if lmi := groups.get("lmi"):
        tags = [one for one in lmi_images() if one.tag.startswith(f"{lmi}-") or one.tag == lmi]
        engines = [one.engine_release for one in tags if one.engine_release]
        return (engines[0], "") if engines and "tensorrtllm" not in lmi else (None, "")
    version = groups["version"] or ""
    return facts_release(version), version


def told(document: Document) -> Evidence | None:
    """The evidence that counts: of the release with the most weight, its first; what the flags tell if nothing else."""
    texts = ((file, text.replace('\\"', '"') if is_notebook(text) else text) for file, text in document.texts)
    found = [one._replace(file=file) for file, text in texts for one in evidence(text)]
    if found and any("$" in text for _, text in document.texts):  # an image that variables name, beside what is plain
        known = {(one.kind, one.line) for one in found}
        images = [one for one in _resolved(document, "docker") if one.kind == "container"]
        added = [one for one in images if (one.kind, one.line) not in known]
        if added and len(document.texts) == 1:
            found = sorted([*found, *added], key=lambda one: (-one.weight, one.line))
    best = _strongest(found)
    if best is not None and best.kind == OF_A_LOG and _is_of_another_time(document, best.release):
        found = [one for one in found if one.kind != OF_A_LOG]
        return _strongest(found) or _strongest(_resolved(document)) or by_flags(document)
    return _strongest(found) or _strongest(_resolved(document)) or said(document) or by_flags(document)


def _is_of_another_time(document: Document, release: str) -> bool:
    """True for a log's release where several commands have options that came later, and none is told to be refused."""
    if any(REFUSED.search(text) for _, text in document.texts):
        return False
    later = (
        one
        for one in document.invocations
        for given in one.given
        if (releases := with_flag(one.tool, given.name))
        and in_range(releases[0], since=release)
        and release not in releases
    )
    return len({id(one) for one in later}) > 1


def said(document: Document) -> Evidence | None:
    """A release that the words of the text name, the only one, and not as the first or last of several."""
    found: dict[str, Evidence] = {}
    for file, text in document.texts:
        for match in islice(SAID.finditer(text), MOST_MATCHES):
            line_start = text.rfind("\n", 0, match.start()) + 1
            before, after = text[line_start : match.start()], text[match.end() : match.end() + 20]
            if RANGE_BEFORE.search(before) or RANGE_AFTER.match(after):
                return None
            version = match["version"]
            release = facts_release(version)
            line = text.count("\n", 0, match.start()) + 1
            if release or is_earlier(version):
                one = Evidence(release, "said", " ".join(match[0].split()), line, 1, version, file)
                found.setdefault(release or version, one)
    return found.popitem()[1] if len(found) == 1 else None


def _resolved(document: Document, *tools: str) -> Iterator[Evidence]:
    """What commands and images say once their variables are known."""
    cloned = ""
    for one in document.of(*(tools or ("git", "pip", "docker"))):
        text = " ".join(word.text for word in (one.path, *one.arguments))
        cloned = text if one.tool == "git" and "clone" in text else cloned
        if "checkout" in text and cloned and not OURS.search(cloned):
            continue
        yield from (found._replace(line=one.path.line, file=one.command.file) for found in evidence(f"{text} "))
    for word in document.images:
        yield from (found._replace(line=word.line) for found in evidence(word.text))


def _strongest(found: Iterable[Evidence]) -> Evidence | None:
    found = list(found)
    known = [one for one in found if one.release]
    if not known:
        return found[0] if found else None
    weights: dict[str, int] = {}
    for one in known:
        weights[one.release] = max(weights.get(one.release, 0), one.weight)
    heaviest = max(weights.values())
    counts: dict[str, int] = {}
    for one in known:
        if weights[one.release] == heaviest:
            counts[one.release] = counts.get(one.release, 0) + 1
    best = max(counts, key=lambda release: counts[release])
    return next(one for one in known if one.release == best)


def fitting(document: Document) -> tuple[str, ...]:
    """The releases that have what the text uses: its flags, template variables and parameters."""
    return _narrowed(document)[0]


def by_flags(document: Document) -> Evidence | None:
    """The newest release that has all flags of the text, where the newest of all lacks one."""
    releases, decisive = _narrowed(document)
    if decisive is None or releases[-1] == known_releases()[-1]:
        return None
    return Evidence(releases[-1], "flag", *decisive, 0)


def _narrowed(document: Document) -> tuple[tuple[str, ...], tuple[str, int] | None]:
    """The releases that have all flags of the text, and what it was that told the last of them."""
    releases = list(known_releases())
    decisive: tuple[str, int] | None = None
    if (told_by := model_told(document)) is not None:
        decisive, releases = (told_by.name, told_by.line), list(told_by.releases)
    flags = [(with_flag(tool, flag), (f"{flag} of {tool}", line)) for tool, flag, line in _flags(document)]
    flags = [(where, told) for where, told in flags if where]
    lacking = {name: sum(name not in where for where, _ in flags) for name in releases}
    fewest = min(lacking.values())
    narrowed = [name for name in releases if lacking[name] == fewest]
    if len(narrowed) < len(releases):
        later = next((name for name in releases[releases.index(narrowed[-1]) + 1 :]), "")
        without = [told for where, told in flags if later and later not in where and narrowed[-1] in where]
        decisive = without[0] if without else decisive or flags[0][1]
        releases = narrowed
    for invocation in document.invocations:
        narrowed = [name for name in releases if invocation.tool in load_release(name).tools]
        if narrowed and narrowed[-1] == releases[-1]:
            releases = narrowed  # those with the tool: in the others nothing of it is right or wrong
    for invocation in document.of(*OF_THE_ENGINE_FLOW):
        narrowed = [name for name in releases if name in template_releases()]
        if narrowed and len(narrowed) < len(releases):
            decisive, releases = (invocation.tool, invocation.path.line), narrowed
    for model, variable, line in _variables(document):
        narrowed = [name for name in releases if _fills(name, model)]
        if narrowed and len(narrowed) < len(releases):
            decisive, releases = (f"{variable} of {model}", line), narrowed
    if any(OF_LLMAPI in text for _, text in document.texts):
        narrowed = [name for name in releases if name in llmapi_releases()]
        releases = narrowed or releases
    variables = list(_variables(document))  # what came later first: what is gone is left over, and harms nothing
    variables.sort(key=lambda one: not _has_variable(template_releases()[-1], *one[:2]))
    for model, variable, line in variables:
        narrowed = [name for name in releases if _has_variable(name, model, variable)]
        if narrowed and len(narrowed) < len(releases):
            decisive = (f"{variable} of {model}", line)
            releases = narrowed
    for line, given in _engine_models(document):
        narrowed = [name for name in releases if _lacks(name, given) is not None]
        narrowed = [name for name in narrowed if not _lacks(name, given)] or narrowed
        fewest = min((_unread(name, given) for name in narrowed), default=0)
        narrowed = [name for name in narrowed if _unread(name, given) == fewest]
        if narrowed and len(narrowed) < len(releases):
            decisive, releases = ("the C++ backend of Triton", line), narrowed
    for name, line in _options(document):
        narrowed = [release for release in releases if _has_option(release, name)]
        if narrowed and len(narrowed) < len(releases):
            if narrowed[-1] != releases[-1]:
                decisive = (f"the option {name}", line)
            releases = narrowed
    return _with_names(document, tuple(releases)), decisive


def _options(document: Document) -> Iterator[tuple[str, int]]:
    """Options of the LLM API at the top of the text's files, with their lines; those that are gone again."""
    from trtllm_check.flows.options import option_releases  # which few texts need

    for file in document.option_files:
        for match in TOP_LEVEL.finditer(file.text):
            if not _has_option(option_releases()[-1], match["name"]):
                yield match["name"], file.line + file.text.count("\n", 0, match.start())


def _has_option(release: str, name: str) -> bool:
    from trtllm_check.flows.options import llm_options, option_releases

    return release in option_releases() and name in llm_options(release).options


def _with_names(document: Document, releases: tuple[str, ...]) -> tuple[str, ...]:
    """Without the earlier releases that have not got the Python names of the text, where the last one has."""
    package = python_package(OF_THE_BACKEND)
    names = {one.dotted for one in document.names if one.package == OF_THE_BACKEND and not one.keyword}
    if package is not None and any(_takes_a_model(one) for one in document.calls):
        releases = tuple(one for one in releases if not package.judge(SINCE_A_MODEL, one)) or releases
    if package is None or any(package.judge(name, releases[-1]) for name in names):
        return releases
    return tuple(one for one in releases if not any(package.judge(name, one) for name in names))


def _takes_a_model(call: Call) -> bool:
    """``LLM(model=...)``: before 0.11, which brought SamplingParams too, it took a ModelConfig by its place."""
    is_ours = call.api == OF_THE_BACKEND and call.name == "LLM"
    return is_ours and any(word.text == "model" for word in call.arguments)


def _engine_models(document: Document) -> Iterator[tuple[int, frozenset[str]]]:
    """The lines of config.pbtxt that name the C++ backend, which newer releases have no more, and the parameters."""
    for config in document.configs:
        given = frozenset(PARAMETER_KEY.findall(config.text))
        if match := ENGINE_MODEL.search(config.text) or OF_ENGINES.search(config.text):
            yield config.line + config.text.count("\n", 0, match.start()), given
        elif config.model == OF_THE_BACKEND and not OTHER_BACKEND.search(config.text):
            yield config.line, given


def _lacks(release: str, given: frozenset[str]) -> bool | None:
    """True where the release's backend wants a parameter that is not given; None for a release without it."""
    reads = backend_reads(release)
    if reads is None:
        return None
    wanted = [name for name, one in reads.parameters.items() if one.required and one.alternative not in given]
    return not given.issuperset(wanted)


def _unread(release: str, given: frozenset[str]) -> int:
    """How many of the parameters the release's backend does not read."""
    reads = backend_reads(release)
    return len(given - {*reads.parameters, *reads.others}) if reads is not None else 0


def _variables(document: Document) -> Iterator[tuple[str, str, int]]:
    """Template variables that the text fills, with their model."""
    for invocation in document.of("fill_template.py"):
        path, *pairs = invocation.positional or (None,)
        model = PurePosixPath(path.text).parent.name if path is not None else ""
        for word in pairs[:1]:
            for pair in word.text.split(","):
                if ":" in pair and "$" not in pair.partition(":")[0]:
                    yield model, pair.partition(":")[0], word.line


def _fills(release: str, model: str) -> bool:
    """True where the release's templates hold the model, and for one that none of them holds."""
    holding = [name for name in template_releases() if model in release_templates(name).models]
    return not holding or release in holding


def _has_variable(release: str, model: str, variable: str) -> bool:
    """True also for a model that the release's templates do not hold."""
    if release not in template_releases():
        return True
    spec = release_templates(release).models.get(model)
    return spec is None or variable in (*spec.variables, *spec.uncertain)


def _flags(document: Document) -> Iterator[tuple[str, str, int]]:
    newest = load_release(known_releases()[-1])
    seen: set[tuple[str, str]] = set()
    for invocation in document.invocations:
        tool = newest.tools.get(invocation.tool)
        given = regrouped(invocation, tool) if tool else invocation.given
        for one in given:
            if one.name.startswith("--") and (invocation.tool, one.name) not in seen:
                seen.add((invocation.tool, one.name))
                yield invocation.tool, one.name, one.word.line
