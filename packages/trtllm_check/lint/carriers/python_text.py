"""Python code with its imports, as the rules on its use ask for it: dotted names, places, what a name is set to."""

import ast
import sys
from collections import defaultdict
from functools import cached_property

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.python_given import spread
from trtllm_check.lint.carriers.python_values import Values
from trtllm_check.lint.shell import Word

RULE = "python-use"
RANKED = ("tensor_parallel_size", "pipeline_parallel_size")


class PythonText:
    """The code with its imports: name in the code -> the dotted name that it stands for."""

    def __init__(self, tree: ast.Module, word: Word, starts: list[int], values: Values) -> None:
        self.tree, self.word, self.starts, self.values = tree, word, starts, values
        self.nodes = list(ast.walk(tree))
        self.names: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for one in node.names:
                    self.names[one.asname or one.name.partition(".")[0]] = (
                        one.name if one.asname else one.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                for one in node.names:
                    self.names[one.asname or one.name] = f"{node.module}.{one.name}"
        self.meant: dict[int, ast.Call] = {}  # id of a call -> the same with all that it is given
        self.written: dict[int, ast.Call] = {}  # and back
        for node in self.nodes:
            if isinstance(node, ast.Call):
                is_ours = self.dotted(node.func).partition(".")[0] not in ("", *sys.stdlib_module_names)
                self.meant[id(node)] = whole = spread(node, values, is_ours=is_ours)
                self.written[id(whole)] = node
        self.calls = list(self.meant.values())

    def as_written(self, call: ast.Call) -> ast.Call:
        """The node of the tree that a call of ``calls`` was made of."""
        return self.written[id(call)]

    def dotted(self, node: ast.AST) -> str:
        """``mtq.quantize`` as ``modelopt.torch.quantization.quantize``; "" for what is no imported name."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, "")
        if isinstance(node, ast.Attribute):
            owner = self.dotted(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        return ""

    def at(self, node: ast.expr | ast.stmt | ast.alias | ast.keyword) -> Word:
        """The place of ``node``, and its text."""
        index = self.starts[node.lineno - 1] + node.col_offset
        length = (node.end_col_offset or node.col_offset) - node.col_offset if node.end_lineno == node.lineno else 1
        return self.word.part(index, index + max(length, 1))

    def values_of(self, name: str) -> list[ast.expr]:
        """All that the code assigns to ``name``."""
        return self._assigned.get(name, [])

    @cached_property
    def _assigned(self) -> dict[str, list[ast.expr]]:
        found: dict[str, list[ast.expr]] = defaultdict(list)
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                for one in node.targets:
                    if isinstance(one, ast.Name):
                        found[one.id].append(self.meant.get(id(node.value), node.value))
        return dict(found)

    def made_by(self, *dotted: str) -> set[str]:
        """The names that are set once, to a call of one of ``dotted``."""
        made = (node for node in self.nodes if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call))
        found = set()
        for node in made:
            if isinstance(node.value, ast.Call) and self.dotted(node.value.func) in dotted:
                found |= {one.id for one in node.targets if isinstance(one, ast.Name)}
        return {name for name in found if len(self.values_of(name)) == 1}

    def attributes_made_by(self, *dotted: str) -> set[str]:
        """The attributes (``self.llm``) that are set once in the text, to a call of one of ``dotted``."""
        made: dict[str, list[bool]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                is_one = isinstance(node.value, ast.Call) and self.dotted(node.value.func) in dotted
                for one in node.targets:
                    if isinstance(one, ast.Attribute):
                        made.setdefault(ast.unparse(one), []).append(is_one)
        return {name for name, found in made.items() if found == [True]}

    def targets_of(self, call: ast.Call) -> set[str]:
        """The names that ``call`` is assigned to, with or without ``await``."""
        found = set()
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                value = node.value.value if isinstance(node.value, ast.Await) else node.value
                if value is self.as_written(call):
                    found |= {one.id for one in node.targets if isinstance(one, ast.Name)}
        return found

    def has_ranks(self, call: ast.Call) -> int:
        """The GPUs that an engine is told to take, where they are several; else 0."""
        for one in call.keywords:
            value = one.value.value if isinstance(one.value, ast.Constant) else None
            if one.arg in RANKED and isinstance(value, int) and not isinstance(value, bool) and value > 1:
                return value
        return 0


def fault(text: PythonText, node: ast.expr | ast.stmt, form: str, **known: str) -> FormFault:
    """One fault of the rule at ``node``."""
    return FormFault(RULE, text.at(node), form, tuple(known.items()))
