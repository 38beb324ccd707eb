"""A serving.properties that Python puts together of lines: a list that is joined, one ``file.write`` for each."""

import ast
import re
from collections.abc import Iterator

from trtllm_check.lint.carriers.python_words import PythonWords, called_name
from trtllm_check.lint.carriers.script import Script
from trtllm_check.lint.shell.words import Word

LINE = re.compile(r"(?:option\.\w+|engine)[ \t]*=[ \t]*\S.*", re.ASCII)
WRITES = ("write", "append", "print", "writelines")
FEWEST = 2


def property_files(text: PythonWords, done: set[int]) -> Iterator[Word]:
    """The text of each such file; what they are made of goes into ``done``."""
    for node in ast.walk(text.tree):
        if isinstance(node, ast.List | ast.Tuple) and id(node) not in done:
            lines = [one for word in text.listed(node) if (one := _line(word)) is not None]
            if len(lines) >= FEWEST:
                done |= {id(one) for one in ast.walk(node)}
                yield _file(lines)
    written: list[Word] = []
    for node in ast.walk(text.tree):
        if isinstance(node, ast.Call) and called_name(node) in WRITES and node.args and id(node.args[0]) not in done:
            value = text.value(node.args[0])
            line = _line(value) if value is not None else None
            if line is not None:
                done |= {id(one) for one in ast.walk(node.args[0])}
                written.append(line)
    if len(written) >= FEWEST:
        yield _file(written)


def _line(word: Word) -> Word | None:
    bare = word.text.rstrip("\n")
    return word.part(0, len(bare)) if LINE.fullmatch(bare) else None


def _file(lines: list[Word]) -> Word:
    script = Script()
    for line in lines:
        script.line(line)
    return script.word()
