"""recorded/README.md: which editions there are, on what they were recorded, and how each chapter ended there."""

from collections.abc import Sequence

from course_runs.edition import Edition, RecordedChapter, RecordedRun, counted

HEAD = """# Recorded editions

Second sets of outputs, from machines that a laptop is not. The outputs in `notebooks/` are those of the embedded lane,
and none of the figures here stands among them. `playbook recorded make` writes this page.
"""
NONE_YET = """There is no edition yet: nobody has recorded the course on another machine and committed it here.
"""
HOW = """## Make one

Run the course on the machine, one run for each profile, and make an edition of the runs' folders:

```bash
.venv/bin/playbook run --profile hopper --keep-going --out runs/hopper
.venv/bin/playbook recorded make runs/hopper
```

It copies the executed notebooks, with smaller pictures, and takes out paths, secrets, addresses and serial numbers.
Read what it wrote before you commit it. `--hide WORD` takes out one word more, such as the machine's name.

## Keep it true

`.venv/bin/playbook recorded verify` compares the code of each recorded chapter with today's. A cell that has changed
since needs an entry in the edition's `changes.yml`, which says why the recorded output still stands. The command prints
the entry to fill in. Where the output does not stand, record the chapter again.
"""
MACHINE = {"gpus": "GPUs", "processor": "processor", "cores": "cores", "memory": "memory", "system": "system"}


def readme(found: Sequence[Edition]) -> str:
    return "\n".join([HEAD, *([_edition(each) for each in found] or [NONE_YET]), HOW])


def _edition(edition: Edition) -> str:
    parts = [f"## {edition.name}", f"Recorded on {edition.date}.", *(_run(edition.name, run) for run in edition.runs)]
    return "\n\n".join(parts) + "\n"


def _run(name: str, run: RecordedRun) -> str:
    version = " ".join(filter(None, (run.playbook.get("version"), run.playbook.get("commit"))))
    given = ", ".join(f"`{key}={value}`" for key, value in run.parameters.items() if key != "workspace") or "none"
    machine = "; ".join(f"{words} {counted(run.machine[key])}" for key, words in MACHINE.items() if key in run.machine)
    facts = [
        f"Profile `{run.profile}`, lane `{run.lane}`, release {run.release}; playbook {version or 'not written down'}",
        f"Machine: {machine or 'not written down'}",
        f"Parameters: {given}",
    ]
    rows = [_row(f"{name}/{run.folder}", each) for each in run.chapters]
    head = "| chapter | ended | seconds | checks |\n|---|---|---|---|"
    return f"### {run.folder}\n\n" + "\n".join(f"- {fact}." for fact in facts) + "\n\n" + "\n".join([head, *rows])


def _row(folder: str, chapter: RecordedChapter) -> str:
    title = _cell(f"{chapter.chapter[:2]} {chapter.title}")
    shown = f"[{title}]({folder}/{chapter.notebook})" if chapter.notebook else title
    seconds = f"{chapter.seconds:.1f}" if chapter.notebook else "-"
    return f"| {shown} | {chapter.status} | {seconds} | {chapter.checks} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
