"""Counting how prose reads: what a sentence is, which is long, which is passive, which acronym has no line."""

import json
from pathlib import Path

import pytest

from course_exercises.language import PASSIVE, language, long_sentences, sentences, words_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two words! Three?", [1, 2, 1]),
        ("Set `trtllm-build --max_batch_size 8` first. Then go on.", [3, 3]),
        ("# A heading\n\nA [word](../docs/glossary.md#word) here.\n\n| a | table |\n|---|---|", [3]),
        ("It needs:\n\n- a GPU\n- two hours", [2, 2, 2]),
        ("Version 0.12.0 is old, e.g. here.", [6]),
        ("It is *one*. *two* is another.", [3, 3]),
        ("<details><summary>Hint</summary>Much text that nobody counts.</details>", []),
    ],
)
def test_sentences_are_found_and_code_is_one_word(text: str, expected: list[int]) -> None:
    assert [words_of(each) for each in sentences(text)] == expected


@pytest.mark.parametrize("text", ["It is read twice.", "They were quickly quantized.", "It can be shown."])
def test_a_passive_is_seen(text: str) -> None:
    assert PASSIVE.search(text)


@pytest.mark.parametrize("text", ["It reads twice.", "The red one is red.", "We needed it."])
def test_an_active_sentence_is_none(text: str) -> None:
    assert not PASSIVE.search(text)


def test_a_chapter_is_counted(tmp_path: Path) -> None:
    long = "Word " * 30 + "end."
    cells = [
        {"cell_type": "markdown", "id": "a", "source": ["A QZX is seen here. ", long]},
        {"cell_type": "code", "id": "b", "source": ['lab.exercise("00-1", x)\n', 'lab.guess("y", "?")']},
        {"cell_type": "code", "id": "c", "source": []},
    ]
    chapter = tmp_path / "00-preflight.ipynb"
    chapter.write_text(json.dumps({"cells": cells}))
    found = language(chapter)
    assert (found.exercises, found.guesses, found.code_cells, found.words) == (1, 1, 1, 36)
    assert (found.sentences, found.longest_words, found.long_sentences, found.passive) == (2, 31, 1, 0.5)
    assert found.undefined == ("QZX",)
    assert [(cell, count) for cell, count, _ in long_sentences(chapter)] == [("a", 31)]
