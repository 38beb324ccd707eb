"""Write ``packages/trtllm_check/releases/data/modelopt/scripts.yml``: options of Model Optimizer's scripts by release.

Read from a clone of NVIDIA/Model-Optimizer by its tags; nothing of it is run::

    python benchmarks/checker/modelopt_scripts.py CLONE
"""

import argparse
import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from packaging.version import InvalidVersion, Version

DATA = Path(__file__).parents[2] / "packages/trtllm_check/releases/data/modelopt/scripts.yml"
FOLDERS = ("examples/llm_ptq", "examples/hf_ptq")
LONG_OPTIONS = re.compile(r"getopt\s[^\n]*?-l\s+\"(?P<names>[^\"]+)\"")
HEAD = """\
# Written by benchmarks/checker/modelopt_scripts.py from NVIDIA/Model-Optimizer (Apache-2.0; see NOTICE) by tag: the
# options of examples/llm_ptq (hf_ptq from 0.46.0 on), with the first and the last release that have each.
"""


def releases(clone: Path) -> list[str]:
    """The tags of releases, the oldest first."""
    tags = subprocess.run(["git", "-C", clone, "tag"], capture_output=True, text=True, check=True).stdout.split()
    found = []
    for tag in tags:
        try:
            version = Version(tag)
        except InvalidVersion:
            continue
        if not version.is_prerelease:
            found.append(version)
    return [str(version) for version in sorted(found)]


def shown(clone: Path, tag: str, path: str) -> str:
    """The file at the tag; "" where it has none."""
    for folder in FOLDERS:
        done = subprocess.run(["git", "-C", clone, "show", f"{tag}:{folder}/{path}"], capture_output=True, text=True)
        if done.returncode == 0 and "\n" in done.stdout:  # a link's text is one line
            return done.stdout
    return ""


def of_python(text: str) -> Iterator[str]:
    """The options that ``add_argument`` names."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            for one in node.args:
                if isinstance(one, ast.Constant) and str(one.value).startswith("--"):
                    yield str(one.value)


def of_shell(text: str) -> Iterator[str]:
    """The long options of ``getopt``."""
    for match in LONG_OPTIONS.finditer(text):
        for name in match["names"].split(","):
            yield f"--{name.rstrip(':')}"


def main() -> None:
    """Read all tags and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clone", type=Path)
    clone = parser.parse_args().clone
    known = releases(clone)
    read = {"hf_ptq.py": ("hf_ptq.py", of_python), "huggingface_example.sh": ("scripts/parser.sh", of_shell)}
    read["multinode_ptq.py"] = ("multinode_ptq.py", of_python)
    lines = [f"releases: [{', '.join(known)}]", "scripts:"]
    for script, (path, options) in read.items():
        seen: dict[str, list[str]] = {}
        for tag in known:
            for option in dict.fromkeys(options(shown(clone, tag, path))):
                seen.setdefault(option, []).append(tag)
        lines.append(f"  {script}:")
        lines += [f"    {option}: [{tags[0]}, {tags[-1]}]" for option, tags in sorted(seen.items())]
    DATA.write_text(HEAD + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
