"""Write ``packages/trtllm_check/releases/data/vllm``: what each release of vLLM takes, read from its source archives.

The archives (``vllm-VERSION.tar.gz``, as vLLM publishes them; of a release without one, a tar.gz of its wheel's
modules) lie in one folder. None of their code is run::

    python benchmarks/checker/vllm_tables.py FOLDER

A name stands with what it was at the releases where that changed: ``{0.2.0: switch, 0.10.0: gone}``.
"""

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.checker import vllm_names as names
from benchmarks.checker import vllm_options as options
from benchmarks.checker.vllm_sources import Source, archives

DATA = Path(__file__).parents[2] / "packages/trtllm_check/releases/data/vllm"
GONE = "gone"
HAS = "has"
WIDTH = 118
HEADER = """\
# Written by benchmarks/checker/vllm_tables.py from vLLM's source archives; what is known by reading alone: instead.yml.
# {what}
"""
Told = dict[str, dict[str, str]]  # name -> release -> what it is there


class Table:
    """What each name is, release by release."""

    def __init__(self) -> None:
        self.releases: list[str] = []
        self.seen: dict[str, dict[str, str]] = {}

    def add(self, release: str, found: Mapping[str, str]) -> None:
        self.releases.append(release)
        self.seen[release] = dict(found)

    def changes(self) -> Told:
        told: Told = {}
        for name in sorted({name for found in self.seen.values() for name in found}):
            before, known = GONE, ""
            changes: dict[str, str] = {}
            for release in self.releases:
                now = self.seen[release].get(name, GONE)
                if now != before:
                    changes[release] = _against(known, now)
                    before = now
                    known = now if now != GONE else known
            told[name] = changes
        return told


def _against(before: str, now: str) -> str:
    """``choice +new -old`` against the choices before, where that is shorter."""
    if not (before.startswith("choice ") and now.startswith("choice ")):
        return now
    had, has = before.removeprefix("choice ").split("|"), now.removeprefix("choice ").split("|")
    parts = [f"{sign}{'|'.join(some)}" for sign, some in (("+", _less(has, had)), ("-", _less(had, has))) if some]
    shorter = f"choice {' '.join(parts)}"
    return shorter if parts and len(shorter) < len(now) else now


def _less(some: Iterable[str], others: Iterable[str]) -> list[str]:
    others = set(others)
    return [one for one in some if one not in others]


def _same(found: Iterable[str]) -> dict[str, str]:
    return dict.fromkeys(found, HAS)


def _clean(found: Mapping[str, str]) -> dict[str, str]:
    """The values of a choice once, in one order, so that only what changes is told."""
    return {
        name: f"choice {'|'.join(sorted(set(kind.removeprefix('choice ').split('|'))))}"
        if kind.startswith("choice")
        else kind
        for name, kind in found.items()
    }


def written(what: str, tables: Mapping[str, Told]) -> str:
    """The YAML of one file: each name on a line, or wrapped where it is long."""
    lines = [HEADER.format(what=what).rstrip("\n")]
    for section, told in tables.items():
        lines.append(f"{section}:")
        for name, changes in told.items():
            parts = [f"{release}: {kind}" for release, kind in changes.items()]
            lines += _wrapped(f"  {name}: {{", parts)
    return "\n".join(lines) + "\n"


def _wrapped(head: str, parts: list[str]) -> list[str]:
    whole = f"{head}{', '.join(parts)}}}"
    if len(whole) <= WIDTH:
        return [whole]
    lines, line = [head], "   "
    for number, part in enumerate(parts):
        part = part + ("," if number < len(parts) - 1 else "}")
        if len(line) + len(part) + 1 > WIDTH and line.strip():
            lines.append(line)
            line = "   "
        line += f" {part}"
    return [*lines, line]


def main() -> None:
    """Read all archives and write the files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    read: dict[str, dict[str, Table]] = {}
    releases = archives(parser.parse_args().folder)
    for version, path in releases.items():
        for file, found in _read(Source(path)).items():
            for section, kinds in found.items():
                read.setdefault(file, {}).setdefault(section, Table())
                read[file][section].seen[str(version)] = kinds
    known = [str(version) for version in releases]
    DATA.mkdir(parents=True, exist_ok=True)
    for file, tables in read.items():
        for table in tables.values():
            table.releases = known
            table.seen = {release: table.seen.get(release, {}) for release in known}
        told = {section: table.changes() for section, table in tables.items()}
        (DATA / f"{file}.yml").write_text(written(WHAT[file], told))
    first = "# The releases of vLLM that were read, by benchmarks/checker/vllm_tables.py: the oldest first.\n"
    listed = _wrapped("releases: [", known)
    (DATA / "releases.yml").write_text(first + "\n".join(listed).replace("}", "]") + "\n")


WHAT = {
    "options": "Options of vllm serve (engine, frontend), run-batch and each bench, without dashes; EngineArgs.",
    "names": "Variables of the environment, parsers by name, and the arguments of SamplingParams and LLM.",
    "requests": "Fields of the bodies that the server reads, by path below /v1; unknown: what it does with others.",
    "objects": "Settings of the options whose value is an object.",
}


def _read(source: Source) -> dict[str, dict[str, dict[str, str]]]:
    """File -> section -> name -> what it is in this release."""
    bench = {f"bench {name}": _clean(found) for name, found in options.bench_options(source).items()}
    engine = _clean(options.engine_options(source))
    by_option = {name.replace("-", "_") for name in engine}
    fields = {name: HAS for name in options.engine_fields(source) if name not in by_option}
    requests = {path: dict(found) for path, found in names.request_fields(source).items()}
    return {
        "options": {
            "engine": engine,
            "async": _clean(options.engine_options(source, "AsyncEngineArgs")),
            "fields": fields,
            "frontend": _clean(options.frontend_options(source)),
            "run-batch": _clean(options.batch_options(source)),
            **bench,
        },
        "names": {
            "variables": _same(names.variables(source)),
            **{option: _same(found) for option, found in names.parsers(source).items()},
            "SamplingParams": _same(names.sampling_fields(source)),
            "LLM": _same(names.llm_arguments(source)),
        },
        "requests": {**requests, "unknown": {"field": names.refuses_unknown(source)}},
        "objects": {option: _same(found) for option, found in names.object_fields(source).items()},
    }


if __name__ == "__main__":
    main()
