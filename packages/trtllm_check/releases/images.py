"""Reads ``data/images``: what an image holds by its name, and whether its tag is one that exists."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from packaging.version import Version

from serving_base.yaml_files import read_yaml

FILE = Path(__file__).parent / "data" / "images" / "images.yml"
TRITON = re.compile(r"(?:^|/)nvidia/tritonserver:(?P<month>\d\d\.\d\d)-(?:(?P<variant>trtllm|vllm)-python-)?py3")
NGC = re.compile(r"nvcr\.io/nvidia/(?:pytorch|tritonserver):(?P<month>\d\d\.\d\d)")
PYTHON = re.compile(r"(?:^|/)python:(?P<version>3\.\d{1,2})(?![\d])")
CUDA = re.compile(r"(?:^|/)nvidia/cuda:(?P<version>\d+\.\d+)(?:\.\d+)?\S*?-ubuntu(?P<system>\d\d\.?\d\d)")
UBUNTU = re.compile(r"(?:^|/)ubuntu:(?P<system>\d\d\.\d\d)$")
PYTORCH = re.compile(r"(?:^|/)pytorch/pytorch:(?P<torch>\d+\.\d+)\.\d+-cuda(?P<cuda>\d+\.\d+)-cudnn\d")
NVIDIA_CUDA = re.compile(r"(?:docker\.io/|nvcr\.io/)?nvidia/cuda(?::(?P<tag>\S*))?")
OPEN = re.compile(r"[${<@%*]|\.\.\.|:(?:[xyXY]{1,2}\.|.*(?i:version|tag\b|your|x\.y))")
ANY_NUMBER = re.compile(r"v?\d+\.[xX](?![a-zA-Z])")
PARTS = re.compile(r"(?P<version>\d+(?:\.\d+)*)(?P<rest>(?:-[a-z0-9.]+)*)")


class ImageFacts(NamedTuple):
    """What an image holds, "" where it is not known. ``system``: the release of Ubuntu; ``managed``: pip refuses."""

    python: str = ""
    cuda: str = ""
    torch: str = ""
    vllm: str = ""
    tensorrt: str = ""
    system: str = ""
    managed: bool = False


class TagFault(NamedTuple):
    """Why a tag does not exist, what to write, and who says so."""

    why: str
    instead: str
    source: str
    sure: bool = True


@cache
def image_facts(image: str) -> ImageFacts:
    """What is known of an image by its name and tag."""
    data = _data()
    if match := TRITON.search(image):
        row = data["triton"].get(match["variant"] or "trtllm", {}).get(match["month"], {})
        python = row.get("python", "") or _python_of_month(match["month"])
        held = row if match["variant"] else {}
        torch, vllm, tensorrt = (str(held.get(key, "")) for key in ("torch", "vllm", "tensorrt"))
        return ImageFacts(python, held.get("cuda", ""), torch, vllm, tensorrt, _system_of(python))
    if match := NGC.search(image):
        python = _python_of_month(match["month"])
        return ImageFacts(python=python, system=_system_of(python))
    if match := PYTHON.search(image):
        return ImageFacts(python=match["version"])
    if match := PYTORCH.search(image):
        row = data["torch"].get(match["torch"], {})
        return ImageFacts(python=row.get("python", ""), cuda=match["cuda"], torch=match["torch"])
    if match := CUDA.search(image) or UBUNTU.search(image):
        system = match["system"] if "." in match["system"] else f"{match['system'][:2]}.{match['system'][2:]}"
        python = data["ubuntu"].get(system, {}).get("python", "")
        cuda = match.groupdict().get("version") or ""
        return ImageFacts(python=python, cuda=cuda, system=system, managed=system >= "24.04")
    return ImageFacts()


def python_of(system: str) -> str:
    """The Python of a release of Ubuntu, "" where it is not known."""
    return str(_data()["ubuntu"].get(system, {}).get("python", ""))


def _system_of(python: str) -> str:
    """The Ubuntu of NVIDIA's image by its Python, which is the system's."""
    return next((name for name, row in _data()["ubuntu"].items() if row["python"] == python), "")


def cuda_of_torch(version: str) -> tuple[str, ...]:
    """The CUDA versions that wheels of this torch are made for; none where it is not known."""
    minor = ".".join(version.split(".")[:2])
    row = _data()["torch"].get(minor, {})
    return (*row.get("cuda", ()), *row.get("wheels", ()))


@cache
def tag_fault(image: str) -> TagFault | None:
    """Why an image's tag does not exist; None where it may."""
    if OPEN.search(image):
        return None
    name, _, tag = image.rpartition(":") if ":" in image.rpartition("/")[2] else (image, "", "")
    if (match := ANY_NUMBER.match(tag)) and re.match(r"(?:\S+/)?(?:nvidia|vllm|pytorch|lmsysorg)/", name):
        why = f"{match[0]} stands for a number, and no tag is called so"
        return TagFault(why, "a version that the registry has", "docs.docker.com/reference/cli/docker/image/tag", False)
    if match := NVIDIA_CUDA.fullmatch(image):
        return next(_cuda_faults(match["tag"] or ""), None)
    for entry in _data()["tags"]:
        if not re.fullmatch(entry["image"], name):
            continue
        for bad in entry.get("bad", ()):
            found = re.fullmatch(bad["tag"], tag)
            if found is not None and not re.fullmatch(bad.get("not", r"(?!)"), tag):
                why = bad.get("why", "its tags are written otherwise")
                return TagFault(why, found.expand(bad["write"]), entry["source"], sure=bad.get("sure", True))
        if "tag" in entry and not re.fullmatch(entry["tag"], tag):
            return TagFault(f"its tags look like {entry['form']}", entry["form"], entry["source"], sure=False)
    if match := re.fullmatch(r"(?:docker\.io/)?pytorch/pytorch:(\d+\.\d+)\.\d+-cuda(\d+\.\d+)-cudnn(\d)-(\w+)", image):
        return next(_torch_faults(*match.groups()), None)
    return None


