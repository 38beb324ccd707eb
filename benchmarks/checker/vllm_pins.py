"""Write ``packages/trtllm_check/releases/data/packages/vllm.yml``: what each release of vLLM asks of other packages.

Read from its source archives, as they lie in one folder: the metadata (Requires-Dist, Requires-Python), and the files
of requirements of releases whose archive was not made for CUDA. None of their code is run::

    python benchmarks/checker/vllm_pins.py FOLDER
"""

import argparse
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from benchmarks.checker.vllm_sources import archives
from benchmarks.checker.vllm_tables import Table, written

FILE = Path(__file__).parents[2] / "packages/trtllm_check/releases/data/packages/vllm.yml"
WHAT = "What its wheel for CUDA on x86_64 asks of Python and of other packages; gone: nothing more."
FILES = re.compile(r"(?:PKG-INFO|requirements(?:[-/](?:common|cuda|build/cuda))?\.txt)")
PYTHONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
AT = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64", "extra": ""}


def _read(path: Path) -> tuple[str, dict[str, str]]:
    """Requires-Python, and the specifier of each package that has one."""
    texts: dict[str, str] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            name = member.name.partition("/")[2]
            if FILES.fullmatch(name) and (file := archive.extractfile(member)):
                texts[name] = file.read().decode("utf-8", errors="replace")
    head = texts.get("PKG-INFO", "").partition("\n\n")[0]
    needs = dict(_needs(re.findall(r"^Requires-Dist: (.+)$", head, re.MULTILINE)))
    if "torch" not in needs:  # an archive that was made for no GPU
        lines = [line for name, text in sorted(texts.items()) if name != "PKG-INFO" for line in text.split("\n")]
        needs = dict(_needs(lines)) | needs
    python = re.search(r"^Requires-Python: (.+)$", head, re.MULTILINE)
    return python[1].strip() if python else "", needs


def _needs(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        try:
            one = Requirement(re.sub(r"\s+#.*", "", line.strip()))
        except InvalidRequirement:
            continue
        if one.specifier and _is_always(one.marker):
            yield canonicalize_name(one.name), _sorted(one.specifier)


def _is_always(marker: Marker | None) -> bool:
    """True for a requirement of every Python, without an extra."""
    return marker is None or all(
        marker.evaluate({**AT, "python_version": one, "python_full_version": f"{one}.9"}) for one in PYTHONS
    )


def _sorted(specifier: SpecifierSet) -> str:
    return ",".join(sorted((str(one) for one in specifier), key=lambda one: (one[0] in "<!", one)))


def main() -> None:
    """Read all archives and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    tables = {"python": Table(), "needs": Table()}
    for version, path in archives(parser.parse_args().folder).items():
        python, needs = _read(path)
        if not needs:
            continue  # modules of a wheel alone: as the release before
        tables["python"].add(str(version), {"python": f"'{python}'"} if python else {})
        tables["needs"].add(str(version), {name: f"'{needed}'" for name, needed in needs.items()})
    FILE.parent.mkdir(parents=True, exist_ok=True)
    text = written(WHAT, {section: table.changes() for section, table in tables.items()})
    FILE.write_text(
        text.replace("vllm_tables.py", "vllm_pins.py").replace("; what is known by reading alone: instead.yml", "")
    )


if __name__ == "__main__":
    main()
