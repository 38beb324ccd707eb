"""A text, a file or a folder as one document."""

import os
from collections.abc import Iterator
from pathlib import Path

from serving_base.errors import UsageError
from trtllm_check.lint.amounts import refuse_too_much
from trtllm_check.lint.building import Builder
from trtllm_check.lint.document import Document
from trtllm_check.lint.kinds import Kind, kind_of_file, kind_of_name, kind_of_text
from trtllm_check.lint.markup import as_markdown
from trtllm_check.lint.plain import plain

MOST_FILES = 1_000
LARGEST_FILE = 1_000_000
OF_TOOLS = frozenset({"venv", "node_modules", "site-packages", "dist-packages", "__pycache__", "wandb", "mlruns"})


def read_document(source: str | Path, kind: Kind | None = None, *, is_named: bool = False) -> Document:
    """A text, a file or a folder. ``kind`` is seen from the name or the text where it is not given.

    ``is_named``: the text is a whole file of that kind, as its name tells, and no piece that was pasted.
    """
    builder = Builder(is_named=is_named)
    if isinstance(source, str):
        source = source.replace("\r\n", "\n").replace("\r", "\n")  # as a file is read
        text = as_markdown(plain(source)) if kind in (None, "shell") else source
        builder.add(text, kind or kind_of_text(text))
    elif source.is_dir():
        for number, (path, name) in enumerate(_files(source, builder.unreadable)):
            if number < MOST_FILES:
                _add_file(builder, path, name)
            else:
                builder.left_out += 1
    else:
        text = plain(source.read_text(encoding="utf-8", errors="replace"))
        kind = kind or kind_of_file("/".join(source.parts[-2:]), text)
        text = as_markdown(text) if kind in (None, "shell") else text
        builder.add(text, kind or kind_of_text(text))
    return builder.document()


def _add_file(builder: Builder, path: Path, name: str) -> None:
    kind = kind_of_name(name) or "shell"
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        refuse_too_much(text, name, kind)
    except OSError:
        builder.unreadable.append(name)
    except UsageError:
        builder.unreadable.append(f"{name} (too large)")
    else:
        builder.add(text, kind, file=name)


def _files(folder: Path, unreadable: list[str]) -> Iterator[tuple[Path, str]]:
    """The files of a folder that the checker reads. Of JSON only config.json: others are anything.

    What cannot be listed, and files that are too large, go into ``unreadable``.
    """
    for path in _listed(folder, unreadable):
        name = path.relative_to(folder).as_posix()
        if kind_of_name(name) in (None, "request") or not path.is_file():
            continue
        if path.stat().st_size > LARGEST_FILE:
            unreadable.append(f"{name} (too large)")
        else:
            yield path, name


def _listed(folder: Path, unreadable: list[str]) -> list[Path]:
    """All files under ``folder``, sorted, but those that are hidden or that a tool put there."""

    def note(error: OSError) -> None:
        unreadable.append(Path(error.filename).relative_to(folder).as_posix())

    found: list[Path] = []
    for root, folders, names in os.walk(folder, onerror=note):
        folders[:] = [one for one in folders if not _is_hidden(one) and not _is_of_a_tool(Path(root) / one)]
        found += [Path(root) / name for name in names if not _is_hidden(name)]
    return sorted(found)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") and name != ".env"


def _is_of_a_tool(folder: Path) -> bool:
    """True for installed packages, environments of Python, caches and records of runs."""
    return folder.name in OF_TOOLS or (folder / "pyvenv.cfg").is_file()
