"""fill_template.py's pairs without a comma between them, a server that reads another repository than was filled, and
an ensemble that is filled with a larger batch than the models of its steps.
"""

import posixpath
import re
from collections.abc import Iterator
from functools import cache

from trtllm_check.lint.carried import carriages
from trtllm_check.lint.document import Document
from trtllm_check.lint.filling import Filling, fillings
from trtllm_check.lint.finding import Draft, Platform, Swap, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.container_paths import HERE
from trtllm_check.lint.rules.names import is_open
from trtllm_check.releases.templates import release_templates, template_releases

GLUED = re.compile(r"(?P<variable>[a-z][a-z0-9_]*):(?P<value>[^,:\\]*):(?P<last>[^,:\\]*)")
SERVERS = ("launch_triton_server.py", "tritonserver")
ENSEMBLE, STEPS = "ensemble", ("preprocessing", "tensorrt_llm", "postprocessing")
BATCH, LONGEST = "triton_max_batch_size", 9
READ = ("--model_repo", "--model-repository", "--model-store")
MADE = re.compile(r"(?:^|[\s;&])(?:mkdir|tar|unzip|git|wget|aws|gsutil|huggingface-cli|hf)\b[^\n]*", re.MULTILINE)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """Both kinds."""
    release = platform.release.name
    fills = document.of("fill_template.py")
    for fill in fills:
        yield from _glued(fill, release)
    if fills:
        yield from _elsewhere(document, fills, release)
        yield from _batches(fillings(document, platform.release), release)


def _batches(filled: list[Filling], release: str) -> Iterator[Draft]:
    """``triton_max_batch_size`` of an ensemble and of its steps, each as the last command of the text fills it."""
    sizes = {(posixpath.dirname(posixpath.dirname(one.path)), one.model): one for one in filled if _batch(one)}
    for (folder, model), one in sizes.items():
        whole = sizes.get((folder, ENSEMBLE))
        if model in STEPS and whole is not None and _batch(one) < _batch(whole):
            problem = (
                f"it allows maximum batch size {_batch(whole)}, but it contains model {model} "
                f"which only allows maximum batch size to be {_batch(one)}"
            )
            edits = (one.with_values({BATCH: str(_batch(whole))}),)
            yield from drafts(
                release,
                "ensemble-wiring",
                one.at(BATCH),
                form="batch",
                edits=edits,
                invocation=one.invocation,
                problem=problem,
            )


def _batch(one: Filling) -> int:
    value = one.values.get(BATCH, "")
    return int(value) if value.isascii() and value.isdecimal() and len(value) < LONGEST else 0


@cache
def _variables() -> frozenset[str]:
    found: set[str] = set()
    for name in template_releases():
        for model in release_templates(name).models.values():
            found |= set(model.variables)
    return frozenset(found)


def _glued(fill: Invocation, release: str) -> Iterator[Draft]:
    """``accumulate_tokens:Truelogits_datatype:TYPE_FP32``."""
    operands = fill.positional
    if len(operands) != 2:
        return
    word = operands[1]
    for pair in word.text.split(","):
        if right := with_comma(pair):
            edits = (Swap(word, word.text.replace(pair, right)),)
            yield from drafts(release, "fill-pairs", word, edits=edits, invocation=fill, pair=pair, instead=right)


def with_comma(pair: str) -> str:
    """The two pairs that ``pair`` is without the comma between them; "" where it is one."""
    match = GLUED.fullmatch(pair)
    if match is None or "/" in pair:
        return ""
    meant = max((one for one in _variables() if match["value"].endswith(one)), key=len, default="")
    value = match["value"].removesuffix(meant)
    return f"{match['variable']}:{value},{meant}:{match['last']}" if meant else ""


def _names(folder: str, document: Document) -> set[str]:
    """A folder, and the folders of the host that a container sees there."""
    inside = [(one.host.rstrip("/"), one.inside.rstrip("/")) for one in document.mounts]
    inside += [(f"/{here.strip('/')}", path) for host, path in inside if (here := HERE.sub("", host)) != host]
    return {folder, *(host + folder[len(path) :] for host, path in inside if f"{folder}/".startswith(f"{path}/"))}


def _elsewhere(document: Document, fills: tuple[Invocation, ...], release: str) -> Iterator[Draft]:
    """``--model_repo=sp_model/`` where every file that is filled lies in ``gemma/``."""
    filled = {
        posixpath.dirname(posixpath.dirname(posixpath.normpath(fill.positional[0].text)))
        for fill in fills
        if fill.positional
    }
    if len(filled) != 1 or not (folder := filled.pop()) or is_open(folder):
        return
    has_containers = bool(document.mounts or document.images)
    for server in document.of(*SERVERS):
        given = server.find(*READ)
        read = posixpath.normpath(given.values[0].text) if given and given.values else ""
        if not read or not given or is_open(read):
            continue
        if read.startswith("/") != folder.startswith("/") and (has_containers or folder.startswith("..")):
            continue
        if not _names(read, document).isdisjoint(_names(folder, document)):
            continue  # one folder of the host, mounted in two containers
        name = posixpath.basename(read)
        others = _names(read, document)
        is_near = any(_below(folder, one) or _below(one, folder) for one in others)
        if is_near or (name != posixpath.basename(folder) and not _is_made(document, name)):
            yield from drafts(release, "fill-elsewhere", given.values[0], invocation=server, read=read, folder=folder)


def _below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")


def _is_made(document: Document, name: str) -> bool:
    """True where a command makes this folder, or brings something to it."""
    for one in carriages(document):
        if any(name in re.split(r"[/:]", target.rstrip("/*.")) for target in one.targets):
            return True
    made = " ".join(match[0] for _, text in document.texts for match in MADE.finditer(text))
    return re.search(rf"\b{re.escape(name)}\b", made) is not None
