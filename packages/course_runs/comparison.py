"""Two runs side by side: results by name, the ratio where it says something, and why not where it does not."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from course_runs.runs import NOT_SAID, CourseRun, KeyResult
from serving_base.errors import UsageError

TEMPLATE = Path(__file__).parent / "templates" / "comparison.html.j2"
LIKE = ("model", "weights", "load of chapter 08")
"""Conditions that must be equal for a ratio of measured results: the others are what one compares."""
SAME_EVERYWHERE = ("computed", "planned", "published")
"""Origins, by their first word, of results that do not depend on what a run measured."""


@dataclass(frozen=True)
class Unlikeness:
    """A condition in which the runs differ. ``unlike``: with it no ratio of measured results is given."""

    name: str
    a: str
    b: str
    unlike: bool


@dataclass(frozen=True)
class ComparedResult:
    """A result of both runs, or of one. ``ratio``: B over A (lowest, middle, highest); ``why``: why there is none."""

    chapter: str
    name: str
    unit: str
    a: float | str | None
    b: float | str | None
    ratio: tuple[float, float, float] | None = None
    why: str = ""


@dataclass(frozen=True)
class Comparison:
    a: CourseRun
    b: CourseRun
    differences: tuple[Unlikeness, ...]
    rows: tuple[ComparedResult, ...]
    seconds: tuple[tuple[str, str, str], ...]


def compare(
    a: CourseRun, b: CourseRun, *, again_a: Sequence[CourseRun] = (), again_b: Sequence[CourseRun] = ()
) -> Comparison:
    """B over A. ``again``: other runs under the same conditions, from which the spread of a ratio comes.

    :class:`UsageError` for a run against itself, and for another run that is not like its first.
    """
    for first, others in ((a, again_a), (b, again_b)):
        for other in others:
            if why := ", ".join(each.name for each in differences(first, other)):
                raise UsageError(
                    f"{other.folder} does not repeat {first.folder}", why=f"they differ in: {why}", fix="leave it out"
                )
    sides = [*again_a, a], [*again_b, b]
    if {run.folder.resolve() for run in sides[0]} & {run.folder.resolve() for run in sides[1]}:
        raise UsageError(f"{b.folder} stands on both sides", fix="name two different runs")
    found = differences(a, b)
    unlike = [each for each in found if each.unlike]
    names = {(each.chapter, each.name) for run in (a, b) for each in run.results}
    rows = tuple(_row(chapter, name, sides, unlike) for chapter, name in sorted(names))
    chapters = sorted({*a.status, *b.status})
    return Comparison(a, b, found, rows, tuple((name, _time(a, name), _time(b, name)) for name in chapters))


def differences(a: CourseRun, b: CourseRun) -> tuple[Unlikeness, ...]:
    ours, theirs = a.conditions(), b.conditions()
    return tuple(
        Unlikeness(name, ours[name], theirs[name], name in LIKE) for name in ours if ours[name] != theirs[name]
    )


def _row(
    chapter: str, name: str, sides: tuple[list[CourseRun], list[CourseRun]], unlike: Sequence[Unlikeness]
) -> ComparedResult:
    """Each side ends with the run whose value is shown."""
    found = [[_result(run, chapter, name) for run in side] for side in sides]
    a, b = found[0][-1], found[1][-1]
    known = a or b
    assert known is not None
    why = _refusal(a, b, unlike)
    ratio = None if why else _ratio(*found)
    return ComparedResult(chapter, name, known.unit, a.value if a else None, b.value if b else None, ratio, why)


def _refusal(a: KeyResult | None, b: KeyResult | None, unlike: Sequence[Unlikeness]) -> str:
    """Why a ratio of the two would say nothing; "" if it says something."""
    if a is None or b is None:
        return f"only in {'A' if b is None else 'B'}"
    if a.unit != b.unit:
        return f"units differ: {a.unit or 'none'}, {b.unit or 'none'}"
    if a.number is None or b.number is None:
        return "equal" if a.value == b.value else "words"
    if a.origin != b.origin:
        return f"origins differ: {a.origin}; {b.origin}"
    if unlike and not a.origin.startswith(SAME_EVERYWHERE):
        return f"unlike: {', '.join(each.name for each in unlike)}"
    return "A is 0" if a.number == 0 else ""


def _ratio(a: list[KeyResult | None], b: list[KeyResult | None]) -> tuple[float, float, float]:
    """Over all pairs of a run of B and one of A."""
    ours, theirs = ([each.number for each in side if each is not None and each.number is not None] for side in (a, b))
    ratios = sorted(other / one for one in ours for other in theirs if one)
    return ratios[0], ratios[len(ratios) // 2], ratios[-1]


def _result(run: CourseRun, chapter: str, name: str) -> KeyResult | None:
    return next((each for each in run.results if (each.chapter, each.name) == (chapter, name)), None)


def _time(run: CourseRun, chapter: str) -> str:
    status = run.status.get(chapter, "not in this run")
    return f"{run.seconds[chapter]:.1f} s" if status == "ok" else status


def page(comparison: Comparison) -> str:
    """One self-contained page."""
    import jinja2

    engine = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    engine.filters["shown"] = shown
    engine.filters["ratio"] = ratio_words
    return engine.from_string(TEMPLATE.read_text(encoding="utf-8")).render(found=comparison, not_said=NOT_SAID)


def shown(value: float | str | None) -> str:
    """Four significant digits."""
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def ratio_words(ratio: tuple[float, float, float] | None) -> str:
    """Such as "1.52" or, with a spread, "1.52 (1.48 to 1.55)"."""
    if ratio is None:
        return ""
    low, middle, high = (f"{each:.3g}" for each in ratio)
    return middle if low == high else f"{middle} ({low} to {high})"
