"""Splits shell text into commands as bash would, resolves the variables that it can, and stops at nothing.

Only what decides where a word begins and ends is read: quotes, escapes, expansions, operators, heredocs, comments.
An unclosed quote ends with its line, so that the rest of a truncated text is still read.
"""

import re
from collections.abc import Sequence

from trtllm_check.lint.shell.pasted import Pasted
from trtllm_check.lint.shell.words import Place, Redirect, ShellCommand, Word, WordReader, line_end

OPERATOR = re.compile(
    r"(?P<redirect>\d*(?:<<<|<<-?|>>|>&|<&|>\||<>|<(?!\()|>(?!\())|&>>?)|[<>]\(|&&|\|\||;;|\|&|[;|&()]"
)
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
HEREDOC_NAME = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
INLINE_CODE = re.compile(r"[\w./-]*(?:\.py|\.sh|trtllm-\w+|tritonserver)")
LINE_END = re.compile(r"(?<!\\)\n|\Z")
KEYWORDS = frozenset(
    {"then", "do", "else", "elif", "if", "while", "until", "!", "{", "}", "time", "fi", "done", "esac"}
)
DECLARATIONS = frozenset({"export", "declare", "local", "readonly", "typeset"})
LONGEST_VALUE = 10_000
DEEPEST = 5


