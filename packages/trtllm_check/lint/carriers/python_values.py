"""What a name, an attribute or an entry of Python stands for, where the code sets it once: an expression, or nothing.

A default of a function, of a dataclass or of argparse counts where no call of the text gives another value.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from trtllm_check.lint.carriers.python_pieces import (
    as_pairs,
    blocks,
    entries_of,
    entry_of,
    is_plain,
    of_click,
    parts_of,
    set_by,
)

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
GROWING = ("append", "extend", "insert", "update", "pop", "remove")
READS_ARGUMENTS = ("parse_args", "parse_known_args")
ARGUMENTS = frozenset({"args", "opt", "opts", "options", "arguments"})  # as people call what argparse read
DEEPEST = 8
MOST_VALUES = 8


class SetEntry(NamedTuple):
    """Key and value, each None where it is not told: ``value`` of one that a branch sets is not, ``perhaps`` is.

    ``branch``: which one sets it, the same for all that stand together; 0 for none.
    """

    key: ast.Constant | None
    value: ast.expr | None
    perhaps: ast.expr | None = None
    branch: int = 0


class Scope:
    """One function, or the module: what it assigns to each name; None among them for what is not told."""

    def __init__(self, parent: "Scope | None", owner: str = "") -> None:
        self.parent, self.owner = parent, owner
        self.assigned: dict[str, list[ast.expr | None]] = {}
        self.grown: set[str] = set()
        self.margins: dict[str, int] = {}  # where the statement begins that sets a name
        self.entries: dict[str, list[SetEntry]] = {}  # ``name["key"] = value``
        self.loose: set[str] = set()  # names that methods change, such as ``update``

    def add(self, name: str, value: ast.expr | None) -> None:
        self.assigned.setdefault(name, []).append(value)

    def of(self, name: str) -> "Scope | None":
        """The nearest scope that sets ``name``."""
        scope: Scope | None = self
        while scope is not None and name not in scope.assigned:
            scope = scope.parent
        return scope


class _Passed(NamedTuple):
    """What the calls of one function give: how many by place, which by name."""

    places: int
    names: frozenset[str | None]
    is_open: bool
    calls: tuple[ast.Call, ...] = ()  # by the plain name

    def only(self, name: str, place: int) -> ast.expr | None:
        """What the one call that there is gives to a parameter."""
        if len(self.calls) != 1 or self.is_open:
            return None
        (call,) = self.calls
        named = [one.value for one in call.keywords if one.arg == name]
        return named[0] if named else call.args[place] if 0 <= place < len(call.args) else None


class Values:
    """The names of one text."""

    def __init__(self, tree: ast.Module) -> None:
        self.module = Scope(None)
        self.every = [self.module]
        self.scopes: dict[int, Scope] = {}
        self.attributes: dict[tuple[str, str], list[ast.expr | None]] = {}  # (class, name)
        self.options: dict[str, list[ast.expr | None]] = {}  # of argparse
        self.parsed: set[str] = set()
        self.classes: set[str] = set()
        self.annotated: dict[tuple[int, str], str] = {}  # (scope, parameter) -> what its annotation names
        self.passed = dict(_passed(tree))
        defined = (one.name for one in ast.walk(tree) if isinstance(one, (*FUNCTIONS, ast.ClassDef)))
        self.defined = Counter(defined)
        self.functions = {one.name: one for one in ast.walk(tree) if isinstance(one, FUNCTIONS)}
        self.bodies = {one.name: one for one in ast.walk(tree) if isinstance(one, ast.ClassDef)}
        self.straight = _straight(tree)
        self.blocks = blocks(tree)
        self._walk(tree, self.module, "")

    def scope_of(self, node: ast.AST) -> Scope:
        return self.scopes.get(id(node), self.module)

    def dicts(self) -> dict[str, ast.Dict]:
        """The names that one scope alone sets, to a dictionary or to a list of pairs."""
        scopes: dict[str, list[Scope]] = {}
        for scope in self.every:
            for name in scope.assigned:
                scopes.setdefault(name, []).append(scope)
        found: dict[str, ast.Dict] = {}
        for name, owners in scopes.items():
            values = owners[0].assigned[name] if len(owners) == 1 and name not in owners[0].grown else []
            if len(values) == 1 and (pairs := as_pairs(values[0])) is not None:
                found[name] = pairs
        return found

    def known(self, node: ast.AST, depth: int = 0) -> ast.expr | None:
        """What a name, ``self.x``, ``args.x`` or ``config["x"]`` is set to; None for what is not told."""
        if depth > DEEPEST:
            return None
        found: ast.expr | None = None
        if isinstance(node, ast.Name):
            scope = self.scope_of(node).of(node.id)
            values = scope.assigned[node.id] if scope is not None and node.id not in scope.grown else []
            found = values[0] if len(values) == 1 else self._before(node, values)
        elif isinstance(node, ast.Attribute):
            found = self._attribute(node, depth)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            owner = self.known(node.value, depth + 1)
            if isinstance(owner, ast.Dict):
                found = entry_of(owner, node.slice.value)
        return found

    def _before(self, node: ast.Name, values: "list[ast.expr | None]") -> ast.expr | None:
        """The last value before a use, of a name that statements of the program's own level alone set."""
        places = self.straight.get(node.id, [])
        if len(places) != len(values) or self.scope_of(node) is not self.module:
            return None
        return next((value for end, value in reversed(places) if end < node.lineno), None)

    def grown(self, node: ast.expr) -> tuple[ast.expr, list[SetEntry]] | None:
        """What a name is set to once, and the entries that the same function adds to it; None for what is not told."""
        if not isinstance(node, ast.Name):
            return None
        here = self.scope_of(node)
        scope = here.of(node.id)
        values = scope.assigned[node.id] if scope is not None else []
        added = here.entries.get(node.id, [])
        is_told = scope is here and node.id not in here.loose and all(one.key is not None for one in added)
        return (values[0], added) if is_told and len(values) == 1 and values[0] is not None else None

    def several(self, node: ast.Name) -> list[ast.expr]:
        """All values of a name that has more than one, where each of them stands in the text."""
        scope = self.scope_of(node).of(node.id)
        values = scope.assigned[node.id] if scope is not None and node.id not in scope.grown else []
        told = [one for one in values if one is not None]
        return told if 1 < len(told) == len(values) <= MOST_VALUES else []

    def _attribute(self, node: ast.Attribute, depth: int) -> ast.expr | None:
        if not isinstance(node.value, ast.Name):
            return None
        name = node.value.id
        owner = self.known(node.value, depth + 1)
        if name in self.parsed or (name in ARGUMENTS and owner is None):
            values = self.options.get(node.attr, [])
            return values[0] if len(values) == 1 else None
        cls = self.scope_of(node).owner if name in ("self", "cls") else name if name in self.classes else ""
        if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id in self.classes:
            given = [one.value for one in owner.keywords if one.arg == node.attr]
            if given or owner.args or any(one.arg is None for one in owner.keywords):
                return given[0] if len(given) == 1 else None
            cls = owner.func.id
        cls = cls or self.annotated.get((id(self.scope_of(node).of(name)), name), "")
        values = self.attributes.get((cls, node.attr), [])
        return values[0] if len(values) == 1 else None

    def _walk(self, node: ast.AST, scope: Scope, owner: str) -> None:
        pending: list[tuple[ast.AST, Scope, str]] = [(node, scope, owner)]
        while pending:
            node, scope, owner = pending.pop()
            inner, cls = scope, owner
            if isinstance(node, FUNCTIONS):
                scope.add(node.name, None)
                inner = Scope(scope, owner)
                self.every.append(inner)
                self._parameters(node, inner, owner)
            elif isinstance(node, ast.ClassDef):
                scope.add(node.name, None)
                self.classes.add(node.name)
                inner, cls = Scope(scope, node.name), node.name
                self._fields(node)
            elif isinstance(node, ast.Name):
                self.scopes[id(node)] = scope
                if isinstance(node.ctx, ast.Store | ast.Del):
                    scope.assigned.setdefault(node.id, [])
            elif isinstance(node, ast.Attribute):
                self.scopes[id(node)] = scope
            self._statement(node, scope)
            pending += [(one, inner, cls) for one in reversed(list(ast.iter_child_nodes(node)))]

    def _statement(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._target(target, node.value, scope, self.blocks.get(id(node), 0))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            more = entries_of(node.value) if isinstance(node.op, ast.BitOr) else None
            if more is None:
                scope.add(node.target.id, None)
            for key, value in more or ():
                self._set_entry(scope, node.target.id, key, value, node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._updated(node, node.value, scope)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            for one in ast.walk(node.target):
                if isinstance(one, ast.Name):
                    scope.add(one.id, None)
        elif isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            scope.add(node.optional_vars.id, None)
        elif isinstance(node, ast.NamedExpr):
            scope.add(node.target.id, None)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            for name in node.names:
                self.module.add(name, None)
                scope.add(name, None)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                scope.add((alias.asname or alias.name).partition(".")[0], None)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in GROWING and isinstance(node.func.value, ast.Name):
                scope.grown.add(node.func.value.id)
                if set_by(node) is None:
                    scope.loose.add(node.func.value.id)
            elif node.func.attr == "add_argument":
                self._option(node)

    def _updated(self, node: ast.Expr, call: ast.Call, scope: Scope) -> None:
        """``options.update(seed=1)`` and ``options.setdefault("seed", 1)``, as entries that are set."""
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        for key, value in set_by(call) or ():
            if isinstance(owner, ast.Name):
                self._set_entry(scope, owner.id, key, value, node)

    def _set_entry(self, scope: Scope, name: str, key: ast.Constant | None, value: ast.expr, at: ast.stmt) -> None:
        """``name["key"] = value``; in a branch of its own nobody knows whether it comes to that."""
        scope.grown.add(name)
        is_straight = scope.margins.get(name) == at.col_offset
        branch = 0 if is_straight else self.blocks.get(id(at), 0)
        scope.entries.setdefault(name, []).append(SetEntry(key, value if is_straight else None, value, branch))

    def _target(self, target: ast.expr, value: ast.expr, scope: Scope, block: int = 0) -> None:
        if isinstance(target, ast.Name):
            scope.add(target.id, value)
            scope.margins.setdefault(target.id, target.col_offset)
            if isinstance(value, ast.Call) and ast.unparse(value.func).endswith(READS_ARGUMENTS):
                self.parsed.add(target.id)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            name = target.value.id
            if name == "self":
                self.attributes.setdefault((scope.owner, target.attr), []).append(value)
            elif name in self.parsed:
                self.options.setdefault(target.attr, []).append(None)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            scope.grown.add(target.value.id)
            is_straight = scope.margins.get(target.value.id) == target.col_offset  # in no branch of its own
            key = target.slice if isinstance(target.slice, ast.Constant) else None
            one = SetEntry(key, value if is_straight else None, value, 0 if is_straight else block)
            scope.entries.setdefault(target.value.id, []).append(one)
        elif isinstance(target, ast.Tuple | ast.List):
            parts = parts_of(target, value)
            for number, inner in enumerate(target.elts):
                if parts and not isinstance(inner, ast.Starred):
                    self._target(inner, parts[number], scope, block)
                else:
                    for name in (one.id for one in ast.walk(inner) if isinstance(one, ast.Name)):
                        scope.add(name, None)

    def _parameters(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope, owner: str) -> None:
        every = [*node.args.posonlyargs, *node.args.args]
        defaults: list[ast.expr | None] = [None] * (len(every) - len(node.args.defaults))
        defaults += node.args.defaults
        is_method = bool(owner) and bool(every) and every[0].arg in ("self", "cls")
        passed = self.passed.get(owner if node.name == "__init__" else node.name, _Passed(0, frozenset(), False))
        pairs = [*enumerate(zip(every, defaults, strict=True))]
        pairs += [(-1, pair) for pair in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]
        for place, (one, default) in pairs:
            is_given = passed.is_open or one.arg in passed.names or 0 <= place - is_method < passed.places
            if isinstance(one.annotation, ast.Name):
                self.annotated[(id(scope), one.arg)] = one.annotation.id
            elif isinstance(default, ast.Name) and not is_given:  # config=Config
                self.annotated[(id(scope), one.arg)] = default.id
            only = passed.only(one.arg, place - is_method if place >= 0 else -1) if is_given else None
            told = only if only is not None and self._is_called(node, owner) else None
            if (clicked := of_click(node, one.arg)) is not None and not is_given:
                default = clicked
            scope.add(one.arg, default if is_plain(default) and not is_given else told)
        for star in (node.args.vararg, node.args.kwarg):
            if star is not None:
                scope.add(star.arg, None)

    def _is_called(self, node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str) -> bool:
        """True for a function, and what makes a class, that one place alone defines: not for other methods."""
        name = owner if node.name == "__init__" else node.name
        return (not owner or node.name == "__init__") and self.defined.get(name) == 1

    def _fields(self, node: ast.ClassDef) -> None:
        passed = self.passed.get(node.name, _Passed(0, frozenset(), False))
        for one in node.body:
            target = one.targets[0] if isinstance(one, ast.Assign) else getattr(one, "target", None)
            value = one.value if isinstance(one, ast.Assign | ast.AnnAssign) else None
            if isinstance(target, ast.Name) and value is not None:
                is_given = passed.is_open or passed.places > 0 or target.id in passed.names
                is_field = isinstance(one, ast.AnnAssign)
                self.attributes.setdefault((node.name, target.id), []).append(None if is_given and is_field else value)

    def _option(self, node: ast.Call) -> None:
        names = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        given = {one.arg: one.value for one in node.keywords}
        long = next((name for name in names if name.startswith("--")), names[0] if names else "")
        dest = given.get("dest")
        name = str(dest.value) if isinstance(dest, ast.Constant) else long.lstrip("-").replace("-", "_")
        default = given.get("default")
        self.options.setdefault(name, []).append(default if is_plain(default) else None)


def _straight(tree: ast.Module) -> dict[str, list[tuple[int, ast.expr]]]:
    """The names that statements outside of branches and functions set: the last line of each, and the value."""
    found: dict[str, list[tuple[int, ast.expr]]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append((node.end_lineno or node.lineno, node.value))
    return found


def _passed(tree: ast.Module) -> Iterator[tuple[str, _Passed]]:
    """Function or class -> what all its calls give together."""
    found: dict[str, _Passed] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            before = found.get(name, _Passed(0, frozenset(), False))
            plain = (node,) if isinstance(node.func, ast.Name) else ()
            is_open = any(isinstance(one, ast.Starred) for one in node.args) or any(
                k.arg is None for k in node.keywords
            )
            found[name] = _Passed(
                max(before.places, len(node.args)),
                before.names | {one.arg for one in node.keywords},
                before.is_open or is_open,
                (*before.calls, *plain)[:2],
            )
    yield from found.items()
