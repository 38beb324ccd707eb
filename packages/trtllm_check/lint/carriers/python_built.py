"""Command lines that Python builds piece by piece: ``cmd = [...]``, then ``cmd += [...]``, ``cmd.append("--x")``.

A piece under an ``if`` that the command itself does not stand under is a possible part: it is read as a command of its
own, the tool and that piece, so that pieces that exclude each other never meet.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from trtllm_check.lint.carriers.python_pieces import as_pairs
from trtllm_check.lint.carriers.python_values import FUNCTIONS

Path = tuple[tuple[int, str], ...]  # the branches that a statement stands in, outermost first: of which one, which
BRANCHES = ("body", "orelse", "handlers", "finalbody", "cases")
LOOPS = (ast.For, ast.AsyncFor, ast.While)
MOST = 40  # commands of one name that may be the one that grows


class Addition(NamedTuple):
    """What is added. ``bound``: names of a loop over a dictionary's pairs -> their values, for each of its turns."""

    node: ast.expr
    kind: str  # "words", "word" or "text"
    path: Path
    bound: tuple[dict[str, ast.expr], ...] = ()
    in_front: bool = False


@dataclass
class GrownCommand:
    """One command: what it begins with, and what may come."""

    name: str
    base: ast.expr
    path: Path
    pieces: list[Addition] = field(default_factory=list)

    @property
    def is_text(self) -> bool:
        """False for a list, and for what may be one."""
        return isinstance(self.base, ast.Constant | ast.JoinedStr) or (
            isinstance(self.base, ast.BinOp | ast.Call)
            and any(isinstance(one, ast.Constant | ast.JoinedStr) for one in _operands(self.base))
        )

    @property
    def always(self) -> list[Addition]:
        return [one for one in self.pieces if self.path[: len(one.path)] == one.path]

    @property
    def possible(self) -> list[list[Addition]]:
        """The other pieces, by the branch that they stand in."""
        found: dict[Path, list[Addition]] = {}
        for one in self.pieces:
            if self.path[: len(one.path)] != one.path:
                found.setdefault(one.path, []).append(one)
        return list(found.values())


def _operands(node: ast.expr) -> Iterator[ast.expr]:
    """The parts of a sum; the text that ``.format`` is called of, and the mark of ``.join``."""
    while isinstance(node, ast.BinOp):
        yield node.right
        node = node.left
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield node.func.value
    else:
        yield node


def built(tree: ast.Module, dicts: dict[str, ast.Dict]) -> Iterator[GrownCommand]:
    """All names that begin as a list or a text. ``dicts``: those that the text sets once."""
    pending: list[list[ast.stmt]] = [tree.body]
    while pending:
        reading = _Reading(dicts)
        body = pending.pop()
        reading.block(body, (), ())
        pending += reading.inner
        yield from reading.found


class _Reading:
    """One function's statements, in order."""

    def __init__(self, dicts: dict[str, ast.Dict]) -> None:
        self.found: list[GrownCommand] = []
        self.live: dict[str, list[GrownCommand]] = {}
        self.inner: list[list[ast.stmt]] = []
        self.dicts = dict(dicts)

    def block(self, body: list[ast.stmt], path: Path, bound: tuple[dict[str, ast.expr], ...]) -> None:
        for statement in body:
            if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                self.inner.append(statement.body)
                continue
            self.statement(statement, path, bound)
            turns = bound
            is_plain = isinstance(statement, ast.With | ast.AsyncWith | ast.Try)
            if isinstance(statement, LOOPS):
                turns = self.turns(statement) or bound
                is_plain = turns is not bound
            for name in BRANCHES:
                for number, part in enumerate(_blocks(getattr(statement, name, []))):
                    is_straight = is_plain and name in ("body", "finalbody")
                    inside = path if is_straight else (*path, (id(statement), f"{name} {number}"))
                    self.block(part, inside, turns)

    def turns(self, loop: ast.stmt) -> tuple[dict[str, ast.expr], ...]:
        """The turns of ``for key, value in flags.items()``, where the text has the dictionary."""
        if not isinstance(loop, ast.For):
            return ()
        return _turns(loop.target, loop.iter, self.dicts)

    def statement(self, node: ast.stmt, path: Path, bound: tuple[dict[str, ast.expr], ...]) -> None:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
            target = node.target if isinstance(node, ast.AnnAssign) else target
            if name := _name(target):
                self.assigned(name, node.value, path, bound)
            elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                self.dicts.pop(target.value.id, None)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and _name(node.target):
            self.grows(_name(node.target), Addition(node.value, "words", path, bound))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            func = node.value.func
            if isinstance(func, ast.Attribute) and (name := _name(func.value)) and node.value.args:
                kind = {"append": "word", "extend": "words"}.get(func.attr, "")
                if kind:
                    self.grows(name, Addition(node.value.args[0], kind, path, bound))
                elif func.attr == "update":
                    self.dicts.pop(name, None)

    def assigned(self, name: str, value: ast.expr, path: Path, bound: tuple[dict[str, ast.expr], ...]) -> None:
        again = _again(name, value)
        if again is not None:
            node, in_front = again
            self.grows(name, Addition(node, "words", path, bound, in_front))
            return
        self.dicts.pop(name, None)
        if (pairs := as_pairs(value)) is not None:
            self.dicts[name] = pairs
        self.live[name] = [one for one in self.live.get(name, []) if one.path[: len(path)] != path]
        if isinstance(value, ast.List | ast.BinOp | ast.JoinedStr | ast.Constant | ast.Call | ast.Tuple):
            one = GrownCommand(name, value, path)
            self.found.append(one)
            self.live[name] = [*self.live[name], one][-MOST:]

    def grows(self, name: str, piece: Addition) -> None:
        for one in self.live.get(name, []):
            if _may_meet(one.path, piece.path):
                one.pieces.append(piece)


