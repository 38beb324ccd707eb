"""Wheels and the indexes that they lie on: for another Python, torch or CUDA than the one that is there."""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.installs import Requirement, is_typed, requirements
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.pythons import python_of
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases.images import cuda_of_torch
from trtllm_check.releases.packages import needs_of
from trtllm_check.releases.vllm import vllm_facts

WHEEL = re.compile(
    r"(?P<name>[A-Za-z0-9_.]+)-(?P<version>\d[\w.]*)(?:(?:\+|%2[Bb])(?P<local>[\w.]+))?(?:-\d+)?"
    r"-(?P<python>(?:cp|py)\d+(?:\.(?:cp|py)\d+)*)-(?P<abi>\w+)-[\w.]+\.whl"
)
ENVIRONMENT = re.compile(r"(?:-m venv|virtualenv|uv venv|conda create (?:-n|--name))[ ]+(?:-\S+[ ]+)*([\w./${}~-]+)")
PRINTED = re.compile(r"(?:Downloading|Using cached|Collecting|Obtaining|Requirement already|Created wheel)\b")
LOCAL_TORCH = re.compile(r"torch(?P<torch>\d\.?\d{1,2})")
LOCAL_CUDA = re.compile(r"cu(?P<cuda>\d{2,3})")
TORCH_INDEX = re.compile(r"download\.pytorch\.org/whl/(?P<kind>cu\d{3}|cpu)(?:/|\b)")
BUILT_INDEX = re.compile(r"https?://\S*?/(?P<cuda>cu\d{2,3})/torch(?P<torch>\d\.\d+)(?:/|\b)")
SEARCHED = re.compile(r"download\.pytorch\.org|--find-links|\s-f\s|index-url|\s-i\s|index\s*=|PIP_INDEX|PIP_EXTRA|UV_")
NGC_TORCH = re.compile(r"nvcr\.io/nvidia/pytorch:")
# With one of these at a version, pip takes a vLLM of its time.
HOLD_BACK = frozenset({"transformers", "huggingface-hub", "numpy", "tokenizers"})
OF_TORCH = ("torch", "torchvision", "torchaudio")
ELSEWHERE = frozenset(  # what the index of PyTorch does not have
    {
        *("transformers", "accelerate", "sentencepiece", "datasets", "peft", "flash-attn", "bitsandbytes", "fastapi"),
        *("uvicorn", "openai", "ray", "deepspeed", "optimum", "diffusers", "sentence-transformers", "tensorrt-llm"),
        *("huggingface-hub", "tiktoken", "pandas", "gradio", "tokenizers", "pydantic", "sglang"),
    }
)


class _Torch(NamedTuple):
    version: str
    by: str


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    wanted = [one for one in requirements(document) if one.name]
    of_an_index = _of_an_index(document)

    @cache
    def torch_of(file: str) -> _Torch | None:
        return _torch([one for one in wanted if _is_beside(one, file)]) or of_an_index

    for file, text in document.texts:
        torch = torch_of(file) if len(set(ENVIRONMENT.findall(text))) <= 1 else None  # which of them, nobody tells
        for match in WHEEL.finditer(text) if ".whl" in text else ():
            if not _is_comment(text, match.start()) and not _is_printed(text, match.start()):
                yield from _wheel(document, match, file, text, torch, release)
    of_pips: dict[int, list[Requirement]] = defaultdict(list)
    for one in wanted:
        of_pips[id(one.pip)].append(one)
    for pip in document.of("pip"):
        yield from _index(pip, of_pips.get(id(pip), []), torch_of(pip.command.file), release)
    yield from _local(document, wanted, release)
    yield from _nowhere(document, wanted, release)
    yield from _not_pinned(wanted, of_an_index, release)


def _nowhere(document: Document, wanted: list[Requirement], release: str) -> Iterator[Draft]:
    """Names that no package has, where no other index is asked."""
    if any(SEARCHED.search(text) for _, text in document.texts):
        return
    for one in wanted:
        instead = rule_data("pip_names").get(one.name, "")
        if instead and "/" not in one.word.text and "@" not in one.word.text:
            file = one.pip.command.file if one.pip is not None else ""
            known: dict[str, Any] = {"name": one.word.text, "instead": instead}
            yield from drafts(release, "index-without", one.word, form="nowhere", file=file, **known)


