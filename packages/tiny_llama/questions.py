"""The templated questions that the tiny model learns to answer, and nothing else."""

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

DEMO_QUESTION = "How do I count to nine in French?"
HELD_OUT_SHARE = 0.15  # of the counting and arithmetic questions; facts cannot be guessed, so all are trained

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


class Question(NamedTuple):
    """One templated question with its only right answer."""

    skill: str
    question: str
    answer: str


def counting() -> Iterator[Question]:
    for language, words in COUNTING.items():
        spoken = words.split()
        for count, number in enumerate(NUMBERS, start=1):
            yield Question(
                "word", f"How do you say {number} in {language}?", f"In {language}, {number} is {spoken[count - 1]}."
            )
            if count == 1:
                continue
            answer = f"To count to {number} in {language}, say: {', '.join(spoken[:count])}."
            for form in COUNTING_FORMS:
                yield Question("count", form.format(number=number, language=language), answer)


def arithmetic() -> Iterator[Question]:
    for a in range(10):
        for b in range(10):
            yield Question("add", f"What is {a} plus {b}?", f"{a} plus {b} is {a + b}.")
            if a >= b:
                yield Question("subtract", f"What is {a} minus {b}?", f"{a} minus {b} is {a - b}.")


def facts() -> Iterator[Question]:
    for country, capital in CAPITALS.items():
        yield Question("capital", f"What is the capital of {country}?", f"The capital of {country} is {capital}.")
        yield Question(
            "country", f"Which country has {capital} as its capital?", f"{capital} is the capital of {country}."
        )
    for pair in OPPOSITES.split(", "):
        for a, b in (pair.split(), pair.split()[::-1]):
            yield Question("opposite", f"What is the opposite of {a}?", f"The opposite of {a} is {b}.")
    for skill, names in (("day", DAYS), ("month", MONTHS)):
        for before, after in pairwise([*names, names[0]]):
            yield Question(skill, f"Which {skill} comes after {before}?", f"{after} comes after {before}.")
            yield Question(skill, f"Which {skill} comes before {after}?", f"{before} comes before {after}.")


def all_questions() -> list[Question]:
    """Every templated question, in a fixed order."""
    return [*counting(), *arithmetic(), *facts()]


def split_questions(questions: list[Question], seed: int) -> tuple[list[Question], list[Question]]:
    """Hold out a share of counting and arithmetic (never the demo question): (training, held out)."""
    rng = random.Random(seed)
    train: list[Question] = []
    held: list[Question] = []
    for question in questions:
        can_be_guessed = question.skill in ("add", "subtract", "count") and question.question != DEMO_QUESTION
        (held if can_be_guessed and rng.random() < HELD_OUT_SHARE else train).append(question)
    return train, held
