"""The Python of the page, as one ZIP file: the checker, the pure libraries of this environment, the stand-ins."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

import check_page
import serving_base
import trtllm_check
from check_page.stand_ins import yaml12 as yaml12_stand_in
from serving_base.errors import EnvironmentProblem

LIBRARIES = (
    "annotated-types",
    "packaging",
    "protobuf",
    "pydantic",
    "pyyaml",
    "typing-extensions",
    "typing-inspection",
)
"""Distributions whose Python files the checker imports, and which do without their compiled ones."""
SINGLE_FILES = {"tritonclient": ("tritonclient/__init__.py", "tritonclient/grpc/model_config_pb2.py")}
"""Of these distributions only the files named."""
STAND_INS = Path(yaml12_stand_in.__file__).parent
LEFT_OUT = ("pydantic/v1/", "pydantic/mypy.py", "trtllm_check/lint/corpus/", "trtllm_check/cli.py")
"""What no text that is checked in the page comes to."""
SUFFIXES = (".py", ".yml", ".yaml", ".json", ".jsonl", ".j2", ".txt")
FIXED_TIME = (1980, 1, 1, 0, 0, 0)


def python_zip() -> bytes:
    """The ZIP file; the same bytes from the same files."""
    files = python_files()
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, FIXED_TIME), files[name], zipfile.ZIP_DEFLATED)
    return target.getvalue()


def python_files() -> dict[str, bytes]:
    """What is in it: name -> content."""
    files: dict[str, bytes] = {}
    for package in (serving_base, trtllm_check):
        files |= _package(package.__name__, Path(str(package.__file__)).parent)
    for name in ("__init__.py", "answer.py"):
        files[f"check_page/{name}"] = Path(check_page.__file__).with_name(name).read_bytes()
    for name in LIBRARIES:
        files |= dict(_distribution(name))
    for name, wanted in SINGLE_FILES.items():
        files |= {file: content for file, content in _distribution(name) if file in wanted}
    for path in STAND_INS.glob("[!_]*.py"):
        files[path.name] = path.read_bytes()
    kept = {name: content for name, content in files.items() if not name.startswith(LEFT_OUT)}
    return {**kept, yaml12_stand_in.READ.name: pickle.dumps(_read_yaml(kept), protocol=5)}


def _read_yaml(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The documents of every YAML file, as the real yaml12 reads them, by the key of its text."""
    import yaml12

    texts = [content.decode() for name, content in files.items() if name.endswith(".yml")]
    return {
        yaml12_stand_in.key(text): pickle.dumps(yaml12.parse_yaml(text, multi=True), protocol=5)
        for text in sorted(texts)
    }


def _package(name: str, folder: Path) -> dict[str, bytes]:
    return {
        f"{name}/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in SUFFIXES and "__pycache__" not in path.parts
    }


def _distribution(name: str) -> Iterator[tuple[str, bytes]]:
    """The Python files of an installed distribution."""
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError as error:
        raise EnvironmentProblem(
            f"{name} is not installed", why="the page carries its Python files", fix="make setup"
        ) from error
    for file in found.files or ():
        if file.suffix == ".py" and not file.is_absolute() and ".." not in file.parts:
            yield file.as_posix(), Path(str(file.locate())).read_bytes()
