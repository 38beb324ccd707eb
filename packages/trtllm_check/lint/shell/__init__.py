"""Shell text, as people paste it, to commands whose words know where they stand."""

from collections.abc import Mapping

from trtllm_check.lint.shell.pasted import prepare
from trtllm_check.lint.shell.words import Place, Redirect, ShellCommand, Word, places_of

__all__ = ["Place", "Redirect", "ShellCommand", "Word", "read_commands", "read_inside"]


def read_commands(text: str, file: str = "") -> list[ShellCommand]:
    """The commands of a script, a pasted block, a terminal session or a Markdown page. Takes any text."""
    from trtllm_check.lint.shell.reader import Reader

    return Reader(text, prepare(text), places_of(text), file).read()


def read_inside(
    word: Word, file: str = "", *, is_built: bool = False, env: Mapping[str, str] | None = None
) -> list[ShellCommand]:
    """The commands inside a word (``bash -c "..."``, a heredoc), at their places in the whole text.

    ``is_built``: the word is a script that a carrier put together, whose doubled backslashes are its own.
    ``env``: the variables that reach it from outside; one whose value is not known is none of them.
    """
    from trtllm_check.lint.shell.reader import Reader

    places = [*word.places, word.places[-1] if word.places else (word.line, word.column)]
    reader = Reader(word.text, prepare(word.text, is_built=is_built), places, file)
    for name, value in (env or {}).items():
        if value and "$" not in value:
            reader.variables.set(name, [value])
    return reader.read()
