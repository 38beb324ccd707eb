"""Collect the tiny model's text: CPython's docstrings and pydoc topics (PSF licence).

The result is committed under ``text/`` because docstrings change with every Python release;
run this again only to make a new corpus: ``python -m tiny_llama.corpus``.
"""

import ast
import json
import random
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tiny_llama import TEXT_DIR
from tiny_llama.questions import all_questions, split_questions

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
