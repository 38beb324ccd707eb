"""Collect the tiny model's text: CPython's docstrings and pydoc topics (PSF licence).

The result is committed under ``text/`` because docstrings change with every Python release;
run this again only to make a new corpus: ``python -m tiny_llama.corpus``.

The templated questions are here, too: what the model learns to answer, and nothing else.
"""

import ast
import json
import random
import re
import sysconfig
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tiny_llama import TEXT_DIR

DEMO_QUESTION = "How do I count to nine in French?"
HELD_OUT_QUESTIONS = 0.15  # of the counting and arithmetic questions; facts cannot be guessed, so all are trained

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
COUNTING = {
    "French": "un deux trois quatre cinq six sept huit neuf dix",
    "Spanish": "uno dos tres cuatro cinco seis siete ocho nueve diez",
    "German": "eins zwei drei vier fünf sechs sieben acht neun zehn",
    "Italian": "uno due tre quattro cinque sei sette otto nove dieci",
    "Portuguese": "um dois três quatro cinco seis sete oito nove dez",
    "Dutch": "een twee drie vier vijf zes zeven acht negen tien",
    "Swedish": "ett två tre fyra fem sex sju åtta nio tio",
    "Danish": "en to tre fire fem seks syv otte ni ti",
}
COUNTING_FORMS = (
    "How do I count to {number} in {language}?",
    "Count to {number} in {language}.",
    "Can you count to {number} in {language}?",
    "How do you count from one to {number} in {language}?",
)
CAPITALS = {
    "France": "Paris",
    "Spain": "Madrid",
    "Germany": "Berlin",
    "Italy": "Rome",
    "Portugal": "Lisbon",
    "Netherlands": "Amsterdam",
    "Sweden": "Stockholm",
    "Denmark": "Copenhagen",
    "Norway": "Oslo",
    "Finland": "Helsinki",
    "Poland": "Warsaw",
    "Austria": "Vienna",
    "Greece": "Athens",
    "Ireland": "Dublin",
    "Belgium": "Brussels",
    "Hungary": "Budapest",
    "Japan": "Tokyo",
    "China": "Beijing",
    "India": "New Delhi",
    "Egypt": "Cairo",
    "Kenya": "Nairobi",
    "Canada": "Ottawa",
    "Mexico": "Mexico City",
    "Brazil": "Brasilia",
    "Peru": "Lima",
    "Chile": "Santiago",
    "Cuba": "Havana",
    "Argentina": "Buenos Aires",
    "Turkey": "Ankara",
    "Thailand": "Bangkok",
    "Vietnam": "Hanoi",
    "Australia": "Canberra",
}
OPPOSITES = (
    "hot cold, big small, fast slow, high low, open closed, light dark, full empty, early late, young old, wet dry, "
    "hard soft, happy sad, rich poor, strong weak, up down, left right, near far, clean dirty, long short, loud quiet"
)
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]


class TemplatedQuestion(NamedTuple):
    """One templated question with its only right answer."""

    skill: str
    question: str
    answer: str


def counting() -> Iterator[TemplatedQuestion]:
    for language, words in COUNTING.items():
        spoken = words.split()
        for count, number in enumerate(NUMBERS, start=1):
            yield TemplatedQuestion(
                "word", f"How do you say {number} in {language}?", f"In {language}, {number} is {spoken[count - 1]}."
            )
            if count == 1:
                continue
            answer = f"To count to {number} in {language}, say: {', '.join(spoken[:count])}."
            for form in COUNTING_FORMS:
                yield TemplatedQuestion("count", form.format(number=number, language=language), answer)


def arithmetic() -> Iterator[TemplatedQuestion]:
    for a in range(10):
        for b in range(10):
            yield TemplatedQuestion("add", f"What is {a} plus {b}?", f"{a} plus {b} is {a + b}.")
            if a >= b:
                yield TemplatedQuestion("subtract", f"What is {a} minus {b}?", f"{a} minus {b} is {a - b}.")


