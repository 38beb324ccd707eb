"""What the tools of other releases take and where they are, found in the text of the release files.

Reading all releases as data takes half a second, which a checker does not have; a test holds the two equal.
"""

import re
from functools import cache

from playbook.releases.load import DATA_DIR, known_releases

TOOL = re.compile(r"^  (\S+):\n((?:    .*\n|\n)*)", re.MULTILINE)
ARGUMENT = re.compile(r"^      (\S+): \{(action: BooleanOptionalAction)?(?:.*?\baliases: \[([^\]]*)\])?", re.MULTILINE)
PATH = re.compile(r"^    (container_path|repo_path): (\S+)$", re.MULTILINE)


@cache
def tools(release: str) -> dict[str, str]:
    """Tool -> what the file of ``release`` says of it."""
    text = (DATA_DIR / f"{release}.yml").read_text(encoding="utf-8")
    _, _, tools_text = text.partition("\ntools:\n")
    return dict(TOOL.findall(tools_text))


@cache
def names(release: str, tool: str) -> frozenset[str]:
    """Every way to write an argument of ``tool``; none where the release has no facts on it."""
    found: set[str] = set()
    for name, opposite, aliases in ARGUMENT.findall(tools(release).get(tool, "")):
        found |= {name, *filter(None, aliases.split(", "))}
        if opposite:
            found.add(f"--no-{name.removeprefix('--')}")
    return frozenset(found)


def paths(release: str, tool: str) -> dict[str, str]:
    """``container_path`` and ``repo_path`` of ``tool``, as far as it has them."""
    return dict(PATH.findall(tools(release).get(tool, "")))


def with_flag(tool: str, flag: str) -> list[str]:
    """The releases whose ``tool`` takes ``flag``, oldest first."""
    return [release for release in known_releases() if flag in names(release, tool)]