def _not_pinned(wanted: list[Requirement], index: _Torch | None, release: str) -> Iterator[Draft]:
    """``vllm`` of any version beside an index of wheels for one torch, which the newest has left behind."""
    newest = vllm_facts().newest.written
    needs = needs_of("vllm", newest)
    torch = needs.needs.get("torch", "").removeprefix("==") if needs is not None else ""
    if index is None or not torch or _is_same(index.version, torch) or any(one.name == "torch" for one in wanted):
        return
    if any(one.name in HOLD_BACK and one.exact for one in wanted):
        return
    for one in wanted:
        if one.name == "vllm" and not one.specifier and one.pip is not None and "@" not in one.word.text:
            known: dict[str, Any] = {"of": index.version, "version": torch, "by": index.by, "newest": newest}
            yield from drafts(release, "wheel-unfit", one.word, form="not pinned", invocation=one.pip, **known)
            break


def _is_beside(one: Requirement, file: str) -> bool:
    """False for a list of requirements of another file, which is for another installation."""
    return is_typed(one.pip) or (one.pip is not None and one.pip.command.file == file)


def _torch(wanted: list[Requirement]) -> _Torch | None:
    """The one torch of a text: what vLLM or TensorRT-LLM pin, or what is pinned directly."""
    for one in wanted:
        found = needs_of(one.name, one.exact) if one.exact and one.name in ("vllm", "tensorrt-llm") else None
        exact = re.fullmatch(r"==(\d+\.\d+(?:\.\d+)?)", found.needs.get("torch", "")) if found is not None else None
        if exact:
            return _Torch(exact[1], one.word.text)
    pinned = {one.exact.partition("+")[0]: one.word.text for one in wanted if one.name == "torch" and one.exact}
    return _Torch(*next(iter(pinned.items()))) if len(pinned) == 1 else None


def _of_an_index(document: Document) -> _Torch | None:
    """The torch of the one index of wheels that are compiled for one."""
    texts = [text for _, text in document.texts if "/torch" in text]
    found = {match["torch"]: match[0] for text in texts for match in BUILT_INDEX.finditer(text)}
    return _Torch(*next(iter(found.items()))) if len(found) == 1 else None


def _wheel(
    document: Document, match: re.Match[str], file: str, text: str, torch: _Torch | None, release: str
) -> Iterator[Draft]:
    line = text.count("\n", 0, match.start()) + 1
    place = Word(match[0], line, match.start() - text.rfind("\n", 0, match.start()))
    known: dict[str, Any] = {"wheel": match[0].rpartition("/")[2]}
    pip = next((one for one in document.of("pip") if any(match[0] in word.text for word in one.positional)), None)
    version = python_of(document, pip)
    tag = re.fullmatch(r"cp(\d)(\d+)", match["python"])
    if version and tag and match["abi"] != "abi3" and f"{tag[1]}.{tag[2]}" != version:
        known |= {"tag": f"{tag[1]}{tag[2]}", "of": f"{tag[1]}.{tag[2]}"}
        known |= {"version": version, "right": version.replace(".", "")}
        yield from drafts(release, "wheel-unfit", place, form="python", file=file, **known)
    local = match["local"] or ""
    made = LOCAL_TORCH.search(local)
    if made and torch is not None and not _is_same(made["torch"], torch.version):
        known |= {"of": made["torch"], "version": torch.version, "by": torch.by}
        yield from drafts(release, "wheel-unfit", place, form="torch", file=file, **known)
    cuda = LOCAL_CUDA.search(local)
    index = _indexes(text)
    if cuda and len(index) == 1:
        there = next(iter(index)).removeprefix("cu")
        if cuda["cuda"][:2] != there[:2]:
            known |= {"of": _dotted(cuda["cuda"]), "version": _dotted(there), "by": f"the index cu{there}"}
            yield from drafts(release, "wheel-unfit", place, form="cuda", file=file, **known)