def facts() -> Iterator[TemplatedQuestion]:
    for country, capital in CAPITALS.items():
        yield TemplatedQuestion(
            "capital", f"What is the capital of {country}?", f"The capital of {country} is {capital}."
        )
        yield TemplatedQuestion(
            "country", f"Which country has {capital} as its capital?", f"{capital} is the capital of {country}."
        )
    for pair in OPPOSITES.split(", "):
        for a, b in (pair.split(), pair.split()[::-1]):
            yield TemplatedQuestion("opposite", f"What is the opposite of {a}?", f"The opposite of {a} is {b}.")
    for skill, names in (("day", DAYS), ("month", MONTHS)):
        for before, after in pairwise([*names, names[0]]):
            yield TemplatedQuestion(skill, f"Which {skill} comes after {before}?", f"{after} comes after {before}.")
            yield TemplatedQuestion(skill, f"Which {skill} comes before {after}?", f"{before} comes before {after}.")


def all_questions() -> list[TemplatedQuestion]:
    """Every templated question, in a fixed order."""
    return [*counting(), *arithmetic(), *facts()]


def split_questions(
    questions: list[TemplatedQuestion], seed: int
) -> tuple[list[TemplatedQuestion], list[TemplatedQuestion]]:
    """Hold out a share of counting and arithmetic (never the demo question): (training, held out)."""
    rng = random.Random(seed)
    train: list[TemplatedQuestion] = []
    held: list[TemplatedQuestion] = []
    for question in questions:
        can_be_guessed = question.skill in ("add", "subtract", "count") and question.question != DEMO_QUESTION
        (held if can_be_guessed and rng.random() < HELD_OUT_QUESTIONS else train).append(question)
    return train, held


HELD_OUT_SHARE = 20  # one paragraph in twenty is held out
SKIPPED = ("site-packages", "test/", "lib2to3/tests", "idlelib/idle_test", "distutils/tests", "pydoc_data")


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of ``text`` that read as plain ASCII prose, markup removed."""
    for block in re.split(r"\n\s*\n", text.replace("\r", "")):
        line = " ".join(part.strip() for part in block.split("\n") if part.strip())
        line = re.sub(r"[*_`]{1,2}([A-Za-z0-9_.() ]+)[*_`]{1,2}", r"\1", line)
        line = re.sub(r"\s+", " ", line)
        if len(line) < 60 or not line[0].isalpha() or line[-1] not in ".:;" or not line.isascii():
            continue
        if ">>>" in line or "::=" in line:
            continue
        if sum(char.isalpha() or char == " " for char in line) / len(line) >= 0.9:
            yield line


def docstrings(stdlib: Path) -> Iterator[str]:
    """Yield every docstring of the standard library, in a fixed order."""
    for path in sorted(stdlib.rglob("*.py")):
        name = path.relative_to(stdlib).as_posix()
        if name.startswith(SKIPPED) or "/test" in name:
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue  # lib2to3 ships files that are invalid on purpose
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield ast.get_docstring(node) or ""


def collect(seed: int = 0) -> tuple[list[str], list[str]]:
    """Return (training paragraphs, held-out paragraphs), without duplicates, shuffled by ``seed``."""
    from pydoc_data.topics import topics

    texts = [text for _, text in sorted(topics.items())]
    texts += docstrings(Path(sysconfig.get_paths()["stdlib"]))
    unique = list(dict.fromkeys(line for text in texts for line in paragraphs(text)))
    random.Random(seed).shuffle(unique)
    held = len(unique) // HELD_OUT_SHARE
    return unique[held:], unique[:held]


def write(folder: Path = TEXT_DIR, seed: int = 0) -> None:
    """Write ``docs_*.txt`` and ``questions_*.jsonl`` under ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    train, held = collect(seed)
    (folder / "docs_train.txt").write_text("\n".join(train) + "\n", encoding="utf-8")
    (folder / "docs_held.txt").write_text("\n".join(held) + "\n", encoding="utf-8")
    asked, unseen = split_questions(all_questions(), seed)
    for name, questions in (("train", asked), ("held", unseen)):
        lines = [json.dumps(question._asdict(), ensure_ascii=False) for question in questions]
        (folder / f"questions_{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(train)} + {len(held)} paragraphs, {len(asked)} + {len(unseen)} questions in {folder}")


if __name__ == "__main__":
    write()
