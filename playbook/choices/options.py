"""The options as data (``data/options.yml``) and the rule that ranks them for a reader's answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from serving_base.errors import UsageError
from serving_base.record import Record
from serving_base.yaml_files import read_yaml

OPTIONS_FILE = Path(__file__).parents[1] / "data" / "options.yml"
NEEDED = "needed"


class DatedSource(Record):
    """Where a fact was read, and when."""

    url: str = Field(pattern=r"^https://")
    seen: date


class Cell(Record):
    """One entry of the decision table: a fact with the name of its source, or a judgement of ours."""

    text: str = Field(min_length=1)
    source: str = ""
    judgement: bool = False

    @model_validator(mode="after")
    def fact_or_judgement(self) -> "Cell":
        if bool(self.source) == self.judgement:
            raise ValueError(f"{self.text!r} needs a source, or the mark of a judgement, and not both")
        return self

    def markdown(self) -> str:
        """A fact with the number of its source, a link; a judgement with "°"."""
        if self.judgement:
            return f"{self.text} °"
        number = list(_file().sources).index(self.source) + 1
        return f"{self.text} [[{number}]]({_file().sources[self.source].url})"


class Option(Record):
    """One way to serve the model. ``gives`` names the questions that it answers with yes."""

    title: str
    gives: frozenset[str]
    cells: dict[str, Cell]


class Question(Record):
    """What a reader may need. ``weight`` "needed" excludes the options that do not give it."""

    ask: str
    weight: int | Literal["needed"]
    contradicts: str = ""


class OptionsFile(Record):
    """The whole of ``data/options.yml``, its names checked against each other."""

    sources: dict[str, DatedSource]
    topics: dict[str, str]
    options: dict[str, Option]
    questions: dict[str, Question]

    @model_validator(mode="after")
    def names_agree(self) -> "OptionsFile":
        for name, option in self.options.items():
            if option.cells.keys() != self.topics.keys():
                raise ValueError(f"{name} has other topics than the table: {option.cells.keys() ^ self.topics.keys()}")
            if unknown := option.gives - self.questions.keys():
                raise ValueError(f"{name} gives what no question asks: {', '.join(sorted(unknown))}")
            if missing := {cell.source for cell in option.cells.values()} - self.sources.keys() - {""}:
                raise ValueError(f"{name} names unknown sources: {', '.join(sorted(missing))}")
        if unasked := {question.contradicts for question in self.questions.values()} - self.questions.keys() - {""}:
            raise ValueError(f"no question can contradict {', '.join(sorted(unasked))}: there is none of that name")
        return self


@cache
def _file(path: Path = OPTIONS_FILE) -> OptionsFile:
    return OptionsFile(**read_yaml(path))


def options() -> dict[str, Option]:
    """Every option, by name."""
    return dict(_file().options)


def questions() -> dict[str, Question]:
    """Every question that :func:`recommend` understands, by name."""
    return dict(_file().questions)


def sources() -> dict[str, DatedSource]:
    """The sources that the cells name."""
    return dict(_file().sources)


def compare(*topics: str) -> list[dict[str, str]]:
    """Rows of Markdown, one per option, with these topics (all by default) as columns.

    Facts carry the number of their source, which links to it; "°" marks judgements. Raises :class:`UsageError` for an
    unknown topic.
    """
    known = _file().topics
    if unknown := [topic for topic in topics if topic not in known]:
        raise UsageError(f"no topic {', '.join(unknown)}", fix=f"use some of: {', '.join(known)}")
    return [
        {"option": option.title} | {known[topic]: option.cells[topic].markdown() for topic in topics or known}
        for option in _file().options.values()
    ]


@dataclass(frozen=True)
class Recommendation:
    """How one option answers a reader's needs. ``lacks`` needed things exclude it, whatever its ``score``."""

    option: str
    title: str
    score: int
    gives: tuple[str, ...]
    lacks: tuple[str, ...]
    excluded_by: tuple[str, ...]

    def row(self) -> dict[str, str]:
        """For a table: what speaks for the option and what against it."""
        verdict = f"out: {', '.join(self.excluded_by)}" if self.excluded_by else str(self.score)
        return {"option": self.title, "score": verdict, "for": ", ".join(self.gives), "against": ", ".join(self.lacks)}


def recommend(needs: Sequence[str] | Mapping[str, bool]) -> list[Recommendation]:
    """Rank the options for what the reader needs: best first, excluded ones last.

    Score: the sum of the weights of the needs that an option meets. Equal scores keep the file's order, which goes
    from most control to least. Raises :class:`UsageError` for an unknown need and for two that contradict.
    """
    wanted = [name for name, yes in needs.items() if yes] if isinstance(needs, Mapping) else list(dict.fromkeys(needs))
    known = questions()
    if unknown := [name for name in wanted if name not in known]:
        raise UsageError(f"no question {', '.join(unknown)}", fix=f"use some of: {', '.join(known)}")
    for name in wanted:
        if known[name].contradicts in wanted:
            raise UsageError(
                f"{name} and {known[name].contradicts} contradict each other",
                why=f"{known[name].ask} {known[known[name].contradicts].ask}",
                fix="answer one of them with no",
            )
    ranked = [_judge(name, option, wanted, known) for name, option in options().items()]
    return sorted(ranked, key=lambda entry: (bool(entry.excluded_by), -entry.score))


def _judge(name: str, option: Option, wanted: Sequence[str], known: Mapping[str, Question]) -> Recommendation:
    gives = tuple(need for need in wanted if need in option.gives)
    lacks = tuple(need for need in wanted if need not in option.gives)
    weights = [weight for need in gives if isinstance(weight := known[need].weight, int)]
    excluded_by = tuple(need for need in lacks if known[need].weight == NEEDED)
    return Recommendation(name, option.title, sum(weights), gives, lacks, excluded_by)
