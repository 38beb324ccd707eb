"""Make packages/trtllm_check/releases/data/backend_tree.yml: files of tensorrtllm_backend by release, and branches.

    python -m benchmarks.checker.backend_tree CLONE

Left out are its tests, documents and sources; ``.`` stands for a folder itself.
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path, PurePosixPath

from benchmarks.checker.python_names import Spans, spans, written

TABLE = Path(__file__).parents[2] / "packages/trtllm_check/releases/data/backend_tree.yml"
HEADING = "# Made by benchmarks/checker/backend_tree.py; see packages/trtllm_check/releases/trees.py and NOTICE."
VERSION = re.compile(r"v(\d+)\.(\d+)\.(\d+)")
BRANCH = re.compile(r"r\d\d\.\d\d|main|rel|release/\S+")
LEFT_OUT = re.compile(r"(?:ci|docs|images|\.github|all_models/tests|inflight_batcher_llm/(?:src|cmake))(?:/|$)")
THERE = "."


def _git(clone: Path, *words: str) -> list[str]:
    done = subprocess.run(["git", "-C", str(clone), *words], capture_output=True, check=True, text=True)
    return done.stdout.splitlines()


def main() -> None:
    clone = Path(sys.argv[1])
    tags = sorted((tag for tag in _git(clone, "tag") if VERSION.fullmatch(tag)), key=_numbers)
    order = [tag.removeprefix("v") for tag in tags]
    found: dict[str, Spans] = defaultdict(lambda: defaultdict(list))
    for tag, release in zip(tags, order, strict=True):
        seen: set[str] = set()
        for name in _git(clone, "ls-tree", "-r", "--name-only", tag):
            path = PurePosixPath(name)
            for folder in (path.parent, *path.parent.parents):
                if str(folder) not in seen and not LEFT_OUT.match(f"{folder}/"):
                    seen.add(str(folder))
                    found[str(folder)][THERE].append(release)
            if not LEFT_OUT.match(name) and not path.name.startswith("."):
                found[str(path.parent)][path.name].append(release)
    branches = [one for one in _git(clone, "branch", "--all", "--format=%(refname:short)") if BRANCH.fullmatch(one)]
    content = {
        "source": f"triton-inference-server/tensorrtllm_backend, the tags of {order[0]} to {order[-1]}",
        "releases": " ".join(order),
        "branches": " ".join(sorted(branches)),
        "folders": {folder: _lines(found[folder], order) for folder in sorted(found)},
    }
    TABLE.write_text(written(content, HEADING))
    print(f"{TABLE.name}: {len(found)} folders, {TABLE.stat().st_size} bytes")


def _lines(names: Spans, order: list[str]) -> dict[str, str]:
    grouped: dict[str, list[str]] = defaultdict(list)
    for name, releases in names.items():
        grouped[spans(releases, order)].append(name)
    in_order = sorted(grouped, key=lambda one: order.index(one.split("..")[0]))
    return {span: " ".join(sorted(grouped[span])) for span in in_order}


def _numbers(tag: str) -> tuple[int, ...]:
    match = VERSION.fullmatch(tag)
    return tuple(int(one) for one in match.groups()) if match else ()


if __name__ == "__main__":
    main()
