"""docs/times.md: how long each chapter takes, to run, to read and to solve, for whoever teaches."""

from math import ceil

from course_exercises.exercise import exercises
from playbook.course.notebooks import chapters, project_root, read
from serving_base.yaml_files import read_yaml

WORDS_A_MINUTE = 150
STEP_MIN = 5
HEAD = f"""\
# Times, for whoever teaches

Made from the notebooks, the exercises and the last recording by `make docs`; a test keeps them equal. *Runs* is
measured: seconds on the embedded lane when the chapter was last recorded, alone on that machine. Reading
({WORDS_A_MINUTE} words of prose a minute, up to the next {STEP_MIN} minutes) and exercises are a plan. Discussion comes
on top. [In a classroom](teaching.md) has three ways to cut the course.

| chapter | runs, s | recorded | reading, min | exercises | exercises, min |
|---|---|---|---|---|---|
"""


def times_page() -> str:
    """The page's text."""
    root = project_root()
    recorded = read_yaml(root / "playbook" / "data" / "recorded.yml")["embedded"]
    rows, total = [], [0] * 4
    for chapter in chapters(root / "notebooks"):
        run = recorded[chapter.number]
        words = sum(len(cell.source.split()) for cell in read(chapter.path).cells if cell.cell_type == "markdown")
        asked = [one.minutes for one in exercises().values() if one.chapter == chapter.number]
        each = (run["seconds"], STEP_MIN * ceil(words / WORDS_A_MINUTE / STEP_MIN), len(asked), sum(asked))
        total = [before + now for before, now in zip(total, each, strict=True)]
        name = f"[{chapter.number} {chapter.title}](../notebooks/{chapter.path.name})"
        facts = [name, each[0], f"{run['date']}, {run['cores']} cores", *each[1:]]
        rows.append(f"| {' | '.join(map(str, facts))} |")
    rows.append(f"| all | {total[0]} | | {' | '.join(map(str, total[1:]))} |")
    return HEAD + "\n".join(rows) + "\n"
