"""A recorded edition: runs of one machine, made small and impersonal enough to stand in the repository.

``NAME/edition.json`` says what was run, where, and on which sources; ``NAME/PROFILE/`` holds the executed notebooks of
one run with its run.json and results.json. The outputs in ``notebooks/`` are another set, and stay as they are.
"""

import base64
import hashlib
import io
import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_runs.runs import CourseRun, read_run
from course_runs.scrubbing import Scrubber
from serving_base.errors import PlaybookError, UsageError

if TYPE_CHECKING:
    from nbformat import NotebookNode

EDITION_FILE = "edition.json"
LIMIT_BYTES = 15 * 10**6
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
INJECTED = "injected-parameters"
WIDGET = "application/vnd.jupyter.widget-"
VOLATILE = ("papermill", "execution")
CHECK = re.compile(r"^✓ ", re.MULTILINE)
"""How a chapter prints a check that held."""


@dataclass(frozen=True)
class RecordedChapter:
    """``cells``: SHA-256 of each code cell's normalised source, by the cell's id. ``parameters``: those it was given.

    ``notebook``: its file in the run's folder; "" if the chapter did not run.
    """

    chapter: str
    title: str
    status: str
    seconds: float
    checks: int
    notebook: str
    parameters: Mapping[str, Any]
    cells: Mapping[str, str]


@dataclass(frozen=True)
class RecordedRun:
    """``folder``: below the edition's. ``machine``: run.json's environment. ``playbook``: version and commit."""

    folder: str
    profile: str
    lane: str
    release: str
    started: str
    playbook: Mapping[str, str]
    machine: Mapping[str, str]
    parameters: Mapping[str, str]
    chapters: tuple[RecordedChapter, ...]


@dataclass(frozen=True)
class Edition:
    """``date``: when its first run began, YYYY-MM-DD."""

    name: str
    date: str
    runs: tuple[RecordedRun, ...]


def make_edition(
    folders: Sequence[Path], parent: Path, *, name: str = "", force: bool = False, hide: Iterable[str] = ()
) -> Edition:
    """Write ``parent/NAME`` from these runs' folders; nothing is left there if it cannot be written.

    ``hide``: words of the machine that no pattern finds, such as its name. ``force``: replaces an edition, and what
    its changes.yml explained. :class:`UsageError` for a name that is taken or none, :class:`PlaybookError` for an
    edition of more than :data:`LIMIT_BYTES`.
    """
    runs = [read_run(folder) for folder in folders]
    if not runs:
        raise UsageError("an edition of no run", fix="name a run's folder, such as runs/20261120-101500")
    name = name or default_name(runs[0])
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name an edition",
            why="it becomes a folder",
            fix="small letters, digits, dots and dashes, such as h200-20261124",
        )
    target, aside = parent / name, parent / f".{name}.tmp"
    if target.exists() and not force:
        raise UsageError(
            f"{target} exists", why="an edition is not replaced by accident", fix="give another --name, or --force"
        )
    shutil.rmtree(aside, ignore_errors=True)
    try:
        recorded = [_record(run, aside / folder, hide) for run, folder in zip(runs, _subfolders(runs), strict=True)]
        edition = Edition(name, min(run.started for run in recorded)[:10], tuple(recorded))
        (aside / EDITION_FILE).write_text(_json(asdict(edition)), encoding="utf-8")
        size = folder_bytes(aside)
        if size > LIMIT_BYTES:
            raise PlaybookError(
                f"the edition {name} would take {size / 1e6:.1f} MB; the limit is {LIMIT_BYTES / 1e6:g} MB",
                why="every clone of the repository brings it",
                fix="make it of fewer runs or chapters, or of a run whose cells show less",
            )
        if target.exists():
            shutil.rmtree(target)
        aside.rename(target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return edition


def default_name(run: CourseRun) -> str:
    """The GPU, or the profile where there is none, and the day: ``h200-20261124``."""
    gpu = re.search(r"\b([A-Z]{1,3}\d{1,4}\w*)\b", str(run.facts["environment"].get("gpus", "")))
    what = gpu[1] if gpu else Path(run.facts["profile"]).stem
    return f"{what.lower()}-{run.facts['started'][:10].replace('-', '')}"


def read_edition(folder: Path) -> Edition:
    """:class:`UsageError` for what :func:`make_edition` did not write."""
    try:
        found = json.loads((folder / EDITION_FILE).read_text(encoding="utf-8"))
        runs = tuple(
            RecordedRun(**{**run, "chapters": tuple(RecordedChapter(**each) for each in run["chapters"])})
            for run in found["runs"]
        )
        return Edition(found["name"], found["date"], runs)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{folder} is no recorded edition", why=f"{EDITION_FILE}: {error!r}", fix="run: playbook recorded make RUN"
        ) from error


def editions(parent: Path, names: Sequence[str] = ()) -> list[Edition]:
    """Those of ``names``, or all below ``parent``, by name."""
    chosen = list(names) or sorted(path.parent.name for path in parent.glob(f"*/{EDITION_FILE}"))
    return [read_edition(parent / name) for name in chosen]


def recorded_notebooks(parent: Path, number: str) -> list[tuple[str, Path]]:
    """Where chapter ``number`` ran elsewhere, in words, and its notebook; only chapters that ended well."""
    return [
        (
            f"{_machine(run)}, profile {run.profile}, {edition.date}",
            parent / edition.name / run.folder / chapter.notebook,
        )
        for edition in editions(parent)
        for run in edition.runs
        for chapter in run.chapters
        if chapter.chapter.startswith(f"{number}-") and chapter.status == "ok"
    ]


def _machine(run: RecordedRun) -> str:
    return counted(run.machine.get("gpus") or run.machine.get("processor", ""))


