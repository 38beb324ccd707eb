"""Which files and folders the repositories of TensorRT-LLM and of its Triton backend have, by release.

The backend's are all in ``data/backend_tree.yml``, with its tags and branches. Of TensorRT-LLM the scripts are known
that have a table of options, and the folders that hold them.
"""

import posixpath
from functools import cache
from pathlib import Path
from typing import NamedTuple

from serving_base.yaml_files import read_yaml
from trtllm_check.releases.clients import EXAMPLES
from trtllm_check.releases.python_names import NameVerdict, PythonPackage

FILE = Path(__file__).parent / "data/backend_tree.yml"
THERE = "."
WELL_KNOWN = frozenset(
    {
        *("convert_checkpoint.py", "run.py", "summarize.py", "mmlu.py", "quantize.py", "build.py"),
        *("build_visual_engine.py", "hf_lora_convert.py", "prepare_dataset.py", "fill_template.py"),
        *("launch_triton_server.py", "inflight_batcher_llm_client.py", "end_to_end_grpc_client.py"),
    }
)


class RepositoryTree(NamedTuple):
    """The files of one repository. ``is_whole``: all its folders are known, and not only those with scripts."""

    package: PythonPackage
    is_whole: bool

    @property
    def folders(self) -> dict[str, dict[str, str]]:
        """Folder -> its files, each with the releases that have it."""
        return self.package.calls

    def knows(self, path: str) -> bool:
        """True for a file or folder that some release has."""
        return path in self.folders or posixpath.basename(path) in self.folders.get(_folder(path), ())

    def judge(self, path: str, release: str) -> NameVerdict | None:
        """Why ``path``, which is known, is not in ``release``; None where it is, or nobody knows."""
        if not self.package.near_releases(release):
            return None
        if path in self.folders:
            return self.package.judge_command(path, THERE, release)
        return self.package.judge_command(_folder(path), posixpath.basename(path), release)

    def places(self, name: str, release: str) -> tuple[str, ...]:
        """Where the release has a file of this name; where any has, for a release that was not read."""
        folders = (folder for folder, files in self.folders.items() if name in files)
        found = (posixpath.normpath(posixpath.join(folder, name)) for folder in folders)
        return tuple(path for path in found if self.judge(path, release) is None)


def _folder(path: str) -> str:
    return posixpath.dirname(path) or THERE


@cache
def backend_tree() -> RepositoryTree:
    """The repository tensorrtllm_backend."""
    content = read_yaml(FILE)
    return RepositoryTree(_package(content["source"], content["releases"], content["folders"]), is_whole=True)


@cache
def backend_branches() -> frozenset[str]:
    """Its branches that are for users."""
    return frozenset(read_yaml(FILE)["branches"].split())


@cache
def examples_tree() -> RepositoryTree:
    """The scripts among TensorRT-LLM's examples and benchmarks."""
    content = read_yaml(EXAMPLES)
    files: dict[str, dict[str, str]] = {}
    having: dict[str, set[str]] = {}
    for path, options in content["scripts"].items():
        folder, name = posixpath.split(path)
        spans = next(spans for spans, names in options.items() if THERE in names.split())
        files.setdefault(folder, {})[name] = spans
        while folder:
            having.setdefault(folder, set()).add(spans)
            folder = posixpath.dirname(folder)
    for folder, all_spans in having.items():
        files.setdefault(folder, {})[THERE] = ",".join(sorted(all_spans))
    files[THERE] = {THERE: f"{content['releases'].split()[0]}.."}
    lines = {folder: _by_spans(names) for folder, names in files.items()}
    return RepositoryTree(_package(content["source"], content["releases"], lines), is_whole=False)


def _by_spans(names: dict[str, str]) -> dict[str, str]:
    lines: dict[str, str] = {}
    for name, spans in names.items():
        lines[spans] = f"{lines[spans]} {name}" if spans in lines else name
    return lines


def _package(source: str, releases: str, folders: dict[str, dict[str, str]]) -> PythonPackage:
    nothing = {"modules": {}, "open": {}, "names": {}, "others": "", "moved": {}, "members": {}}
    return PythonPackage({**nothing, "source": source, "releases": releases, "calls": folders})
