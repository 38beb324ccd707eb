"""Statements of bash's grammar to the commands in them, with what each word holds on its way through the script."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trtllm_check.lint.shell.expansion import Expander, adjacent
from trtllm_check.lint.shell.grammar import Heredoc, Unit, source_of, units
from trtllm_check.lint.shell.pasted import Pasted
from trtllm_check.lint.shell.variables import Variables
from trtllm_check.lint.shell.words import Place, Redirect, ShellCommand, Word

if TYPE_CHECKING:
    from tree_sitter import Node

HEREDOC_NAME = re.compile(r"\\(?P<escaped>[\\$`])|\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
INLINE_CODE = re.compile(r"`[\w./-]*(?:\.py|\.sh|trtllm-\w+|tritonserver)`")
BLANKS = re.compile(r"[ \t]*")
REDIRECTS = frozenset({"file_redirect", "herestring_redirect", "heredoc_redirect"})
ASSIGNMENTS = frozenset({"variable_assignment", "variable_assignments"})
SETTING = frozenset({"read", "mapfile", "readarray", "getopts"})  # what they put into variables is unknown
IGNORED = frozenset({"time", "coproc"})
# A function that runs what it is given: its call is read as that command.
WRAPS = re.compile(
    r"(?:^|[;&|{(!]|\b(?:setsid|exec|nohup|sudo|time|env|eval|do|then|else|if|while))[ \t]*[\"']?\$(?:[@*1]|\{[@*1])",
    re.MULTILINE,
)
POSITIONAL = re.compile(r"\$(?:[1-9@*]|\{[1-9@*][^{}]*\})")
DEEPEST = 60
DEEPEST_SUBSTITUTION = 5


class Reader:
    """Reads one text. ``text`` is what was written, ``pasted.mask`` what it means; ``places`` are of the text."""

    def __init__(self, text: str, pasted: Pasted, places: Sequence[Place], file: str = "") -> None:
        self.text, self.places, self.file = text, places, file
        self.source, self.heredocs = source_of(text, pasted.mask)
        self.cuts = sorted(pasted.cuts.items())
        self.variables = Variables()
        self.functions: dict[str, dict[str, list[str]]] = {}  # what a call of each sets
        self.local: set[str] = set()
        self.bodies: dict[str, tuple[Node, int]] = {}  # of those that are called once, and their offset
        self.called: set[str] = set()
        self.expander = Expander(text, pasted.mask, places, self.variables)
        self.commands: list[ShellCommand] = []
        self.within = 0  # command substitutions around what is read

    def read(self) -> list[ShellCommand]:
        for unit in units(self.source):
            self.read_unit(unit)
        for name in [name for name in self.bodies if name not in self.called]:
            self.call(name, [])
        return self.commands

    def read_unit(self, unit: Unit) -> None:
        self.expander.offset = unit.offset
        for statement in unit.statements:
            self.statement(statement)

    def statement(self, node: "Node", depth: int = 0) -> None:
        if depth > DEEPEST or not node.is_named:
            return
        kind = node.type
        if kind == "command":
            self.command(node)
        elif kind in ASSIGNMENTS:
            self.assign(node.children if kind == "variable_assignments" else [node])
        elif kind in ("declaration_command", "unset_command"):
            self.declare(node)
        elif kind == "redirected_statement":
            self.redirected(node, depth)
        elif kind == "test_command":
            self.test(node)
        elif kind == "list":
            self.list_of(node, depth)
        elif kind == "if_statement":
            self.choose(node, depth)
        elif kind == "case_statement":
            self.case(node, depth)
        elif kind in ("for_statement", "c_style_for_statement", "while_statement"):
            self.loop(node, depth)
        elif kind == "function_definition":
            self.function(node, depth)
        elif kind == "subshell":
            self.way(node.children, depth)
        elif kind != "comment":
            self.statements(node.children, depth)

    def statements(self, nodes: "Sequence[Node]", depth: int) -> None:
        for node in nodes:
            self.statement(node, depth + 1)

    # --- ways through the script ---------------------------------------------------------------------------------

    def way(self, nodes: "Sequence[Node]", depth: int) -> Variables:
        """What the variables hold behind ``nodes``; here they stay as they are."""
        before = self.variables
        after = self.variables = self.expander.variables = before.copy()
        self.statements(nodes, depth)
        self.variables = self.expander.variables = before
        return after

    def meet(self, ways: list[Variables]) -> None:
        self.variables.meet(ways, self.variables.copy())

    def list_of(self, node: "Node", depth: int) -> None:
        """``[ -z "$X" ] && X=1`` sets X or does not; what follows a command is taken to run."""
        first, *others = [child for child in node.children if child.is_named]
        self.statement(first, depth + 1)
        if first.type == "test_command":
            self.meet([self.variables.copy(), self.way(others, depth)])
        else:
            self.statements(others, depth)

    def choose(self, node: "Node", depth: int) -> None:
        thens = [number for number, child in enumerate(node.children) if child.type == "then"]
        then = thens[0] if thens else len(node.children)
        clauses = [child for child in node.children[then:] if child.type in ("elif_clause", "else_clause")]
        self.statements(node.children[:then], depth)
        ways = [self.way([child for child in node.children[then:] if child not in clauses], depth)]
        ways += [self.way(clause.children, depth) for clause in clauses]
        if not any(clause.type == "else_clause" for clause in clauses):
            ways.append(self.variables.copy())
        self.meet(ways)

    def case(self, node: "Node", depth: int) -> None:
        items = [child for child in node.children if child.type == "case_item"]
        ways = [self.way(item.children[1:], depth) for item in items]
        if not any(item.children and (item.children[0].text or b"") == b"*" for item in items):
            ways.append(self.variables.copy())
        self.meet(ways)

    def loop(self, node: "Node", depth: int) -> None:
        """The body as in its first round; a variable that goes through several values is unknown."""
        body = [child for child in node.children if child.type in ("do_group", "compound_statement")]
        head = [child for child in node.children if child not in body]
        name = node.child_by_field_name("variable")
        if name is not None:
            values = node.children_by_field_name("value")
            words = [word.text for group in adjacent(values) for word in self.expander.words(group, split=True)]
            self.emit(node, self.raw_words(head))
            self.variables.forget(self.written(name))
            if len(words) == 1 and "$" not in words[0] and "*" not in words[0]:
                self.variables.set(self.written(name), words)
        else:
            self.statements(head, depth)
        self.meet([self.variables.copy(), self.way(body, depth)])
        if name is not None:
            self.variables.forget(self.written(name))

    def function(self, node: "Node", depth: int) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            outer, self.local = self.local, set()
            first, heredocs = len(self.commands), self.heredocs
            after = self.way([body], depth).values
            written, is_alone = self.written(body), self.calls_of(self.written(name)) == 1
            if is_alone and POSITIONAL.search(written) and not WRAPS.search(written):
                del self.commands[first:]
                self.heredocs, self.bodies[self.written(name)] = heredocs, (body, self.expander.offset)
            kept = {one: value for one, value in after.items() if value != self.variables.values.get(one)}
            self.functions[self.written(name)] = {one: kept[one] for one in kept if one not in self.local}
            self.local = outer

    def calls_of(self, name: str) -> int:
        """How often a line of the text begins with ``name`` and words behind it."""
        return len(re.findall(rf"^[ \t]*{re.escape(name)}[ \t]+(?![ \t(={{])\S", self.source, re.MULTILINE))

    def call(self, name: str, arguments: Sequence[Word]) -> None:
        """Reads the body of a function with what the call gives it; without a call its arguments are unknown."""
        body, offset = self.bodies[name]
        if name in self.called:
            return
        self.called.add(name)
        before, outer, self.expander.offset = self.variables, self.expander.offset, offset
        self.variables = self.expander.variables = before.copy()
        if arguments:
            self.variables.positional([word.text for word in arguments])
        self.statements([body], 0)
        self.variables = self.expander.variables = before
        self.expander.offset = outer

    # --- commands ------------------------------------------------------------------------------------------------

    def redirected(self, node: "Node", depth: int) -> None:
        body = node.child_by_field_name("body")
        redirects = [child for child in node.children if child.type in REDIRECTS]
        if body is not None and body.type == "command":
            self.command(body, node, redirects)
        elif body is not None:
            self.statement(body, depth + 1)

    def command(self, node: "Node", whole: "Node | None" = None, redirects: "Sequence[Node]" = ()) -> None:
        assignments: list[Word] = []
        arguments: list[Node] = []
        redirects = [*(child for child in node.children if child.type in REDIRECTS), *redirects]
        for child in node.children:
            if child.type == "variable_assignment":
                assignments += self.assignment(child)
            elif child.type not in REDIRECTS:
                arguments.append(child)
        groups = adjacent(arguments)
        if groups and self.written(groups[0][0]) in IGNORED:
            groups = groups[1:]
        words = [word for group in groups for word in self.expander.words(group, split=True)]
        targets: list[Redirect] = []
        for redirect in redirects:
            self.redirect(redirect, targets, words)
        self.read_substitutions()
        self.emit(whole or node, words, assignments, targets)
        name = words[0].text if words else ""
        if name in self.bodies:
            self.call(name, words[1:])
        if name == "shift" and len(words) == 1 and (given := self.variables.get("@")) is not None:
            self.variables.positional(list(given)[1:])
        if name in self.functions:
            self.variables.values.update(self.functions[name])
        if name in SETTING:
            for word in words[1:]:
                self.variables.forget(word.text)

    def redirect(self, node: "Node", targets: list[Redirect], words: list[Word]) -> None:
        marks = [child for child in node.children if not child.is_named]
        groups = adjacent([child for child in node.children if child.is_named and child.type != "file_descriptor"])
        if not marks or not groups:
            return
        target, *others = [self.expander.words(group, split=False) for group in groups]
        if target:
            targets.append(Redirect(marks[0].type, target[0]))
        for other in others:  # x > f y
            words += other

    def assignment(self, node: "Node") -> list[Word]:
        """``X=1`` as a word; an array is none, and is kept at once."""
        begin = node.start_byte + self.expander.offset
        signs = [child for child in node.children if child.type in ("=", "+=")]
        if not signs:
            return []
        values = [child for child in node.children if child.start_byte >= signs[0].end_byte]
        middle = signs[0].end_byte + self.expander.offset
        if values and values[0].type == "array":
            name = self.written(node.children[0])
            self.variables.set(name, self.expander.array(values[0]), more=signs[0].type == "+=")
            return []
        found = self.expander.words(values, split=False) if values else []
        places = tuple(self.places[begin:middle])
        text = self.text[begin:middle]
        if found:
            text, places = text + found[0].text, (*places, *found[0].places)
        return [Word(text, *self.places[begin], places)]

    def assign(self, nodes: "Sequence[Node]") -> None:
        words = [word for node in nodes if node.type == "variable_assignment" for word in self.assignment(node)]
        self.read_substitutions()
        for word in words:
            self.set(word.text)
        if words:
            self.emit(nodes[0], [], words, last=nodes[-1])

    def set(self, text: str) -> None:
        name, _, value = text.partition("=")
        if name.endswith("+"):
            self.variables.append(name[:-1], value)
        elif "[" not in name:
            self.variables.set(name, [value])

    def declare(self, node: "Node") -> None:
        """``export``, ``declare``, ``local``, ``readonly``, ``unset``."""
        groups = adjacent([child for child in node.children if child.type not in REDIRECTS])
        words: list[Word] = []
        for group in groups:
            if group[0].type == "variable_assignment":
                words += self.assignment(group[0])
            else:
                words += self.expander.words(group, split=False)
        self.read_substitutions()
        first = words[0].text if words else ""
        self.emit(node, words)
        for word in words[1:]:
            name, sign, _ = word.text.partition("=")
            if first == "unset":
                self.variables.forget(name)
            elif sign:
                self.set(word.text)
            if first == "local":
                self.local.add(name.rstrip("+"))
            if first == "export":
                self.variables.export(name.rstrip("+"))

    def test(self, node: "Node") -> None:
        self.expander.words([node], split=False)
        self.read_substitutions()
        self.emit(node, self.raw_words([node]))

    def read_substitutions(self) -> None:
        found, self.expander.substitutions = self.expander.substitutions, []
        for node in found if self.within < DEEPEST_SUBSTITUTION else ():
            begin, end = node.start_byte + self.expander.offset, node.end_byte + self.expander.offset
            if INLINE_CODE.fullmatch(self.source, begin, end):
                continue  # `fill_template.py` of a page's prose
            self.within += 1
            self.way(node.children, 0)
            self.within -= 1

    def emit(
        self,
        node: "Node",
        words: Sequence[Word],
        assignments: Sequence[Word] = (),
        redirects: Sequence[Redirect] = (),
        last: "Node | None" = None,
    ) -> None:
        begin = node.start_byte + self.expander.offset
        end = min((last or node).end_byte + self.expander.offset, len(self.text))
        blank = BLANKS.match(self.source, end)
        reach = blank.end() if blank else end
        bodies = [self.body(one) for one in self.heredocs if begin <= one.position <= reach] if self.heredocs else []
        self.heredocs = tuple(one for one in self.heredocs if not begin <= one.position <= reach)
        if not words and not assignments:
            return
        env = self.variables.environment
        for word in assignments:
            name, _, value = word.text.partition("=")
            env[name.rstrip("+")] = value
        line = self.places[begin][0]
        self.commands.append(
            ShellCommand(
                words=tuple(words),
                env=env,
                line=line,
                end_line=max(line, self.places[max(begin, end - 1)][0]),
                assignments=tuple(assignments),
                redirects=(*redirects, *(Redirect("<<", one) for one in bodies)),
                cuts=tuple(self.cut(*one) for one in self.cuts_between(begin, reach)),
                file=self.file,
            )
        )

    def cuts_between(self, begin: int, end: int) -> list[tuple[int, int]]:
        first = bisect_left(self.cuts, (begin, 0))
        last = bisect_left(self.cuts, (end + 1, 0))
        return self.cuts[first:last]

    def cut(self, begin: int, end: int) -> Word:
        line, column = self.places[begin]
        return Word(self.text[begin:end], line, column, tuple(self.places[begin:end]))

    def body(self, heredoc: Heredoc) -> Word:
        """The lines of a here-document, with the variables in them that are known."""
        characters: list[str] = []
        places: list[Place] = []
        position, end = heredoc.begin, heredoc.end
        for match in HEREDOC_NAME.finditer(self.text, position, end) if heredoc.expands else ():
            if escaped := match["escaped"]:  # the shell takes the backslash before it away
                value = escaped
            else:
                value = "".join((self.variables.get(match[2] or match[3]) or [])[:1])
            if not escaped and (not value or "\n" in value or "$((" in value):
                value = f"${match[2] or match[3]}"  # the shell fills it in, with what is not known
            characters += [self.text[position : match.start()], value]
            places += [*self.places[position : match.start()], *[self.places[match.start()]] * len(value)]
            position = match.end()
        characters.append(self.text[position:end])
        places += self.places[position:end]
        line, column = self.places[min(heredoc.begin, len(self.places) - 1)]
        return Word("".join(characters), line, column, tuple(places))

    def raw_words(self, nodes: "Sequence[Node]") -> list[Word]:
        """The words as written."""
        found: list[Word] = []
        for node in nodes:
            begin, end = node.start_byte + self.expander.offset, node.end_byte + self.expander.offset
            found += [
                self.cut(begin + one.start(), begin + one.end())
                for one in re.finditer(r"[^\s;]+", self.text[begin:end])
            ]
        return found

    def written(self, node: "Node") -> str:
        return self.text[node.start_byte + self.expander.offset : node.end_byte + self.expander.offset]