def counted(listed: str) -> str:
    """ "a; a" as "2 x a"."""
    each = listed.split("; ")
    return "; ".join(f"{each.count(one)} x {one}" if each.count(one) > 1 else one for one in dict.fromkeys(each))


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def source_hash(source: str) -> str:
    """SHA-256 of a cell's source without what no reader sees: blanks at ends of lines, blank lines at its end."""
    lines = "\n".join(line.rstrip() for line in source.splitlines()).strip("\n")
    return hashlib.sha256(lines.encode()).hexdigest()


def cell_hashes(notebook: "NotebookNode") -> dict[str, str]:
    """The hash of each code cell of the chapter itself, by id: not of the values that a run put into it."""
    return {cell.id: source_hash(cell.source) for cell in notebook.cells if cell.cell_type == "code" and _own(cell)}


def _own(cell: "NotebookNode") -> bool:
    return INJECTED not in cell.metadata.get("tags", [])


def _subfolders(runs: Sequence[CourseRun]) -> list[str]:
    """One a run, named after its profile; a profile that comes again has a number."""
    names: list[str] = []
    for run in runs:
        profile = Path(run.facts["profile"]).stem
        taken = sum(name == profile or name.startswith(f"{profile}--") for name in names)
        names.append(f"{profile}--{taken + 1}" if taken else profile)
    return names


def _record(run: CourseRun, folder: Path, hide: Iterable[str]) -> RecordedRun:
    """Write one run's files, scrubbed."""
    from nbformat import write

    folder.mkdir(parents=True)
    results = json.loads((run.folder / "results.json").read_text(encoding="utf-8"))
    read = {each["chapter"]: _read(run.folder / each["notebook"]) for each in results if each.get("notebook")}
    scrubber = Scrubber(_known_paths(run, read.values()), hide)
    results = [{**scrubber.data(each), "log": ""} for each in results]
    chapters = []
    for each in results:
        notebook = read.get(each["chapter"])
        given = notebook.metadata.get("papermill", {}).get("parameters", {}) if notebook else {}
        chapters.append(
            RecordedChapter(
                each["chapter"],
                each["title"],
                each["status"],
                each["seconds"],
                _checks(notebook) if notebook else 0,
                f"{each['chapter']}.ipynb" if notebook else "",
                scrubber.data(given),
                cell_hashes(notebook) if notebook else {},
            )
        )
        if notebook:
            write(cleaned(notebook, scrubber), folder / chapters[-1].notebook)  # type: ignore[no-untyped-call]
            each["notebook"] = chapters[-1].notebook
    facts = scrubber.data(run.facts)
    (folder / "run.json").write_text(_json(facts), encoding="utf-8")
    (folder / "results.json").write_text(_json(results), encoding="utf-8")
    said = {name: facts[name] for name in ("profile", "lane", "release", "started", "parameters")}
    return RecordedRun(
        folder.name, **said, playbook=facts.get("playbook", {}), machine=facts["environment"], chapters=tuple(chapters)
    )


def _read(path: Path) -> "NotebookNode":
    from nbformat import read

    try:
        notebook: NotebookNode = read(path, as_version=4)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path} cannot be read as a notebook",
            why=str(error).partition("\n")[0],
            fix="copy the whole folder of the run",
        ) from error
    return notebook


def _known_paths(run: CourseRun, notebooks: Iterable["NotebookNode"]) -> dict[str, str]:
    """Where the checkout, the run's folder and the workspace lay, and what stands for each."""
    found = {str(run.folder.resolve()): "run"}
    for notebook in notebooks:
        said = notebook.metadata.get("papermill", {})
        if said.get("input_path"):
            found[str(Path(said["input_path"]).parents[1])] = "."
        if said.get("output_path"):
            found[str(Path(said["output_path"]).parent)] = "run"
    return found | {str(run.facts.get("workspace", "")): "workspace"}


def _checks(notebook: "NotebookNode") -> int:
    texts = (output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    return sum(len(CHECK.findall(text)) for text in texts)


def cleaned(notebook: "NotebookNode", scrubber: Scrubber) -> "NotebookNode":
    """A copy whose outputs are scrubbed and small, without the state of widgets and papermill's notes."""
    from nbformat import from_dict

    copy: NotebookNode = from_dict(json.loads(json.dumps(notebook)))  # type: ignore[no-untyped-call]
    for name in ("widgets", *VOLATILE):
        copy.metadata.pop(name, None)
    for cell in copy.cells:
        for name in VOLATILE:
            cell.metadata.pop(name, None)
        if not _own(cell):
            cell.source = scrubber.text(cell.source)
        if cell.cell_type == "code":
            cell.outputs = [from_dict(_small(scrubber.data(output))) for output in cell.outputs]  # type: ignore[no-untyped-call]
    return copy


def _small(output: dict[str, Any]) -> dict[str, Any]:
    if "data" in output:
        kept = {kind: value for kind, value in output["data"].items() if not kind.startswith(WIDGET)}
        if "image/png" in kept:
            kept["image/png"] = smaller_png(kept["image/png"])
        output["data"] = kept
    return output


def smaller_png(encoded: str) -> str:
    """A PNG in base64 with 256 colours, which a plot does not show; one with a palette, or no larger, stays."""
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(encoded))) as picture:
        if picture.mode == "P":
            return encoded
        written = io.BytesIO()
        picture.convert("RGBA").quantize(256, method=Image.Quantize.FASTOCTREE).save(written, "PNG", optimize=True)
    made = base64.b64encode(written.getvalue()).decode()
    return min(made, encoded, key=len)


def _json(data: Any) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False, sort_keys=False) + "\n"