@lru_cache(maxsize=8)
def _indexes(text: str) -> frozenset[str]:
    return frozenset(found["kind"] for found in TORCH_INDEX.finditer(text) if found["kind"] != "cpu")


def _index(pip: Invocation, wanted: list[Requirement], torch: _Torch | None, release: str) -> Iterator[Draft]:
    only = [word for word in pip.values("-i", "--index-url", "--index") if "$" not in word.text]
    more = [word for word in pip.values("--extra-index-url", "-f", "--find-links") if "$" not in word.text]
    for word in only:
        found = TORCH_INDEX.search(word.text)
        if found is None:
            continue
        if not more:
            for one in wanted:
                if one.name in ELSEWHERE:
                    known: dict[str, Any] = {"name": one.word.text, "index": word.text}
                    yield from drafts(release, "index-without", one.word, invocation=pip, **known)
                    break
        yield from _cuda(pip, wanted, found["kind"], release)
    for word in more:
        found = TORCH_INDEX.search(word.text)
        if found is not None:
            yield from _cuda(pip, [one for one in wanted if "+" in one.exact], found["kind"], release)
    for word in [*only, *more]:
        built = BUILT_INDEX.search(word.text)
        if built is None:
            continue
        known = {"wheel": word.text, "of": built["torch"]}
        if torch is not None and not _is_same(built["torch"], torch.version):
            known |= {"version": torch.version, "by": torch.by}
            yield from drafts(release, "wheel-unfit", word, form="torch", invocation=pip, **known)
        elif (torch is None or torch.by.startswith("http")) and NGC_TORCH.search(pip.image):
            yield from drafts(release, "wheel-unfit", word, form="image", invocation=pip, image=pip.image, **known)


def _cuda(pip: Invocation, wanted: list[Requirement], kind: str, release: str) -> Iterator[Draft]:
    """A torch that no wheel of the index's CUDA was made of."""
    for one in wanted:
        made = cuda_of_torch(one.exact) if one.name == "torch" and one.exact else ()
        local = one.exact.partition("+")[2]
        asked = local if local.startswith("cu") else kind
        if made and asked.startswith("cu") and _dotted(asked.removeprefix("cu")) not in made:
            right = f"https://download.pytorch.org/whl/cu{made[-1].replace('.', '')}"
            known: dict[str, Any] = {"name": one.word.text, "version": one.exact, "cuda": asked, "right": right}
            yield from drafts(
                release, "index-without", one.word, form="cuda", invocation=pip, made=", ".join(made), **known
            )


def _local(document: Document, wanted: list[Requirement], release: str) -> Iterator[Draft]:
    """``torch==2.1.2+cu118`` where no index but PyPI is asked."""
    for one in wanted:
        local = one.exact.partition("+")[2]
        if one.name in OF_TORCH and LOCAL_CUDA.fullmatch(local) and is_typed(one.pip):
            if any(SEARCHED.search(text) for _, text in document.texts):
                return
            right = f"https://download.pytorch.org/whl/{local}"
            known: dict[str, Any] = {"name": one.word.text, "local": local, "right": right}
            yield from drafts(release, "index-without", one.word, form="local", invocation=one.pip, **known)
            return


def _is_same(made: str, version: str) -> bool:
    """True for one minor version: ``2.4`` or ``24`` of a wheel's name, ``2.4.0`` of a pin."""
    digits = made[1:2] if len(made) == 3 and version.startswith(f"{made[0]}.{made[1]}.{made[2]}") else made[1:]
    minor = made if "." in made else f"{made[0]}.{digits}"  # 271 is 2.7.1, and 210 is 2.10
    return version.split(".")[:2] == minor.split(".")[:2]


def _dotted(cuda: str) -> str:
    return f"{cuda[:2]}.{cuda[2:]}" if len(cuda) > 2 else cuda


def _is_printed(text: str, at: int) -> bool:
    """True for what pip tells of the wheels that it takes."""
    return PRINTED.search(text[text.rfind("\n", 0, at) + 1 : at]) is not None


def _is_comment(text: str, at: int) -> bool:
    return text[text.rfind("\n", 0, at) + 1 : at].lstrip().startswith(("#", "//"))
