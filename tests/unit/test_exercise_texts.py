"""What an exercise says twice is the same: a text in its chapter and its check, a rule and the product's own."""

from checkout import ROOT
from course_exercises.triton import BROKEN_CONFIG
from playbook.course.notebooks import chapter, chapters, read


def sources(number: str) -> str:
    return "\n".join(cell.source for cell in read(chapter(number, chapters(ROOT / "notebooks")).path).cells)


def test_the_broken_files_stand_in_their_chapters() -> None:
    assert BROKEN_CONFIG in sources("05")