def _name(target: ast.expr | None) -> str:
    """``cmd`` or ``self.cmd``; "" for another."""
    if isinstance(target, ast.Name):
        return target.id
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
        return f"{target.value.id}.{target.attr}"
    return ""


def _again(name: str, value: ast.expr) -> tuple[ast.expr, bool] | None:
    """What ``cmd = cmd + [...]`` or ``cmd = f"{cmd} --x"`` adds, and whether in front."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        if isinstance(value.left, ast.Name) and value.left.id == name:
            return value.right, False
        if isinstance(value.right, ast.Name) and value.right.id == name:
            return value.left, True
    if isinstance(value, ast.JoinedStr) and len(value.values) > 1:
        first = value.values[0]
        if isinstance(first, ast.FormattedValue) and isinstance(first.value, ast.Name) and first.value.id == name:
            rest = ast.JoinedStr(values=value.values[1:])
            return ast.copy_location(rest, value), False
    return None


def pairs_of(node: ast.expr, dicts: dict[str, ast.Dict]) -> list[dict[str, ast.expr]]:
    """The turns of ``[... for key, value in flags.items()]``, where the text has the dictionary."""
    if not isinstance(node, ast.ListComp | ast.GeneratorExp) or node.generators[0].ifs:
        return []
    return list(_turns(node.generators[0].target, node.generators[0].iter, dicts))


def _turns(target: ast.expr, iterated: ast.expr, dicts: dict[str, ast.Dict]) -> tuple[dict[str, ast.expr], ...]:
    """Of ``key, value`` each its own; of one name for both a pair."""
    func = iterated.func if isinstance(iterated, ast.Call) else None
    if func is None and isinstance(iterated, ast.Name | ast.List | ast.Tuple):
        owner = dicts.get(iterated.id) if isinstance(iterated, ast.Name) else as_pairs(iterated)
        if isinstance(target, ast.Name):
            return ()
    elif isinstance(func, ast.Attribute) and func.attr == "items":
        owner = dicts.get(func.value.id) if isinstance(func.value, ast.Name) else as_pairs(func.value)
    else:
        return ()
    if not isinstance(owner, ast.Dict) or None in owner.keys:
        return ()
    pairs = [
        (key, value)
        for key, value in zip(owner.keys, owner.values, strict=True)
        if key is not None and not _is_switch(value)
    ]
    if isinstance(target, ast.Name):
        return tuple({target.id: ast.copy_location(ast.Tuple([*pair]), pair[0])} for pair in pairs)
    names = [one.id for one in target.elts if isinstance(one, ast.Name)] if isinstance(target, ast.Tuple) else []
    return tuple({names[0]: key, names[1]: value} for key, value in pairs) if len(names) == 2 else ()


def _is_switch(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and (value.value is None or isinstance(value.value, bool))


def _may_meet(one: Path, other: Path) -> bool:
    """False for two branches of the same statement: only one of them runs."""
    taken = dict(one)
    return all(taken.get(statement, branch) == branch for statement, branch in other)


def _blocks(part: object) -> Iterator[list[ast.stmt]]:
    """The statements of a branch; of handlers and cases each has its own."""
    if isinstance(part, list) and part:
        if isinstance(part[0], ast.stmt):
            yield part
        else:
            yield from (one.body for one in part if hasattr(one, "body"))