class Scanner:
    """Reads one text. ``text`` is what was written, ``pasted.mask`` what it means; ``places`` are of the text."""

    def __init__(self, text: str, pasted: Pasted, places: Sequence[Place], *, file: str = "", depth: int = 0) -> None:
        # text[i], mask[i] and places[i] are one character. The mask has blanks where a prompt, a fence or a line number
        # was pasted, so words are found in the mask and always say where they stand in what was written.
        self.text, self.mask, self.places, self.cuts = text, pasted.mask, places, pasted.cuts
        self.file, self.depth = file, depth
        self.position = 0
        self.variables: dict[str, list[str]] = {}
        self.exported: dict[str, str] = {}
        self.after_line: dict[int, int] = {}  # end of a line -> end of the heredocs that follow it
        self.substitutions: list[tuple[int, int]] = []  # command substitutions
        self.commands: list[ShellCommand] = []
        self._begin()

    def scan(self) -> list[ShellCommand]:
        while self.position < len(self.mask):
            self._step()
        self._end_command()
        return self.commands

    def _begin(self) -> None:
        self.words: list[Word] = []
        self.assignments: list[Word] = []
        self.redirects: list[Redirect] = []
        self.found_cuts: list[Word] = []
        self.start = -1
        self.end = 0

    def _step(self) -> None:
        # Every branch moves on by at least one character, whatever the text holds: that is why scan() ends.
        position = self.position
        if position in self.cuts and self.start >= 0:
            self.found_cuts.append(self._as_written(position, self.cuts[position]))
        character = self.mask[position]
        if character == "\n":
            self._end_command()
            self.position = self.after_line.get(position, position + 1)
        elif character.isspace():
            self.position += 1
        elif self.mask.startswith("\\\n", position):
            self.position += 2
        elif character == "#":
            self.position = line_end(self.mask, position)
        elif match := OPERATOR.match(self.mask, position):
            self.position = match.end()
            if match["redirect"]:
                self._redirect(match["redirect"].lstrip("0123456789"))
            else:
                self._end_command()
        else:
            self._take_word()

    def _take_word(self) -> None:
        begin = self.position
        self.start = begin if self.start < 0 else self.start
        assignment = ASSIGNMENT.match(self.mask, begin)
        if assignment and not self.words and self.mask.startswith("(", assignment.end()):
            self._array(assignment)
            return
        declares = bool(self.words) and self.words[0].text in DECLARATIONS
        is_assignment = assignment is not None and (not self.words or declares)
        words = self._word(split=not is_assignment)
        self.end = self.position
        if is_assignment and not declares:
            self.assignments += words
        else:
            self.words += words
        keyword = self.mask[begin : self.position]
        if keyword in KEYWORDS and len(self.words) == 1 and not self.assignments:
            self.words.clear()

    def _array(self, assignment: re.Match[str]) -> None:
        """``X=(a b c)``."""
        self.position = assignment.end() + 1
        values: list[str] = []
        while self.position < len(self.mask) and self.mask[self.position] != ")":
            before = self.position
            if self.mask[before].isspace():
                self.position += 1
            elif self.mask[before] == "#":
                self.position = line_end(self.mask, before)
            else:
                values += [word.text for word in self._word(split=True)]
                self.position = max(self.position, before + 1)
        self.position += 1
        kept = self.variables.get(assignment[1], []) if assignment[2] else []
        self.variables[assignment[1]] = (kept + values)[:LONGEST_VALUE]
        self.start = -1 if not self.assignments else self.start

    def _redirect(self, operator: str) -> None:
        begin = self._skip_blanks()
        words = self._word(split=False)
        if not words:
            return
        target = words[0]
        if operator in ("<<", "<<-"):
            body = self._heredoc(target.text, self.mask[begin : self.position], tabs=operator == "<<-")
            if body is None:
                return
            operator, target = "<<", body
        self.redirects.append(Redirect(operator, target))
        self.end = self.position

    def _heredoc(self, name: str, written: str, *, tabs: bool) -> Word | None:
        """The lines up to ``name``; None if no such line follows, as where someone's C++ was pasted."""
        line_end = LINE_END.search(self.mask, self.position)
        start = line_end.start() if line_end else len(self.mask)
        begin = self.after_line.get(start, start + 1)
        blanks = "[ \t]*" if tabs else ""
        last = re.compile(rf"^{blanks}{re.escape(name)}[ \t\r]*$\n?", re.MULTILINE).search(self.text, begin)
        if last is None:
            return None
        self.after_line[start] = last.end()  # the rest of this line is still to be read; its end jumps over the body
        return self._body(begin, last.start(), expand=written == name)

    def _body(self, begin: int, end: int, *, expand: bool) -> Word:
        characters: list[str] = []
        places: list[Place] = []
        position = begin
        for match in HEREDOC_NAME.finditer(self.text, begin, end) if expand else ():
            value = "".join(self.variables.get(match[1] or match[2], [])[:1])
            if not value or "\n" in value:
                continue
            characters += [self.text[position : match.start()], value]
            places += [*self.places[position : match.start()], *[self.places[match.start()]] * len(value)]
            position = match.end()
        characters.append(self.text[position:end])
        places += self.places[position:end]
        line, column = self.places[min(begin, len(self.places) - 1)]
        return Word("".join(characters), line, column, tuple(places))

    def _word(self, *, split: bool) -> list[Word]:
        """The word at this place: more than one where an unquoted variable holds several, none where it is empty."""
        reader = WordReader(self.text, self.mask, self.places, self.variables)
        words = reader.read(self.position, split=split)
        self.position = reader.position
        self.substitutions += reader.substitutions
        return words

    def _end_command(self) -> None:
        for begin, end in self.substitutions if self.depth < DEEPEST else ():
            self._read_nested(begin, end)
        self.substitutions.clear()
        if self.words or self.assignments:
            self._finish()
        self._begin()

    def _read_nested(self, begin: int, end: int) -> None:
        if INLINE_CODE.fullmatch(self.mask, begin, end) and self.mask.startswith("`", end):
            return  # `fill_template.py` of a page's prose
        pasted = Pasted(self.mask[begin:end], {})
        places = self.places[begin : end + 1]
        inner = Scanner(self.text[begin:end], pasted, places, file=self.file, depth=self.depth + 1)
        inner.variables = dict(self.variables)
        inner.exported = dict(self.exported)
        self.commands += inner.scan()

    def _finish(self) -> None:
        # As in bash: `X=1 tool` is in the environment of that tool only; `X=1` alone holds for the lines below, and
        # reaches their tools if it is exported.
        first = self.words[0].text if self.words else ""
        env = dict(self.exported)
        if first == "for" and len(self.words) > 1:
            self.variables.pop(self.words[1].text, None)
        if first in DECLARATIONS:
            for word in self.words[1:]:
                self._assign(word.text)
                name = word.text.partition("=")[0]
                if first == "export" and self.variables.get(name):
                    self.exported[name] = self.variables[name][0]
        if first == "unset":
            for word in self.words[1:]:
                self.variables.pop(word.text, None)
                self.exported.pop(word.text, None)
        for word in self.assignments:
            name, _, value = word.text.partition("=")
            env[name.rstrip("+")] = value
            if not self.words:
                self._assign(word.text)
        self.commands.append(
            ShellCommand(
                words=tuple(self.words),
                env=env,
                line=self.places[self.start][0],
                end_line=self.places[max(self.start, self.end - 1)][0],
                assignments=tuple(self.assignments),
                redirects=tuple(self.redirects),
                cuts=tuple(self.found_cuts),
                file=self.file,
            )
        )

    def _assign(self, text: str) -> None:
        match = ASSIGNMENT.match(text)
        if match is None:
            return
        value = text[match.end() :]
        if match[2] and self.variables.get(match[1]):
            value = self.variables[match[1]][0] + value
        if len(value) > LONGEST_VALUE:
            self.variables.pop(match[1], None)
            return
        self.variables[match[1]] = [value]
        if match[1] in self.exported:
            self.exported[match[1]] = value

    def _skip_blanks(self) -> int:
        while self.mask.startswith((" ", "\t", "\\\n"), self.position):
            self.position += 2 if self.mask[self.position] == "\\" else 1
        return self.position

    def _as_written(self, begin: int, end: int) -> Word:
        line, column = self.places[begin]
        return Word(self.text[begin:end], line, column, tuple(self.places[begin:end]))