def _torch_faults(torch: str, cuda: str, cudnn: str, kind: str) -> Iterator[TagFault]:
    row = _data()["torch"].get(torch)
    if row is None:
        return
    source = "hub.docker.com, pytorch/pytorch; pytorch.org, previous versions"
    if cuda not in row["cuda"]:
        made = ", ".join(row["cuda"])
        yield TagFault(
            f"torch {torch} is made with CUDA {made}", f"cuda{row['cuda'][-1]}-cudnn{row['cudnn']}-{kind}", source
        )
    elif int(cudnn) != row["cudnn"]:
        yield TagFault(
            f"torch {torch} comes with cuDNN {row['cudnn']}", f"cuda{cuda}-cudnn{row['cudnn']}-{kind}", source
        )


def _cuda_faults(tag: str) -> Iterator[TagFault]:
    data = _data()["cuda"]
    source = "gitlab.com/nvidia/container-images/cuda doc/supported-tags.md; nvidia-docker#1735, #1454"
    match = PARTS.fullmatch(tag)
    if tag in ("", "latest"):
        yield TagFault("nvidia/cuda has no tag latest any more", "a full tag, as 12.8.1-base-ubuntu22.04", source)
        return
    if match is None:
        return
    version, parts = match["version"], match["rest"].strip("-").split("-")
    numbers = version.split(".")
    if len(numbers) < 3:
        whole = f"{'.'.join([*numbers, *['0'] * (3 - len(numbers))])}{match['rest']}"
        is_bare = len(parts) < 2 and Version(version) >= Version("12")  # all of these end in a system
        yield TagFault("its tags have three numbers", f"{whole}-ubuntu22.04" if is_bare else whole, source)
        return
    at = Version(version)
    if at < Version(data["newer_since"]) and version not in data["kept"].split():
        kept = [one for one in data["kept"].split() if Version(one).release[:2] == at.release[:2]]
        yield TagFault(
            "images of this version were taken away", f"{kept[-1] if kept else '12.8.1'}{match['rest']}", source
        )
        return
    yield from _parts_of_cuda(at, parts, source)


def _parts_of_cuda(at: Version, parts: list[str], source: str) -> Iterator[TagFault]:
    """The parts behind the version: cuDNN, kind, system, in this order."""
    limit = Version(_data()["cuda"]["cudnn_without_number_since"])
    kinds = [number for number, part in enumerate(parts) if part in ("base", "runtime", "devel")]
    cudnn = [number for number, part in enumerate(parts) if part.startswith("cudnn")]
    if kinds and cudnn and cudnn[0] > kinds[0]:
        order = "-".join(
            [
                parts[cudnn[0]],
                parts[kinds[0]],
                *[one for one in parts if one[:4] not in ("base", "runt", "deve", "cudn")],
            ]
        )
        yield TagFault("cudnn stands in front of runtime or devel", f"{at}-{order}", source)
    elif cudnn and parts[cudnn[0]] == "cudnn8" and at >= limit:
        yield TagFault(
            "from CUDA 12.4 on it is cudnn without a number",
            f"{at}-{'-'.join(parts).replace('cudnn8', 'cudnn')}",
            source,
        )
    elif cudnn and parts[cudnn[0]] == "cudnn" and at < Version("12.3"):
        yield TagFault(
            "up to CUDA 12.2 the number of cuDNN belongs to it",
            f"{at}-{'-'.join(parts).replace('cudnn', 'cudnn8')}",
            source,
        )
    for part in parts:
        system = _data()["ubuntu"].get(part.removeprefix("ubuntu"), {}) if part.startswith("ubuntu") else {}
        minor = Version(f"{at.major}.{at.minor}")
        if "since" in system and minor < Version(system["since"]):
            yield TagFault(
                f"images of {part} are made from CUDA {system['since']} on", "an older Ubuntu or a newer CUDA", source
            )
        elif "until" in system and minor > Version(system["until"]):
            yield TagFault(f"images of {part} are made up to CUDA {system['until']}", "a newer Ubuntu", source)


def _python_of_month(month: str) -> str:
    return "" if month < "23.05" else "3.12" if month >= _data()["newer_since"] else "3.10"


@cache
def _data() -> dict[str, Any]:
    found: dict[str, Any] = read_yaml(FILE)
    return found
